// SPDX-License-Identifier: MIT
//
// Memory of the device for tests, which run the same in the emulator and, compiled by nvcc, on a GPU.
//
//   device_array<float> logits{host_vector};            // allocates, uploads
//   device_array<int> tokens(n);                        // allocates, fills with a pattern that is no sensible value
//   require_cuda(some_function(logits.data(), tokens.data(), nullptr));
//   std::vector<int> const out = tokens.download();     // waits for the device; throws if a kernel failed
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Throws with CUDA's own words; in the emulator these tell which thread did what.
inline void require_cuda(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error{std::string{"CUDA: "} + cudaGetErrorString(error)};
}

template <class T>
class device_array {
    static_assert(std::is_trivially_copyable_v<T>, "what lives on the device is copied as bytes");

public:
    device_array() = default;

    /// As many as told, all bytes 0xd5: neither zero nor anything that a kernel would write.
    explicit device_array(std::size_t size) : size_{size} {
        if (size == 0) return;
        require_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)));
        require_cuda(cudaMemset(data_, 0xd5, size * sizeof(T)));
    }
    explicit device_array(std::vector<T> const& values) : device_array(values.size()) { upload(values); }
    device_array(std::initializer_list<T> values) : device_array(std::vector<T>(values)) {}

    device_array(device_array&& other) noexcept
        : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)} {}
    device_array& operator=(device_array&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~device_array() { static_cast<void>(cudaFree(data_)); }

    [[nodiscard]] T* data() { return data_; }
    [[nodiscard]] T const* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }

    void upload(std::vector<T> const& values) {
        if (values.size() != size_) throw std::runtime_error{"device_array: upload of another size"};
        if (size_ != 0) require_cuda(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    [[nodiscard]] std::vector<T> download() const {
        require_cuda(cudaDeviceSynchronize());
        std::vector<T> values(size_);
        if (size_ != 0) require_cuda(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};
