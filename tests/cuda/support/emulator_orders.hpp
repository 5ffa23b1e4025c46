// SPDX-License-Identifier: MIT
//
// For the emulator's own tests: kernels that are written as usual or with one thing left out, under many orders of
// their threads.
#pragma once

#include <sureleap/cuda/core/runtime.cuh>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/seeds.hpp"
#include "support/catch.hpp"

namespace support {

using sureleap::cuda::launch;
using sureleap::cuda::shared_memory;

inline constexpr unsigned full = 0xffffffffu;
inline constexpr std::uint64_t orders = 40;

/// What a kernel leaves out.
enum class flaw { none, first, second, third };

/// What went wrong in f's kernel, or nothing.
template <class F>
std::string report_of(F f) {
    cudaError_t const error = f();
    std::string const report = emulator::caught();
    CHECK((error == cudaErrorLaunchFailure) == !report.empty());
    return report;
}

/// Under how many of the orders f() is false. A kernel that lacks a barrier must not always come out right.
template <class F>
std::uint64_t wrong_orders(F f) {
    std::uint64_t wrong = 0;
    for_each_order(orders, [&] { wrong += f() ? 0u : 1u; });
    return wrong;
}

inline std::vector<unsigned> numbers(std::size_t n) {
    std::vector<unsigned> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<unsigned>((i * 2654435761u) % 1999u);
    return out;
}

inline bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

/// A kernel that nothing is wrong with.
__global__ inline void quiet(int) noexcept {
    __syncthreads();
}

}  // namespace support
