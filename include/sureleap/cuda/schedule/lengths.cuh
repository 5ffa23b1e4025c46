// SPDX-License-Identifier: MIT
//
// The lengths of the first candidates in the order of admission, from where a walk ended (detail::admit_until of the
// host).
//
// Survivals fall along a request. So the positions above the last candidate's survival are a prefix, and a count tells
// them. The positions that tie with it are a run behind that prefix. If not all that tie are admitted, the earlier
// positions are, and at the last position the earlier requests. The order says so, because a later position must not
// decide about an earlier one.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/schedule/admission.cuh>
#include <sureleap/cuda/schedule/candidates.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Positions of a request above the last candidate, and those that tie with it or are above.
struct admitted_run {
    std::uint32_t above;
    std::uint32_t level;

    [[nodiscard]] __device__ bool ties_at(std::uint32_t k) const { return above <= k && k < level; }
};

[[nodiscard]] __device__ __forceinline__ admitted_run run_of(admission_shared const& s, std::uint32_t r) {
    return {s.admitted[r] & 0xffffu, s.admitted[r] >> 16};
}

/// BLOCK collective: writes lengths when only `left` of those that tie are admitted. Shared memory of the walk's
/// classes is free again: words for the ties of every 32 requests, and for those of each position.
__device__ inline void admit_some_ties(std::uint32_t requests, std::uint32_t left, std::uint32_t* lengths,
                                       admission_shared& s) {
    auto* const at_position = reinterpret_cast<std::uint32_t*>(s.prefixes);
    std::uint32_t* const at_request = at_position + warp_size;
    constexpr std::uint32_t positions = device_limits::longest_block;
    for (std::uint32_t i = threadIdx.x; i < warp_size; i += blockDim.x) at_position[i] = 0;
    __syncthreads();
    for (std::uint32_t first = 0; first < requests; first += blockDim.x) {
        std::uint32_t const r = first + threadIdx.x;
        admitted_run const run = r < requests ? run_of(s, r) : admitted_run{};
        for (std::uint32_t k = 0; k < positions; ++k) {
            unsigned const ties = __ballot_sync(all_lanes, run.ties_at(k));
            if (lane_index() == 0 && ties != 0) atomicAdd(&at_position[k], static_cast<std::uint32_t>(__popc(ties)));
        }
    }
    __syncthreads();
    std::uint32_t last = 0;  // the position of which only some requests are admitted
    while (last < positions && at_position[last] <= left) left -= at_position[last++];
    for (std::uint32_t first = 0; first < requests; first += blockDim.x) {
        std::uint32_t const r = first + threadIdx.x;
        unsigned const ties = __ballot_sync(all_lanes, r < requests && run_of(s, r).ties_at(last));
        if (lane_index() == 0) at_request[r / warp_size] = ties;
    }
    __syncthreads();
    // 256 words at most: those of 8,192 requests. One word a thread, or two.
    constexpr std::uint32_t words = device_limits::most_requests / warp_size;
    std::uint32_t* const before_request = at_request + words;
    std::uint64_t passed = 0;
    for (std::uint32_t first = 0; first * warp_size < requests; first += blockDim.x) {
        std::uint32_t const w = first + threadIdx.x;
        std::uint64_t const own =
            w * warp_size < requests ? static_cast<std::uint64_t>(__popc(at_request[w])) : std::uint64_t{0};
        block_sum const sum = sum_over_block(own, s.block);
        if (w * warp_size < requests) before_request[w] = static_cast<std::uint32_t>(passed + sum.before);
        passed += sum.total;
    }
    __syncthreads();
    for (std::uint32_t r = threadIdx.x; r < requests; r += blockDim.x) {
        admitted_run const run = run_of(s, r);
        std::uint32_t const full = last < run.level ? last : run.level;
        std::uint32_t length = full > run.above ? full : run.above;
        if (run.ties_at(last)) {
            std::uint32_t const word = r / warp_size;
            unsigned const earlier = at_request[word] & ((1u << (r % warp_size)) - 1);
            if (before_request[word] + static_cast<std::uint32_t>(__popc(earlier)) < left) ++length;
        }
        lengths[r] = length;
    }
}

}  // namespace detail

/// BLOCK collective. [R] lengths, then zeros up to `most_requests`.
__device__ inline void write_lengths(candidate_table const& table, admission_end const& end,
                                     std::uint32_t most_requests, std::uint32_t* lengths, admission_shared& s) {
    std::uint32_t const requests = table.requests();
    __syncthreads();  // `admitted` shares memory with keys that others may still sort: a rule that takes nothing has no barrier
    for (std::uint32_t r = threadIdx.x; r < requests; r += blockDim.x) s.admitted[r] = 0;
    __syncthreads();
    if (end.count > 0) {
        table.for_each_place([&](bool used, std::uint32_t r, fixed_probability survival) {
            if (!used || survival < end.least) return;
            atomicAdd(&s.admitted[r], survival > end.least ? 0x10001u : 0x10000u);
        });
    }
    __syncthreads();
    std::uint64_t mine = 0;
    for (std::uint32_t r = threadIdx.x; r < requests; r += blockDim.x) {
        detail::admitted_run const run = detail::run_of(s, r);
        mine += tally::of(run.above, run.level).word;
    }
    tally const all{sum_over_block(mine, s.block).total};
    if (all.sum() == end.count) {
        for (std::uint32_t r = threadIdx.x; r < requests; r += blockDim.x) lengths[r] = detail::run_of(s, r).level;
    } else {
        detail::admit_some_ties(requests, end.count - all.count(), lengths, s);
    }
    for (std::uint32_t r = requests + threadIdx.x; r < most_requests; r += blockDim.x) lengths[r] = 0;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
