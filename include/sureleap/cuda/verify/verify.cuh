// SPDX-License-Identifier: MIT
//
// Lossless verification on the device: the host's accept (round/stages.hpp), with the same tokens up to rounding. In:
// the drafts and the batch of a round, and the target's logits. Out: the verdicts of the round. Three kernels:
//
//     list_rows     1 block      which rows there are, position by position; verdicts that need no row (work.cuh)
//     judge_rows    all blocks   weighs rows (weigh.cuh), makes their laws (target_rows.cuh), judges requests (judge.cuh)
//     make_passes   all blocks   residuals that proposals left open; returns at once if there are none
//
// judge_rows reads each logit that it needs once. Its work items are tiles, parts of rows: first those of all requests'
// rows of position 0, then those of position 1, and so on. Blocks of threads take them one after the other. The block
// that completes a row makes its distribution, and judges the rows of that request that are complete. Once a request is
// decided, its other rows are skipped. So no block waits for a decision, and few rows are read in vain. Rejected:
//   - a launch for each position reads no row in vain, and the device idles at the end of each launch;
//   - a block for each request reads no row in vain, and needs more requests than there are multiprocessors;
//   - all rows at once reads 1 + gamma rows where mostly 2 are needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/judge.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/weigh.cuh>
#include <sureleap/cuda/verify/work.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Blocks of threads on a multiprocessor: 24 warps with 2 to 4 KiB in flight each are 48 to 96 KiB; some 36 would do.
inline constexpr unsigned verification_residency = 3;

/// Every block takes pieces of work until there are none. Who completes a row judges.
template <class Rule, class T, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    judge_rows(verify_task<T, DraftRows> const __grid_constant__ task) {
    auto& s = shared_memory<verify_shared>();
    std::uint32_t const tiles = count_tiles<Rule, T>(task.memory.blocks());
    if (warp_index() == 0) take_item<Rule, T>(task.memory, s.item);
    for (;;) {
        __syncthreads();
        work_item const item = s.item;
        if (item.what == work_kind::nothing) return;
        if (item.what == work_kind::rows) {
            weigh_tile<Rule>(task, s.verification, item);
        } else if constexpr (Rule::takes) {
            judge_taken<Rule>(task, s, item.request);
        }
        __syncthreads();
        // The next piece of work is found while the tile is counted.
        if (warp_index() == 1) take_item<Rule, T>(task.memory, s.item);
        if (threadIdx.x == 0)
            s.completes = item.what == work_kind::rows && finish_tile(task.memory, item, tiles) ? 1 : 0;
        __syncthreads();
        if (s.completes != 0) complete_row<Rule>(task, s, item.request, item.position);
    }
}

/// Passes of the requests that waited when the kernel began, a block of tokens each. Who makes the last one of a request
/// judges it; if that takes a further pass, it waits for the next kernel, or after the last one makes it alone.
template <class Rule, class T, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    make_passes(verify_task<T, DraftRows> const __grid_constant__ task, std::uint32_t stage) {
    auto& s = shared_memory<verify_shared>();
    verify_memory const& memory = task.memory;
    std::uint32_t const blocks = memory.blocks();
    std::uint32_t const waiting = memory.counters->waiting[stage];
    for (;;) {
        if (threadIdx.x == 0) s.item.tile = atomicAdd(&memory.counters->next_pass[stage], 1u);
        __syncthreads();
        std::uint32_t const i = s.item.tile;
        if (i / blocks >= waiting) return;
        std::uint32_t const r = memory.queues[stage * memory.limits.requests + i / blocks];
        residual_pass const how = memory.passes[r];
        verification<T, DraftRows> c{task, s.verification, r, stage + 1};
        c.pass_block(how, i % blocks);
        if (threadIdx.x == 0) {
            __threadfence();
            s.completes = atomicAdd(memory.pass_blocks + r, 1u) + 1 == blocks ? 1 : 0;
            __threadfence();
        }
        __syncthreads();
        if (s.completes != 0) Rule::resume(c, how, c.total_mass());
        __syncthreads();  // no mutant: the pass had barriers since everyone read which it was
    }
}

}  // namespace detail

/// Judges the drafts of a round: makes the verdicts of `round` from its batch and the target's rows. Rule is the
/// host's: token_rejection, block_verification, greedy_match, target_match or keyed_coupling. Every request whose draft
/// is sound gets a verdict; rows without a law give the status invalid_target. `memory` is carved for the limits of
/// `round`.
///
/// Reads about the rows that the rule needs, at the speed of memory; three or four launches. Passes over q are made where
/// proposals do not settle a correction, and where the vocabulary is a few blocks.
template <class Rule, class T, class DraftRows>
[[nodiscard]] cudaError_t accept(logits_rows<T> const& rows, DraftRows const& drafts, verify_memory const& memory,
                                 device_round const& round, cudaStream_t stream) noexcept {
    using rule = device_rule<Rule>;
    round_limits const& limits = memory.limits;
    bool const fits = memory.ready() && round.ready() && limits.requests >= round.limits.requests &&
                      limits.block_size == round.limits.block_size && limits.vocabulary == round.limits.vocabulary &&
                      limits.stop_tokens == round.limits.stop_tokens && rows.data != nullptr &&
                      rows.stride >= limits.vocabulary;
    if (!fits) return cudaErrorInvalidValue;
    std::uint64_t const tiles = detail::count_tiles<rule, T>(memory.blocks());
    if (tiles * limits.requests * (limits.block_size + 1) > 0x7fffffffu) return cudaErrorInvalidValue;

    unsigned processors = 0;
    cudaError_t error = count_multiprocessors(processors);
    if (error != cudaSuccess) return error;
    error = launch(detail::list_rows<T>, 1, detail::list_threads, sizeof(detail::list_shared), stream, memory, round,
                   rows, rule::takes);
    if (error != cudaSuccess) return error;
    verify_task<T, DraftRows> const task{rows, drafts, memory, round};
    unsigned const blocks = processors * detail::verification_residency;
    error = launch(detail::judge_rows<rule, T, DraftRows>, blocks, verification_threads, sizeof(detail::verify_shared),
                   stream, task);
    for (std::uint32_t stage = 0; stage != rule::passes && error == cudaSuccess; ++stage) {
        error = launch(detail::make_passes<rule, T, DraftRows>, blocks, verification_threads,
                       sizeof(detail::verify_shared), stream, task, stage);
    }
    return error;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
