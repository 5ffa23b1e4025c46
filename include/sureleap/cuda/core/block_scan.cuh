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
#include <sureleap/cuda/core/warp.cuh>

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
    std::uint32_t const in_warp = __reduce_min_sync(all_lanes, value);
    if (lane_index() == 0) shared.integers[warp_index()] = in_warp;
    __syncthreads();
    unsigned const warps = blockDim.x / warp_size;
    auto const of_warp = static_cast<std::uint32_t>(shared.integers[lane_index() < warps ? lane_index() : 0]);
    std::uint32_t const least = __reduce_min_sync(all_lanes, of_warp);
    __syncthreads();  // no mutant: today a barrier follows before `shared` is used again
    return least;
}

/// The largest of the threads' numbers.
[[nodiscard]] __device__ inline double largest_of_block(double value, block_shared& shared) {
    auto const larger = [](double a, double b) { return b > a ? b : a; };
    double const in_warp = reduce_over_lanes(value, larger);
    if (lane_index() == 0) shared.reals[warp_index()] = in_warp;
    __syncthreads();
    unsigned const warps = blockDim.x / warp_size;
    double const largest = reduce_over_lanes(shared.reals[lane_index() < warps ? lane_index() : 0], larger);
    __syncthreads();
    return largest;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
