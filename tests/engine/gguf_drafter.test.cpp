// SPDX-License-Identifier: MIT
//
// A drafter in a GGUF file. The same weights in a folder and in a file must draft the same to the last bit: hidden states,
// logits, bias and confidence. In 8 bits they draft nearly the same. Beside it every claim of the file that is refused.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
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
#include "support/gguf_model.hpp"
#include "support/gguf_writer.hpp"

namespace {

using engine::checkpoint;
using engine::model_config;
using engine::gguf::tensor_type;
using support::distance;
using support::error_text;
using support::gguf_writer;
using support::opened;
using sureleap::token_id;

constexpr engine::serving_limits limits{.slots = 1, .context_length = 32, .max_rows = 16};

model_config target_config() {
    model_config config;
    config.transformer = {.vocabulary = 48,
                          .hidden_size = 64,
                          .intermediate_size = 96,
                          .layers = 4,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 16,
                          .max_positions = 128,
                          .rope_theta = 1000.0,
                          .rms_norm_eps = static_cast<double>(1e-5f),  // as a file has it
                          .tied_embeddings = true};
    return config;
}

model_config drafter_config() {
    model_config config = target_config();
    config.kind = engine::architecture::dspark;
    config.transformer.layers = 2;
    config.transformer.tied_embeddings = false;
    config.draft = engine::draft_config{.block_size = 4,
                                        .target_layer_ids = {-1, 1, 2},
                                        .num_target_layers = 4,
                                        .mask_token = 47,
                                        .markov_rank = 32,
                                        .head = engine::head_kind::vanilla,
                                        .confidence = true,
                                        .confidence_with_markov = true};
    return config;
}

/// What a file calls the tensors of a folder.
std::string own_name(std::string const& name) {
    static constexpr std::pair<char const*, char const*> others[] = {
        {"norm.weight", "output_norm.weight"},
        {"hidden_norm.weight", "enc.output_norm.weight"},
        {"embed_tokens.weight", "token_embd.weight"},
        {"lm_head.weight", "output.weight"},
        {"markov_head.markov_w1.weight", "markov_w1.weight"},
        {"markov_head.markov_w2.weight", "markov_w2.weight"},
        {"confidence_head.proj.weight", "conf_proj.weight"},
        {"confidence_head.proj.bias", "conf_proj.bias"},
    };
    for (auto const& [theirs, own] : others) {
        if (name == theirs) return own;
    }
    if (!name.starts_with("layers.")) return name;
    static constexpr std::pair<char const*, char const*> of_layers[] = {
        {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
    };
    std::size_t const dot = name.find('.', 7);
    std::string own = "blk." + name.substr(7, dot - 7) + ".";
    for (auto const& [theirs, short_name] : of_layers) {
        if (name.substr(dot + 1) == std::string(theirs) + ".weight") own += short_name;
    }
    return own + ".weight";
}

gguf_writer keys_of(model_config const& config) {
    auto const& c = config.transformer;
    auto const u32 = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
    std::string const p = "dflash.";
    gguf_writer w;
    w.set("general.architecture", "dflash");
    w.set(p + "vocab_size", u32(c.vocabulary));
    w.set(p + "embedding_length", u32(c.hidden_size));
    w.set(p + "block_count", u32(c.layers));
    w.set(p + "context_length", u32(c.max_positions));
    w.set(p + "feed_forward_length", u32(c.intermediate_size));
    w.set(p + "attention.head_count", u32(c.heads));
    w.set(p + "attention.head_count_kv", u32(c.kv_heads));
    w.set(p + "attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
    w.set(p + "rope.freq_base", static_cast<float>(c.rope_theta));
    w.set(p + "attention.key_length", u32(c.head_dim));
    w.set(p + "block_size", u32(config.draft->block_size));
    std::vector<std::int32_t> inputs;
    for (int const layer : config.draft->target_layer_ids) inputs.push_back(layer + 1);
    w.set(p + "target_layers", inputs);
    w.set("tokenizer.ggml.mask_token_id", u32(static_cast<std::size_t>(config.draft->mask_token)));
    std::vector<float> const temperatures(config.draft->confidence_temperatures.begin(),
                                          config.draft->confidence_temperatures.end());
    if (!temperatures.empty()) w.set(p + "confidence_temperatures", temperatures);
    return w;
}

std::vector<std::byte> in_8_bits(std::span<float const> values) {
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < values.size(); i += 32) {
        float largest = 0;
        for (float const x : values.subspan(i, 32)) largest = std::max(largest, std::abs(x));
        sureleap::half const scale(largest / 127.0F);
        auto const raw = std::as_bytes(std::span(&scale.bits, 1));
        bytes.insert(bytes.end(), raw.begin(), raw.end());
        for (float const x : values.subspan(i, 32)) {
            float const steps = sureleap::load(scale) > 0 ? std::nearbyint(x / sureleap::load(scale)) : 0.0F;
            bytes.push_back(static_cast<std::byte>(static_cast<std::int8_t>(steps)));
        }
    }
    return bytes;
}

/// The tensors of a folder in a file, without those named.
gguf_writer file_of(checkpoint const& from, bool quantised, std::vector<std::string> const& without = {}) {
    gguf_writer w = keys_of(from.config());
    for (auto const& t : from.files()[0].tensors()) {
        if (std::ranges::find(without, t.name) != without.end()) continue;
        std::vector<std::uint64_t> const shape(t.shape.begin(), t.shape.end());
        std::vector<float> values(t.bytes.size() / sizeof(float));
        std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
        if (quantised && shape.size() == 2 && !std::string(t.name).starts_with("conf")) {
            w.tensor(own_name(std::string(t.name)), shape, tensor_type::q8_0, in_8_bits(values));
        } else {
            w.tensor(own_name(std::string(t.name)), shape, values);
        }
    }
    return w;
}

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
        if (with_markov) config.draft->confidence_temperatures.assign(config.draft->block_size, 1.25);
        checkpoint const folder = make_in_memory(config, engine::storage::f32, 8);
        opened file(file_of(folder, false));
        auto const& read = file.model.config();
        CHECK(read.transformer == config.transformer);
        auto expected = *config.draft;
        expected.num_target_layers = 0;  // a file does not say
        CHECK(*read.draft == expected);
        CHECK(file.model.names() == folder.names());

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
        gguf_writer w = file_of(whole, false, {"lm_head.weight", "markov_head.markov_w2.weight"});
        for (auto const& [theirs, own] : {std::pair{"markov_head.markov_w2.weight", "markov_w2.weight"},
                                          std::pair{"lm_head.weight", "output.weight"}}) {
            bool const some = own_rows || std::string(own) == "markov_w2.weight";
            auto const& t = whole.files()[0].at(theirs);
            std::size_t const width = t.shape[1];
            std::vector<float> values;
            for (std::size_t i = 0; i < t.shape[0]; ++i) {
                if (some && std::ranges::find(tokens, static_cast<std::int64_t>(i)) == tokens.end()) continue;
                auto const* const row = reinterpret_cast<float const*>(t.bytes.data()) + i * width;
                values.insert(values.end(), row, row + width);
            }
            w.tensor(own, {values.size() / width, width}, values);
        }
        w.tensor("d2t", {tokens.size()}, tensor_type::i64, std::as_bytes(std::span(tokens)));
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
    CHECK_THAT(refused([](auto& w) { w.set("dflash.sample_from_anchor", false); }),
               Contains("'dflash.sample_from_anchor'") && Contains("expected true"));
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
