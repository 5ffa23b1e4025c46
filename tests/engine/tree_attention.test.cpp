// SPDX-License-Identifier: MIT
//
// Trees of drafts in the engine: the law behind a node has the bits that it has behind the same tokens in a chain. Whatever
// else is in the tree does not matter, nor where the 64 keys of a chunk end. The cache holds the accepted path afterwards. A second.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/tree.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::node_id;
using sureleap::token_id;

constexpr std::size_t most = 24;
tiny::shape const shape{.layers = 3};
engine::serving_limits const limits{.slots = 3, .context_length = 160, .max_rows = 80};

engine::causal_lm<float> make(engine::thread_pool& pool) {
    return {engine::make_in_memory(tiny::target_config(shape), engine::storage::f32, 11), tiny::feature_layers(shape),
            pool, limits};
}

/// A tree with memory of its own.
struct owned_tree {
    std::vector<std::byte> memory;
    sureleap::draft_tree tree;

    owned_tree() {
        sureleap::workspace sizer;
        static_cast<void>(sureleap::draft_tree(sizer, most));
        memory.resize(sizer.used());
        sureleap::workspace ws{memory};
        tree = sureleap::draft_tree(ws, most);
    }
    owned_tree(owned_tree const&) = delete;
    owned_tree& operator=(owned_tree const&) = delete;
};

void grow(sureleap::draft_tree& tree, token_id anchor, std::size_t nodes, bool chain, support::dice& roll) {
    tree.begin(anchor);
    while (tree.size() <= nodes) {
        auto const parent = static_cast<node_id>(chain ? tree.size() - 1 : roll.below(tree.size()));
        static_cast<void>(tree.append(parent, static_cast<token_id>(roll.below(shape.vocabulary))));
    }
}

/// Nodes from the anchor to n.
std::vector<node_id> path_to(sureleap::draft_tree const& tree, node_id n) {
    std::vector<node_id> path;
    for (; n != sureleap::no_node; n = tree.parent(n)) path.insert(path.begin(), n);
    return path;
}

struct known {
    std::vector<float> logits;
    std::vector<float> features;
};
/// Of the last of these tokens, by a model that sees them one after the other.
known behind(engine::causal_lm<float>& model, std::vector<token_id> const& tokens) {
    std::size_t const before = tokens.size() - 1;
    for (std::size_t i = 0; i < before; i += limits.max_rows) {
        model.prefill(0, i, std::span(tokens).subspan(i, std::min(before - i, limits.max_rows)));
    }
    auto const row = tiny::score_one(model, 0, before, tokens.back());
    auto const features = model.features().row(0);
    return {{row.begin(), row.end()}, {features.begin(), features.end()}};
}

bool same(std::span<float const> a, std::vector<float> const& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

TEST_CASE("tree attention: the law behind a node is that of its path in a chain", "[engine]") {
    for (std::size_t const threads : {1u, 2u}) {
        engine::thread_pool pool(threads);
        auto served = make(pool);
        auto alone = make(pool);
        for (std::uint64_t seed = 1; seed <= 12; ++seed) {
            support::dice roll(seed);
            INFO(threads << " threads, seed " << seed);
            // Roots at the first and the last keys of chunks, and trees that reach into the next one.
            std::size_t const roots[] = {0, 1, 40, 58, 62, 63, 64, 65, 100, 127, 128, 130};
            owned_tree trees[3];
            std::vector<token_id> prompts[3];
            std::vector<engine::placed_tree> placed;
            for (std::size_t s = 0; s < 3; ++s) {
                std::size_t const position = roots[(seed + 5 * s) % std::size(roots)];
                prompts[s] = tiny::random_tokens(roll, position, shape.vocabulary);
                for (std::size_t i = 0; i < position; i += limits.max_rows) {
                    served.prefill(s, i, std::span(prompts[s]).subspan(i, std::min(position - i, limits.max_rows)));
                }
                auto const anchor = static_cast<token_id>(roll.below(shape.vocabulary));
                grow(trees[s].tree, anchor, 1 + roll.below(most), roll.chance(0.2), roll);
                placed.push_back({2 - s, position, &trees[s].tree});
            }
            // Prompts went to slots in order, trees come in another.
            for (std::size_t s = 0; s < 3; ++s) placed[s].slot = s;
            std::rotate(placed.begin(), placed.begin() + static_cast<std::ptrdiff_t>(seed % 3), placed.end());

            auto const rows = served.score(placed);
            std::vector<std::vector<float>> features;
            std::vector<std::vector<float>> logits;
            for (std::size_t i = 0; i < rows.values.rows; ++i) {
                auto const f = served.features().row(i);
                features.emplace_back(f.begin(), f.end());
                logits.emplace_back(rows.values.row(i).begin(), rows.values.row(i).end());
            }
            std::size_t row = 0;
            for (engine::placed_tree const& at : placed) {
                for (std::size_t n = 0; n < at.tree->size(); ++n, ++row) {
                    std::vector<token_id> tokens = prompts[at.slot];
                    for (node_id const p : path_to(*at.tree, static_cast<node_id>(n)))
                        tokens.push_back(at.tree->token(p));
                    known const expected = behind(alone, tokens);
                    INFO("slot " << at.slot << ", root at " << at.position << ", node " << n);
                    REQUIRE(same(logits[row], expected.logits));
                    REQUIRE(same(features[row], expected.features));
                }
            }
            CHECK(row == rows.values.rows);

            // A path of each tree is accepted, and the text goes on behind it.
            for (std::size_t i = 0; i < placed.size(); ++i) {
                engine::placed_tree const& at = placed[i];
                auto const path = path_to(*at.tree, static_cast<node_id>(roll.below(at.tree->size())));
                served.keep(i, path);
                std::vector<token_id> tokens = prompts[at.slot];
                for (node_id const n : path) tokens.push_back(at.tree->token(n));
                tokens.push_back(static_cast<token_id>(roll.below(shape.vocabulary)));
                prompts[at.slot] = tokens;
            }
            for (engine::placed_tree const& at : placed) {
                std::vector<token_id> const& tokens = prompts[at.slot];
                known const expected = behind(alone, tokens);
                INFO("slot " << at.slot << ", behind the accepted path");
                CHECK(same(tiny::score_one(served, at.slot, tokens.size() - 1, tokens.back()), expected.logits));
            }
        }
    }
}

TEST_CASE("tree attention: a tree that does not fit is refused by its numbers", "[engine]") {
    engine::thread_pool pool(1);
    auto served = make(pool);
    support::dice roll(3);
    owned_tree long_one;
    grow(long_one.tree, 1, most, true, roll);
    std::vector<engine::placed_tree> at{{0, limits.context_length - 5, &long_one.tree}};
    CHECK(support::says(support::error_text([&] { static_cast<void>(served.score(at)); }),
                        "node 5 of a tree is at position 160, expected less than the context length 160"));
    at = {{3, 0, &long_one.tree}};
    CHECK(support::says(support::error_text([&] { static_cast<void>(served.score(at)); }), "in slot 3"));
    at = {{0, 0, &long_one.tree}, {1, 0, &long_one.tree}, {2, 0, &long_one.tree}, {2, 0, &long_one.tree}};
    CHECK(support::says(support::error_text([&] { static_cast<void>(served.score(at)); }),
                        "100 nodes, expected at most max_rows = 80"));
}
