// SPDX-License-Identifier: MIT
//
// Draft trees in a llama_target, batch by batch: the row of a node is that of its path, the accepted path is what the
// cache holds afterwards, and not a cell is lost. What cannot branch is refused. A few seconds.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"
#include "llama/support/trees.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::size_t most = 10;  // drafted tokens
constexpr std::size_t slots = 4;

struct request_state {
    request_id id = 0;
    std::vector<token_id> before{};  // the next anchor
};

/// Tokens of a text that may be anything.
[[nodiscard]] std::vector<token_id> any_tokens(dice& roll, std::size_t count) {
    std::vector<token_id> tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<token_id>(roll.below(288)));
    return tokens;
}
[[nodiscard]] verdict verdict_of(std::size_t slot, drafted_tree const& tree, std::vector<std::int32_t> const& path,
                                 std::vector<token_id> const& emitted) {
    return {.slot = slot,
            .drafted = tree.tokens.size(),
            .verified = tree.tokens.size(),
            .accepted = path.size(),
            .emitted = emitted,
            .parents = tree.parents,
            .path = path};
}
/// Rows by passes of one token, of paths of which many are alike.
class one_path_at_a_time {
public:
    one_path_at_a_time(tiny_model const& model, llama_context_params params) {
        params.n_seq_max = 1;
        params.abort_callback = nullptr;
        context_ = make_context(model, params);
    }
    [[nodiscard]] std::vector<float> const& behind(std::vector<token_id> const& tokens) {
        auto const same = static_cast<std::size_t>(
            std::mismatch(tokens.begin(), tokens.end() - 1, held_.begin(), held_.end()).first - tokens.begin());
        llama_memory_seq_rm(llama_get_memory(context_.get()), 0, static_cast<llama_pos>(same), -1);
        for (std::size_t i = same; i < tokens.size(); ++i) {
            REQUIRE(support::token_batch().add(tokens[i], static_cast<llama_pos>(i)).decode(context_) == 0);
        }
        held_ = tokens;
        return row_ = logits_of(context_, 0);
    }

private:
    tiny_context context_;
    std::vector<token_id> held_;
    std::vector<float> row_;
};
[[nodiscard]] double distance(std::span<float const> a, std::span<float const> b) {
    double worst = 0.0;
    for (std::size_t v = 0; v < a.size(); ++v) {
        worst = std::max(worst, std::abs(static_cast<double>(a[v]) - static_cast<double>(b[v])));
    }
    return worst;
}

/// Rounds of trees, chains and anchors alone in all slots. Requests come and go. Returns the largest difference between
/// a row and that of its path, one token a pass.
[[nodiscard]] double run(tiny_model const& model, llama_context_params const& params, std::uint64_t seed) {
    dice roll(seed);
    INFO("seed " << roll.seed());
    tiny_context const context = make_context(model, params);
    one_path_at_a_time alone(model, params);
    llama_target target{context.get(), drafts_trees_of{most, 288}, {.max_requests = slots, .first_sequence = 3}};
    request_id next = 1;
    std::vector<request_state> states(slots);
    double worst = 0.0;
    for (int round = 0; round < 12; ++round) {
        std::vector<std::size_t> in_round;
        std::vector<drafted_tree> trees;
        for (std::size_t s = 0; s < slots; ++s) {
            if (states[s].id == 0 || roll.chance(0.15)) states[s] = {next++, any_tokens(roll, roll.below(30))};
            if (roll.chance(0.8))
                in_round.insert(in_round.begin() + static_cast<std::ptrdiff_t>(roll.below(in_round.size() + 1)), s);
        }
        if (in_round.empty()) continue;
        for (std::size_t i = 0; i < in_round.size(); ++i) {
            tree_shape const shapes[] = {tree_shape::any, tree_shape::any, tree_shape::star, tree_shape::chain,
                                         tree_shape::anchor_alone};
            trees.push_back(random_tree(roll, shapes[roll.below(5)], most, 288));
        }
        tree_batch batch(most);
        for (std::size_t i = 0; i < in_round.size(); ++i) {
            batch.add(in_round[i], states[in_round[i]].id, states[in_round[i]].before, trees[i]);
        }
        auto const passes = target.passes();
        auto const rows = target.score(batch.flat());
        REQUIRE(target.outcome() == llama_outcome::ok);
        CHECK(target.passes() - passes <= 1 + slots);  // prompts may be longer than a batch
        std::vector<std::vector<float>> scored;
        for (std::size_t i = 0; i < rows.values.rows; ++i) {
            scored.emplace_back(rows.values.row(i).begin(), rows.values.row(i).end());
        }
        std::size_t row = 0;
        for (std::size_t i = 0; i < in_round.size(); ++i) {
            for (std::size_t n = 0; n <= trees[i].tokens.size(); ++n, ++row) {
                auto const tokens = trees[i].behind(states[in_round[i]].before, trees[i].path_to(n));
                worst = std::max(worst, distance(scored[row], alone.behind(tokens)));
            }
        }
        CHECK(row == scored.size());

        // A path of each is accepted, or a part of it emitted, or the round has no verdict.
        if (roll.chance(0.15)) continue;
        std::vector<verdict> verdicts;
        std::vector<std::vector<std::int32_t>> paths(in_round.size());
        std::vector<std::vector<token_id>> emitted(in_round.size());
        for (std::size_t i = 0; i < in_round.size(); ++i) {
            drafted_tree const& tree = trees[i];
            paths[i] = tree.path_to(roll.below(tree.tokens.size() + 1));
            auto text = tree.behind({}, paths[i]);
            text.erase(text.begin());
            text.push_back(static_cast<token_id>(roll.below(288)));
            if (roll.chance(0.2)) text.resize(1 + roll.below(text.size()));  // a stop token inside
            if (roll.chance(0.1)) text.clear();                              // an outcome that is not ok
            emitted[i] = text;
            verdicts.push_back(verdict_of(in_round[i], tree, paths[i], emitted[i]));
        }
        target.commit(verdicts);
        for (std::size_t i = 0; i < in_round.size(); ++i) {
            auto& before = states[in_round[i]].before;
            if (!emitted[i].empty()) {
                before.push_back(trees[i].anchor);
                before.insert(before.end(), emitted[i].begin(), emitted[i].end() - 1);
            }
            CHECK(std::ranges::equal(target.held(in_round[i]), before));
        }
        CHECK(sequences_fit(target, context, slots, most, 3));
        CHECK(no_cell_is_lost(target, context, slots));
    }
    return worst;
}

/// A tree behind a prompt in a context of its own. [nodes] rows
[[nodiscard]] std::vector<std::vector<float>> rows_of(llama_target& target, std::vector<token_id> const& prompt,
                                                      drafted_tree const& tree) {
    tree_batch batch(most);
    batch.add(0, 1, prompt, tree);
    auto const rows = target.score(batch.flat());
    std::vector<std::vector<float>> copied;
    for (std::size_t i = 0; i < rows.values.rows; ++i) {
        copied.emplace_back(rows.values.row(i).begin(), rows.values.row(i).end());
    }
    return copied;
}

//   anchor 1
//   2        3       4
//   5   6
drafted_tree const small{.anchor = 1, .tokens = {2, 3, 4, 5, 6}, .parents = {0, 0, 0, 1, 1}};
drafted_tree const chain{.anchor = 1, .tokens = {2, 3, 4}, .parents = {0, 1, 2}};

}  // namespace

TEST_CASE("the row of a node is that of its path, and the accepted path is held") {
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3}) {
        tiny_model const model = make_tiny(arch, 3);
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
            INFO(name_of(arch) << ", seed " << seed);
            // A row's keys lie in other cells than those of its path alone, and llama.cpp sums by where they lie.
            CHECK(run(model, exact(tree_context_params()), seed) < 1e-4);  // logits have a standard deviation of 2
        }
        // Flash attention sums in F16.
        CHECK(run(model, tree_context_params(), 7) < 0.02);
    }
}

TEST_CASE("where cells are in the order of positions, a tree's rows have the bits of chains") {
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3}) {
        tiny_model const model = make_tiny(arch, 3);
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            INFO(name_of(arch) << ", seed " << seed);
            dice roll(seed);
            tiny_context const context = make_context(model, tree_context_params());
            llama_target target{context.get(), drafts_trees_of{most, 288}};
            auto const prompt = any_tokens(roll, 5 + roll.below(50));
            drafted_tree const tree = random_tree(roll, tree_shape::any, most, 288);
            auto const rows = rows_of(target, prompt, tree);
            REQUIRE(rows.size() == 1 + tree.tokens.size());
            for (std::size_t n = 0; n < rows.size(); ++n) {
                auto const path = tree.path_to(n);
                drafted_tree of_path{.anchor = tree.anchor};
                for (std::size_t k = 0; k < path.size(); ++k) {
                    of_path.tokens.push_back(tree.tokens[static_cast<std::size_t>(path[k]) - 1]);
                    of_path.parents.push_back(static_cast<std::int32_t>(k));
                }
                tiny_context const other = make_context(model, tree_context_params());
                llama_target chains{other.get(), drafts_trees_of{most, 288}};
                CHECK(rows_of(chains, prompt, of_path).back() == rows[n]);
            }
        }
    }
}

TEST_CASE("a pass that fails leaves the memory as it was, wherever it was aborted") {
    struct countdown {
        long left = -1;
        static bool ask(void* self) {
            auto& left = static_cast<countdown*>(self)->left;
            return left >= 0 && left-- == 0;
        }
    } aborter;
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    llama_context_params params = exact(tree_context_params());
    params.n_ubatch = 48;  // a batch with prompts is cut in two
    params.abort_callback = &countdown::ask;
    params.abort_callback_data = &aborter;
    tiny_context const context = make_context(model, params);
    llama_target target{context.get(), drafts_trees_of{most, 288}, {.max_requests = 2}};
    one_path_at_a_time alone(model, params);
    dice roll(5);
    std::vector<std::vector<token_id>> before(2);
    std::size_t aborted = 0, kept = 0;
    for (int round = 0; round < 60; ++round) {
        if (round % 5 == 0) before = {any_tokens(roll, 30 + roll.below(10)), any_tokens(roll, roll.below(20))};
        std::vector<drafted_tree> const trees{random_tree(roll, tree_shape::any, most, 288),
                                              random_tree(roll, tree_shape::star, most, 288)};
        tree_batch batch(most);
        for (std::size_t s = 0; s < 2; ++s) batch.add(s, 1, before[s], trees[s]);
        for (aborter.left = static_cast<long>(roll.below(90));;) {
            auto const rows = target.score(batch.flat());
            aborter.left = -1;
            if (target.outcome() == llama_outcome::ok) {
                REQUIRE(rows.values.rows == 2 + trees[0].tokens.size() + trees[1].tokens.size());
                for (std::size_t n = 0; n <= trees[0].tokens.size(); ++n) {
                    CHECK(distance(rows.values.row(n), alone.behind(trees[0].behind(before[0], trees[0].path_to(n)))) <
                          1e-4);
                }
                break;
            }
            REQUIRE(target.outcome() == llama_outcome::aborted);
            CHECK(rows.values.rows == 0);
            ++aborted;
            for (std::size_t s = 0; s < 2; ++s) {
                auto const held = target.held(s);
                REQUIRE(held.size() <= before[s].size());
                CHECK(std::equal(held.begin(), held.end(), before[s].begin()));
                kept += held.size();
            }
            CHECK(sequences_fit(target, context, 2, most));
            CHECK(no_cell_is_lost(target, context, 2));
        }
        std::vector<verdict> verdicts;
        std::vector<std::vector<std::int32_t>> paths;
        std::vector<std::vector<token_id>> texts;
        for (std::size_t s = 0; s < 2; ++s) {
            paths.push_back(trees[s].path_to(roll.below(trees[s].tokens.size() + 1)));
            before[s] = trees[s].behind(before[s], paths[s]);
            texts.emplace_back(paths[s].size() + 1, 3);
        }
        for (std::size_t s = 0; s < 2; ++s) verdicts.push_back(verdict_of(s, trees[s], paths[s], texts[s]));
        target.commit(verdicts);
        for (std::size_t s = 0; s < 2; ++s) CHECK(std::ranges::equal(target.held(s), before[s]));
    }
    CHECK(aborted > 20);
    CHECK(kept > 0);
}

TEST_CASE("chains touch no sequence but their own") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_context const context = make_context(model, tree_context_params());
    llama_target target{context.get(), drafts_trees_of{most, 288}, {.max_requests = 2}};
    llama_memory_t const memory = llama_get_memory(context.get());
    auto const branches = [&] {
        std::vector<llama_pos> ends;
        for (llama_seq_id id = 2; id < 2 + 2 * 9; ++id) ends.push_back(llama_memory_seq_pos_max(memory, id));
        return ends;
    };
    std::vector<token_id> const prompt{7, 8, 9};
    std::vector<llama_pos> const none(18, -1);
    CHECK(rows_of(target, prompt, chain).size() == 4);
    CHECK(branches() == none);
    CHECK(llama_memory_seq_pos_max(memory, 0) == 6);
    CHECK(target.held(0).size() == 7);  // as it is of chains: rejected drafts go with commit

    // A chain beside a tree, too: it is in slot 1.
    tree_batch batch(most);
    batch.add(0, 1, prompt, small);
    batch.add(1, 2, prompt, chain);
    CHECK(target.score(batch.flat()).values.rows == 10);
    auto const in_pass = branches();
    CHECK(std::vector<llama_pos>(in_pass.begin(), in_pass.begin() + 3) == std::vector<llama_pos>{4, 5, 5});
    CHECK(std::all_of(in_pass.begin() + 3, in_pass.end(), [](llama_pos p) { return p == -1; }));
    CHECK(llama_memory_seq_pos_max(memory, 0) == 4);  // the shallowest leaf comes first: 3, then 4, 5 and 6
    CHECK(target.held(0).size() == 4);
    CHECK(target.held(1).size() == 7);

    // Branches keep what was there before the round's drafts, which chains do not touch.
    std::vector<std::int32_t> const path{1, 5}, chained{1};
    std::vector<token_id> const emitted{2, 6, 30}, second{2, 30};
    target.commit(std::vector{verdict_of(0, small, path, emitted), verdict_of(1, chain, chained, second)});
    CHECK(std::ranges::equal(target.held(0), std::vector<token_id>{7, 8, 9, 1, 2, 6}));
    CHECK(std::ranges::equal(target.held(1), std::vector<token_id>{7, 8, 9, 1, 2}));
    auto const after = branches();
    CHECK(std::vector<llama_pos>(after.begin(), after.begin() + 3) == std::vector<llama_pos>{3, 3, 3});
    std::vector<token_id> const longer{7, 8, 9, 1, 2, 6};
    CHECK(rows_of(target, longer, chain).size() == 4);
    CHECK(branches() == after);
    target.forget(0);
    CHECK(branches() == none);
}

TEST_CASE("a memory that somebody else has changed is noticed, branches included") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_context const context = make_context(model, exact(tree_context_params()));
    llama_memory_t const memory = llama_get_memory(context.get());
    llama_target target{context.get(), drafts_trees_of{most, 288}};
    one_path_at_a_time alone(model, exact(tree_context_params()));
    std::vector<token_id> before{7, 8, 9, 10};
    for (int round = 0; round < 8; ++round) {
        auto const rows = rows_of(target, before, small);
        REQUIRE(rows.size() == 6);
        for (std::size_t n = 0; n < 6; ++n) {
            CHECK(distance(rows[n], alone.behind(small.behind(before, small.path_to(n)))) < 1e-4);
        }
        std::vector<std::int32_t> const path{1, 4};
        std::vector<token_id> const emitted{2, 5, 1};
        target.commit(std::vector{verdict_of(0, small, path, emitted)});
        before = small.behind(before, path);
        if (round == 1) llama_memory_clear(memory, true);
        if (round == 2) llama_memory_seq_rm(memory, 0, 3, -1);  // branches have them still
        if (round == 3) llama_memory_seq_rm(memory, 2, -1, -1);
        if (round == 4) llama_memory_seq_rm(memory, 1, 2, -1);
        if (round == 5) llama_memory_seq_cp(memory, 0, 3, -1, -1);
    }
    CHECK(sequences_fit(target, context, 1, most));
    CHECK(no_cell_is_lost(target, context, 1));
}

TEST_CASE("a tree of more paths than there are sequences fails before it is decoded") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_context const context = make_context(model, tree_context_params());
    std::vector<token_id> const prompt{7, 8, 9};
    {
        llama_target target{context.get(), drafts_trees_of{most, 288}, {.tree_paths = 3}};
        CHECK(rows_of(target, prompt, small).empty());  // four
        CHECK(target.outcome() == llama_outcome::too_many_paths);
        CHECK(std::string(to_string(target.outcome())) == "a draft tree has more paths than its request has sequences");
        CHECK(target.passes() == 0);
        CHECK(sequences_fit(target, context, 1, 3));
        drafted_tree const three{.anchor = 1, .tokens = {2, 3, 4}, .parents = {0, 0, 0}};
        CHECK(rows_of(target, prompt, three).size() == 4);
        CHECK(rows_of(target, prompt, chain).size() == 4);
    }
    // A target for chains has none.
    tiny_context const other = make_context(model, tree_context_params());
    llama_target target{other.get(), lookup({.block_size = most, .target_vocabulary = 288})};
    CHECK(rows_of(target, prompt, small).empty());
    CHECK(target.outcome() == llama_outcome::too_many_paths);
    CHECK(rows_of(target, prompt, chain).size() == 4);
    target.forget(0);
    CHECK(no_cell_is_lost(target, other, 1));
}

TEST_CASE("contexts whose memory does not branch, or has too few sequences, are refused") {
    auto const refusal = [](tiny_arch arch, llama_context_params const& params, llama_target_options const& options) {
        tiny_context const context = make_context(make_tiny(arch, 1), params);
        return error_text([&] { llama_target(context.get(), drafts_trees_of{8, 288}, options); });
    };
    llama_context_params const good = tree_context_params();
    CHECK(refusal(tiny_arch::llama, good, {.max_requests = 4}).empty());
    CHECK(refusal(tiny_arch::llama, good, {.max_requests = 14, .first_sequence = 16}).empty());
    CHECK(
        refusal(tiny_arch::llama, good, {.max_requests = 14, .first_sequence = 17}) ==
        "llama_target: trees of up to 8 paths need the sequences 17 .. 128, expected ids below n_seq_max = 128; raise "
        "llama_context_params::n_seq_max, which llama.cpp limits to 256, or lower max_requests, tree_paths or the "
        "tokens of a tree");
    llama_context_params params = good;
    params.n_seq_max = 5;
    CHECK(refusal(tiny_arch::qwen3, params, {})
              .starts_with("llama_target: trees of up to 8 paths need the sequences "
                           "0 .. 7, expected ids below n_seq_max = 5;"));
    CHECK(refusal(tiny_arch::qwen3, params, {.tree_paths = 5}).empty());
    CHECK(refusal(tiny_arch::qwen3, params, {.tree_paths = 1}).empty());  // chains
    params = good;
    params.n_seq_max = 16;
    params.kv_unified = false;
    CHECK(refusal(tiny_arch::llama, params, {}) ==
          "llama_target: the drafter drafts trees, and the context keeps a cache for each sequence, which paths cannot "
          "share; set llama_context_params::kv_unified");
    params.kv_unified = true;
    for (tiny_arch const arch : {tiny_arch::lfm2, tiny_arch::jamba, tiny_arch::mamba}) {
        for (std::uint32_t const window : {0U, 8U}) {
            params.n_rs_seq = window;
            CHECK(refusal(arch, params, {}) ==
                  std::string("llama_target: the drafter drafts trees, and the model is ") +
                      (arch == tiny_arch::mamba ? "recurrent" : "hybrid") +
                      ", so that its states do not branch; expected a cache of keys and values alone; draft chains");
            CHECK(refusal(arch, params, {.tree_paths = 1}).empty());
        }
    }
    params.n_rs_seq = 0;
    CHECK(refusal(tiny_arch::olmo2, params, {}) ==
          "llama_target: the drafter drafts trees, and the model has a sliding window of 8 tokens, whose cache is not "
          "shared by paths; expected a model without one; draft chains");
    CHECK(refusal(tiny_arch::olmo2, params, {.tree_paths = 1}).empty());
}
