// SPDX-License-Identifier: MIT
//
// Tiny DSpark drafters in GGUF files, for targets of make_tiny: two layers, blocks of 4, hidden states of the target's
// first two layers. Embedding and LM head are the target's.
//
//   write_dspark(folder / "drafter.gguf", 8, {.tokens = 288});                   drafts every token
//   write_dspark(folder / "drafter.gguf", 8, {.tokens = 288, .every = 3});       every third, by an LM head of its own
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ggml.h>
#include <gguf.h>

#include "tiny_models.hpp"
#include "tiny_weights.hpp"

namespace support {

struct tiny_dspark_options {
    std::uint32_t tokens = 288;                     ///< the target's
    std::uint32_t every = 1;                        ///< drafts tokens 0, every, 2 every, ..
    std::uint32_t block = 4;                        ///< rows of a block
    bool from_anchor = true;                        ///< dflash.sample_from_anchor
    std::vector<std::int32_t> target_layers{1, 2};  ///< inputs of layers
    std::string without = "";                       ///< a tensor that is left out
};

inline void write_dspark(std::filesystem::path const& path, std::uint64_t seed, tiny_dspark_options const& options) {
    constexpr std::int64_t width = 64, inner = 96, head = 16, heads = 4, kv_heads = 2, rank = 16;
    constexpr std::uint32_t layers = 2;
    std::unique_ptr<gguf_context, void (*)(gguf_context*)> const keys{gguf_init_empty(), gguf_free};
    std::unique_ptr<ggml_context, void (*)(ggml_context*)> const tensors{
        ggml_init({.mem_size = std::size_t{16} << 20, .mem_buffer = nullptr, .no_alloc = false}), ggml_free};
    gguf_set_val_str(keys.get(), "general.architecture", "dflash");
    detail::metadata_writer w("dflash", keys.get());
    w.set("vocab_size", options.tokens);
    w.set("context_length", 1024U);
    w.set("embedding_length", static_cast<std::uint32_t>(width));
    w.set("block_count", layers);
    w.set("feed_forward_length", static_cast<std::uint32_t>(inner));
    w.set("attention.head_count", static_cast<std::uint32_t>(heads));
    w.set("attention.head_count_kv", static_cast<std::uint32_t>(kv_heads));
    w.set("attention.key_length", static_cast<std::uint32_t>(head));
    w.set("attention.value_length", static_cast<std::uint32_t>(head));
    w.set("attention.layer_norm_rms_epsilon", 1e-5F);
    w.set("rope.freq_base", 1000.0F);
    w.set("block_size", options.block);
    gguf_set_val_bool(keys.get(), "dflash.sample_from_anchor", options.from_anchor);
    gguf_set_arr_data(keys.get(), "dflash.target_layers", GGUF_TYPE_INT32, options.target_layers.data(),
                      options.target_layers.size());
    gguf_set_val_u32(keys.get(), "tokenizer.ggml.mask_token_id", options.tokens - 1);
    detail::write_vocabulary(keys.get(), options.tokens);

    tiny_weights const weights{.seed = seed, .sharpness = 2.0F, .disturbance = 0.0F};
    auto const add = [&](std::string const& name, std::int64_t columns, std::int64_t rows) {
        if (name == options.without) return;
        ggml_tensor* const t = rows > 0 ? ggml_new_tensor_2d(tensors.get(), GGML_TYPE_F32, columns, rows)
                                        : ggml_new_tensor_1d(tensors.get(), GGML_TYPE_F32, columns);
        ggml_set_name(t, name.c_str());
        auto const values = weights.values_of(*t);
        std::memcpy(t->data, values.data(), values.size() * sizeof(float));
        gguf_add_tensor(keys.get(), t);
    };
    std::int64_t const drafted = (options.tokens + options.every - 1) / options.every;
    add("fc.weight", width * static_cast<std::int64_t>(options.target_layers.size()), width);
    add("enc.output_norm.weight", width, 0);
    add("output_norm.weight", width, 0);
    add("markov_w1.weight", rank, options.tokens);
    add("markov_w2.weight", rank, drafted);
    add("conf_proj.weight", width + rank, 1);
    add("conf_proj.bias", 1, 0);
    if (options.every > 1) {
        add("output.weight", width, drafted);
        ggml_tensor* const t = ggml_new_tensor_1d(tensors.get(), GGML_TYPE_I64, drafted);
        ggml_set_name(t, "d2t");
        for (std::int64_t i = 0; i < drafted; ++i) static_cast<std::int64_t*>(t->data)[i] = i * options.every;
        gguf_add_tensor(keys.get(), t);
    }
    for (std::uint32_t i = 0; i < layers; ++i) {
        std::string const in = "blk." + std::to_string(i) + ".";
        add(in + "attn_norm.weight", width, 0);
        add(in + "attn_q.weight", width, heads * head);
        add(in + "attn_k.weight", width, kv_heads * head);
        add(in + "attn_v.weight", width, kv_heads * head);
        add(in + "attn_output.weight", heads * head, width);
        add(in + "attn_q_norm.weight", head, 0);
        add(in + "attn_k_norm.weight", head, 0);
        add(in + "ffn_norm.weight", width, 0);
        add(in + "ffn_gate.weight", width, inner);
        add(in + "ffn_up.weight", width, inner);
        add(in + "ffn_down.weight", inner, width);
    }
    if (!gguf_write_to_file(keys.get(), path.c_str(), false)) {
        throw std::runtime_error("write_dspark: cannot write " + path.string());
    }
}

}  // namespace support
