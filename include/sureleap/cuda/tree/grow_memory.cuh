// SPDX-License-Identifier: MIT
//
// What growing trees is told, and what it keeps in device memory. In: a head that is confined to shortlists, the limits
// of rounds, the nodes of a tree. Out: what grow_trees (grow.cuh) fills, and what accept reads q from.
//
// A list and its logits are kept for every node that may have children. They live until the trees are judged.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/drafter/shortlist_memory.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/top_tokens.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/drafter/sibling_worth.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// A head that keeps a state for each request behind the tokens before. In a tree every node has one.
template <class Head>
concept recurrent_head = requires(Head head, float* memory) { head.states = memory; };

/// What a confidence is worth for a child of some rank: the numbers of the host's sibling_worth, by rank. Ranks behind
/// the last share it.
struct sibling_ratios {
    static constexpr std::uint32_t ranks = sibling_worth::ranks;

    double of[ranks];

    /// What is assumed before any child was seen, by sibling_worth_settings.
    sibling_ratios() noexcept : sibling_ratios(sibling_worth{}) {}
    explicit sibling_ratios(sibling_worth const& worth) noexcept : of{} {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) of[rank] = worth(rank);
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE double operator()(std::uint32_t rank) const noexcept {
        return of[rank < ranks ? rank : ranks - 1];
    }
};

/// How the trees of all requests grow. More nodes are not taken than trees.nodes.
struct growth_options {
    std::uint32_t children = 4;  ///< most of a node; at least 1
    std::uint32_t straight = 0;  ///< nodes above this depth have one child: delayed branching (arXiv 2602.16994)
    /// [1] in device memory, read in every round; null: what is assumed before any child was seen. Promise: they stay
    /// as they are until the round has succeeded, and so does the calibration. A round that is run again must grow the
    /// same trees.
    sibling_ratios const* siblings = nullptr;
    fixed_probability const* floor = nullptr;  ///< [1] trees end before a survival below it; null: nowhere
};

/// What the memory is made for.
struct growth_shape {
    shortlist_shape lists{};
    std::uint32_t state_size = 0;  ///< floats of a recurrent head's state

    [[nodiscard]] bool operator==(growth_shape const&) const = default;
};

template <device_head Head>
[[nodiscard]] growth_shape growth_shape_of(shortlist_head<Head> const& list) noexcept {
    return {shape_of(list), recurrent_head<Head> ? static_cast<std::uint32_t>(list.head.w2.cols) : 0};
}

/// Pointers, to be passed to kernels by value. Row r * nodes + n belongs to node n of request r; the last node of a
/// full tree has no children, and no row.
struct growth_memory {
    growth_shape shape{};
    device_limits limits{};
    std::uint32_t nodes = 0;    ///< N
    token_lists best{};         ///< of every position by base logits
    token_lists lists{};        ///< [R, N] what children of a node were drawn from, ascending
    float* logits = nullptr;    ///< [R, N, lists.capacity]
    token_id* fresh = nullptr;  ///< [R, shape.lists.successors] those that are not among the best
    float* states = nullptr;    ///< [R, N, shape.state_size]
    /// [R, N] behind nodes that have children, calibrated: what sibling_worth::observe is told.
    double* confidences = nullptr;
    /// [R, N] of nodes 1 .. counts[r]: weight x how likely each is accepted. It falls.
    fixed_probability* survival = nullptr;

    [[nodiscard]] bool ready() const noexcept { return survival != nullptr; }
};

/// Out of `ws`, for trees of `nodes` drafted nodes, 1 .. 255: R N (8 (best + successors) + 12 + 4 state_size) bytes,
/// and 4 best for each of the R gamma positions. If that only counts or is too small, the result is not ready().
[[nodiscard]] inline growth_memory carve_growth(workspace& ws, device_limits const& limits, std::uint32_t nodes,
                                                growth_shape const& shape) noexcept {
    growth_memory memory{};
    bool const lists = shape.lists.best > 0 && shape.lists.best <= shape.lists.vocabulary;
    if (!limits.valid() || nodes == 0 || nodes > tree_columns::most_nodes || !lists) return memory;
    device_limits of_nodes = limits;
    of_nodes.block_size = nodes;
    std::size_t const rows = std::size_t{limits.requests} * nodes;
    memory.shape = shape;
    memory.limits = limits;
    memory.nodes = nodes;
    memory.best = token_lists::take(ws, limits, shape.lists.best);
    memory.lists = token_lists::take(ws, of_nodes, shape.lists.capacity());
    memory.logits = ws.take<float>(rows * shape.lists.capacity());
    memory.fresh = ws.take<token_id>(std::size_t{limits.requests} * shape.lists.successors);
    memory.states = ws.take<float>(rows * shape.state_size);
    memory.confidences = ws.take<double>(rows);
    memory.survival = ws.take<fixed_probability>(rows);
    if (!ws.fits()) memory = {};
    return memory;
}

/// q of the nodes, for accept.
[[nodiscard]] inline listed_draft_rows draft_rows_of(growth_memory const& memory) noexcept {
    return {memory.lists, memory.logits, memory.nodes};
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
