// SPDX-License-Identifier: MIT
//
// Rounds of random trees, on the host and on the device. All that the tests of cuda/tree/ ask of the host's trees and
// rules goes through `host_tree` and `decide_on_host`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/verify/draft_tree.hpp>
#include <sureleap/verify/verification.hpp>

#include "cuda/support/device_rounds.hpp"
#include "support/dice.hpp"

namespace tree_scene {

using namespace sureleap;
namespace device = sureleap::cuda;
using support::dice;

/// A tree of the host, with its memory.
class host_tree {
public:
    explicit host_tree(std::size_t most) {
        workspace sizer;
        static_cast<void>(draft_tree(sizer, most));
        memory_.resize(sizer.used());
        workspace ws{memory_};
        tree = draft_tree(ws, most);
    }
    draft_tree tree;

    [[nodiscard]] std::vector<node_id> path_to(node_id n) const {
        std::vector<node_id> path(tree.depth(n));
        static_cast<void>(tree.path(n, path));
        return path;
    }

private:
    std::vector<std::byte> memory_;
};

/// The same draws, but no proposal succeeds: tokens behind a rejection are drawn by a pass then, as on the device.
template <class Rng>
struct without_proposals {
    Rng& rng;
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return key.use != purpose::proposal_accept && rng.bernoulli(key, num, den);
    }
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const {
        return rng.categorical(key, weights);
    }
    template <class Weights>
    [[nodiscard]] token_id gumbel_max(draw_key const& key, Weights const& weights) const {
        return rng.gumbel_max(key, weights);
    }
};

/// What a rule of the host decides of a tree. `rows` [tree.size(), vocabulary]: row n is the target's behind node n.
/// `recorded` [tree.size()]: q, for rules that read it.
template <class T, class Q = float, class Rule, class Rng>
[[nodiscard]] decision decide_on_host(Rule const& rule, Rng& rng, request_view const& request, draft_tree const& tree,
                                      std::vector<T> const& rows, std::size_t vocabulary,
                                      std::span<distribution<Q> const> recorded = {}) {
    using memory_type = verification_memory<T, no_logits_hook>;
    auto const carve = [&](workspace& ws) {
        auto const memory = memory_type::carve(ws, tree.size(), vocabulary, scalar_kernels<row_kernels>);
        return std::pair(memory, tree_scratch::carve(ws, tree.size()));
    };
    workspace sizer;
    static_cast<void>(carve(sizer));
    std::vector<std::byte> bytes(sizer.used());
    workspace ws{bytes};
    auto [memory, scratch] = carve(ws);
    scratch.tree = tree;
    std::vector<distribution<Q>> drawn_from;  // by drafted token
    if (!recorded.empty()) {
        for (node_id const parent : tree.parents().subspan(1)) {
            drawn_from.push_back(recorded[static_cast<std::size_t>(parent)]);
        }
    }
    logits_rows<T> const values{{rows.data(), tree.size(), vocabulary}, {}, {}};
    no_logits_hook const hook{};
    verification<T, Q> v{request, drawn_from, values, 0, hook, memory, scratch};
    without_proposals<Rng> source{rng};
    return sureleap::detail::decide(rule, v, source);
}

enum class tree_shape { bushy, chain, star, anchor, full };
inline constexpr tree_shape tree_shapes[] = {tree_shape::bushy, tree_shape::chain, tree_shape::star, tree_shape::anchor,
                                             tree_shape::full};

/// The parent of the next node of a tree, or no_node if it has all.
[[nodiscard]] inline node_id next_parent(dice& roll, draft_tree const& tree, tree_shape shape, std::size_t most,
                                         std::size_t deepest) {
    if (tree.full() || tree.size() > most || shape == tree_shape::anchor) return no_node;
    if (shape == tree_shape::star) return anchor_node;
    auto const last = static_cast<node_id>(tree.size() - 1);
    if (shape == tree_shape::chain) return tree.depth(last) < deepest ? last : no_node;
    // Not always the youngest: siblings then do not stand side by side.
    for (std::size_t i = 0; i < 8; ++i) {
        auto const n = static_cast<node_id>(roll.below(tree.size()));
        if (tree.depth(n) < deepest) return n;
    }
    return anchor_node;
}

/// Sizes of a round of trees.
struct sizes {
    std::size_t most = 1;     ///< limits.requests
    std::size_t present = 1;  ///< R
    std::size_t nodes = 8;    ///< N
    std::size_t block_size = 4;
    std::size_t vocabulary = 1000;
    std::size_t stop_tokens = 0;
    bool log_probabilities = false;
};

/// Requests with trees on both sides. The trees have their anchors alone until they are grown and uploaded.
struct scene {
    sizes shape;
    device::device_limits limits;
    support::device_rounds round;
    support::carved<device::tree_columns> trees;
    std::vector<request_settings> settings;
    std::vector<request_view> views;
    std::vector<host_tree> host;

    scene(dice& roll, sizes const& of)
        : shape(of),
          limits{static_cast<std::uint32_t>(of.most), static_cast<std::uint32_t>(of.block_size),
                 static_cast<std::uint32_t>(of.vocabulary), static_cast<std::uint32_t>(of.stop_tokens),
                 of.log_probabilities},
          round(support::round_of(limits)),
          trees([&](device::workspace& ws) {
              return device::carve_trees(ws, limits, static_cast<std::uint32_t>(of.nodes));
          }),
          settings(of.present) {
        for (std::size_t r = 0; r < of.present; ++r) {
            views.push_back({.id = r + 1,
                             .slot = r,
                             .anchor = static_cast<token_id>(roll.below(of.vocabulary)),
                             .position = roll.below(roll.chance(0.2) ? 3 : 500),
                             .seed = roll.bits(),
                             .remaining = of.block_size + 1 + roll.below(5)});
            host.emplace_back(of.nodes);
            host.back().tree.begin(views.back().anchor);
        }
        for (std::size_t r = 0; r < of.present; ++r) views[r].settings = &settings[r];
    }
    scene(scene const&) = delete;

    /// Trees of random shapes, with tokens below `tokens`.
    void grow(dice& roll, std::size_t tokens) {
        for (host_tree& h : host) {
            auto const kind = tree_shapes[roll.below(std::size(tree_shapes))];
            std::size_t const most = kind == tree_shape::full ? shape.nodes : roll.below(shape.nodes + 1);
            for (;;) {
                node_id const parent = next_parent(roll, h.tree, kind, most, shape.block_size);
                if (parent == no_node) break;
                h.tree.append(parent, static_cast<token_id>(roll.below(tokens)));
            }
        }
    }

    /// Writes requests and trees to the device. Node 0 of the columns holds what nobody should read.
    void upload() const {
        auto const& requests = round.columns.requests;
        auto const column = [&](auto* to, auto const& of) {
            std::vector<std::remove_pointer_t<decltype(to)>> values;
            for (std::size_t r = 0; r < views.size(); ++r) values.push_back(of(r));
            support::upload(to, values);
        };
        support::upload(requests.count, static_cast<std::uint32_t>(views.size()));
        column(requests.anchors, [&](std::size_t r) { return views[r].anchor; });
        column(requests.positions, [&](std::size_t r) { return views[r].position; });
        column(requests.seeds, [&](std::size_t r) { return views[r].seed; });
        column(requests.targets, [&](std::size_t r) { return settings[r].target_transform(); });
        column(requests.remaining, [&](std::size_t r) { return static_cast<std::uint32_t>(views[r].remaining); });
        column(trees.columns.counts,
               [&](std::size_t r) { return static_cast<std::uint32_t>(host[r].tree.size() - 1); });
        column(trees.columns.statuses, [](std::size_t) { return status::ok; });
        std::size_t const width = shape.nodes + 1;
        std::vector<token_id> tokens(views.size() * width, -55);
        std::vector<std::int32_t> parents(views.size() * width, -66);
        for (std::size_t r = 0; r < views.size(); ++r) {
            for (std::size_t n = 1; n < host[r].tree.size(); ++n) {
                tokens[r * width + n] = host[r].tree.token(static_cast<node_id>(n));
                parents[r * width + n] = host[r].tree.parent(static_cast<node_id>(n));
            }
        }
        support::upload(trees.columns.tokens, tokens);
        support::upload(trees.columns.parents, parents);
    }
    [[nodiscard]] std::size_t rows_of(std::size_t r) const { return r < host.size() ? host[r].tree.size() : 0; }
    [[nodiscard]] std::size_t rows() const {
        std::size_t sum = 0;
        for (std::size_t r = 0; r < host.size(); ++r) sum += rows_of(r);
        return sum;
    }
};

}  // namespace tree_scene
