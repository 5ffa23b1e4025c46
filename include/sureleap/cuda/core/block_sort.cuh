// SPDX-License-Identifier: MIT
//
// Sorts up to 8 keys a thread within a block: bitonic, the keys in registers.
//
// A merge of a bitonic sort compares keys at distances that halve. With 8 keys in a thread the distances 4, 2 and 1
// stay in its registers, and 8 .. 128 within its warp. So of the 66 steps for 2,048 keys only 6 need a barrier.
// Rejected: a radix sort, which reads the keys fewer times but waits at more barriers, three or more for each of five
// digits.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

inline constexpr unsigned keys_each = 8;                         ///< keys of a thread: 8 t .. 8 t + 7 of the order
inline constexpr unsigned most_sorters = 1024;                   ///< threads
inline constexpr unsigned most_keys = keys_each * most_sorters;  ///< of a block
inline constexpr std::uint32_t no_key = 0xffffffffu;             ///< sorts behind all others

/// Keys on their way to another warp: two buffers, so that a step needs one barrier.
struct sort_shared {
    uint4 halves[2][2][most_sorters];
};

namespace detail {

__device__ __forceinline__ void order_two(std::uint32_t& a, std::uint32_t& b, bool ascending) {
    std::uint32_t const less = a < b ? a : b;
    std::uint32_t const more = a < b ? b : a;
    a = ascending ? less : more;
    b = ascending ? more : less;
}

/// The last three steps of a merge.
__device__ __forceinline__ void merge_registers(std::uint32_t (&key)[keys_each], bool ascending) {
#pragma unroll
    for (unsigned distance = keys_each / 2; distance > 0; distance /= 2) {
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) {
            if ((e & distance) == 0) order_two(key[e], key[e + distance], ascending);
        }
    }
}

__device__ __forceinline__ void sort_registers(std::uint32_t (&key)[keys_each], bool ascending) {
#pragma unroll
    for (unsigned run = 2; run < keys_each; run *= 2) {
#pragma unroll
        for (unsigned distance = run / 2; distance > 0; distance /= 2) {
#pragma unroll
            for (unsigned e = 0; e < keys_each; ++e) {
                if ((e & distance) == 0) order_two(key[e], key[e + distance], (e & run) == 0);
            }
        }
    }
    merge_registers(key, ascending);
}

__device__ __forceinline__ std::uint32_t keep_one(std::uint32_t mine, std::uint32_t other, bool lesser) {
    return (other < mine) == lesser ? other : mine;
}

}  // namespace detail

/// BLOCK collective: the keys of all threads in ascending order. Only the first `size` places hold keys, the others
/// no_key; warps without keys wait at the barriers. Afterwards `shared` must not be written before the next barrier.
__device__ inline void sort_over_block(std::uint32_t (&key)[keys_each], unsigned size, sort_shared& shared) {
    unsigned sorters = warp_size;  // a power of two
    while (sorters * keys_each < size) sorters *= 2;
    unsigned const thread = threadIdx.x;
    bool const sorts = thread < sorters;
    unsigned buffer = 0;
    if (sorts) detail::sort_registers(key, thread % 2 == 0);
    for (unsigned run = 2; run <= sorters; run *= 2) {  // in threads
        bool const ascending = (thread & run) == 0;
        unsigned distance = run / 2;
        for (; distance >= warp_size; distance /= 2) {
            if (sorts) {
                shared.halves[buffer][0][thread] = {key[0], key[1], key[2], key[3]};
                shared.halves[buffer][1][thread] = {key[4], key[5], key[6], key[7]};
            }
            __syncthreads();
            if (sorts) {
                uint4 const low = shared.halves[buffer][0][thread ^ distance];
                uint4 const high = shared.halves[buffer][1][thread ^ distance];
                std::uint32_t const other[keys_each] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
                bool const lesser = ((thread & distance) == 0) == ascending;
#pragma unroll
                for (unsigned e = 0; e < keys_each; ++e) key[e] = detail::keep_one(key[e], other[e], lesser);
            }
            buffer ^= 1;
        }
        if (!sorts) continue;
        for (; distance > 0; distance /= 2) {
            bool const lesser = ((thread & distance) == 0) == ascending;
#pragma unroll
            for (unsigned e = 0; e < keys_each; ++e) {
                key[e] =
                    detail::keep_one(key[e], __shfl_xor_sync(all_lanes, key[e], static_cast<int>(distance)), lesser);
            }
        }
        detail::merge_registers(key, ascending);
    }
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
