// SPDX-License-Identifier: MIT
//
// What a block of threads does next while requests are judged. In: the counters of a verification. Out: one of
//
//     a row to cut    of a request whose distributions are truncated; whoever cuts the last one judges the request
//     a request       to judge
//     a part of a pass over p and q, for a request that waits for it; whoever makes the last part resumes the request
//
// Everything is taken by a counter, so it has an owner that runs. If the rule makes corrections, a block with nothing
// to take stays until all requests have their verdicts, because one may still need a pass: 149 blocks of it would take
// one block of threads some 150 us. What it waits for is done by blocks that run already. So no launch depends on how
// many blocks are resident.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/verify/memory.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

enum class judging_step : std::uint32_t { none, cut_row, judge, pass };

struct judging_task {
    judging_step what = judging_step::none;
    std::uint32_t request = 0;
    std::uint32_t part = 0;  ///< position of the row, or block of the pass
};

/// One thread: the pass that request r needs, for all blocks of threads to make.
__device__ inline void open_pass(verify_memory const& memory, std::uint32_t r, residual_pass const& how) {
    memory.passes[r] = how;
    memory.pass_blocks[r] = 0;
    publish();
    atomicAdd(&memory.counters->open_passes, 1u);
    atomicExch(&memory.counters->last_opened, r);
    atomicExch(memory.next_block + r, 0u);
}

/// One thread: a part of the pass of request r; past the last one if none is left.
[[nodiscard]] __device__ inline std::uint32_t take_part(verify_memory const& memory, std::uint32_t r) {
    std::uint32_t const b = atomicAdd(memory.next_block + r, 1u);
    if (b + 1 == memory.blocks()) atomicSub(&memory.counters->open_passes, 1u);
    publish();
    return b;
}

/// WARP collective: a part of a pass that is open, of the one that was opened last if it has some left.
[[nodiscard]] __device__ inline judging_task find_part(verify_memory const& memory, std::uint32_t requests) {
    std::uint32_t const begin = peek(&memory.counters->last_opened);
    for (std::uint32_t first = 0; first < requests; first += warp_size) {
        std::uint32_t const i = first + lane_index();
        std::uint32_t const r = i < requests ? (begin + i) % requests : 0;
        bool const open = i < requests && peek(memory.next_block + r) < memory.blocks();
        int const chosen = first_lane(open);
        if (chosen < 0) continue;
        std::uint32_t b = 0;
        if (lane_index() == static_cast<unsigned>(chosen)) b = take_part(memory, r);
        b = __shfl_sync(all_lanes, b, chosen);
        if (b < memory.blocks()) return {judging_step::pass, __shfl_sync(all_lanes, r, chosen), b};
    }
    return {};
}

/// WARP collective: the next thing to do; nothing if all requests have their verdicts, or if the rule needs no passes
/// and all are taken. `last` is what the block of threads did before.
template <class Rule>
[[nodiscard]] __device__ judging_task next_task(verify_memory const& memory, std::uint32_t requests,
                                                judging_step last) {
    verify_counters* const counters = memory.counters;
    std::uint32_t const cut = counters->cut_requests;
    auto const take = [](std::uint32_t* counter) {
        std::uint32_t const i = lane_index() == 0 ? atomicAdd(counter, 1u) : 0;
        return __shfl_sync(all_lanes, i, 0);
    };
    if (last <= judging_step::cut_row && cut > 0) {
        std::uint32_t const i = take(&counters->next_cut);
        if (i < cut * (memory.limits.block_size + 1))
            return {judging_step::cut_row, memory.cut_requests[i % cut], i / cut};
    }
    if (last <= judging_step::judge) {
        std::uint32_t const r = take(&counters->next_request);
        if (r < requests) return {judging_step::judge, r, 0};
    }
    while (Rule::corrects) {
        if (__any_sync(all_lanes, peek(&counters->open_passes) != 0)) {
            judging_task const part = find_part(memory, requests);
            if (part.what != judging_step::none) return part;
        }
        if (__all_sync(all_lanes, peek(&counters->undecided) == 0)) return {};
        back_off();
    }
    return {};
}

/// One thread: true for the one that ends the last of `count` parts, which then sees what all of them wrote.
[[nodiscard]] __device__ inline bool ends_last(std::uint32_t* done, std::uint32_t count) {
    publish();
    bool const last = atomicAdd(done, 1u) + 1 == count;
    publish();
    return last;
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
