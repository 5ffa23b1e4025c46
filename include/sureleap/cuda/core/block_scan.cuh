// SPDX-License-Identifier: MIT
//
// Sums and extremes over the threads of a block. By shuffles within a warp and one number a warp in shared memory: two
// barriers each, whatever the size of the block. CUB's would do as well, but the emulator of the tests cannot run its
// inline assembly. Then schedules could not be compared with the host's.
//
// BLOCK collectives: every thread of a block of one dimension and full warps calls them; `shared` may be used again at
// once.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// A number of each warp.
struct block_shared {
    union {
        std::uint64_t integers[warp_size];
        double reals[warp_size];
    };
};

/// Sum of the threads before, and of all.
struct block_sum {
    std::uint64_t before;
    std::uint64_t total;
};

/// Sum over the lanes up to this one.
template <class T>
[[nodiscard]] __device__ T sum_up_to_lane(T value) {
    for (unsigned distance = 1; distance < warp_size; distance *= 2) {
        T const before = __shfl_up_sync(all_lanes, value, distance);
        if (lane_index() >= distance) value += before;
    }
    return value;
}

[[nodiscard]] __device__ inline block_sum sum_over_block(std::uint64_t value, block_shared& shared) {
    unsigned const warps = blockDim.x / warp_size;
    std::uint64_t const in_warp = sum_up_to_lane(value);
    if (lane_index() == warp_size - 1) shared.integers[warp_index()] = in_warp;
    __syncthreads();
    std::uint64_t const of_warps = sum_up_to_lane(lane_index() < warps ? shared.integers[lane_index()] : 0);
    std::uint64_t const before = __shfl_sync(all_lanes, of_warps, (warp_index() + warp_size - 1) % warp_size);
    std::uint64_t const total = __shfl_sync(all_lanes, of_warps, warp_size - 1);
    __syncthreads();
    return {(warp_index() == 0 ? 0 : before) + in_warp - value, total};
}

/// The least of the threads' numbers.
[[nodiscard]] __device__ inline std::uint32_t least_of_block(std::uint32_t value, block_shared& shared) {
    auto const least_of_warp = [](std::uint64_t x) {
        for (int distance = warp_size / 2; distance > 0; distance /= 2) {
            std::uint64_t const other = __shfl_xor_sync(all_lanes, x, distance);
            x = other < x ? other : x;
        }
        return x;
    };
    std::uint64_t const in_warp = least_of_warp(value);
    if (lane_index() == 0) shared.integers[warp_index()] = in_warp;
    __syncthreads();
    unsigned const warps = blockDim.x / warp_size;
    std::uint64_t const least = least_of_warp(shared.integers[lane_index() < warps ? lane_index() : 0]);
    __syncthreads();  // no mutant: today a barrier follows before `shared` is used again
    return static_cast<std::uint32_t>(least);
}

/// The largest of the threads' numbers.
[[nodiscard]] __device__ inline double largest_of_block(double value, block_shared& shared) {
    auto const largest_of_warp = [](double x) {
        for (int distance = warp_size / 2; distance > 0; distance /= 2) {
            double const other = __shfl_xor_sync(all_lanes, x, distance);
            x = other > x ? other : x;
        }
        return x;
    };
    double const in_warp = largest_of_warp(value);
    if (lane_index() == 0) shared.reals[warp_index()] = in_warp;
    __syncthreads();
    unsigned const warps = blockDim.x / warp_size;
    double const largest = largest_of_warp(shared.reals[lane_index() < warps ? lane_index() : 0]);
    __syncthreads();
    return largest;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
