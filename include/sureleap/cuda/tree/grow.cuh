// SPDX-License-Identifier: MIT
//
// Grows the trees of a batch over shortlists, without the host reading a token: the device's tree_drafter
// (drafter/tree_drafter.hpp, drafter/grow.hpp). In: hidden states and base logits of one backbone pass. Out: counts,
// tokens, parents, distributions and statuses of `trees`, and q of the nodes in `memory`. The trees are the host's, up
// to the rounding of sums.
//
//     grow_trees<categorical_draft>(head, confidence, forward, memory, trees, round, stream, {.children = 3});
//     flatten_trees(round, trees, stream);
//     engine.verify(trees.batch, masks, stream);
//     accept<recursive_rejection<>>(rows, draft_rows_of(memory), trees, verification, round, stream);
//     advance(round, stream);
//
// The place of the largest value is taken, the elder node's among equals. The value is how likely the child will be
// accepted: the confidence behind its parent, times a ratio for its rank. Base logits choose tokens once for a
// position. Behind each node the head's bias of the node's own token is added.
//
// Two launches, as of a chain (drafter/shortlist.cuh): lists of all positions, then one block of threads a request,
// which grows the whole tree (growing_tree.cuh). Requests need not wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/confidence/head.cuh>
#include <sureleap/cuda/confidence/policy.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/drafter/list_distribution.cuh>
#include <sureleap/cuda/drafter/shortlist_memory.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/top_tokens.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/grow_memory.cuh>
#include <sureleap/cuda/tree/growing_tree.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// The confidence is known before q is made, as a tree needs it.
template <class Confidence>
inline constexpr bool is_known_before_draw = !std::is_base_of_v<no_confidence, Confidence>;
template <class Confidence>
inline constexpr bool is_known_before_draw<calibrated<Confidence>> = is_known_before_draw<Confidence>;

namespace detail {

template <class DraftRule, class Head, class U, class Confidence>
__global__ void __launch_bounds__(shortlist_threads, 2)
    grow_trees_kernel(growth_task<Head, U, Confidence> const __grid_constant__ task) {
    auto& s = shared_memory<growth_shared>();
    if (blockIdx.x >= *task.round.requests.count) return;
    growing_tree<DraftRule, Head, U, Confidence>{task, s, blockIdx.x}.grow();
}

}  // namespace detail

/// Grows a tree for every request of `round`, of at most trees.nodes drafted nodes and round.limits.block_size
/// positions: counts, tokens, parents, distributions and statuses of `trees`, and all of `memory`. DraftRule:
/// categorical_draft draws children without replacement, argmax_draft chooses the likeliest, coupled_draft takes the
/// first of a race. A request drafts no more nodes, and no deeper, than its draft_cap; none behind an anchor outside 0
/// .. V-1. A request whose row holds no distribution, or whose confidence is no probability, has a status that says so,
/// and what was drawn before stays.
///
/// The confidence is one that is known before q is (confidence_head, calibrated). Heads: markov_head, gated_head,
/// rnn_head. A schedule may lower counts[r] before flatten_trees: the first m nodes are a tree, worth memory.survival.
///
/// `forward` has rows for limits.requests requests, and base logits over limits.vocabulary tokens. `memory` and `trees`
/// are carved for the limits of `round` and one number of nodes. Two launches and what head and confidence prepare.
/// cudaErrorInvalidValue, before any of them, if shapes do not fit each other, a pointer is null, or options.children
/// is 0. O(R gamma V + R N M r) for trees of N nodes over lists of M tokens.
template <class DraftRule, device_head Head, class U, device_confidence Confidence>
[[nodiscard]] cudaError_t grow_trees(shortlist_head<Head> const& head, Confidence const& confidence,
                                     forward_view<U> const& forward, growth_memory const& memory,
                                     tree_columns const& trees, device_round const& round, cudaStream_t stream,
                                     growth_options const& options = {}) noexcept {
    static_assert(is_device_storage_v<U>, "grow_trees: base logits are float, sureleap::bf16 or sureleap::half");
    static_assert(
        is_known_before_draw<Confidence>,
        "grow_trees: a tree grows by confidences that are known before q is made; use cuda::confidence_head, or "
        "a confidence of your own that reads no position_statistics");
    matrix_view<U> const& base = forward.base_logits;
    if (!round.ready() || !memory.ready() || !trees.ready() || !head.valid() || !confidence.valid() ||
        base.data == nullptr || options.children == 0) {
        return cudaErrorInvalidValue;
    }
    device_limits const& limits = round.limits;
    bool const same_limits = memory.limits.requests == limits.requests &&
                             memory.limits.block_size == limits.block_size && memory.nodes == trees.nodes;
    std::size_t const rows = std::size_t{limits.requests} * limits.block_size;
    if (!same_limits || memory.shape != growth_shape_of(head) || base.cols != limits.vocabulary ||
        base.cols != head.head.w2.rows || base.stride < base.cols || base.rows < rows) {
        return cudaErrorInvalidValue;
    }
    std::uint32_t const rest =
        head.head.shared_size() > confidence.shared_size() ? head.head.shared_size() : confidence.shared_size();
    cudaError_t error = head.head.prepare(forward, round, stream);
    if (error == cudaSuccess) error = confidence.prepare(forward, round, stream);
    if (error == cudaSuccess) error = best_tokens(base, memory.shape.lists.best, round, memory.best, stream);
    if (error != cudaSuccess) return error;
    return launch(detail::grow_trees_kernel<DraftRule, Head, U, Confidence>, dim3(limits.requests),
                  dim3(detail::shortlist_threads), sizeof(detail::growth_shared) + rest * sizeof(float), stream,
                  detail::growth_task<Head, U, Confidence>{head, confidence, base, memory, trees, options, {}, round});
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
