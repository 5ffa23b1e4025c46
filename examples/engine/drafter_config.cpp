// SPDX-License-Identifier: MIT
#include "drafter_config.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include <sureleap/core/error.hpp>

namespace engine {
namespace {

using sureleap::error_text;

using names = std::span<std::string_view const>;

/// Read by read_transformer.
constexpr std::array<std::string_view, 20> of_transformer = {"vocab_size",
                                                             "hidden_size",
                                                             "intermediate_size",
                                                             "num_hidden_layers",
                                                             "num_attention_heads",
                                                             "num_key_value_heads",
                                                             "max_position_embeddings",
                                                             "rope_theta",
                                                             "rope_parameters",
                                                             "rope_scaling",
                                                             "rms_norm_eps",
                                                             "tie_word_embeddings",
                                                             "head_dim",
                                                             "hidden_act",
                                                             "attention_bias",
                                                             "mlp_bias",
                                                             "use_sliding_window",
                                                             "layer_types",
                                                             "quantization_config",
                                                             "eos_token_id"};
/// What only training, Python or a tokenizer cares about; and windows, which no layer has (layer_types).
constexpr std::array<std::string_view, 29> harmless = {"_name_or_path",
                                                       "architectures",
                                                       "attention_dropout",
                                                       "auto_map",
                                                       "bos_token_id",
                                                       "ce_loss_alpha",
                                                       "chunk_size_feed_forward",
                                                       "confidence_head_alpha",
                                                       "dtype",
                                                       "embed_requires_grad",
                                                       "enable_sp_ulysses",
                                                       "initializer_range",
                                                       "l1_loss_alpha",
                                                       "loss_decay_gamma",
                                                       "max_anchors",
                                                       "max_window_layers",
                                                       "model_type",
                                                       "num_anchors",
                                                       "output_attentions",
                                                       "output_hidden_states",
                                                       "pad_token_id",
                                                       "pretraining_tp",
                                                       "return_dict",
                                                       "sliding_window",
                                                       "speculators_version",
                                                       "torch_dtype",
                                                       "transformers_version",
                                                       "tokenizer_class",
                                                       "use_cache"};

void refuse_unknown(json_field const& group, std::initializer_list<names> known) {
    for (auto const& [key, _] : group.object()) {
        bool const is_known = std::ranges::any_of(
            known, [&](names some) { return std::ranges::find(some, std::string_view(key)) != some.end(); });
        if (!is_known && group[key].present()) {
            group[key].wrong("none: what it does is not known here, and nothing would show that it is missing");
        }
    }
}

/// A setting of which this engine computes one value.
void expect(json_field const& given, bool value) {
    if (given.boolean_or(value) != value) {
        given.wrong(std::string(value ? "true" : "false") + ": nothing else is supported");
    }
}
void expect(json_field const& given, double value) {
    if (given.present() && given.number() != value) given.wrong(error_text(value) + ": nothing else is supported");
}

/// `layers`: of the target. Its last one is out of reach: transformers normalises what it hands out as the output of
/// the last layer, the training caches do not. `first`: the number that the list has for the target's first layer.
std::vector<int> read_layer_ids(json_field const& list, std::size_t layers, std::int64_t first = 0) {
    if (list.list_size() == 0) list.wrong("at least one layer");
    std::vector<int> ids;
    for (std::size_t i = 0; i < list.list_size(); ++i) {
        auto const id = list[i].integer(first - 1, first + static_cast<std::int64_t>(layers) - 2) - first;
        if (!ids.empty() && id <= ids.back()) {
            list[i].wrong("more than the entry before, " + error_text(ids.back() + first));
        }
        ids.push_back(static_cast<int>(id));
    }
    return ids;
}

head_kind read_head(json_field const& type) {
    std::string name = type.text();
    for (char& c : name) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    for (head_kind const kind : {head_kind::vanilla, head_kind::gated, head_kind::rnn}) {
        if (name == name_of(kind)) return kind;
    }
    type.wrong("vanilla, gated or rnn");
}

std::size_t read_draft_vocabulary(json_field const& root, transformer_config const& transformer) {
    json_field const drafted = root["draft_vocab_size"];
    return drafted.present() ? drafted.size(1, transformer.vocabulary) : 0;
}

/// How many tokens a block drafts: its row of the anchor may predict nothing.
std::size_t read_block(json_field const& rows, bool sample_from_anchor) {
    return sample_from_anchor ? rows.size(1, limits::block_size) : rows.size(2, limits::block_size + 1) - 1;
}

token_id read_mask(json_field const& mask, transformer_config const& transformer) {
    return static_cast<token_id>(mask.size(0, transformer.vocabulary - 1));
}

/// The Markov head and the confidence head. `defaults`: what is off has settings all the same.
void read_heads(json_field const& root, draft_config& c, bool defaults) {
    c.markov_rank = root["markov_rank"].size(0, limits::markov_rank);
    if (json_field const type = root["markov_head_type"]; c.markov_rank > 0) {
        c.head = read_head(type);
    } else if (type.present() && !defaults) {
        type.wrong("none, as 'markov_rank' is 0");
    }
    c.confidence = root["enable_confidence_head"].boolean();
    if (json_field const with_markov = root["confidence_head_with_markov"]; c.confidence) {
        c.confidence_with_markov = with_markov.boolean();
        if (c.confidence_with_markov && c.head == head_kind::none) {
            with_markov.wrong("false, as 'markov_rank' is 0 and there is nothing to read");
        }
    }
}
constexpr std::array<std::string_view, 4> of_heads = {"markov_rank", "markov_head_type", "enable_confidence_head",
                                                      "confidence_head_with_markov"};

// ---- DeepSpec -----------------------------------------------------------------------------------------------------

draft_config read_dspark(json_field const& root, transformer_config const& transformer) {
    constexpr std::array<std::string_view, 7> read = {
        "block_size",         "num_target_layers", "target_layer_ids",       "mask_token_id",
        "sample_from_anchor", "draft_vocab_size",  "confidence_temperatures"};
    refuse_unknown(root, {of_transformer, harmless, of_heads, read});
    draft_config c;
    c.sample_from_anchor = root["sample_from_anchor"].boolean_or(true);
    c.block_size = read_block(root["block_size"], c.sample_from_anchor);
    c.num_target_layers = root["num_target_layers"].size(1, limits::layers);
    c.target_layer_ids = read_layer_ids(root["target_layer_ids"], c.num_target_layers);
    c.mask_token = read_mask(root["mask_token_id"], transformer);
    read_heads(root, c, false);
    c.vocabulary = read_draft_vocabulary(root, transformer);
    if (json_field const temperatures = root["confidence_temperatures"]; temperatures.present()) {
        if (!c.confidence) temperatures.wrong("none, as 'enable_confidence_head' is false");
        if (temperatures.list_size() != c.block_size) {
            temperatures.wrong("one for each of " + error_text(c.block_size) + " drafted positions");
        }
        temperatures.each([&](json_field const& t) {
            if (!limits::is_confidence_temperature(t.number())) t.wrong(limits::confidence_temperatures);
            c.confidence_temperatures.push_back(t.number());
        });
    }
    return c;
}

void check_depth(json_field const& root, transformer_config const& transformer) {
    if (transformer.layers != 1) root["num_hidden_layers"].wrong("1, as every Eagle3 drafter has");
}

draft_config read_eagle3(json_field const& root, transformer_config const& transformer) {
    constexpr std::array<std::string_view, 7> read = {
        "ttt_length",           "num_target_layers",       "target_layer_ids", "draft_vocab_size",
        "norm_before_residual", "draft_num_hidden_layers", "step_loss_decay"};
    refuse_unknown(root, {of_transformer, harmless, read});
    draft_config c;
    c.block_size = root["ttt_length"].size(1, limits::block_size);
    if (json_field const layers = root["num_target_layers"]; layers.present()) {
        c.num_target_layers = layers.size(1, limits::layers);
    }
    c.target_layer_ids =
        read_layer_ids(root["target_layer_ids"], c.num_target_layers > 0 ? c.num_target_layers : limits::layers);
    c.norm_before_residual = root["norm_before_residual"].boolean_or(false);
    expect(root["draft_num_hidden_layers"], 1.0);
    c.vocabulary = read_draft_vocabulary(root, transformer);
    return c;
}

// ---- z-lab --------------------------------------------------------------------------------------------------------

/// What a folder says in dflash_config, later ones, or in the document itself. Domino folders are DFlash folders with a
/// projector.
draft_config read_dflash(json_field const& root, transformer_config const& transformer) {
    constexpr std::array<std::string_view, 7> read = {
        "block_size",        "mask_token_id",          "target_layer_ids", "is_causal", "input_embedding_scale",
        "output_multiplier", "final_logit_softcapping"};
    constexpr std::array<std::string_view, 2> of_document = {"num_target_layers", "dflash_config"};
    constexpr std::array<std::string_view, 5> of_domino = {"projector_type", "emb_dim", "gru_hidden_dim",
                                                           "pure_draft_prefix_len", "shift_label"};
    json_field const nested = root["dflash_config"];
    json_field const projector = nested.present() ? nested["projector_type"] : nested;
    names const of_head = projector.present() ? names(of_domino) : names{};
    refuse_unknown(root, {of_transformer, harmless, read, of_document, of_head});
    if (nested.present()) refuse_unknown(nested, {read, of_head});
    auto const field = [&](char const* key) {
        return nested.present() && nested[key].present() ? nested[key] : root[key];
    };
    expect(field("is_causal"), false);
    expect(field("input_embedding_scale"), 1.0);
    expect(field("output_multiplier"), 1.0);
    expect(field("final_logit_softcapping"), 0.0);
    draft_config c;
    c.sample_from_anchor = false;
    if (projector.present()) {
        if (projector.text() != name_of(head_kind::domino)) projector.wrong("\"domino\": nothing else is supported");
        c.head = head_kind::domino;
        c.sample_from_anchor = field("shift_label").boolean();
        c.markov_rank = field("emb_dim").size(1, limits::markov_rank);
        c.gru_units = field("gru_hidden_dim").size(1, limits::gru_units);
        c.uncorrected = field("pure_draft_prefix_len").size(0, limits::block_size);
    }
    c.block_size = read_block(field("block_size"), c.sample_from_anchor);
    if (json_field const layers = root["num_target_layers"]; layers.present()) {
        c.num_target_layers = layers.size(1, limits::layers);
    }
    c.target_layer_ids =
        read_layer_ids(field("target_layer_ids"), c.num_target_layers > 0 ? c.num_target_layers : limits::layers);
    c.mask_token = read_mask(field("mask_token_id"), transformer);
    return c;
}

// ---- speculators --------------------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 5> of_speculators = {"speculators_model_type", "speculators_config",
                                                            "transformer_layer_config", "draft_vocab_size",
                                                            "target_hidden_size"};

/// A reduced vocabulary has d2t; without one all tokens are drafted.
std::size_t read_reduced_vocabulary(json_field const& root, transformer_config const& transformer) {
    std::size_t const size = read_draft_vocabulary(root, transformer);
    return size == transformer.vocabulary ? 0 : size;
}

draft_config read_speculators_block(json_field const& root, transformer_config const& transformer, bool is_dspark) {
    constexpr std::array<std::string_view, 5> read = {"block_size", "aux_hidden_state_layer_ids", "mask_token_id",
                                                      "sample_from_anchor", "projector_type"};
    // Of other projectors, and of training.
    constexpr std::array<std::string_view, 8> unused = {
        "pure_draft_prefix_len",   "emb_dim", "gru_hidden_dim", "lambda_base_start",
        "lambda_base_decay_ratio", "auf",     "shift_label",    "sliding_window_non_causal"};
    refuse_unknown(root, {of_speculators, harmless, read, unused, is_dspark ? names(of_heads) : names{}});
    if (json_field const projector = root["projector_type"]; projector.present() && projector.text() != "dflash") {
        projector.wrong("\"dflash\": nothing else is supported");
    }
    expect(root["shift_label"], false);
    draft_config c;
    // DSpark's default has changed between versions: a file has to say it.
    json_field const anchored = root["sample_from_anchor"];
    c.sample_from_anchor = is_dspark ? anchored.boolean() : anchored.boolean_or(false);
    c.block_size = read_block(root["block_size"], c.sample_from_anchor);
    c.target_layer_ids = read_layer_ids(root["aux_hidden_state_layer_ids"], limits::layers, 1);
    c.mask_token = read_mask(root["mask_token_id"], transformer);
    if (is_dspark) read_heads(root, c, true);
    c.vocabulary = read_reduced_vocabulary(root, transformer);
    return c;
}

draft_config read_speculators_eagle3(json_field const& root, transformer_config const& transformer) {
    constexpr std::array<std::string_view, 3> read = {"eagle_aux_hidden_state_layer_ids", "norm_before_residual",
                                                      "norm_before_fc"};
    refuse_unknown(root, {of_speculators, harmless, read});
    expect(root["norm_before_fc"], false);
    draft_config c;
    json_field const methods = root["speculators_config"]["proposal_methods"];
    if (methods.list_size() != 1) methods.wrong("a list of one");
    c.block_size = methods[0]["speculative_tokens"].size(1, limits::block_size);
    c.target_layer_ids = read_layer_ids(root["eagle_aux_hidden_state_layer_ids"], limits::layers, 1);
    c.norm_before_residual = root["norm_before_residual"].boolean_or(false);
    c.vocabulary = read_reduced_vocabulary(root, transformer);
    return c;
}

model_config read_speculators(json_field const& root) {
    json_field const type = root["speculators_model_type"];
    json_field const nested = root["transformer_layer_config"];
    refuse_unknown(nested, {of_transformer, harmless});
    model_config config;
    config.transformer = read_transformer(nested, false);
    config.transformer.tied_embeddings = false;  // of the target: the file has an LM head of its own
    if (json_field const width = root["target_hidden_size"];
        width.present() && width.size(1, limits::hidden_size) != config.transformer.hidden_size) {
        width.wrong(error_text(config.transformer.hidden_size) + ", the drafter's own hidden size");
    }
    std::string const name = type.text();
    if (name == "eagle3") {
        config.kind = architecture::eagle3;
        std::string const family = nested["model_type"].text();
        if (family != "llama" && family != "qwen3") nested["model_type"].wrong("\"llama\" or \"qwen3\"");
        config.transformer.query_key_norms = family == "qwen3";
        check_depth(nested, config.transformer);
        config.draft = read_speculators_eagle3(root, config.transformer);
    } else if (name == "dspark" || name == "dflash") {
        config.kind = architecture::dspark;
        config.draft = read_speculators_block(root, config.transformer, name == "dspark");
    } else {
        type.wrong("\"dspark\", \"dflash\" or \"eagle3\"");
    }
    return config;
}

constexpr std::string_view dflash_name = "DFlashDraftModel";
constexpr std::string_view eagle3_name = "Eagle3DraftModel";

std::string_view architecture_of(json_field const& root) {
    json_field const list = root["architectures"];
    if (!list.present() || !list.is_list() || list.list_size() != 1) return {};
    return list[0].text();
}

}  // namespace

bool describes_drafter(json_field const& root) {
    std::string_view const name = architecture_of(root);
    return root["speculators_model_type"].present() || name == name_of(architecture::dspark) ||
           name == name_of(architecture::eagle3) || name == dflash_name || name == eagle3_name;
}

model_config read_drafter(json_field const& root) {
    if (root["speculators_model_type"].present()) return read_speculators(root);
    std::string_view const name = architecture_of(root);
    model_config config;
    config.transformer = read_transformer(root);
    if (name == name_of(architecture::eagle3) || name == eagle3_name) {
        config.kind = architecture::eagle3;
        check_depth(root, config.transformer);
        config.draft = read_eagle3(root, config.transformer);
    } else {
        config.kind = architecture::dspark;
        config.draft =
            name == dflash_name ? read_dflash(root, config.transformer) : read_dspark(root, config.transformer);
    }
    return config;
}

}  // namespace engine
