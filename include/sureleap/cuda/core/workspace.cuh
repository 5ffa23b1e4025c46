// SPDX-License-Identifier: MIT
//
// Device memory of a round, handed out of one buffer that the engine owns. As on the host (sureleap::workspace), built
// without a buffer it only counts, so the code that carves is the code that computes the size:
//
//     cuda::workspace sizer;                      // count only
//     carve(sizer, limits);
//     cudaMalloc(&memory, sizer.used());
//     cuda::workspace ws{memory, sizer.used()};
//     auto round = carve(ws, limits);             // ws.fits() says whether it did
#pragma once

#include <cstddef>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Never touches the memory: what is in it at first is whatever the engine left there.
class workspace {
public:
    static constexpr std::size_t alignment = 256;  ///< of every array: what cudaMalloc gives

    workspace() = default;
    /// `memory` is aligned to `alignment`, as cudaMalloc's is.
    workspace(void* memory, std::size_t bytes) noexcept : memory_(static_cast<unsigned char*>(memory)), bytes_(bytes) {}

    /// The next `count` objects, or null if they are only counted or do not fit any more.
    template <class T>
    [[nodiscard]] T* take(std::size_t count) noexcept {
        static_assert(std::is_trivially_copyable_v<T>, "workspace: device memory holds trivially copyable types alone");
        std::size_t const offset = used_;
        used_ += (count * sizeof(T) + alignment - 1) / alignment * alignment;
        return memory_ != nullptr && used_ <= bytes_ ? reinterpret_cast<T*>(memory_ + offset) : nullptr;
    }

    /// Bytes taken so far.
    [[nodiscard]] std::size_t used() const noexcept { return used_; }
    /// Everything taken so far lies in the buffer.
    [[nodiscard]] bool fits() const noexcept { return memory_ != nullptr && used_ <= bytes_; }

private:
    unsigned char* memory_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t used_ = 0;
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
