// SPDX-License-Identifier: MIT
//
// Drafter folders of strangers: what this engine does not read is refused by name, and tokens are the ones that the
// file means.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <engine/causal_lm.hpp>
#include <engine/draft_model.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/heads.hpp>
#include <engine/layout.hpp>
#include <engine/synthetic.hpp>

#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using engine::checkpoint;
using engine::model_config;
using support::error_text;
using support::says;
using sureleap::token_id;
using sureleap::safetensors::dtype;
using sureleap::safetensors::tensor_spec;

tiny::shape const shape{};

[[nodiscard]] model_config dspark_config() {
    model_config config = tiny::dspark_config(shape, {});
    config.draft->vocabulary = 5;
    return config;
}

/// Such a folder with its tensors changed by `edit`, all zeros but for d2t.
template <class Id>
[[nodiscard]] checkpoint folder(model_config const& config, std::vector<Id> const& d2t,
                                std::function<void(std::vector<tensor_spec>&)> const& edit = {}) {
    auto specs = engine::tensors_of(config, engine::storage::f32);
    for (tensor_spec& s : specs) {
        if (s.name == "d2t") s.type = sizeof(Id) == 8 ? dtype::i64 : dtype::i32;
    }
    if (edit) edit(specs);
    std::ranges::stable_sort(specs, std::ranges::greater{}, [](tensor_spec const& s) { return s.type == dtype::i64; });
    return engine::make_in_memory(config, specs, "a stranger's folder",
                                  [&](tensor_spec const& spec, engine::byte_sink const& sink) {
                                      if (spec.name == "d2t") return sink(std::as_bytes(std::span(d2t)));
                                      std::size_t count = 4;
                                      for (std::size_t const n : spec.shape) count *= n;
                                      sink(std::vector<std::byte>(count));
                                  });
}

}  // namespace

TEST_CASE("drafter files: tokens by offsets, as published folders have them, and by their ids", "[engine]") {
    model_config const config = dspark_config();
    std::vector<token_id> const tokens{2, 3, 7, 40, 60};
    CHECK(engine::drafted_tokens(folder<std::int64_t>(config, {2, 2, 5, 37, 56})) == tokens);
    CHECK(engine::drafted_tokens(folder<std::int32_t>(config, {2, 3, 7, 40, 60})) == tokens);
    CHECK(engine::drafted_tokens(folder<std::int64_t>(config, {0, 0, 0, 0, 0})) ==
          std::vector<token_id>{0, 1, 2, 3, 4});
    auto const refused = [&](std::vector<std::int64_t> const& offsets) {
        return error_text([&] { static_cast<void>(engine::drafted_tokens(folder<std::int64_t>(config, offsets))); });
    };
    CHECK(
        says(refused({2, 0, 5, 37, 56}), "'d2t' has the offset of token 1 at 1, expected rising tokens, here 3 .. 60"));
    CHECK(says(refused({2, 2, 5, 37, 57}), "the offset of token 61 at 4"));
    CHECK(says(refused({-1, 2, 5, 37, 57}), "the offset of token -1 at 0"));
}

TEST_CASE("drafter files: a tensor that is not read is refused by name", "[engine]") {
    engine::thread_pool pool(1);
    engine::serving_limits const limits{.slots = 1, .context_length = 32, .max_rows = 8};
    tiny::agreeing_models const models(shape, 3);
    engine::causal_lm<float> const target(models.target(engine::storage::f32), tiny::feature_layers(shape), pool,
                                          limits);
    std::vector<std::int64_t> const offsets{2, 2, 5, 37, 56};
    auto const loaded_with = [&](std::string const& name, std::vector<std::size_t> const& size) {
        return error_text([&] {
            auto from = folder<std::int64_t>(dspark_config(), offsets, [&](auto& specs) {
                if (!name.empty()) specs.push_back({name, dtype::f32, size});
            });
            engine::dspark<float> const drafter(std::move(from), target, pool, limits);
        });
    };
    CHECK(loaded_with("", {}).empty());
    CHECK(loaded_with("t2d", {61}).empty());
    CHECK(loaded_with("layers.0.self_attn.rotary_emb.inv_freq", {4}).empty());
    CHECK(says(loaded_with("layers.0.self_attn.sinks", {4}),
               {"tensor 'layers.0.self_attn.sinks' is none that Qwen3DSparkModel of this configuration has",
                "expected one of"}));
    CHECK(says(loaded_with("selector.weight", {1, 32}), "'selector.weight'"));
    CHECK(says(loaded_with("layers.0.self_attn.q_proj.bias", {32}), "'layers.0.self_attn.q_proj.bias'"));

    auto const eagle3_with = [&](std::string const& name) {
        return error_text([&] {
            auto from = folder<std::int64_t>(tiny::eagle3_config(shape, {}), offsets,
                                             [&](auto& specs) { specs.push_back({name, dtype::f32, {32}}); });
            engine::eagle3<float> const drafter(std::move(from), target, pool, limits);
        });
    };
    CHECK(
        says(eagle3_with("layers.0.self_attn.k_proj.bias"), {"'layers.0.self_attn.k_proj.bias'", "Qwen3Eagle3Model"}));
    CHECK(eagle3_with("layers.0.self_attn.rotary_emb.inv_freq").empty());
}

namespace {

/// A folder's document, with `edit` applied.
[[nodiscard]] nlohmann::json document_of(model_config const& config) {
    return nlohmann::json::parse(engine::config_json(config));
}
[[nodiscard]] model_config parsed(nlohmann::json const& document) {
    return engine::parse_config(document.dump(), "config.json");
}
[[nodiscard]] std::string refused(nlohmann::json const& document) {
    return error_text([&] { static_cast<void>(parsed(document)); });
}

/// The same drafter as z-lab's folders say it: its own fields in dflash_config.
[[nodiscard]] nlohmann::json as_z_lab(model_config const& config) {
    nlohmann::json document = document_of(config);
    document["architectures"] = {"DFlashDraftModel"};
    document["dflash_config"] = {{"mask_token_id", document["mask_token_id"]},
                                 {"target_layer_ids", document["target_layer_ids"]}};
    for (char const* const key : {"mask_token_id", "target_layer_ids", "num_anchors", "markov_rank",
                                  "enable_confidence_head", "sample_from_anchor"}) {
        document.erase(key);
    }
    return document;
}

/// The same as speculators say it: the transformer nested, layers of the target counted from the embedding.
[[nodiscard]] nlohmann::json as_speculators(model_config const& config, char const* type, char const* family) {
    nlohmann::json nested = document_of(config);
    nlohmann::json document{
        {"speculators_model_type", type},
        {"speculators_version", "0.6.0"},
        {"draft_vocab_size", config.draft->vocabulary > 0 ? config.draft->vocabulary : config.transformer.vocabulary},
        {"target_hidden_size", nullptr}};
    std::vector<int> layers = config.draft->target_layer_ids;
    for (int& l : layers) ++l;
    if (config.kind == engine::architecture::eagle3) {
        document["eagle_aux_hidden_state_layer_ids"] = layers;
        document["norm_before_residual"] = config.draft->norm_before_residual;
        document["speculators_config"] = {
            {"algorithm", "eagle3"},
            {"proposal_methods", {{{"proposal_type", "greedy"}, {"speculative_tokens", config.draft->block_size}}}},
            {"verifier", {{"name_or_path", "a target"}}}};
    } else {
        document["aux_hidden_state_layer_ids"] = layers;
        for (char const* const key : {"block_size", "mask_token_id"}) document[key] = nested[key];
        document["sample_from_anchor"] = config.draft->sample_from_anchor;
        if (std::string(type) == "dspark") {
            for (char const* const key :
                 {"markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov"}) {
                if (nested.contains(key)) document[key] = nested[key];
            }
        }
    }
    for (char const* const key :
         {"architectures", "target_layer_ids", "num_target_layers", "draft_vocab_size", "block_size", "mask_token_id",
          "num_anchors", "markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov",
          "sample_from_anchor", "ttt_length", "norm_before_residual", "hidden_act", "tie_word_embeddings"}) {
        nested.erase(key);
    }
    nested["model_type"] = family;
    document["transformer_layer_config"] = nested;
    return document;
}

}  // namespace

TEST_CASE("drafter files: published layouts say the same drafter", "[engine]") {
    model_config dspark = tiny::dspark_config(shape, {});
    dspark.draft->num_target_layers = 0;  // speculators do not say it
    dspark.stop_tokens.clear();
    for (bool const anchored : {true, false}) {
        dspark.draft->sample_from_anchor = anchored;
        INFO("the anchor predicts: " << anchored);
        CHECK(parsed(as_speculators(dspark, "dspark", "qwen3")) == dspark);
    }
    CHECK(says(refused([&] {
                   auto document = as_speculators(dspark, "dspark", "qwen3");
                   document.erase("sample_from_anchor");
                   return document;
               }()),
               "'sample_from_anchor' is missing, expected true or false"));

    model_config dflash = dspark;
    dflash.draft = {.block_size = 15,
                    .sample_from_anchor = false,
                    .target_layer_ids = dspark.draft->target_layer_ids,
                    .mask_token = dspark.draft->mask_token};
    CHECK(parsed(as_speculators(dflash, "dflash", "qwen3")) == dflash);
    dflash.draft->num_target_layers = 6;
    auto const z_lab = as_z_lab(dflash);
    CHECK(z_lab["block_size"] == 16);
    CHECK(parsed(z_lab) == dflash);
    auto later = z_lab;  // with the block's size beside the rest
    later["dflash_config"]["block_size"] = 16;
    later.erase("block_size");
    CHECK(parsed(later) == dflash);

    model_config eagle3 = tiny::eagle3_config(shape, {});
    eagle3.stop_tokens.clear();
    eagle3.draft->num_target_layers = 0;
    eagle3.draft->vocabulary = 7;
    eagle3.draft->norm_before_residual = true;
    CHECK(parsed(as_speculators(eagle3, "eagle3", "qwen3")) == eagle3);
    eagle3.transformer.query_key_norms = false;
    CHECK(parsed(as_speculators(eagle3, "eagle3", "llama")) == eagle3);
}

TEST_CASE("drafter files: a Domino folder is a DFlash folder with a head", "[engine]") {
    // The configuration that is published for Qwen3-8B (SpecForge, configs/qwen3-8b-domino.json).
    auto const published = nlohmann::json::parse(R"({
        "emb_dim": 256, "architectures": ["DFlashDraftModel"], "attention_bias": false, "attention_dropout": 0.0,
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "block_size": 16, "bos_token_id": 151643,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33], "projector_type": "domino",
                          "pure_draft_prefix_len": 1, "emb_dim": 256, "gru_hidden_dim": 1024, "shift_label": true},
        "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 12288, "layer_types": ["full_attention", "full_attention",
        "full_attention", "full_attention", "full_attention"], "max_position_embeddings": 40960,
        "max_window_layers": 5, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 5,
        "num_key_value_heads": 8, "num_target_layers": 36, "rms_norm_eps": 1e-06, "rope_scaling": null,
        "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false, "use_cache": true,
        "use_sliding_window": false, "vocab_size": 151936})");
    model_config const config = parsed(published);
    CHECK(config.kind == engine::architecture::dspark);
    CHECK(config.draft == engine::draft_config{.block_size = 16,
                                               .target_layer_ids = {1, 9, 17, 25, 33},
                                               .num_target_layers = 36,
                                               .mask_token = 151669,
                                               .markov_rank = 256,
                                               .head = engine::head_kind::domino,
                                               .gru_units = 1024,
                                               .uncorrected = 1});
    CHECK(parsed(document_of(config)) == config);
    std::vector<std::string> head;
    for (tensor_spec const& s : engine::tensors_of(config, engine::storage::bf16)) {
        if (!s.name.starts_with("prefix_gru.") && !s.name.starts_with("embed_proj.")) continue;
        head.push_back(s.name + " " + std::to_string(s.shape[0]) + " " + std::to_string(s.shape[1]));
    }
    CHECK(head == std::vector<std::string>{"embed_proj.0.weight 256 5120", "embed_proj.2.weight 151936 256",
                                           "prefix_gru.weight_hh_l0 3072 1024", "prefix_gru.weight_ih_l0 3072 4096"});

    auto const with = [&](char const* patch) {
        auto document = published;
        document["dflash_config"].merge_patch(nlohmann::json::parse(patch));
        return document;
    };
    auto const unshifted = parsed(with(R"({"shift_label": false})"));
    CHECK(unshifted.draft->block_size == 15);
    CHECK_FALSE(unshifted.draft->sample_from_anchor);
    CHECK(refused(with(R"({"projector_type": "dspark"})")) ==
          "config.json: field 'dflash_config.projector_type' is \"dspark\", expected \"domino\": nothing else is "
          "supported");
    CHECK(says(refused(with(R"({"shift_label": null})")), "'shift_label' is missing, expected true or false"));
    CHECK(says(refused(with(R"({"gru_hidden_dim": 0})")), "'dflash_config.gru_hidden_dim' is 0, expected an integer"));
    CHECK(says(refused(with(R"({"projector_type": null})")), {"'emb_dim' is 256", "what it does is not known here"}));
}

TEST_CASE("drafter files: a Domino head reads the target's embeddings, in its own storage", "[engine]") {
    auto const config = tiny::dspark_config(shape, {.head = engine::head_kind::domino, .confidence = false});
    auto const whole = engine::make_in_memory(config, engine::storage::bf16, 3);
    std::vector<float> const numbers(61 * 32);
    engine::weight const others{numbers.data(), engine::storage::f32, 61, 32};
    auto const without = engine::make_in_memory(
        config,
        [&] {
            auto specs = engine::tensors_of(config, engine::storage::bf16);
            std::erase_if(specs, [](tensor_spec const& s) { return s.name == "embed_tokens.weight"; });
            return specs;
        }(),
        "a folder",
        [&](tensor_spec const& spec, engine::byte_sink const& sink) {
            sink(std::vector<std::byte>(2 * spec.shape[0] * (spec.shape.size() > 1 ? spec.shape[1] : 1)));
        });
    auto const text = [](checkpoint const& from, engine::weight const& shared) {
        return error_text([&] { static_cast<void>(engine::load_head<float>(from, shared)); });
    };
    CHECK(text(whole, others).empty());  // it has its own
    CHECK(text(without, whole.matrix("embed_tokens.weight", 61, 32)).empty());
    CHECK(says(text(without, others), "'embed_tokens.weight' is stored otherwise than 'prefix_gru.weight_ih_l0'"));
    CHECK(says(text(without, {}), "embed_tokens.weight"));
    // There is no table of successors of a token, since the bias is of all before.
    auto const head = engine::load_head<float>(whole);
    CHECK(says(error_text([&] { static_cast<void>(sureleap::successor_table(head, 2)); }),
               "a Domino head has no successors of a token, expected a shortlist without them"));
}

TEST_CASE("drafter files: what a layout says that is not computed here is refused by name", "[engine]") {
    model_config dflash = tiny::dspark_config(shape, {.head = engine::head_kind::none, .confidence = false});
    dflash.draft->sample_from_anchor = false;
    auto const z_lab = as_z_lab(dflash);
    auto const with = [](nlohmann::json document, char const* group, char const* key, nlohmann::json const& value) {
        (group[0] == '\0' ? document : document[group])[key] = value;
        return refused(document);
    };
    CHECK(says(with(z_lab, "dflash_config", "selector_rank", 256), {"'dflash_config.selector_rank' is 256", "none"}));
    CHECK(says(with(z_lab, "dflash_config", "output_multiplier", 0.2), "expected 1: nothing else is supported"));
    CHECK(with(z_lab, "dflash_config", "input_embedding_scale", 1.0).empty());
    CHECK(says(with(z_lab, "", "is_causal", true), {"'is_causal' is true", "expected false"}));
    CHECK(says(with(z_lab, "", "layer_types", {"sliding_attention"}), "'layer_types[0]'"));
    CHECK(says(with(z_lab, "", "architectures", {"DFlash2DraftModel"}), {"DFlash2DraftModel", "DFlashDraftModel"}));
    CHECK(says(with(z_lab, "", "block_size", 1), "'block_size' is 1, expected an integer in 2 .."));

    auto const folder = document_of(tiny::dspark_config(shape, {}));
    CHECK(says(with(folder, "", "attention_sinks", true),
               {"'attention_sinks' is true, expected none", "not known here"}));
    CHECK(with(folder, "", "attention_sinks", nullptr).empty());  // Python's way not to set it
    CHECK(with(folder, "", "transformers_version", "6.0").empty());
    CHECK(says(with(document_of(tiny::eagle3_config(shape, {})), "", "markov_rank", 4), "'markov_rank'"));

    auto const nested = as_speculators(tiny::eagle3_config(shape, {}), "eagle3", "qwen3");
    CHECK(says(with(nested, "", "norm_before_fc", true), "'norm_before_fc' is true"));
    CHECK(says(with(nested, "", "speculators_model_type", "peagle"), "\"dspark\", \"dflash\" or \"eagle3\""));
    CHECK(says(with(nested, "transformer_layer_config", "num_hidden_layers", 2),
               "'transformer_layer_config.num_hidden_layers' is 2"));
    CHECK(says(with(nested, "transformer_layer_config", "sinks", true), "'transformer_layer_config.sinks'"));
    CHECK(says(with(nested, "", "target_hidden_size", 4096), {"'target_hidden_size' is 4096", "expected 32"}));
    CHECK(says(with(nested, "", "eagle_aux_hidden_state_layer_ids", nullptr), "'eagle_aux_hidden_state_layer_ids'"));
}

TEST_CASE("drafter files: where the anchor predicts nothing, the rows behind it draft", "[engine]") {
    // The rows of a block are the same, whatever they predict: one row more is computed, and the first one left out.
    engine::thread_pool pool(2);
    engine::serving_limits const limits{.slots = 2, .context_length = 32, .max_rows = 16};
    tiny::agreeing_models const models(shape, 3);
    engine::causal_lm<float> target(models.target(engine::storage::f32), tiny::feature_layers(shape), pool, limits);
    auto const made = [&](std::size_t block_size, bool anchored) {
        model_config config = tiny::dspark_config(shape, {});
        config.draft->block_size = block_size;
        config.draft->sample_from_anchor = anchored;
        return engine::dspark<float>(engine::make_in_memory(config, engine::storage::f32, 5), target, pool, limits);
    };
    auto whole = made(5, true);
    auto behind = made(4, false);
    CHECK(behind.block_size() == 4);
    std::vector<token_id> const text{3, 1, 4, 1, 5};
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
        std::vector<engine::batch_row> rows;
        for (std::uint32_t i = 0; i + 1 < text.size(); ++i) rows.push_back({slot, i, i + 1});
        std::vector<float> features(rows.size() * target.features().cols);
        for (std::size_t i = 0; i < features.size(); ++i) features[i] = static_cast<float>(i % 7) - 3.0f;
        whole.observe(rows, features.data(), text);
        behind.observe(rows, features.data(), text);
    }
    sureleap::request_settings const settings{};
    for (std::size_t const cap : {std::size_t{4}, std::size_t{2}}) {
        std::vector<sureleap::request_view> views;
        for (std::size_t slot = 0; slot < 2; ++slot) {
            views.push_back({.id = slot,
                             .slot = slot,
                             .anchor = text.back(),
                             .position = text.size() - 1,
                             .remaining = 20,
                             .settings = &settings});
        }
        auto const all = whole.forward(views);
        views[0].draft_limit = cap;
        auto const found = behind.forward(views);
        CHECK(found.base_logits.values.rows == 8);
        for (std::size_t r = 0; r < 2; ++r) {
            for (std::size_t k = 0; k < (r == 0 ? cap : 4); ++k) {
                INFO("request " << r << ", position " << k);
                CHECK(std::ranges::equal(found.base_logits.values.row(4 * r + k),
                                         all.base_logits.values.row(5 * r + k + 1)));
                CHECK(std::ranges::equal(found.hidden.row(4 * r + k), all.hidden.row(5 * r + k + 1)));
            }
        }
    }
}
