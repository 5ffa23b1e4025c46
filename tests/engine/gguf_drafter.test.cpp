// SPDX-License-Identifier: MIT
//
// A drafter in a GGUF file. The same weights in a folder and in a file must draft the same to the last bit: hidden
// states, logits, bias and confidence. In 8 bits they draft nearly the same. Beside it every claim of the file that is
// refused.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/dspark.hpp>
#include <engine/gguf/file.hpp>
#include <engine/gguf/model.hpp>
#include <engine/heads.hpp>
#include <engine/synthetic.hpp>
#include <engine/thread_pool.hpp>
#include <sureleap/core/types.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/gguf_drafter.hpp"
#include "support/gguf_model.hpp"
#include "support/gguf_writer.hpp"

namespace {

using engine::checkpoint;
using engine::model_config;
using support::distance;
using support::drafter_config;
using support::error_text;
using support::file_of;
using support::gguf_writer;
using support::keep_tokens;
using support::opened;
using support::target_config;
using support::write_tokens;
using sureleap::token_id;

constexpr engine::serving_limits limits{.slots = 1, .context_length = 32, .max_rows = 16};

/// What a drafter makes of a block behind five tokens.
struct drafted {
    std::vector<float> hidden;
    std::vector<float> logits;
    std::vector<float> bias;
    std::vector<float> confidence;
};

drafted draft(checkpoint from, engine::thread_pool& pool) {
    engine::causal_lm<float> target(make_in_memory(target_config(), engine::storage::f32, 7), {-1, 1, 2}, pool, limits);
    std::vector<token_id> const text = {3, 17, 40, 5, 9};
    target.prefill(0, 0, text);
    engine::dspark<float> model(std::move(from), target, pool, limits);
    std::vector<engine::batch_row> rows;
    for (std::uint32_t i = 0; i < text.size(); ++i) rows.push_back({0, i, 0});
    model.observe(rows, target.features().data);
    std::vector<sureleap::request_view> const requests = {{.id = 1, .slot = 0, .anchor = 31, .position = text.size()}};
    auto const block = model.forward(requests);
    drafted out;
    for (std::size_t k = 0; k < block.hidden.rows; ++k) {
        auto const h = block.hidden.row(k);
        auto const u = block.base_logits.values.row(k);
        out.hidden.insert(out.hidden.end(), h.begin(), h.end());
        out.logits.insert(out.logits.end(), u.begin(), u.end());
    }
    auto const head = engine::load_head<float>(model.source());
    REQUIRE(head.vocabulary() == model.vocabulary());
    std::vector<float> state(head.state_size());
    out.bias.resize(head.vocabulary());
    head.reset(state);
    head.add_bias(state, block.hidden.row(0), 31, out.bias);
    if (model.source().config().draft->confidence) {
        auto const confidence = engine::load_confidence<float>(model.source());
        for (std::size_t k = 0; k < block.hidden.rows; ++k)
            out.confidence.push_back(confidence.logit(block.hidden.row(k), 31));
    }
    return out;
}

TEST_CASE("gguf: a drafter in a file and in a folder is the same", "[gguf]") {
    engine::thread_pool pool(2);
    for (bool const with_markov : {true, false}) {
        model_config config = drafter_config();
        config.draft->confidence_with_markov = with_markov;
        config.draft->sample_from_anchor = with_markov;
        if (with_markov) config.draft->confidence_temperatures.assign(config.draft->block_size, 1.25);
        checkpoint const folder = make_in_memory(config, engine::storage::f32, 8);
        opened file(file_of(folder, false));
        auto const& read = file.model.config();
        CHECK(read.transformer == config.transformer);
        auto expected = *config.draft;
        expected.num_target_layers = 0;  // a file does not say
        CHECK(*read.draft == expected);
        CHECK(file.model.names() == folder.names());
        if (!with_markov) {  // which is what a file without the key says
            gguf_writer unsaid = file_of(folder, false);
            unsaid.erase("dflash.sample_from_anchor");
            opened const same(unsaid);
            CHECK(*same.model.config().draft == expected);
        }

        auto const a = draft(make_in_memory(config, engine::storage::f32, 8), pool);
        auto const b = draft(std::move(file.model), pool);
        CHECK(a.hidden == b.hidden);
        CHECK(a.logits == b.logits);
        CHECK(a.bias == b.bias);
        CHECK(a.confidence == b.confidence);

        opened small(file_of(folder, true));
        auto const c = draft(std::move(small.model), pool);
        CHECK(distance(a.hidden, c.hidden) < 0.03);
        CHECK(distance(a.logits, c.logits) < 0.03);
        CHECK(distance(a.bias, c.bias) < 0.02);
        CHECK(distance(a.confidence, c.confidence) < 0.03);
        CHECK(a.hidden != c.hidden);
    }
}

TEST_CASE("gguf: what a drafter's file leaves out is the target's, or not there", "[gguf]") {
    engine::thread_pool pool(2);
    model_config const config = drafter_config();
    checkpoint const folder = make_in_memory(config, engine::storage::f32, 8);

    // Without embedding and LM head: the target's, which the target of the test ties.
    opened shared(file_of(folder, false, {"embed_tokens.weight", "lm_head.weight"}));
    auto const a = draft(std::move(shared.model), pool);
    CHECK(a.logits != draft(make_in_memory(config, engine::storage::f32, 8), pool).logits);

    // Without heads it is DFlash.
    opened bare(file_of(folder, false,
                        {"markov_head.markov_w1.weight", "markov_head.markov_w2.weight", "confidence_head.proj.weight",
                         "confidence_head.proj.bias"}));
    CHECK(bare.model.config().draft->head == engine::head_kind::none);
    CHECK_FALSE(bare.model.config().draft->confidence);

    // A bias that is left out is 0.
    opened unbiased(file_of(folder, false, {"confidence_head.proj.bias"}));
    auto const shift = folder.vector<float>("confidence_head.proj.bias", 1).front();
    auto const b = draft(std::move(unbiased.model), pool);
    auto const c = draft(make_in_memory(config, engine::storage::f32, 8), pool);
    for (std::size_t k = 0; k < b.confidence.size(); ++k) {
        CHECK(b.confidence[k] + shift == Approx(c.confidence[k]).margin(1e-5));
    }
}

TEST_CASE("gguf: a drafter of some tokens has their rows, of its own or the target's", "[gguf]") {
    engine::thread_pool pool(2);
    model_config config = drafter_config();
    std::vector<std::int64_t> const tokens = {0, 5, 6, 31, 44};
    checkpoint const whole = make_in_memory(config, engine::storage::f32, 8);
    auto const all = draft(make_in_memory(config, engine::storage::f32, 8), pool);
    auto const with_tokens = [&](bool own_rows) {
        gguf_writer w = file_of(whole, false);
        keep_tokens(w, tokens, "markov_w2.weight");
        if (own_rows) keep_tokens(w, tokens, "output.weight");
        write_tokens(w, tokens);
        return w;
    };
    for (bool const own_rows : {true, false}) {
        opened file(with_tokens(own_rows));
        CHECK(file.model.config().draft->vocabulary == tokens.size());
        auto const some = draft(std::move(file.model), pool);
        std::vector<float> expected;
        for (std::size_t k = 0; k < 4; ++k) {
            for (auto const t : tokens) expected.push_back(all.logits[k * 48 + static_cast<std::size_t>(t)]);
        }
        CHECK(some.logits == expected);
        CHECK(some.hidden == all.hidden);
    }

    gguf_writer falling = with_tokens(true);
    falling.tensors.back().bytes[8] = std::byte{7};
    falling.tensors.back().bytes[16] = std::byte{6};
    CHECK(error_text([&] { (void)draft(opened(falling).model, pool); }).find("'d2t' has 6 at 2") != std::string::npos);
}

TEST_CASE("gguf: claims of a drafter's file are checked", "[gguf]") {
    checkpoint const folder = make_in_memory(drafter_config(), engine::storage::f32, 8);
    gguf_writer const good = file_of(folder, false);
    auto const refused = [&](auto const& spoil) {
        gguf_writer w = good;
        spoil(w);
        return error_text([&] { opened const file(w); });
    };
    using Catch::Contains;
    CHECK_THAT(refused([](auto& w) { w.set("dflash.block_size", std::uint32_t{0}); }),
               Contains("'dflash.block_size' is 0"));
    CHECK_THAT(refused([](auto& w) { w.erase("dflash.block_size"); }), Contains("'dflash.block_size'"));
    CHECK_THAT(refused([](auto& w) { w.set("dflash.target_layers", std::vector<std::int32_t>{2, 2}); }),
               Contains("'dflash.target_layers'") && Contains("rising"));
    for (auto const& temperatures : {std::vector<float>{1, 1}, std::vector<float>{1, 1, 1, 0}}) {
        CHECK_THAT(
            refused([&](auto& w) { w.set("dflash.confidence_temperatures", temperatures); }),
            Contains("'dflash.confidence_temperatures'") && Contains("4 entries, each a number in 0.001 .. 1000"));
    }
    CHECK_THAT(refused([](auto& w) { w.set("dflash.confidence_temperatures", std::vector<std::int32_t>{1, 1, 1, 1}); }),
               Contains("'dflash.confidence_temperatures'") && Contains("a list of F32"));
    CHECK_THAT(refused([](auto& w) { w.erase("dflash.sample_from_anchor").set("dflash.block_size", 1u); }),
               Contains("'dflash.block_size' is 1, expected"));
    CHECK_THAT(refused([](auto& w) { w.set("tokenizer.ggml.mask_token_id", std::uint32_t{48}); }),
               Contains("'tokenizer.ggml.mask_token_id' is 48"));
    CHECK_THAT(refused([](auto& w) {
                   w.erase("dflash.vocab_size").set("tokenizer.ggml.tokens", std::vector<std::string>{});
                   w.tensors.clear();
               }),
               Contains("'dflash.vocab_size'"));
    CHECK_THAT(refused([](auto& w) { w.tensor("d2t", {0}, std::vector<float>{}); }), Contains("'d2t'"));
    CHECK_THAT(refused([](auto& w) { w.set("dflash.final_logit_softcapping", 30.0f); }),
               Contains("'dflash.final_logit_softcapping'"));
    CHECK_THAT(refused([](auto& w) { w.set("general.architecture", "gemma"); }), Contains("\"dflash\""));
    CHECK_THAT(refused([](auto& w) { w.tensor("d2t", {1, 49}, std::vector<float>(49)); }), Contains("'d2t'"));
}

}  // namespace
