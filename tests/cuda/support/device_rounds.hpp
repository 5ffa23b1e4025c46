// SPDX-License-Identifier: MIT
//
// Rounds in device memory for tests: columns carved from memory that holds rubbish, and copies to and from them.
#pragma once

#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/workspace.cuh>

#include <cstddef>
#include <span>
#include <vector>

#include "cuda/support/device_array.hpp"

namespace support {

/// Memory for whatever `carve(workspace&)` takes, and what it returned.
template <class Columns>
class carved {
public:
    template <class Carve>
    explicit carved(Carve const& carve) {
        sureleap::cuda::workspace sizer;
        static_cast<void>(carve(sizer));
        memory_ = device_array<unsigned char>(sizer.used());
        sureleap::cuda::workspace ws{memory_.data(), sizer.used()};
        columns = carve(ws);
    }
    Columns columns{};

private:
    device_array<unsigned char> memory_;
};

using device_rounds = carved<sureleap::cuda::device_round>;

[[nodiscard]] inline device_rounds round_of(sureleap::cuda::device_limits const& limits) {
    return device_rounds([&](sureleap::cuda::workspace& ws) { return sureleap::cuda::carve(ws, limits); });
}

template <class T>
void upload(T* to, std::span<T const> values) {
    if (values.empty()) return;
    require_cuda(cudaMemcpy(to, values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
}
template <class T>
void upload(T* to, std::vector<T> const& values) {
    upload(to, std::span<T const>(values));
}
template <class T>
void upload(T* to, T const& value) {
    upload(to, std::span<T const>(&value, 1));
}

template <class T>
[[nodiscard]] std::vector<T> download(T const* from, std::size_t count) {
    require_cuda(cudaDeviceSynchronize());
    std::vector<T> values(count);
    if (count > 0) require_cuda(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

}  // namespace support
