// SPDX-License-Identifier: MIT
//
// Small DSpark drafters in GGUF files, in llama.cpp's layout.
//
//   gguf_writer w = file_of(make_in_memory(drafter_config(), engine::storage::f32, 8), false);
//   keep_tokens(w, tokens);      it drafts these alone
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/config.hpp>
#include <engine/gguf/file.hpp>
#include <engine/heads.hpp>
#include <sureleap/core/types.hpp>

#include "gguf_writer.hpp"

namespace support {

[[nodiscard]] inline engine::model_config target_config() {
    engine::model_config config;
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

[[nodiscard]] inline engine::model_config drafter_config() {
    engine::model_config config = target_config();
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
[[nodiscard]] inline std::string own_name(std::string const& name) {
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

[[nodiscard]] inline gguf_writer keys_of(engine::model_config const& config) {
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
    w.set(p + "block_size", u32(config.draft->block_rows()));
    w.set(p + "sample_from_anchor", config.draft->sample_from_anchor);
    std::vector<std::int32_t> inputs;
    for (int const layer : config.draft->target_layer_ids) inputs.push_back(layer + 1);
    w.set(p + "target_layers", inputs);
    w.set("tokenizer.ggml.mask_token_id", u32(static_cast<std::size_t>(config.draft->mask_token)));
    std::vector<float> const temperatures(config.draft->confidence_temperatures.begin(),
                                          config.draft->confidence_temperatures.end());
    if (!temperatures.empty()) w.set(p + "confidence_temperatures", temperatures);
    return w;
}

[[nodiscard]] inline std::vector<std::byte> in_8_bits(std::span<float const> values) {
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
[[nodiscard]] inline gguf_writer file_of(engine::checkpoint const& from, bool quantised,
                                         std::vector<std::string> const& without = {}) {
    gguf_writer w = keys_of(from.config());
    for (auto const& t : from.files()[0].tensors()) {
        if (std::ranges::find(without, t.name) != without.end()) continue;
        std::vector<std::uint64_t> const shape(t.shape.begin(), t.shape.end());
        std::vector<float> values(t.bytes.size() / sizeof(float));
        std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
        if (quantised && shape.size() == 2 && !std::string(t.name).starts_with("conf")) {
            w.tensor(own_name(std::string(t.name)), shape, engine::gguf::tensor_type::q8_0, in_8_bits(values));
        } else {
            w.tensor(own_name(std::string(t.name)), shape, values);
        }
    }
    return w;
}

/// Rows of these tokens alone, of a matrix of floats.
inline void keep_tokens(gguf_writer& w, std::span<std::int64_t const> tokens, std::string const& name) {
    auto& matrix = w.at(name);
    std::size_t const row = matrix.bytes.size() / matrix.shape[0];
    std::vector<std::byte> kept;
    for (std::int64_t const token : tokens) {
        auto const begin = matrix.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token) * row);
        kept.insert(kept.end(), begin, begin + static_cast<std::ptrdiff_t>(row));
    }
    matrix.shape[0] = tokens.size();
    matrix.bytes = std::move(kept);
}

inline void write_tokens(gguf_writer& w, std::span<std::int64_t const> tokens) {
    w.tensor("d2t", {tokens.size()}, engine::gguf::tensor_type::i64, std::as_bytes(tokens));
}

/// A drafter of these tokens, with an LM head of its own.
inline void keep_tokens(gguf_writer& w, std::span<std::int64_t const> tokens) {
    keep_tokens(w, tokens, "markov_w2.weight");
    keep_tokens(w, tokens, "output.weight");
    write_tokens(w, tokens);
}

}  // namespace support
