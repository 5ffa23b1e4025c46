// SPDX-License-Identifier: MIT
//
// Reductions and scans over the lanes of a warp. WARP collectives: all lanes call them, and each gets its result.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// `join` of the values of `lanes` neighbours, a power of two of them.
template <unsigned lanes = warp_size, class T, class Join>
[[nodiscard]] __device__ __forceinline__ T reduce_over_lanes(T value, Join const& join) {
#pragma unroll
    for (unsigned apart = lanes / 2; apart > 0; apart /= 2) {
        value = join(value, __shfl_xor_sync(all_lanes, value, static_cast<int>(apart)));
    }
    return value;
}
template <unsigned lanes = warp_size, class T>
[[nodiscard]] __device__ __forceinline__ T sum_over_lanes(T value) {
    return reduce_over_lanes<lanes>(value, [](T a, T b) { return a + b; });
}
template <unsigned lanes = warp_size>
[[nodiscard]] __device__ __forceinline__ float largest_of_lanes(float value) {
    return reduce_over_lanes<lanes>(value, [](float a, float b) { return fmaxf(a, b); });
}

/// The largest value with its place, in place of those of each lane; the first place among equals.
template <class T>
__device__ __forceinline__ void first_largest_of_lanes(T& value, std::uint32_t& place) {
#pragma unroll
    for (int apart = warp_size / 2; apart > 0; apart /= 2) {
        T const other = __shfl_xor_sync(all_lanes, value, apart);
        std::uint32_t const there = __shfl_xor_sync(all_lanes, place, apart);
        bool const before = other > value || (other == value && there < place);
        value = before ? other : value;
        place = before ? there : place;
    }
}

/// Sum over the lanes up to this one.
template <class T>
[[nodiscard]] __device__ T sum_up_to_lane(T value) {
    for (unsigned distance = 1; distance < warp_size; distance *= 2) {
        T const before = __shfl_up_sync(all_lanes, value, distance);
        if (lane_index() >= distance) value += before;
    }
    return value;
}

/// The first lane that says yes; -1 if none does.
[[nodiscard]] __device__ __forceinline__ int first_lane(bool yes) {
    return __ffs(static_cast<int>(__ballot_sync(all_lanes, yes))) - 1;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
