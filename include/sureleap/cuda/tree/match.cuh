// SPDX-License-Identifier: MIT
//
// Rules that choose the target's own token first, along trees: the device's verify/match.hpp of trees, with the
// host's tokens up to rounding. In: the batch of flatten_trees and the target's rows for it. Out: round.verdicts, and the
// accepted nodes in trees.paths.
//
//     match_trees<target_match<>>(rows, trees, memory, round, stream);
//     match_trees<keyed_coupling>(...), match_trees<greedy_match>(...)
//
// What the target chooses behind a row is a function of the row and of the noise of its position, which all nodes of a depth
// share. So the choices of all rows are made at once, by the kernels of verify/verify.cuh: a row of a tree is a row of a
// chain there, but for the name of its noise. Then a warp walks each tree from its anchor, to the first child that has the
// chosen token. A step looks at N nodes, a lane each. The last choice that no child has is the correction or bonus.
//
// Verdicts are those of a chain whose drafts are the accepted path, so `advance` moves requests on as ever.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/memory.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/verify.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

namespace detail {

/// A rule of verify/rules.cuh along a tree.
template <class Rule>
struct matching_along_tree : Rule {
    static_assert(Rule::chooses,
                  "match_trees: the rule judges drafts by q; use a rule that chooses the target's token first: "
                  "target_match, greedy_match or keyed_coupling");

    /// At the number of accepted tokens.
    template <class C>
    [[nodiscard]] static __device__ request_standing judge(C const& request) {
        tree_drafts const& drafts = request.drafts();
        std::uint32_t const r = request.request();
        std::uint32_t n = 0;
        for (std::uint32_t accepted = 0;; ++accepted) {
            token_id const y = request.target(n).choice;
            if (y == no_token) return {request_fate::refused, accepted};
            n = drafts.child(r, request.length() + 1, n, y);
            if (n == 0) return {request_fate::decided, accepted};
            if (lane_index() == 0) drafts.follow(r, accepted, n);
        }
    }
    template <class C>
    static __device__ void settle(C& verification, std::uint32_t accepted) {
        verification.emit(accepted, verification.target(verification.accepted_row(accepted)).choice);
    }
};

}  // namespace detail

/// Judges the trees of a round: makes round.verdicts and trees.paths from trees.batch and the target's rows for it. Rule is
/// target_match, greedy_match or keyed_coupling. Every request whose tree is sound gets a verdict. Where a row of the
/// accepted path has no distribution, its end included, the status is invalid_target. `trees` and `memory` are carved
/// for the limits of `round`, and a tree is no deeper than the request's draft_cap.
///
/// Reads all rows of the batch, at the speed of memory; three launches.
template <class Rule, class T>
[[nodiscard]] cudaError_t match_trees(logits_rows<T> const& rows, tree_columns const& trees,
                                      verify_memory const& memory, device_round const& round,
                                      cudaStream_t stream) noexcept {
    if (!detail::fits_trees(rows, trees, memory, round)) return cudaErrorInvalidValue;
    return detail::launch_verification<detail::matching_along_tree<device_rule<Rule>>>(
        verify_task<T, tree_drafts>{rows, {trees, round.limits.block_size}, memory, detail::with_trees(round, trees)},
        stream);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
