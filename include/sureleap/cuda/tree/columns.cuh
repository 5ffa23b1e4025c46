// SPDX-License-Identifier: MIT
//
// Draft trees of a round in device memory. They stand beside a device_round and take the place of its drafts and batch:
//
//     engine writes      round.requests
//     grow_trees         trees.counts, tokens, parents, statuses, distributions (grow.cuh; or the engine's drafter)
//     flatten_trees      what follows from parents, and the batch      (flatten.cuh)
//     accept<Rule>       round.verdicts, and trees.paths               (round/accept.cuh)
//     advance            round.requests, for the next round            (round/advance.cuh)
//
// A tree is what the host's draft_tree is: node 0 is the anchor, a parent comes before its children, and siblings stand
// in the order in which they were drawn. Node n of request r has the number r (N + 1) + n in columns of nodes. In the
// batch it is row offsets[r] + n. The round's block size bounds the depth of a tree, and so what a verdict holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

inline constexpr std::int32_t no_node = -1;

/// R trees of at most N drafted nodes: pointers, to be passed to kernels by value.
struct tree_columns {
    static constexpr std::uint32_t most_nodes = 255;  ///< drafted, of a tree

    std::uint32_t nodes = 0;  ///< N, fixed at set-up

    // The drafter's.
    std::uint32_t* counts = nullptr;  ///< [R] drafted nodes, at most N; 0: the anchor alone
    token_id* tokens = nullptr;       ///< [R, N + 1]; that of node 0 is not read, since round.requests has the anchors
    std::int32_t* parents = nullptr;  ///< [R, N + 1] node numbers; that of node 0 is not read
    distribution* distributions = nullptr;  ///< [R, N + 1] q of a node's first child, for rules that read it
    status* statuses = nullptr;  ///< [R]; flatten_trees makes it invalid_tree where a parent does not come before its
                                 ///< child, or a node is deeper than the round's block size

    // What follows from them.
    std::uint32_t* depths = nullptr;         ///< [R, N + 1] tokens behind the anchor; 0 beyond the tree
    std::int32_t* first_children = nullptr;  ///< [R, N + 1] no_node where there is none
    std::int32_t* next_siblings = nullptr;   ///< [R, N + 1] the same
    batch_columns batch{};                   ///< of R (N + 1) rows at most; its lengths are counts
    std::int32_t* parent_rows = nullptr;     ///< [rows] of the batch; no_node of an anchor
    std::uint64_t* ancestors = nullptr;  ///< [rows, mask_words()] bit m % 64 of word m / 64: the row attends to node m,
                                         ///< which is itself or its ancestor (draft_tree::ancestors)

    // What came of it.
    std::int32_t* paths = nullptr;  ///< [R, block size] accepted nodes; as many hold as verdicts.accepted says

    [[nodiscard]] bool ready() const noexcept { return nodes > 0 && nodes <= most_nodes && counts != nullptr; }
    /// Rows of a tree at most.
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t width() const noexcept { return nodes + 1; }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t mask_words() const noexcept { return (nodes + 64) / 64; }
    [[nodiscard]] SURELEAP_HOST_DEVICE std::uint32_t cell(std::uint32_t r, std::uint32_t n) const noexcept {
        return r * (nodes + 1) + n;
    }
};

/// Columns out of `ws`, for trees of `nodes` drafted nodes, 1 .. 255. If that only counts or is too small, the result
/// is not ready(), and every stage refuses it.
[[nodiscard]] inline tree_columns carve_trees(workspace& ws, device_limits const& limits,
                                              std::uint32_t nodes) noexcept {
    tree_columns trees{};
    if (!limits.valid() || nodes == 0 || nodes > tree_columns::most_nodes) return trees;
    std::size_t const requests = limits.requests;
    trees.nodes = nodes;
    std::size_t const cells = requests * trees.width();
    trees.counts = ws.take<std::uint32_t>(requests);
    trees.tokens = ws.take<token_id>(cells);
    trees.parents = ws.take<std::int32_t>(cells);
    trees.distributions = ws.take<distribution>(cells);
    trees.statuses = ws.take<status>(requests);
    trees.depths = ws.take<std::uint32_t>(cells);
    trees.first_children = ws.take<std::int32_t>(cells);
    trees.next_siblings = ws.take<std::int32_t>(cells);
    trees.batch = {trees.counts, ws.take<std::int32_t>(requests + 1), ws.take<token_id>(cells),
                   ws.take<std::uint64_t>(cells), ws.take<std::uint32_t>(cells)};
    trees.parent_rows = ws.take<std::int32_t>(cells);
    trees.ancestors = ws.take<std::uint64_t>(cells * trees.mask_words());
    trees.paths = ws.take<std::int32_t>(requests * limits.block_size);
    if (!ws.fits()) trees = {};
    return trees;
}

namespace detail {

/// A round whose drafts and batch are trees.
[[nodiscard]] inline device_round with_trees(device_round round, tree_columns const& trees) noexcept {
    round.batch = trees.batch;
    round.drafts.statuses = trees.statuses;
    return round;
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
