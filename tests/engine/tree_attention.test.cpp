// SPDX-License-Identifier: MIT
//
// Trees of drafts in the engine: the law behind a node has the bits that it has behind the same tokens in a chain.
// Whatever else is in the tree does not matter, nor where the 64 keys of a chunk end. The cache holds the accepted path
// afterwards. A second.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::token_id;

constexpr std::size_t most = 24;
tiny::shape const shape{.layers = 3};
engine::serving_limits const limits{.slots = 3, .context_length = 160, .max_rows = 80};

engine::causal_lm<float> make(engine::thread_pool& pool) {
    return {engine::make_in_memory(tiny::target_config(shape), engine::storage::f32, 11), tiny::feature_layers(shape),
            pool, limits};
}

/// Tokens behind an anchor, and their parents as a verify_batch takes them.
struct grown {
    token_id anchor = 0;
    std::vector<token_id> tokens;
    std::vector<std::int32_t> parents;

    grown(std::size_t nodes, bool chain, support::dice& roll) : anchor(any_token(roll)) {
        for (std::size_t k = 0; k < nodes; ++k) {
            parents.push_back(static_cast<std::int32_t>(chain ? k : roll.below(k + 1)));
            tokens.push_back(any_token(roll));
        }
    }
    [[nodiscard]] static token_id any_token(support::dice& roll) {
        return static_cast<token_id>(roll.below(shape.vocabulary));
    }
    [[nodiscard]] std::size_t size() const { return tokens.size() + 1; }
    /// Nodes from the anchor, which is node 0, to n.
    [[nodiscard]] std::vector<std::int32_t> path_to(std::size_t n) const {
        std::vector<std::int32_t> path;
        for (; n != 0; n = static_cast<std::size_t>(parents[n - 1]))
            path.insert(path.begin(), static_cast<std::int32_t>(n));
        return path;
    }
    /// `prompt`, the anchor, and the tokens of a path.
    [[nodiscard]] std::vector<token_id> behind(std::vector<token_id> prompt,
                                               std::vector<std::int32_t> const& path) const {
        prompt.push_back(anchor);
        for (std::int32_t const n : path) prompt.push_back(tokens[static_cast<std::size_t>(n) - 1]);
        return prompt;
    }
};

/// A batch of trees, each in a slot behind a prompt.
class tree_batch {
public:
    tree_batch() : bytes_(1 << 16) {}
    tree_batch(tree_batch const&) = delete;
    tree_batch& operator=(tree_batch const&) = delete;

    void add(std::size_t slot, std::size_t position, grown const& tree) {
        requests_.push_back({.id = slot + 1, .slot = slot, .anchor = tree.anchor, .position = position});
        trees_.push_back(&tree);
    }
    [[nodiscard]] sureleap::verify_batch const& flat() {
        sureleap::workspace ws{bytes_};
        batch_ = sureleap::verify_batch(ws, requests_.size(), most);
        batch_.begin(requests_);
        for (grown const* tree : trees_) batch_.append(tree->tokens, tree->parents);
        return batch_;
    }

private:
    std::vector<std::byte> bytes_;
    std::vector<sureleap::request_view> requests_;
    std::vector<grown const*> trees_;
    sureleap::verify_batch batch_;
};

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
            std::vector<grown> trees;
            std::vector<token_id> prompts[3];
            for (std::size_t s = 0; s < 3; ++s) {
                std::size_t const position = roots[(seed + 5 * s) % std::size(roots)];
                prompts[s] = tiny::random_tokens(roll, position, shape.vocabulary);
                for (std::size_t i = 0; i < position; i += limits.max_rows) {
                    served.prefill(s, i, std::span(prompts[s]).subspan(i, std::min(position - i, limits.max_rows)));
                }
                trees.emplace_back(1 + roll.below(most), roll.chance(0.2), roll);
            }
            // Prompts went to slots in order, trees come in another.
            std::size_t order[] = {0, 1, 2};
            std::rotate(std::begin(order), std::begin(order) + seed % 3, std::end(order));
            tree_batch batch;
            for (std::size_t const s : order) batch.add(s, prompts[s].size(), trees[s]);

            auto const rows = served.score(batch.flat());
            std::vector<std::vector<float>> features;
            std::vector<std::vector<float>> logits;
            for (std::size_t i = 0; i < rows.values.rows; ++i) {
                auto const f = served.features().row(i);
                features.emplace_back(f.begin(), f.end());
                logits.emplace_back(rows.values.row(i).begin(), rows.values.row(i).end());
            }
            std::size_t row = 0;
            for (std::size_t const s : order) {
                for (std::size_t n = 0; n < trees[s].size(); ++n, ++row) {
                    known const expected = behind(alone, trees[s].behind(prompts[s], trees[s].path_to(n)));
                    INFO("slot " << s << ", root at " << prompts[s].size() << ", node " << n);
                    REQUIRE(same(logits[row], expected.logits));
                    REQUIRE(same(features[row], expected.features));
                }
            }
            CHECK(row == rows.values.rows);

            // A path of each tree is accepted, and the text goes on behind it.
            std::vector<sureleap::verdict> verdicts;
            std::vector<std::int32_t> paths[3];
            for (std::size_t const s : order) {
                paths[s] = trees[s].path_to(roll.below(trees[s].size()));
                verdicts.push_back({.slot = s,
                                    .verified = trees[s].tokens.size(),
                                    .accepted = paths[s].size(),
                                    .parents = trees[s].parents,
                                    .path = paths[s]});
            }
            served.commit(verdicts);
            for (std::size_t const s : order) {
                std::vector<token_id> tokens = trees[s].behind(prompts[s], paths[s]);
                tokens.push_back(grown::any_token(roll));
                known const expected = behind(alone, tokens);
                INFO("slot " << s << ", behind the accepted path");
                CHECK(same(tiny::score_one(served, s, tokens.size() - 1, tokens.back()), expected.logits));
            }
        }
    }
}

TEST_CASE("tree attention: a tree that does not fit is refused by its numbers", "[engine]") {
    engine::thread_pool pool(1);
    auto served = make(pool);
    support::dice roll(3);
    grown const bushy(most, false, roll);
    auto const refusal = [&](std::vector<std::pair<std::size_t, std::size_t>> const& places) {
        tree_batch batch;
        for (auto const& [slot, position] : places) batch.add(slot, position, bushy);
        return support::error_text([&] { static_cast<void>(served.score(batch.flat())); });
    };
    CHECK(support::says(refusal({{0, limits.context_length - 1}}),
                        "of a verify batch is at position 160, expected less than the context length 160"));
    CHECK(support::says(refusal({{3, 0}}), "in slot 3"));
    CHECK(support::says(refusal({{0, 0}, {1, 0}, {2, 0}, {2, 0}}), "100 rows, expected at most max_rows = 80"));
}

TEST_CASE("tree attention: a tree that is committed after the next pass is refused, since its keys are overwritten",
          "[engine]") {
    engine::thread_pool pool(1);
    auto served = make(pool);
    support::dice roll(4);
    grown const bushy(most, false, roll);
    tree_batch batch;
    batch.add(0, 0, bushy);
    std::vector<std::int32_t> const path = bushy.path_to(bushy.size() - 1);
    auto const rows = served.score(batch.flat());
    CHECK(rows.pass.is_current());
    std::vector<sureleap::verdict> const verdicts{{.verified = bushy.tokens.size(),
                                                   .accepted = path.size(),
                                                   .pass = rows.pass.number(),
                                                   .parents = bushy.parents,
                                                   .path = path}};
    token_id const prompt[] = {1, 2};
    served.prefill(1, 0, prompt);
    CHECK_FALSE(rows.pass.is_current());
    served.commit(verdicts);
    CHECK(support::error_text([&] { static_cast<void>(served.score(batch.flat())); }) ==
          "causal_lm: a tree of pass 1 was committed after a later pass, which had overwritten its keys; expected each "
          "round to end before the next pass");
}
