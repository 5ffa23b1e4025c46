// SPDX-License-Identifier: MIT
//
// The lengths of the first candidates in the order of admission, from where a schedule ended (detail::admit_until of
// the host).
//
// Survivals fall along a request. So what is admitted of it is a prefix, and a count tells its length. If not all that
// tie with the last candidate are admitted, the earlier positions are, and at the last position the earlier requests.
// The order says so, because a later position must not decide about an earlier one.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/block_sort.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/schedule/admission.cuh>
#include <sureleap/cuda/schedule/candidates.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// BLOCK collective. [R] lengths, then zeros up to `most_requests`.
__device__ inline void write_lengths(candidate_table const& table, admission_end const& end,
                                     std::uint32_t most_requests, std::uint32_t* lengths, admission_shared& s) {
    std::uint32_t key[keys_each];
    table.load_keys(key);
    std::uint32_t above = 0;
    std::uint32_t ties = 0;
#pragma unroll
    for (unsigned e = 0; e < keys_each; ++e) {
        above += key[e] < end.last_key ? 1 : 0;
        ties += key[e] == end.last_key ? 1 : 0;
    }
    tally const all{sum_over_block(tally::of(above, ties).word, s.block).total};
    auto& admitted = s.admitted;
    for (std::uint32_t r = threadIdx.x; r < table.requests(); r += blockDim.x) admitted.of_request[r] = 0;

    std::uint32_t last = device_limits::longest_block;  // the position of which only some ties are admitted
    std::uint32_t left = end.count - all.count();       // of the ties there
    std::uint32_t rank = 0;                             // of this thread's first one among them
    if (left != all.sum()) {
        for (std::uint32_t k = threadIdx.x; k < device_limits::longest_block; k += blockDim.x) admitted.ties_at[k] = 0;
        __syncthreads();
        table.for_own_places([&](unsigned e, std::uint32_t, std::uint32_t k) {
            if (key[e] == end.last_key) atomicAdd(&admitted.ties_at[k], 1u);
        });
        __syncthreads();
        last = 0;
        while (last < device_limits::longest_block && admitted.ties_at[last] <= left) left -= admitted.ties_at[last++];
        table.for_own_places([&](unsigned e, std::uint32_t, std::uint32_t k) {
            if (key[e] == end.last_key && k == last) ++rank;
        });
        rank = static_cast<std::uint32_t>(sum_over_block(rank, s.block).before);
    }
    __syncthreads();
    table.for_own_places([&](unsigned e, std::uint32_t r, std::uint32_t k) {
        bool const ties_there = key[e] == end.last_key && k == last;
        if (key[e] < end.last_key || (key[e] == end.last_key && k < last) || (ties_there && rank++ < left)) {
            atomicAdd(&admitted.of_request[r], 1u);
        }
    });
    __syncthreads();
    for (std::uint32_t r = threadIdx.x; r < most_requests; r += blockDim.x) {
        lengths[r] = r < table.requests() ? admitted.of_request[r] : 0;
    }
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
