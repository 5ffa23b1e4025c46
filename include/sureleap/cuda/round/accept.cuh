// SPDX-License-Identifier: MIT
//
// The accept stage on the device, lossless as the host's (round/stages.hpp), with the same tokens up to rounding. In:
// the drafts of a round, chains or trees, their batch, and the target's logits. Out: the verdicts of the round, and of
// trees the accepted nodes in trees.paths. Three kernels and more:
//
//     weigh_rows      all warps    weighs all rows of the batch, or lets their tokens race (weigh.cuh)
//     cut_rows        all blocks   distributions that are truncated (target_rows.cuh); returns soon if there are none
//     judge_requests  all blocks   the other distributions, decisions, corrections, further tokens (judge.cuh)
//     make_passes     all blocks   residuals that proposals left open; returns at once if there are none
//     judge_trees     all blocks   in place of the last two: recursive rejection along trees (tree/rules.cuh)
//
// weigh_rows reads each logit once, at the speed of memory: warps take parts of rows by their number, and nobody waits
// for anybody. So rows behind the first rejected draft are read in vain. Rejected, by figures of an H200
// (docs/performance.md):
//   - one kernel that judges a request as soon as its rows are complete, and skips those behind: blocks of threads that
//     read and judge spent 38 % of their time at barriers, and 7 % waiting for rows;
//   - the same by warps that count parts and judge on their own: a fence takes 2 us, and decisions came so late that most
//     rows had been read;
//   - a launch for each position: each takes as long as a decision does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/memory.cuh>
#include <sureleap/cuda/tree/rules.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/judge.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/residual.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/weigh.cuh>
#include <sureleap/cuda/verify/work.cuh>
#include <sureleap/verify/recursive.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Blocks of threads on a multiprocessor that read rows. A warp has 2 KiB of two-byte logits in flight, or 4 KiB of
/// floats. That makes 48 or 64 KiB, of which some 36 would do.
template <class Rows>
inline constexpr unsigned weighing_residency =
    sizeof(typename Rows::value_type) == 4 || !std::is_pointer_v<typename Rows::row_type> ? 2 : 3;
inline constexpr unsigned weighing_threads = 256;
/// Those that judge: proposals for a correction are made by all warps at once, so there are many of them.
inline constexpr unsigned verification_residency = 2;

/// Every warp weighs parts of rows until there are none. The next part is found, and asked for, while one is weighed.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(weighing_threads, weighing_residency<Rows>)
    weigh_rows(verify_task<Rows, DraftRows> const __grid_constant__ task) {
    using row_type = typename Rows::row_type;
    verify_memory const& memory = task.memory;
    if (blockIdx.x == 0 && threadIdx.x == 0) *memory.counters = verify_counters{};
    std::uint32_t const size = memory.limits.vocabulary;
    unsigned const warps = blockDim.x / warp_size;
    part_walk<Rule, Rows, DraftRows> walk(task, blockIdx.x * warps + warp_index(), gridDim.x * warps);
    row_part<row_type> part = walk.take();
    lanes_of<row_type> ahead{};
    if (part.there) part.start(size, ahead);
    while (part.there) {
        row_part<row_type> next{};
        auto const go_on = [&] {
            next = walk.take();
            if (next.there) next.start(size, ahead);
        };
        verification<Rows, DraftRows> const c{task, part.request};
        if (part.work.weighed) {
            block_weight* const weights = c.weights(part.position);
            float const rate = rate_of(part.work.scale);
            for_each_block(
                part, size, ahead,
                [&](std::uint32_t b, lanes_of<row_type> const& logits) {
                    block_weight const weight = weigh_block(logits, rate);
                    if (lane_index() == 0) weights[b] = weight;
                },
                [&] {
                    if (part.work.by_gumbel_max) {
                        part.start(size, ahead);  // once more, for the race
                    } else {
                        go_on();
                    }
                });
        }
        if constexpr (Rule::by_gumbel_max) {
            if (part.work.by_gumbel_max) {
                gumbel_winner const won = race_of_part(c, part, ahead, go_on);
                if (lane_index() == 0) c.winners(part.position)[part.piece] = won;
            }
        }
        part = next;
    }
}

/// Blocks find what truncated distributions of rows are, a row each.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    cut_rows(verify_task<Rows, DraftRows> const __grid_constant__ task) {
    auto& s = shared_memory<verify_shared>();
    std::uint32_t const requests = *task.round.requests.count;
    std::uint32_t const rows = requests * (task.memory.limits.block_size + 1);
    for (std::uint32_t i = blockIdx.x; i < rows; i += gridDim.x) {
        std::uint32_t const k = i / requests;
        std::uint32_t const r = i % requests;
        request_work const work = request_work::of<Rule>(task, r);
        if (work.what != work_kind::rows || !work.cut || k > work.length) continue;
        verification<Rows, DraftRows> const c{task, r, &s.verification};
        make_cut_target<Rule>(c, s, k, work);
        __syncthreads();
    }
}

/// Blocks judge requests, one each.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    judge_requests(verify_task<Rows, DraftRows> const __grid_constant__ task) {
    auto& s = shared_memory<verify_shared>();
    std::uint32_t const requests = *task.round.requests.count;
    for (std::uint32_t r = blockIdx.x; r < requests; r += gridDim.x) {
        judge_request<Rule>(task, s, r);
        __syncthreads();
    }
}

/// Passes of the requests that waited when the kernel began, a block of tokens each. Who makes the last one of a
/// request judges it; if that takes a further pass, it waits for the next kernel, or after the last one makes it alone.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    make_passes(verify_task<Rows, DraftRows> const __grid_constant__ task, std::uint32_t stage) {
    auto& s = shared_memory<verify_shared>();
    verify_memory const& memory = task.memory;
    std::uint32_t const blocks = memory.blocks();
    std::uint32_t const waiting = memory.counters->waiting[stage];
    for (;;) {
        if (threadIdx.x == 0) s.pass = atomicAdd(&memory.counters->next_pass[stage], 1u);
        __syncthreads();
        std::uint32_t const i = s.pass;
        if (i / blocks >= waiting) return;
        std::uint32_t const r = memory.queues[stage * memory.limits.requests + i / blocks];
        residual_pass const how = memory.passes[r];
        verification<Rows, DraftRows> const c{task, r, &s.verification, stage + 1};
        pass_block(c, how, i % blocks);
        if (threadIdx.x == 0) {
            __threadfence();
            s.completes = atomicAdd(memory.pass_blocks + r, 1u) + 1 == blocks ? 1 : 0;
            __threadfence();
        }
        __syncthreads();
        if (s.completes != 0) Rule::resume(c, how, total_left(c));
        __syncthreads();  // no mutant: the pass had barriers since everyone read which it was
    }
}

/// Blocks judge trees by recursive rejection, one each.
template <class DraftRule, class Rows, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    judge_trees(verify_task<Rows, tree_drafts<DraftRows>> const __grid_constant__ task) {
    auto& s = shared_memory<tree_rejection_shared>();
    std::uint32_t const requests = *task.round.requests.count;
    for (std::uint32_t r = blockIdx.x; r < requests; r += gridDim.x) {
        request_work const work = request_work::of<judging_rule>(task, r);
        verification<Rows, tree_drafts<DraftRows>> const c{task, r, &s.verification};
        if (work.what == work_kind::nothing) {
            refuse_undrafted(c);
        } else {
            judge_tree<DraftRule>(c, s.rejected, work);
        }
        __syncthreads();
    }
}

/// The kernels that make of rows what can be known of each by itself. Checks nothing but that rows can be counted.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t launch_weighing(verify_task<Rows, DraftRows> const& task, unsigned processors,
                                          cudaStream_t stream) noexcept {
    verify_memory const& memory = task.memory;
    std::uint64_t const parts =
        std::uint64_t{count_parts(memory.blocks())} * memory.limits.requests * (memory.limits.block_size + 1);
    if (parts > 0x7fffffffu) return cudaErrorInvalidValue;
    cudaError_t const error = launch(weigh_rows<Rule, Rows, DraftRows>, processors * weighing_residency<Rows>,
                                     weighing_threads, 0, stream, task);
    if (error != cudaSuccess) return error;
    return launch(cut_rows<Rule, Rows, DraftRows>, processors * verification_residency, verification_threads,
                  sizeof(verify_shared), stream, task);
}

/// All kernels of a rule of verify/rules.cuh, or of one along trees.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t launch_verification(verify_task<Rows, DraftRows> const& task, unsigned processors,
                                              cudaStream_t stream) noexcept {
    cudaError_t error = launch_weighing<Rule>(task, processors, stream);
    if (error != cudaSuccess) return error;
    unsigned const blocks = processors * verification_residency;
    constexpr std::size_t shared = sizeof(verify_shared);
    error = launch(judge_requests<Rule, Rows, DraftRows>, blocks, verification_threads, shared, stream, task);
    if constexpr (Rule::passes > 0) {
        for (std::uint32_t stage = 0; stage != Rule::passes && error == cudaSuccess; ++stage) {
            error =
                launch(make_passes<Rule, Rows, DraftRows>, blocks, verification_threads, shared, stream, task, stage);
        }
    }
    return error;
}

/// The kernels of a host's rule along trees.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t launch_along_trees(std::type_identity<Rule>,
                                             verify_task<Rows, tree_drafts<DraftRows>> const& task, unsigned processors,
                                             cudaStream_t stream) noexcept {
    static_assert(device_rule<Rule>::chooses,
                  "cuda::accept: the rule judges chains alone; along trees use recursive_rejection, target_match, "
                  "greedy_match or keyed_coupling");
    return launch_verification<matching_along_tree<device_rule<Rule>>>(task, processors, stream);
}
template <class DraftRule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t launch_along_trees(std::type_identity<recursive_rejection<DraftRule>>,
                                             verify_task<Rows, tree_drafts<DraftRows>> const& task, unsigned processors,
                                             cudaStream_t stream) noexcept {
    static_assert(recursive_rejection<DraftRule>::judges_trees);  // which says what DraftRule must be
    cudaError_t const error = launch_weighing<judging_rule>(task, processors, stream);
    if (error != cudaSuccess) return error;
    return launch(judge_trees<DraftRule, Rows, DraftRows>, processors * verification_residency, verification_threads,
                  sizeof(tree_rejection_shared), stream, task);
}

/// Rows and memory are those of a round whose requests have at most `drafts` drafted tokens or nodes.
template <class Rows>
[[nodiscard]] bool fits(Rows const& rows, verify_memory const& memory, device_round const& round,
                        std::uint32_t drafts) noexcept {
    device_limits const& limits = memory.limits;
    return memory.ready() && round.ready() && limits.requests >= round.limits.requests && limits.block_size == drafts &&
           limits.vocabulary == round.limits.vocabulary && limits.stop_tokens == round.limits.stop_tokens &&
           rows.data != nullptr && rows.stride >= limits.vocabulary;
}

}  // namespace detail

/// Judges the drafts of a round: makes the verdicts of `round` from its batch and the target's rows, logits_rows of T.
/// Rule is the host's: token_rejection, block_verification, greedy_match, target_match or keyed_coupling. Every request
/// whose draft is sound gets a verdict; rows without a distribution give the status invalid_target. `memory` is carved
/// for the limits of `round`.
///
/// Reads all rows of the batch, at the speed of memory; three to five launches. Passes over q are made where
/// proposals do not settle a correction, and where the vocabulary is a few blocks.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t accept(Rows const& rows, DraftRows const& drafts, verify_memory const& memory,
                                 device_round const& round, cudaStream_t stream) noexcept {
    using rule = device_rule<Rule>;
    if (!detail::fits(rows, memory, round, round.limits.block_size)) return cudaErrorInvalidValue;
    unsigned processors = 0;
    cudaError_t const error = count_multiprocessors(processors);
    if (error != cudaSuccess) return error;
    return detail::launch_verification<rule>(verify_task<Rows, DraftRows>{rows, drafts, memory, round}, processors,
                                             stream);
}

/// Judges the trees of a round: makes the verdicts of `round` and trees.paths from trees.batch, the target's rows for
/// it, and q. Rule is the host's: recursive_rejection, target_match, greedy_match or keyed_coupling. Every request
/// whose tree is sound gets a verdict. Where a row of the accepted path has no distribution, its end included, the
/// status is invalid_target. `trees` and `memory` (carve_tree_verification) are carved for the limits of `round`, and a
/// tree is no deeper than the request's draft_cap.
///
/// recursive_rejection<categorical_draft>: children were drawn from trees.distributions without replacement, and
/// `drafts` gives the weights of these. All other rules read nothing of it, and one_hot_draft_rows will do. Exact in
/// distribution under the host's conditions (docs/trees.md).
///
/// Reads all rows of the batch, at the speed of memory, and by recursive rejection V logits of p and q again for each
/// rejected child; three launches.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t accept(Rows const& rows, DraftRows const& drafts, tree_columns const& trees,
                                 verify_memory const& memory, device_round const& round, cudaStream_t stream) noexcept {
    if (!trees.ready() || !detail::fits(rows, memory, round, trees.nodes)) return cudaErrorInvalidValue;
    unsigned processors = 0;
    cudaError_t const error = count_multiprocessors(processors);
    if (error != cudaSuccess) return error;
    verify_task<Rows, tree_drafts<DraftRows>> const task{
        rows, {trees, round.limits.block_size, drafts}, memory, detail::with_trees(round, trees)};
    return detail::launch_along_trees(std::type_identity<Rule>{}, task, processors, stream);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
