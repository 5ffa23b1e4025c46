// SPDX-License-Identifier: MIT
//
// Computations of code that runs once: each is long where it is inlined, so one copy stands out of line. A pass through
// code that is not in the instruction cache takes longer than the arithmetic.
#pragma once

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// WARP collective: the sum of the numbers of this lane and of those before it.
template <class = void>
[[nodiscard]] __device__ __noinline__ double sum_out_of_line(double own) {
#pragma unroll 1
    for (unsigned distance = 1; distance < warp_size; distance *= 2) {
        double const before = __shfl_up_sync(all_lanes, own, distance);
        if (lane_index() >= distance) own += before;
    }
    return own;
}
/// WARP collective: the sum of the numbers of all lanes, the same in all.
template <class = void>
[[nodiscard]] __device__ __noinline__ double total_of_lanes(double own) {
#pragma unroll 1
    for (int mask = warp_size / 2; mask > 0; mask /= 2) own += __shfl_xor_sync(all_lanes, own, mask);
    return own;
}
/// a / b.
template <class = void>
[[nodiscard]] __device__ __noinline__ double quotient(double a, double b) {
    return a / b;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
