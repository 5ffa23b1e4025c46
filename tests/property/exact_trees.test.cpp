// SPDX-License-Identifier: MIT
//
// Rules for trees have the target's law, by enumeration, with both kinds of noise: over several rounds, jointly over
// two requests that share their nodes, and of one round of up to twelve nodes. Bugs that only trees can have are put
// back and must be seen. Ten seconds.
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/tree_world.hpp"

using namespace tree_world;

namespace {

constexpr double tolerance = 1e-12;
constexpr double visible = 1e-3;
constexpr enumerator::noise both[] = {enumerator::noise::fresh, enumerator::noise::keyed};

struct shape {
    char const* name;
    tree_limits limits;
};
shape const small_shapes[] = {
    {"a chain of 2", {.nodes = 2, .children = 1}},
    {"2 siblings", {.nodes = 2, .depth = 1, .children = 2}},
    {"3 nodes, best first", {.nodes = 3, .children = 2}},
    {"3 nodes, all siblings", {.nodes = 3, .depth = 1, .children = 3}},
    {"4 nodes, straight at first", {.nodes = 4, .depth = 3, .children = 2, .straight = 1}},
    {"4 nodes worth 0.2", {.nodes = 4, .children = 2, .least_value = 0.2}},
};
// Of rules over the noise of races, which two or three tokens have.
template <class Visit>
void for_each_rule(Visit&& visit) {
    visit("recursive rejection", recursive_rejection<>{});
    visit("recursive rejection, chosen children", recursive_rejection<argmax_draft>{});
    visit("traversal verification", traversal_verification<>{});
    visit("traversal verification, chosen children", traversal_verification<argmax_draft>{});
    visit("tree match", target_match<>{});
    visit("tree coupling", keyed_coupling{});
}

template <class Rule>
void check_exact(std::string const& name, enumerator::noise kind, world const& w, scene const& s, Rule const& rule,
                 shape const& tree) {
    INFO(name << ", " << tree.name << ", " << (kind == enumerator::noise::keyed ? "keyed" : "fresh") << " noise, world "
              << w.seed << ", V = " << w.vocabulary);
    auto const found = tree_law(kind, w, s, rule, tree.limits);
    CAPTURE(found.paths);
    CHECK(largest_difference(found.output, autoregressive_law(w, s)) <= tolerance);
}

template <class Rule, class Grow, class Wrap>
[[nodiscard]] double worst_bias(scene const& s, Rule const& rule, tree_limits const& limits, Grow const& grow,
                                Wrap const& wrap) {
    double worst = 0.0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        world const w{seed, 3, 3};
        auto const found = tree_law(enumerator::noise::keyed, w, s, rule, limits, grow, wrap);
        worst = std::max(worst, total_variation(found.output, autoregressive_law(w, s)));
    }
    return worst;
}
template <class Rule, class Grow>
[[nodiscard]] double worst_bias(scene const& s, Rule const& rule, tree_limits const& limits, Grow const& grow) {
    return worst_bias(s, rule, limits, grow, [](enumerator::source source) { return source; });
}

// ---- bugs ----------------------------------------------------------------------------------------------------------

/// Siblings are judged by p and q as they were before the elder ones were rejected.
struct siblings_not_renormalised {
    using draft_rule = categorical_draft;
    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        for (node_id n = anchor_node;;) {
            auto const& p = v.target(n);
            remaining<categorical_draft, typename Verification::law, typename Verification::draft_law> left{
                p, v.draft(n), v.rejected()};
            node_id c = v.tree().first_child(n);
            for (; c != no_node; c = v.tree().next_sibling(c)) {
                token_id const x = v.tree().token(c);
                if (rng.bernoulli(v.key(c, purpose::accept), p.probability(x), v.draft(n).probability(x))) break;
                left.reject(x, 1.0);
            }
            if (c == no_node) return {true, n, rng.categorical(v.key(n, purpose::residual), left)};
            n = c;
        }
    }
};

/// Two children are drawn with replacement, and judged as if they had been drawn without. (Without doubles they may
/// be.)
struct drawn_with_replacement {
    template <class Rule, class Rng>
    void operator()(tree_room& room, request_view const& request, tree_limits limits, world const& w, Rule const& rule,
                    Rng& rng) const {
        limits.nodes = 1;
        grown{}(room, request, limits, w, rule, rng);
        room.tree.append(anchor_node, rng.categorical(block_key(request, 2, purpose::draft), room.growth.laws()[0]));
    }
};

/// Nodes that were drawn are left out if q thought little of them: their own tokens decide whether they exist.
struct ranked_by_own_probability {
    template <class Rule, class Rng>
    void operator()(tree_room& room, request_view const& request, tree_limits const& limits, world const& w,
                    Rule const& rule, Rng& rng) const {
        grown{}(room, request, limits, w, rule, rng);
        keep_if(room, request, [&](node_id n) {
            return room.growth.laws()[static_cast<std::size_t>(room.tree.parent(n))].probability(room.tree.token(n)) >
                   0.3;
        });
    }
    template <class Keep>
    static void keep_if(tree_room& room, request_view const& request, Keep const& keep) {
        struct kept {
            node_id before;
            token_id token;
            bool stays;
        };
        std::vector<kept> all;
        for (std::size_t n = 0; n < room.tree.size(); ++n) {
            auto const id = static_cast<node_id>(n);
            all.push_back({room.tree.parent(id), room.tree.token(id), n == 0 || keep(id)});
        }
        // Only leaves of the anchor may go, so that ids of nodes, and with them the laws of their children, stay.
        room.tree.begin(request.anchor);
        for (std::size_t n = 1; n < all.size() && all[n].stays; ++n) room.tree.append(all[n].before, all[n].token);
    }
};

/// The target's own row decides which nodes exist.
struct grown_by_target {
    template <class Rule, class Rng>
    void operator()(tree_room& room, request_view const& request, tree_limits const& limits, world const& w,
                    Rule const& rule, Rng& rng) const {
        grown{}(room, request, limits, w, rule, rng);
        std::vector<double> row(w.vocabulary);
        w.target(request.context, row);
        ranked_by_own_probability::keep_if(room, request, [&](node_id n) {
            return room.tree.parent(n) != anchor_node || row[static_cast<std::size_t>(room.tree.token(n))] > 0.0;
        });
    }
};

/// Draws are named by their depth: siblings, and cousins, share them.
template <class Rename>
struct renamed {
    enumerator::source source;
    Rename rename;
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return source.bernoulli(rename(key), num, den);
    }
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const {
        return source.categorical(rename(key), weights);
    }
};

}  // namespace

TEST_CASE("rules for trees: exact over rounds", "[exact]") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        world const w{seed, 3, 3};
        scene const s{{{}}, 2, 0};
        for_each_rule([&](std::string const& name, auto const& rule) {
            for (shape const& tree : small_shapes) {
                for (auto const kind : both) check_exact(name, kind, w, s, rule, tree);
            }
        });
    }
}

TEST_CASE("rules for trees: exact jointly over two requests that share their nodes", "[exact]") {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        world const w{seed, 2, 3};
        scene const s{{{}, {.prompt = {1}}}, 2, 0};
        for_each_rule([&](std::string const& name, auto const& rule) {
            check_exact(name, enumerator::noise::keyed, w, s, rule, {"4 nodes of two", {.nodes = 4, .children = 2}});
        });
    }
}

TEST_CASE("rules for trees: exact at temperature 0 and with truncated laws", "[exact]") {
    world const w{4, 3, 3};
    tree_limits const limits{.nodes = 4, .children = 2};
    scene const greedy{{{.settings = {.temperature = 0.0}}}, 3, 0};
    check_exact("greedy tree match", enumerator::noise::keyed, w, greedy, greedy_match{}, {"4 nodes", limits});
    scene const truncated{{{.settings = {.temperature = 0.8, .top_k = 2}}}, 2, 0};
    for_each_rule([&](std::string const& name, auto const& rule) {
        check_exact(name, enumerator::noise::keyed, w, greedy, rule, {"4 nodes", limits});
        check_exact(name, enumerator::noise::keyed, w, truncated, rule, {"4 nodes", limits});
    });
}

TEST_CASE("a round of twelve nodes, and of four tokens and three levels", "[exact][long]") {
    auto const check = [](std::string const& name, world const& w, auto const& rule, tree_limits const& limits) {
        INFO(name << ", " << limits.nodes << " nodes, depth " << limits.depth << ", V = " << w.vocabulary);
        auto const found = round_law(enumerator::noise::fresh, w, 4, rule, limits, {.fall = 0.98});
        CAPTURE(found.paths);
        CHECK(found.nodes == limits.nodes);
        CHECK(largest_difference(found.output, autoregressive_law(w, {{{}}, 4, 0})) <= tolerance);
    };
    for_each_rule([&](std::string const& name, auto const& rule) {
        check(name, {5, 3, 3}, rule, {.nodes = 12, .depth = 3, .children = 3});
        check(name, {6, 4, 3}, rule, {.nodes = 5, .depth = 3, .children = 3});
    });
}

TEST_CASE("traversal accepts at least as much of a tree as recursive rejection") {
    scene const s{{{}}, 3, 0};
    double recursive = 0.0, traversal = 0.0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        world const w{seed, 3, 3};
        tree_limits const limits{.nodes = 3, .children = 2};
        double const r = tree_law(enumerator::noise::fresh, w, s, recursive_rejection<>{}, limits).accepted;
        double const t = tree_law(enumerator::noise::fresh, w, s, traversal_verification<>{}, limits).accepted;
        CHECK(t >= r - tolerance);
        recursive += r;
        traversal += t;
    }
    INFO("accepted, expected: recursive " << recursive << ", traversal " << traversal);
    CHECK(traversal > 1.01 * recursive);
}

TEST_CASE("mutant control: nothing is wrong where nothing was changed", "[mutant]") {
    tree_limits const limits{.nodes = 3, .children = 2};
    CHECK(worst_bias({{{}}, 2, 0}, recursive_rejection<>{}, limits, grown{}) <= tolerance);
}

TEST_CASE("mutant: siblings are judged without what the elder ones took", "[mutant]") {
    CHECK(worst_bias({{{}}, 1, 0}, siblings_not_renormalised{}, {.nodes = 2, .depth = 1, .children = 2}, grown{}) >
          visible);
}

TEST_CASE("mutant: draws with replacement, judged as draws without", "[mutant]") {
    tree_limits const limits{.nodes = 2, .depth = 1, .children = 2};
    CHECK(worst_bias({{{}}, 1, 0}, recursive_rejection<>{}, limits, drawn_with_replacement{}) > visible);
    CHECK(worst_bias({{{}}, 1, 0}, traversal_verification<>{}, limits, drawn_with_replacement{}) > visible);
}

TEST_CASE("mutant: a node exists by what its own token is", "[mutant]") {
    tree_limits const limits{.nodes = 2, .depth = 1, .children = 2};
    CHECK(worst_bias({{{}}, 1, 0}, recursive_rejection<>{}, limits, ranked_by_own_probability{}) > visible);
    CHECK(worst_bias({{{}}, 1, 0}, traversal_verification<>{}, limits, ranked_by_own_probability{}) > visible);
    // Rules that choose the target's token first do not mind.
    CHECK(worst_bias({{{}}, 2, 0}, target_match<>{}, limits, ranked_by_own_probability{}) <= tolerance);
    CHECK(worst_bias({{{}}, 2, 0}, keyed_coupling{}, limits, ranked_by_own_probability{}) <= tolerance);
}

TEST_CASE("mutant: a node exists by the target's row", "[mutant]") {
    tree_limits const limits{.nodes = 2, .depth = 1, .children = 2};
    CHECK(worst_bias({{{}}, 1, 0}, recursive_rejection<>{}, limits, grown_by_target{}) > visible);
}

TEST_CASE("mutant: siblings share draws", "[mutant]") {
    tree_limits const limits{.nodes = 3, .depth = 2, .children = 2};
    scene const s{{{}}, 2, 0};
    auto const by = [](auto rename) {
        return [rename](enumerator::source source) { return renamed<decltype(rename)>{source, rename}; };
    };
    // One uniform of acceptance for all nodes.
    CHECK(worst_bias(s, recursive_rejection<>{}, limits, grown{}, by([](draw_key key) {
                         if (key.use == purpose::accept) key.index = 0;
                         return key;
                     })) > visible);
    // One draw for all nodes.
    CHECK(worst_bias(s, recursive_rejection<>{}, limits, grown{}, by([](draw_key key) {
                         if (key.use == purpose::draft) key.index = 0;
                         return key;
                     })) > visible);
}
