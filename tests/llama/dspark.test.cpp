// SPDX-License-Identifier: MIT
//
// DSpark files whose layers llama.cpp runs: what they say is what llama.cpp says, texts under their chains and trees
// are those of plain decoding and have its law by enumeration, and what is no such file is refused. Three seconds.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/testing/enumerator.hpp>

#if __has_include(<llama-ext.h>)
#include <llama-ext.h>
#endif

#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_dspark.hpp"
#include "llama/support/tiny_models.hpp"
#include "llama/support/trees.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

using namespace sureleap;
using namespace support;

namespace {

/// Rows of a block by llama.cpp itself, whose chain is the greedy one: [rows, V], and its confidences.
struct block_of_llama {
    std::vector<std::vector<float>> rows{};
    std::vector<float> confidences{};
};
[[nodiscard]] block_of_llama by_llama(std::filesystem::path const& file, llama_context* target,
                                      std::vector<float> features, std::size_t past, std::vector<llama_token> tokens) {
    std::shared_ptr<llama_model> const model(llama_model_load_from_file(file.c_str(), llama_model_default_params()),
                                             llama_model_free);
    REQUIRE(model != nullptr);
    auto params = tiny_context_params();
    params.ctx_other = target;
    tiny_context const context = make_context(model, params);
    llama_set_causal_attn(context.get(), false);
#if __has_include(<llama-ext.h>)
    llama_set_embeddings_nextn(context.get(), true, true);
#endif
    auto const decode = [&](std::size_t count, llama_token* ids, float* embd, std::size_t first) {
        std::vector<llama_pos> positions;
        for (std::size_t i = 0; i < count; ++i) positions.push_back(static_cast<llama_pos>(first + i));
        std::vector<std::int32_t> counts(count, 1);
        llama_seq_id sequence = 0;
        std::vector<llama_seq_id*> sequences(count, &sequence);
        std::vector<std::int8_t> outputs(count, ids != nullptr ? 1 : 0);
        REQUIRE(llama_decode(context.get(), {.n_tokens = static_cast<std::int32_t>(count),
                                             .token = ids,
                                             .embd = embd,
                                             .pos = positions.data(),
                                             .n_seq_id = counts.data(),
                                             .seq_id = sequences.data(),
                                             .logits = outputs.data()}) == 0);
    };
    decode(past, nullptr, features.data(), 0);
    decode(tokens.size(), tokens.data(), nullptr, past);
    block_of_llama block;
    for (std::size_t k = 0; k < tokens.size(); ++k) {
        block.rows.push_back(logits_of(context, static_cast<std::int32_t>(k)));
#if __has_include(<llama-ext.h>)
        block.confidences.push_back(*llama_get_embeddings_nextn_ith(context.get(), static_cast<std::int32_t>(k)));
#endif
    }
    return block;
}

/// Of a drafter that serves a target.
[[nodiscard]] auto chains_of(llama_dspark& dspark) {
    return semi_autoregressive<llama_dspark&, llama_dspark::head_type const&, llama_dspark::confidence_type const&>{
        dspark, dspark.head(), dspark.confidence(), dspark.options()};
}

}  // namespace

TEST_CASE("llama_dspark: a block is what llama.cpp makes of it, but for its greedy chain") {
    scratch_folder const folder("llama_dspark_rows");
    tiny_model const model = make_tiny(tiny_arch::llama, 7, {.layers = 4});
    for (std::uint32_t const every : {1U, 3U}) {
        for (bool const from_anchor : {true, false}) {
            INFO("every " << every << ", from the anchor " << from_anchor);
            auto const file = folder / "drafter.gguf";
            write_dspark(file, 8, {.every = every, .from_anchor = from_anchor});
            llama_dspark dspark{file.string()};
            REQUIRE(dspark.most_drafts() == (from_anchor ? 4 : 3));
            llama_context_params params = exact(tiny_context_params());
            dspark.attach(params);
            tiny_context const context = make_context(model, params);
            std::size_t const gamma = dspark.most_drafts();
            dspark.serve(context.get(), {.max_requests = 2, .block_size = gamma});
            auto drafter = chains_of(dspark);
            llama_target target{context.get(), drafter, {.max_requests = 2, .features = &dspark.features()}};

            // Two requests, so that their blocks are parts of one pass.
            request_settings const settings;
            std::vector<std::vector<token_id>> const texts{repeating_prompt(1, 9, 4), repeating_prompt(2, 5, 3)};
            std::vector<request_view> requests;
            for (std::size_t s = 0; s < 2; ++s) {
                requests.push_back({.id = s + 1,
                                    .slot = s,
                                    .anchor = texts[s].back(),
                                    .position = texts[s].size() - 1,
                                    .context = texts[s],
                                    .remaining = 99,
                                    .settings = &settings});
                CHECK(dspark.room(requests[s]) == 0);
                target.prefill(requests[s]);
                CHECK(dspark.room(requests[s]) == gamma);
            }
            std::vector<std::vector<float>> features;
            for (std::size_t s = 0; s < 2; ++s) {
                auto const rows = dspark.features().rows(s);
                features.emplace_back(rows.data, rows.data + rows.rows * rows.cols);
            }
            auto const block = dspark.forward(requests);
            REQUIRE(dspark.outcome() == llama_outcome::ok);
            REQUIRE(block.base_logits.values.rows == 2 * gamma);
            std::size_t const first = from_anchor ? 0 : 1;
            for (std::size_t s = 0; s < 2; ++s) {
                std::vector<llama_token> tokens(4, 287);
                tokens[0] = texts[s].back();
                auto const theirs = by_llama(file, context.get(), features[s], texts[s].size() - 1, tokens);
                std::vector<float> state(dspark.head().state_size());
                token_id before = texts[s].back();
                for (std::size_t k = 0; k < gamma; ++k) {
                    auto const base = block.base_logits.values.row(s * gamma + k);
                    std::vector<float> row(base.begin(), base.end());
                    dspark.head().add_bias(state, {}, before, row);
                    auto const& expected = theirs.rows[first + k];
                    for (std::size_t v = 0; v < row.size(); ++v) {
                        REQUIRE(std::abs(row[v] - expected[v * every]) < 0.02F);  // heads are rounded
                    }
                    if (!theirs.confidences.empty()) {
                        auto const hidden = block.hidden.row(s * gamma + k);
                        CHECK(std::abs(dspark.confidence()(hidden, before, k) - theirs.confidences[first + k]) < 1e-3F);
                    }
                    before = static_cast<token_id>(std::ranges::max_element(expected) - expected.begin());
                }
            }
        }
    }
}

TEST_CASE("llama_dspark: texts under chains and trees are those of plain decoding") {
    scratch_folder const folder("llama_dspark_texts");
    tiny_model const model = make_tiny(tiny_arch::llama, 7, {.layers = 4, .tokens = 40, .sharpness = 1.0F});
    write_dspark(folder / "drafter.gguf", 8, {.tokens = 40});
    llama_dspark dspark{(folder / "drafter.gguf").string()};
    std::vector<std::vector<token_id>> prompts;
    std::vector<request_settings> settings;
    std::vector<std::vector<token_id>> texts;
    for (std::size_t i = 0; i < 5; ++i) {
        prompts.emplace_back();
        for (std::size_t t = 0; t < 4 + 3 * i; ++t) prompts[i].push_back(static_cast<token_id>((7 * i + 3 * t) % 40));
        settings.push_back({.temperature = i == 0 ? 0.0 : 1.0, .seed = i, .max_new_tokens = 40});
        texts.push_back(plain_text(model, prompts[i], settings[i], {}, exact(tiny_context_params())));
    }
    // Two targets one after another, and requests that take each other's places.
    auto const check = [&](auto drafter_of) {
        llama_context_params params = exact(tree_context_params());
        params.n_ctx = 512;
        dspark.attach(params);
        tiny_context const context = make_context(model, params);
        dspark.serve(context.get(), {.max_requests = 2, .block_size = 4});
        auto drafter = drafter_of(chains_of(dspark));
        llama_target target{context.get(), drafter, {.max_requests = 2, .features = &dspark.features()}};
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
        std::vector<request_id> ids;
        for (std::size_t i = 0; i < 5; ++i) ids.push_back(dec.submit(prompts[i], settings[i]));
        std::vector<std::vector<token_id>> found(5);
        while (dec.step()) {
            for (auto const& event : dec.events()) {
                REQUIRE(event.outcome == status::ok);
                auto& text = found[static_cast<std::size_t>(std::ranges::find(ids, event.request) - ids.begin())];
                text.insert(text.end(), event.tokens.begin(), event.tokens.end());
            }
        }
        CHECK(found == texts);
        CHECK(dec.report().drafted() > 300);
        CHECK(dec.report().accepted() > 10);
    };
    check([](auto chains) { return chains; });
    check([](auto chains) { return tree_drafter{std::move(chains), {.nodes = 6}}; });
}

TEST_CASE("llama_dspark: the law of a text is the target's, by enumeration") {
    constexpr std::size_t horizon = 4;  // drafts begin with the second token
    scratch_folder const folder("llama_dspark_law");
    tiny_model const model = make_tiny(tiny_arch::llama, 7, {.layers = 3, .tokens = 3, .sharpness = 1.0F});
    write_dspark(folder / "drafter.gguf", 8, {.tokens = 3});
    std::vector<token_id> const prompt{1, 2, 0};
    std::map<std::vector<token_id>, double> expected;
    one_by_one rows(model, exact(tiny_context_params()));
    auto const follow = [&](auto const& self, std::vector<token_id> const& text, double mass) -> void {
        if (text.size() == prompt.size() + horizon) {
            expected[{text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()}] = mass;
            return;
        }
        std::vector<float> row(3);
        rows(text, row);
        distribution<float> const p{{row, {}, {}}, {}, {}};
        for (token_id v = 0; v < 3; ++v) {
            auto longer = text;
            longer.push_back(v);
            self(self, longer, mass * p.probability(v));
        }
    };
    follow(follow, prompt, 1.0);
    REQUIRE(expected.size() == 81);

    llama_dspark dspark{(folder / "drafter.gguf").string()};
    llama_context_params params = exact(tree_context_params());
    dspark.attach(params);
    tiny_context const context = make_context(model, params);
    dspark.serve(context.get(), {.block_size = 2});
    auto const largest_difference = [&](auto drafter_of, auto rule) {
        auto const first = drafter_of();
        llama_target target{context.get(), first, {.features = &dspark.features()}};
        std::map<std::vector<token_id>, double> found;
        std::uint64_t accepted = 0, rejected = 0;
        enumerator walk{enumerator::noise::keyed};
        walk.for_each_path([&] {
            auto drafter = drafter_of();  // trees learn
            decoder dec{target, drafter, fixed_schedule{}, rule, {.seed = 1}, no_logits_hook{}, walk.handle()};
            auto const id = dec.submit(prompt, {.max_new_tokens = horizon});
            while (dec.step()) {
            }
            auto const text = dec.generated(id);
            found[{text.begin(), text.end()}] += walk.weight();
            accepted += dec.report().accepted();
            rejected += dec.report().verified() - dec.report().accepted();
        });
        CHECK(accepted > 0);
        CHECK(rejected > 0);
        double largest = 0.0;
        for (auto const& [text, mass] : expected) found[text] -= mass;
        for (auto const& [text, difference] : found) largest = std::max(largest, std::abs(difference));
        return largest;
    };
    auto const chains = [&] { return chains_of(dspark); };
    auto const trees = [&] { return tree_drafter{chains_of(dspark), {.nodes = 2}}; };
    CHECK(largest_difference(chains, token_rejection<>{}) < 1e-6);
    CHECK(largest_difference(chains, block_verification<>{}) < 1e-6);
    CHECK(largest_difference(trees, recursive_rejection<>{}) < 1e-6);
}

TEST_CASE("llama_dspark: what is no drafter for this target is refused") {
    scratch_folder const folder("llama_dspark_refused");
    auto const file = (folder / "drafter.gguf").string();
    auto const text_of_loading = [&](tiny_dspark_options const& options) {
        write_dspark(file, 8, options);
        return error_text([&] { llama_dspark const made{file}; });
    };
    CHECK(error_text([&] { llama_dspark const made{(folder / "none.gguf").string()}; }).find("cannot be read") !=
          std::string::npos);
    CHECK(text_of_loading({.target_layers = {0, 2}}).find("dflash.target_layers has 0") != std::string::npos);
    CHECK(text_of_loading({.without = "markov_w1.weight"}).find("there is no tensor markov_w1.weight") !=
          std::string::npos);
    CHECK(text_of_loading({.without = "conf_proj.weight"}).find("there is no tensor conf_proj.weight") !=
          std::string::npos);
    CHECK(text_of_loading({.block = 0}).find("dflash.block_size is 0") != std::string::npos);
    CHECK(text_of_loading({.without = "fc.weight"}).find("llama.cpp cannot load it") != std::string::npos);

    write_dspark(file, 8, {});
    llama_dspark dspark{file};
    tiny_context const other = make_context(make_tiny(tiny_arch::llama, 7, {.tokens = 64}));
    CHECK(error_text([&] { dspark.serve(other.get(), {}); }) ==
          "llama_dspark: the target has 64 tokens and hidden states of 64 numbers, expected 288 and 64: the file was "
          "made for another target");
    tiny_model const model = make_tiny(tiny_arch::llama, 7, {.layers = 4});
    tiny_context const without = make_context(model);
    CHECK(error_text([&] { dspark.serve(without.get(), {.block_size = 5}); }) ==
          "llama_dspark: block_size is 5, expected at most the file's 4");
    dspark.serve(without.get(), {.block_size = 4});
    auto drafter = chains_of(dspark);
    CHECK(error_text([&] {
              llama_target const target{without.get(), drafter, {.features = &dspark.features()}};
          }).find("made without llama_features::attach") != std::string::npos);
}
