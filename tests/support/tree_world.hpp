// SPDX-License-Identifier: MIT
//
// Rounds of draft trees in the tiny worlds of small_world.hpp, and the exact law of what they emit.
//
//     tree_law(kind, w, scene, rule, limits)    rounds follow each other until the horizon, each request with a tree
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include <sureleap/drafter/grow.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/traversal.hpp>
#include <sureleap/verify/verification.hpp>

#include "support/small_world.hpp"

namespace tree_world {

using namespace small_world;

/// What may follow a node in a world: the backbone's row of its depth and the head's bias of its token. How likely
/// children are accepted depends on the node's token, so that trees really depend on what was drawn.
class world_source {
public:
    /// `rows` [nodes, V]: q's logits, which laws refer to. `fall`: how much less likely a child is accepted than the
    /// one before.
    world_source(world const& w, request_view const& request, std::span<double> rows, std::span<token_id> order,
                 double fall)
        : w_(w), request_(request), rows_(rows), order_(order), fall_(fall) {}

    [[nodiscard]] distribution<double> law(draft_tree const& tree, node_id n) {
        auto const row = rows_.subspan(static_cast<std::size_t>(n) * w_.vocabulary, w_.vocabulary);
        for (std::size_t v = 0; v < row.size(); ++v) {
            row[v] = w_.base(request_.anchor, request_.position, tree.depth(n), v) + w_.bias(tree.token(n), v);
        }
        return {{row, {}}, request_.settings->draft_transform(), order_, {}, scalar_kernels<row_kernels>};
    }
    [[nodiscard]] double acceptance(draft_tree const& tree, node_id n, std::size_t j) const {
        double a = w_.confidence(tree.token(n), tree.depth(n));
        for (; j > 0; --j) a *= fall_;
        return a;
    }

private:
    world const& w_;
    request_view const& request_;
    std::span<double> rows_;
    std::span<token_id> order_;
    double fall_;
};

/// Room for trees of at most 15 nodes.
struct tree_room {
    static constexpr std::size_t most = 15;

    explicit tree_room(std::size_t vocabulary) : bytes_(size_for(vocabulary)) {
        workspace ws{bytes_};
        carve(ws, vocabulary);
    }
    draft_tree tree;
    tree_growth<double> growth;
    verification_memory<double, no_logits_hook> memory;
    tree_scratch scratch;
    std::span<double> rows;
    std::span<token_id> order;

private:
    tree_room() = default;
    void carve(workspace& ws, std::size_t vocabulary) {
        tree = draft_tree(ws, most);
        growth = tree_growth<double>(ws, most);
        memory = decltype(memory)::carve(ws, most, vocabulary, scalar_kernels<row_kernels>);
        scratch = tree_scratch::carve(ws, most);
        rows = ws.take<double>((most + 1) * vocabulary);
        order = ws.take<token_id>(vocabulary);
    }
    [[nodiscard]] static std::size_t size_for(std::size_t vocabulary) {
        workspace sizer;
        tree_room room;
        room.carve(sizer, vocabulary);
        return sizer.used();
    }
    std::vector<std::byte> bytes_;
};

/// The target's rows behind the nodes of a tree.
[[nodiscard]] inline std::vector<double> rows_of(world const& w, std::span<token_id const> context,
                                                 draft_tree const& tree) {
    std::vector<double> rows(tree.size() * w.vocabulary);
    std::vector<node_id> path(tree.size());
    for (std::size_t n = 0; n < tree.size(); ++n) {
        std::vector<token_id> longer(context.begin(), context.end());
        for (node_id const m : tree.path(static_cast<node_id>(n), path)) longer.push_back(tree.token(m));
        w.target(longer, std::span(rows).subspan(n * w.vocabulary, w.vocabulary));
    }
    return rows;
}

/// How a round's tree comes about; replaced by mutants.
struct grown {
    double fall = 0.7;
    template <class Rule, class Rng>
    void operator()(tree_room& room, request_view const& request, tree_limits const& limits, world const& w,
                    Rule const&, Rng& rng) const {
        world_source source{w, request, room.rows, room.order, fall};
        room.growth(room.tree, request, limits, source, rng, typename Rule::draft_rule{});
    }
};

/// One round of one request: what it emits. `drafted` becomes the number of drafted nodes.
template <class Rule, class Rng, class Grow>
[[nodiscard]] std::vector<token_id> tree_round(tree_room& room, request_view const& request, tree_limits const& limits,
                                               world const& w, Rule const& rule, Rng& rng, Grow const& grow,
                                               std::size_t& drafted) {
    grow(room, request, limits, w, rule, rng);
    drafted = room.tree.size() - 1;
    auto const values = rows_of(w, request.context, room.tree);
    logits_rows<double> const rows{{values.data(), room.tree.size(), w.vocabulary}, {}};
    std::vector<distribution<double>> recorded;
    for (node_id const parent : room.tree.parents().subspan(1)) {
        recorded.push_back(room.growth.laws()[static_cast<std::size_t>(parent)]);
    }
    room.scratch.tree = room.tree;
    no_logits_hook const hook{};
    verification<double, double> v{request, recorded, rows, 0, hook, room.memory, room.scratch};
    decision const d = sureleap::detail::decide(rule, v, rng);
    std::vector<node_id> path(tree_room::most);
    std::vector<token_id> emitted;
    for (node_id const n : room.tree.path(static_cast<node_id>(d.row), path)) emitted.push_back(room.tree.token(n));
    emitted.push_back(d.next);
    return emitted;
}

/// Outputs of all requests, whose nodes of a round are limits.nodes together: the later requests have what the earlier
/// ones left, which depends on the earlier ones' drafts.
template <class Rule, class Rng, class Grow>
[[nodiscard]] outcome play_trees(world const& w, scene const& s, tree_room& room, tree_limits const& limits,
                                 Rule const& rule, Rng& rng, Grow const& grow, double* accepted = nullptr) {
    std::vector<std::vector<token_id>> texts;
    for (auto const& request : s.requests) texts.push_back(request.prompt);
    bool open = true;
    while (open) {
        open = false;
        std::size_t left = limits.nodes;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            auto& text = texts[i];
            std::size_t const seen = text.size() - s.requests[i].prompt.size();
            if (seen >= s.horizon) continue;
            request_settings const& settings = s.requests[i].settings;
            request_view const request{.id = i + 1,
                                       .slot = i,
                                       .anchor = text.back(),
                                       .position = text.size() - 1,
                                       .context = text,
                                       .seed = 100 + i,
                                       .remaining = 100,
                                       .settings = &settings};
            tree_limits mine = limits;
            mine.nodes = left;
            std::size_t drafted = 0;
            auto const emitted = tree_round(room, request, mine, w, rule, rng, grow, drafted);
            left -= std::min(left, drafted);
            if (accepted != nullptr) *accepted += static_cast<double>(emitted.size() - 1);
            text.insert(text.end(), emitted.begin(), emitted.end());
            open = open || text.size() - s.requests[i].prompt.size() < s.horizon;
        }
    }
    outcome o;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        auto const first = texts[i].begin() + static_cast<std::ptrdiff_t>(s.requests[i].prompt.size());
        o.insert(o.end(), first, first + static_cast<std::ptrdiff_t>(s.horizon));
        o.push_back(-1);
    }
    return o;
}

struct tree_laws {
    law output;
    double accepted = 0.0;  ///< drafts, expected, until the horizon
    std::size_t paths = 0;
    std::size_t nodes = 0;  ///< of the largest tree
};
template <class Rule, class Grow = grown, class Wrap>
[[nodiscard]] tree_laws tree_law(enumerator::noise kind, world const& w, scene const& s, Rule const& rule,
                                 tree_limits const& limits, Grow const& grow, Wrap const& wrap) {
    tree_laws result;
    tree_room room(w.vocabulary);
    enumerator walk{kind};
    walk.for_each_path([&] {
        auto rng = wrap(walk.handle());
        double accepted = 0.0;
        outcome const seen = play_trees(w, s, room, limits, rule, rng, grow, &accepted);
        result.output[seen] += walk.weight();
        result.accepted += walk.weight() * accepted;
    });
    result.paths = walk.paths();
    return result;
}
template <class Rule, class Grow = grown>
[[nodiscard]] tree_laws tree_law(enumerator::noise kind, world const& w, scene const& s, Rule const& rule,
                                 tree_limits const& limits, Grow const& grow = {}) {
    return tree_law(kind, w, s, rule, limits, grow, [](enumerator::source source) { return source; });
}

/// The law of `horizon` tokens of one request, of which the first come from one round and the rest from the target.
template <class Rule>
[[nodiscard]] tree_laws round_law(enumerator::noise kind, world const& w, std::size_t horizon, Rule const& rule,
                                  tree_limits const& limits, grown const& grow = {}) {
    tree_laws result;
    tree_room room(w.vocabulary);
    request_settings const settings{};
    std::vector<token_id> const prompt{0};
    request_view const request{
        .id = 1, .anchor = 0, .position = 0, .context = prompt, .seed = 100, .remaining = 100, .settings = &settings};
    std::map<std::vector<token_id>, double> begun;
    enumerator walk{kind};
    walk.for_each_path([&] {
        auto rng = walk.handle();
        std::size_t drafted = 0;
        auto emitted = tree_round(room, request, limits, w, rule, rng, grow, drafted);
        result.nodes = std::max(result.nodes, drafted);
        emitted.resize(std::min(emitted.size(), horizon));
        begun[emitted] += walk.weight();
    });
    result.paths = walk.paths();
    for (auto const& [first, weight] : begun) {
        result.accepted += weight * static_cast<double>(first.size() - 1);
        scene_request rest{.prompt = prompt};
        rest.prompt.insert(rest.prompt.end(), first.begin(), first.end());
        for (auto const& [last, p] : autoregressive_law(w, {{rest}, horizon - first.size(), 0})) {
            outcome o = first;
            o.insert(o.end(), last.begin(), last.end());
            result.output[o] += weight * p;
        }
    }
    return result;
}

}  // namespace tree_world
