// SPDX-License-Identifier: MIT
//
// The accept stage on the device, lossless as the host's (round/stages.hpp), with the same tokens up to rounding. In:
// the drafts of a round, chains or trees, their batch, and the target's logits. Out: the verdicts of the round, and of
// trees the accepted nodes in trees.paths. Two kernels:
//
//     weigh_rows      weighs all rows of the batch, or lets their tokens race (weigh.cuh)
//     judge_requests  truncated distributions, decisions, corrections, further tokens, passes over q (judge.cuh); by
//                     recursive rejection along trees (tree/rules.cuh)
//
// weigh_rows reads each logit once, at the speed of memory: warps have equal shares of the rows, and nobody waits for
// anybody. So rows behind the first rejected draft are read in vain. Rejected, by figures of an H200
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

/// The kernels of a rule of verify/rules.cuh, or of one along trees. Checks nothing but that blocks can be counted.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t launch_weighing(verify_task<Rows, DraftRows> const& task, unsigned processors,
                                          cudaStream_t stream) noexcept {
    verify_memory const& memory = task.memory;
    std::uint64_t const rows = std::uint64_t{memory.limits.requests} * (2 * memory.limits.block_size + 1);  // p's, q's
    if (rows * memory.blocks() > 0x7fffffffu) return cudaErrorInvalidValue;
    if constexpr (weighs_apart<Rule, Rows, DraftRows>) {
        unsigned const blocks = processors * weighing_residency<Rule, draft_row_type<DraftRows>>;
        cudaError_t error = cudaSuccess;
        if (task.drafts.weighs()) {
            error = launch(weigh_draft_rows<Rule, Rows, DraftRows>, blocks, weighing_threads, 0, stream, task);
        }
        if (error != cudaSuccess) return error;
    }
    return launch(weigh_rows<Rule, Rows, DraftRows>, processors * weighing_residency<Rule, typename Rows::row_type>,
                  weighing_threads, sizeof(std::uint32_t), stream, task);
}
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] cudaError_t launch_verification(verify_task<Rows, DraftRows> const& task, unsigned processors,
                                              cudaStream_t stream) noexcept {
    cudaError_t const error = launch_weighing<Rule>(task, processors, stream);
    if (error != cudaSuccess) return error;
    return launch_behind(judge_requests<Rule, Rows, DraftRows>, processors * verification_residency,
                         verification_threads, sizeof(judging_shared<Rule>), stream, task);
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
    return launch_verification<recursive_along_tree<DraftRule>>(task, processors, stream);
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
/// for the limits of `round`. All of round.batch but its positions is read, as flatten writes it: markers too, and
/// offsets[limits.requests].
///
/// Reads all rows of the batch, at the speed of memory; two launches. Passes over q are made where proposals do not
/// settle a correction, and where the vocabulary is a few blocks. A drafted token outside 0 .. V - 1 is no draft: its
/// row is the request's last.
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
/// rejected child; two launches.
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
