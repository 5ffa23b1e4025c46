// SPDX-License-Identifier: MIT
//
// Growing a tree, best node first. A place is a child that does not exist yet: the j-th of a node. Its value is the
// probability that this child will be accepted, as far as the drafter can tell. The place of the largest value is taken, its
// token drawn, and two places come instead: the node's next child, and the new node's first.
//
//     value of the j-th child of n = reach(n) (1 - a_0) .. (1 - a_{j-1}) a_j      a_i: acceptance(n, i)
//     reach of that child          = its value
//
// Values are asked for before the token is drawn, so they cannot depend on it: whether a child exists depends on tokens that
// were drawn before it. That is what rules that sample need (tree/rejection.hpp). A tree whose nodes are drawn first and
// ranked by their own probability, as EAGLE-2 does, is exact with matching rules alone, and cannot be grown here with draws.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/tree/draft_tree.hpp>
#include <sureleap/tree/remaining.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Who knows what may follow a node.
///
///     law(tree, n)             q behind node n, a function of the path to n. Asked once a node, when its first child is drawn.
///                              Its row stays until the rule has decided. At temperature 0 a law has one token, and so one
///                              child; where children are chosen it may be of another temperature.
///     acceptance(tree, n, j)   in [0, 1]: that the j-th child will be accepted if n was and its elder children were not.
///                              Child j is not in the tree yet.
template <class S, class Q>
concept tree_source = requires(S& source, draft_tree const& tree, node_id n, std::size_t j) {
    { source.law(tree, n) } -> std::convertible_to<distribution<Q>>;
    { source.acceptance(tree, n, j) } -> std::convertible_to<double>;
};

struct tree_limits {
    std::size_t nodes = 8;     ///< drafted tokens
    std::size_t depth = 8;     ///< positions
    std::size_t children = 4;  ///< of a node
    double least_value = 0.0;  ///< places below are not taken
    std::size_t straight = 0;  ///< nodes above this depth have one child: delayed branching (arXiv 2602.16994)
};

/// Memory of growing, for trees of at most so many nodes.
template <class Q>
class tree_growth {
public:
    tree_growth() = default;
    tree_growth(workspace& ws, std::size_t most) noexcept
        : laws_(ws.take<distribution<Q>>(most + 1)),
          reach_(ws.take<double>(most + 1)),
          places_(ws.take<place>(2 * most + 1)),
          siblings_(ws.take<token_id>(most)) {}

    /// Grows the tree of one request from its anchor, at most as deep as the request may still emit. The rule's draft_rule says
    /// how tokens are drawn; `source` models tree_source<Q>. O(nodes log nodes) besides what the source takes, and O(V) for each
    /// node that is drawn.
    template <class DraftRule, class Source, class Rng>
    void operator()(draft_tree& tree, request_view const& request, tree_limits limits, Source& source, Rng& rng,
                    DraftRule = {}) {
        static_assert(
            tree_source<Source, Q>,
            "tree_growth: the source needs law(tree, node) -> distribution<Q> and acceptance(tree, node, j) -> double");
        limits.depth = request.draft_cap(limits.depth);
        tree.begin(request.anchor);
        reach_[0] = 1.0;
        count_ = 0;
        offer(tree, source, anchor_node, 0, 1.0, limits);
        while (count_ > 0 && tree.size() <= limits.nodes && !tree.full()) {
            place const best = take();
            if (best.value < limits.least_value) break;
            node_id const parent = best.parent;
            if (best.rank == 0) laws_[at(parent)] = source.law(tree, parent);
            auto const& q = laws_[at(parent)];
            if (!q.valid()) continue;
            undrawn const weights{q, elders(tree, parent)};
            if (!(weights.total() > q.total() * 1e-9)) continue;  // every token that q has is there
            token_id const x = draw<DraftRule>(request, tree, parent, weights, rng);
            if (x == no_token) continue;
            node_id const child = tree.append(parent, x);
            reach_[at(child)] = best.value;
            offer(tree, source, parent, best.rank + 1, best.missed, limits);
            offer(tree, source, child, 0, best.value, limits);
        }
    }
    /// [tree.size()] q of each node that has children; of the last tree.
    [[nodiscard]] std::span<distribution<Q> const> laws() const noexcept { return laws_; }
    /// [tree.size()] how likely each node was thought to be accepted.
    [[nodiscard]] std::span<double const> reach() const noexcept { return reach_; }

private:
    struct place {
        double value = 0.0;
        double missed = 0.0;  // that the node is reached and this child is rejected as well
        node_id parent = no_node;
        std::uint32_t rank = 0;
    };
    [[nodiscard]] static std::size_t at(node_id n) noexcept { return static_cast<std::size_t>(n); }
    // Larger values first, then elder nodes: the same tree on every machine.
    [[nodiscard]] static bool after(place const& a, place const& b) noexcept {
        return a.value != b.value ? a.value < b.value : a.parent > b.parent;
    }

    template <class Source>
    void offer(draft_tree const& tree, Source& source, node_id n, std::uint32_t rank, double reached,
               tree_limits const& limits) {
        std::size_t const depth = tree.depth(n);
        if (depth >= limits.depth || rank >= (depth < limits.straight ? 1 : limits.children)) return;
        double const a = std::clamp(static_cast<double>(source.acceptance(tree, n, rank)), 0.0, 1.0);
        places_[count_++] = {reached * a, reached * (1.0 - a), n, rank};
        std::push_heap(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(count_), after);
    }
    [[nodiscard]] place take() noexcept {
        std::pop_heap(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(count_), after);
        return places_[--count_];
    }
    [[nodiscard]] std::span<token_id const> elders(draft_tree const& tree, node_id n) noexcept {
        std::size_t count = 0;
        for (node_id c = tree.first_child(n); c != no_node; c = tree.next_sibling(c))
            siblings_[count++] = tree.token(c);
        return siblings_.first(count);
    }
    template <class DraftRule, class Weights, class Rng>
    [[nodiscard]] token_id draw(request_view const& request, draft_tree const& tree, node_id parent,
                                Weights const& weights, Rng& rng) const noexcept {
        if constexpr (std::is_same_v<DraftRule, argmax_draft>) {
            token_id best = no_token;
            double most = 0.0;
            for (token_id v = 0; v < static_cast<token_id>(weights.size()); ++v) {
                if (weights[v] > most) {
                    most = weights[v];
                    best = v;
                }
            }
            return best;
        } else if constexpr (std::is_same_v<DraftRule, coupled_draft>) {
            return rng.gumbel_max(noise_key(request, tree.depth(parent)), weights);
        } else {
            return rng.categorical(block_key(request, tree.size(), purpose::draft), weights);
        }
    }

    std::span<distribution<Q>> laws_{};
    std::span<double> reach_{};
    std::span<place> places_{};
    std::size_t count_ = 0;
    std::span<token_id> siblings_{};
};

SURELEAP_END_NAMESPACE
