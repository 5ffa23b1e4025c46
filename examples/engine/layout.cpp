// SPDX-License-Identifier: MIT
#include "layout.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>

namespace engine {

using sureleap::safetensors::dtype;
using sureleap::safetensors::tensor_spec;

namespace {

dtype dtype_of(storage type) noexcept {
    switch (type) {
        case storage::f64: return dtype::f64;
        case storage::f32: return dtype::f32;
        case storage::f16: return dtype::f16;
        default: return dtype::bf16;
    }
    return dtype::bf16;
}

}  // namespace

std::vector<tensor_spec> layout(model_config const& config, storage type) {
    model_config stated = config;
    stated.transformer.rope_divisors.clear();  // whatever they come from, tensors are the same
    if (parse_config(config_json(stated), "synthetic model") != stated) {  // with the reader's checks
        sureleap::fail_with("synthetic model: the configuration has settings that its architecture does not know");
    }
    return tensors_of(config, type);
}

std::vector<tensor_spec> tensors_of(model_config const& config, storage type) {
    transformer_config const& c = config.transformer;
    std::size_t const d = c.hidden_size;
    std::vector<tensor_spec> specs;
    auto const add = [&](std::string name, std::vector<std::size_t> shape) {
        specs.push_back({std::move(name), dtype_of(type), std::move(shape)});
    };
    std::string const prefix = is_target(config.kind) ? "model." : "";
    add(prefix + "embed_tokens.weight", {c.vocabulary, d});
    add(prefix + "norm.weight", {d});
    if (!c.tied_embeddings) add("lm_head.weight", {c.vocabulary, d});

    std::size_t const input = config.kind == architecture::eagle3 ? 2 * d : d;  // embedding and feature side by side
    for (std::size_t i = 0; i < c.layers; ++i) {
        std::string const layer = prefix + "layers." + std::to_string(i) + ".";
        if (config.kind == architecture::eagle3) add(layer + "hidden_norm.weight", {d});
        add(layer + "input_layernorm.weight", {d});
        add(layer + "post_attention_layernorm.weight", {d});
        add(layer + "self_attn.q_proj.weight", {c.heads * c.head_dim, input});
        add(layer + "self_attn.k_proj.weight", {c.kv_heads * c.head_dim, input});
        add(layer + "self_attn.v_proj.weight", {c.kv_heads * c.head_dim, input});
        add(layer + "self_attn.o_proj.weight", {d, c.heads * c.head_dim});
        if (c.attention_biases) {
            add(layer + "self_attn.q_proj.bias", {c.heads * c.head_dim});
            add(layer + "self_attn.k_proj.bias", {c.kv_heads * c.head_dim});
            add(layer + "self_attn.v_proj.bias", {c.kv_heads * c.head_dim});
        }
        if (c.query_key_norms) {
            add(layer + "self_attn.q_norm.weight", {c.head_dim});
            add(layer + "self_attn.k_norm.weight", {c.head_dim});
        }
        add(layer + "mlp.gate_proj.weight", {c.intermediate_size, d});
        add(layer + "mlp.up_proj.weight", {c.intermediate_size, d});
        add(layer + "mlp.down_proj.weight", {d, c.intermediate_size});
    }

    if (config.draft) {
        draft_config const& draft = *config.draft;
        std::size_t const r = draft.markov_rank;
        add("fc.weight", {d, draft.target_layer_ids.size() * d});
        if (config.kind == architecture::dspark) add("hidden_norm.weight", {d});
        if (draft.head == head_kind::domino) {
            add("prefix_gru.weight_ih_l0", {3 * draft.gru_units, d});
            add("prefix_gru.weight_hh_l0", {3 * draft.gru_units, draft.gru_units});
            add("embed_proj.0.weight", {r, d + draft.gru_units});
            add("embed_proj.2.weight", {c.vocabulary, r});
        } else if (draft.head != head_kind::none) {
            add("markov_head.markov_w1.weight", {c.vocabulary, r});
            add("markov_head.markov_w2.weight", {draft.vocabulary > 0 ? draft.vocabulary : c.vocabulary, r});
        }
        if (draft.head == head_kind::gated) {
            add("markov_head.gate_proj.weight", {r, d + r});
            add("markov_head.gate_proj.bias", {r});
        }
        if (draft.head == head_kind::rnn) {
            add("markov_head.joint_proj.weight", {3 * r, 2 * r + d});
            add("markov_head.joint_proj.bias", {3 * r});
        }
        if (draft.confidence) {
            add("confidence_head.proj.weight", {1, draft.confidence_with_markov ? d + r : d});
            add("confidence_head.proj.bias", {1});
        }
    }
    std::ranges::sort(specs, {}, &tensor_spec::name);
    if (config.draft && config.draft->vocabulary > 0) {
        specs.push_back({"d2t", dtype::i32, {config.draft->vocabulary}});  // before F64 it would misalign that
    }
    return specs;
}

std::string config_json(model_config const& config) {
    transformer_config const& c = config.transformer;
    if (!c.rope_divisors.empty()) {
        sureleap::fail_with("config.json: rotary positions are scaled by ", c.rope_divisors.size(),
                            " divisors, expected none: a file states what they were made of");
    }
    nlohmann::ordered_json json;
    bool const is_domino = config.draft && config.draft->head == head_kind::domino;
    json["architectures"] = {is_domino ? "DFlashDraftModel" : name_of(config.kind)};
    json["model_type"] = config.kind == architecture::llama   ? "llama"
                         : config.kind == architecture::qwen2 ? "qwen2"
                                                              : "qwen3";
    json["vocab_size"] = c.vocabulary;
    json["hidden_size"] = c.hidden_size;
    json["intermediate_size"] = c.intermediate_size;
    json["num_hidden_layers"] = c.layers;
    json["num_attention_heads"] = c.heads;
    json["num_key_value_heads"] = c.kv_heads;
    json["head_dim"] = c.head_dim;
    json["max_position_embeddings"] = c.max_positions;
    if (is_target(config.kind)) {  // as transformers 4 writes it; the drafters were made with 5
        json["rope_theta"] = c.rope_theta;
        json["rope_scaling"] = nullptr;
    } else {
        json["rope_parameters"] = {{"rope_theta", c.rope_theta}, {"rope_type", "default"}};
        json["layer_types"] = std::vector<std::string>(c.layers, "full_attention");
    }
    json["rms_norm_eps"] = c.rms_norm_eps;
    json["hidden_act"] = "silu";
    json["attention_bias"] = false;
    json["use_sliding_window"] = false;
    json["sliding_window"] = nullptr;
    json["tie_word_embeddings"] = c.tied_embeddings;
    if (config.stop_tokens.size() == 1) {
        json["eos_token_id"] = config.stop_tokens[0];
    } else if (!config.stop_tokens.empty()) {
        json["eos_token_id"] = config.stop_tokens;
    }
    if (config.draft) {
        draft_config const& draft = *config.draft;
        json["target_layer_ids"] = draft.target_layer_ids;
        if (draft.num_target_layers > 0) json["num_target_layers"] = draft.num_target_layers;
        if (draft.vocabulary > 0) json["draft_vocab_size"] = draft.vocabulary;
        if (config.kind == architecture::eagle3) {
            json["ttt_length"] = draft.block_size;
            if (draft.norm_before_residual) json["norm_before_residual"] = true;
        } else {
            json["block_size"] = draft.block_rows();
        }
        if (is_domino) {
            json["dflash_config"] = {{"mask_token_id", draft.mask_token},
                                     {"projector_type", name_of(draft.head)},
                                     {"emb_dim", draft.markov_rank},
                                     {"gru_hidden_dim", draft.gru_units},
                                     {"pure_draft_prefix_len", draft.uncorrected},
                                     {"shift_label", draft.sample_from_anchor}};
        } else if (config.kind == architecture::dspark) {
            if (!draft.sample_from_anchor) json["sample_from_anchor"] = false;
            json["mask_token_id"] = draft.mask_token;
            json["num_anchors"] = 512;  // of training only, but the reference code insists on it
            json["markov_rank"] = draft.markov_rank;
            if (draft.head != head_kind::none) json["markov_head_type"] = name_of(draft.head);
            json["enable_confidence_head"] = draft.confidence;
            if (draft.confidence) json["confidence_head_with_markov"] = draft.confidence_with_markov;
            if (!draft.confidence_temperatures.empty()) {
                json["confidence_temperatures"] = draft.confidence_temperatures;
            }
        }
    }
    return json.dump(2);
}

}  // namespace engine
