// SPDX-License-Identifier: MIT
//
// What config.json says, and every reason to refuse one. Refusals are compared as a whole: the text is what a user gets
// when a download does not work.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <engine/config.hpp>
#include <engine/synthetic.hpp>
#include <engine/text/utf8.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/safetensors.hpp"

using engine::architecture;
using engine::head_kind;
using engine::model_config;
using engine::parse_config;
using nlohmann::json;
using support::error_text;
using support::says;

namespace {

json target() {
    return json::parse(R"({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "use_sliding_window": false, "vocab_size": 151936})");
}

json dspark() {
    json d = target();
    d.erase("rope_theta");
    d.update(json::parse(R"({
        "architectures": ["Qwen3DSparkModel"], "num_hidden_layers": 5, "tie_word_embeddings": false,
        "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention", "full_attention"],
        "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "block_size": 7, "num_target_layers": 28,
        "target_layer_ids": [1, 7, 13, 19, 25], "mask_token_id": 151669, "num_anchors": 512, "markov_rank": 256,
        "markov_head_type": "vanilla", "enable_confidence_head": true, "confidence_head_with_markov": true})"));
    return d;
}

json eagle3() {
    json d = target();
    d.update(json::parse(R"({
        "architectures": ["Qwen3Eagle3Model"], "num_hidden_layers": 1, "draft_num_hidden_layers": 1,
        "tie_word_embeddings": false, "target_layer_ids": [1, 7, 13, 19, 25], "ttt_length": 7,
        "step_loss_decay": 0.8})"));
    return d;
}

model_config parsed(json const& document) {
    return parse_config(document.dump(), "c.json");
}

std::string refusal(std::string const& text) {
    return error_text([&] { static_cast<void>(parse_config(text, "c.json")); });
}

/// `patch` is an RFC 7396 merge patch: null removes a field.
json with(json document, char const* patch) {
    document.merge_patch(json::parse(patch));
    return document;
}

std::string refusal(json const& document, char const* patch) {
    return refusal(with(document, patch).dump());
}

std::vector<sureleap::token_id> stop_tokens(char const* eos) {
    json document = target();
    document["eos_token_id"] = json::parse(eos);
    return parsed(document).stop_tokens;
}

}  // namespace

TEST_CASE("a target's config.json is read field by field") {
    model_config const c = parsed(target());
    CHECK(c.kind == architecture::qwen3);
    CHECK(c.transformer.vocabulary == 151936);
    CHECK(c.transformer.hidden_size == 1024);
    CHECK(c.transformer.intermediate_size == 3072);
    CHECK(c.transformer.layers == 28);
    CHECK(c.transformer.heads == 16);
    CHECK(c.transformer.kv_heads == 8);
    CHECK(c.transformer.head_dim == 128);
    CHECK(c.transformer.max_positions == 40960);
    CHECK(c.transformer.rope_theta == 1e6);
    CHECK(c.transformer.rms_norm_eps == 1e-6);
    CHECK(c.transformer.tied_embeddings);
    CHECK_FALSE(c.draft.has_value());
    CHECK(c.stop_tokens == std::vector<sureleap::token_id>{151645});
}

TEST_CASE("a Qwen2 model has biases in place of norms") {
    model_config const c = parsed(with(target(), R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
        "attention_bias": null, "max_window_layers": 28, "sliding_window": 131072, "use_sliding_window": false})"));
    CHECK(c.kind == architecture::qwen2);
    CHECK(c.transformer.attention_biases);
    CHECK_FALSE(c.transformer.query_key_norms);
    CHECK_FALSE(parsed(target()).transformer.attention_biases);
}

TEST_CASE("a target's rotary positions may be scaled as Llama 3.1's") {
    // Of Llama-3.1-8B; by wavelengths, as transformers states it.
    for (char const* const group : {"rope_scaling", "rope_parameters"}) {
        model_config const c = parsed(with(target(), (std::string(R"({"rope_theta": 500000, ")") + group +
                                                      R"(": {"rope_type": "llama3", "factor": 8.0,
                     "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})")
                                                         .c_str()));
        auto const& divisors = c.transformer.rope_divisors;
        REQUIRE(divisors.size() == 64);
        auto const is = [&](std::size_t i, double d) { return std::abs(divisors[i] - d) < 1e-9 * d; };
        for (std::size_t const i : {0u, 20u, 28u}) CHECK(divisors[i] == 1.0);
        for (std::size_t const i : {36u, 40u, 63u}) CHECK(divisors[i] == 8.0);
        CHECK(is(30, 1.5534146285049255));
        CHECK(is(32, 2.694529687894733));
        CHECK(is(34, 5.257326588708467));
    }
    CHECK(parsed(target()).transformer.rope_divisors.empty());
}

TEST_CASE("a drafter's config.json is read field by field") {
    model_config const c = parsed(dspark());
    CHECK(c.kind == architecture::dspark);
    CHECK(c.transformer.layers == 5);
    CHECK(c.transformer.rope_theta == 1e6);
    CHECK_FALSE(c.transformer.tied_embeddings);
    REQUIRE(c.draft.has_value());
    CHECK(c.draft->block_size == 7);
    CHECK(c.draft->num_target_layers == 28);
    CHECK(c.draft->target_layer_ids == std::vector<int>{1, 7, 13, 19, 25});
    CHECK(c.draft->mask_token == 151669);
    CHECK(c.draft->markov_rank == 256);
    CHECK(c.draft->head == head_kind::vanilla);
    CHECK(c.draft->confidence);
    CHECK(c.draft->confidence_with_markov);
}

TEST_CASE("a drafter may have a temperature for the confidence of every position") {
    CHECK(parsed(dspark()).draft->confidence_temperatures.empty());
    char const* const seven = R"({"confidence_temperatures": [1, 1.5, 0.5, 2, 1, 0.001, 1000]})";
    CHECK(parsed(with(dspark(), seven)).draft->confidence_temperatures ==
          std::vector<double>{1, 1.5, 0.5, 2, 1, 0.001, 1000});
    CHECK(refusal(dspark(), R"({"confidence_temperatures": [1, 2]})") ==
          "c.json: field 'confidence_temperatures' is a list of 2, expected one for each of 7 drafted positions");
    CHECK(refusal(dspark(), R"({"confidence_temperatures": [1, 1, 1, 1, 1, 1, 0]})") ==
          "c.json: field 'confidence_temperatures[6]' is 0, expected a number in 0.001 .. 1000");
    CHECK(
        refusal(with(dspark(), R"({"enable_confidence_head": false, "confidence_head_with_markov": null})"), seven) ==
        "c.json: field 'confidence_temperatures' is a list of 7, expected none, as 'enable_confidence_head' is false");
}

TEST_CASE("DFlash is DSpark without the heads") {
    json document = dspark();
    document.merge_patch(json::parse(R"({"markov_rank": 0, "markov_head_type": null, "enable_confidence_head": false,
                                         "confidence_head_with_markov": null})"));
    model_config const c = parsed(document);
    CHECK(c.kind == architecture::dspark);
    CHECK(c.draft->head == head_kind::none);
    CHECK(c.draft->markov_rank == 0);
    CHECK_FALSE(c.draft->confidence);
    CHECK_FALSE(c.draft->confidence_with_markov);
}

TEST_CASE("Eagle3 has a training length for a block size, and may keep its target's depth to itself") {
    model_config const c = parsed(eagle3());
    CHECK(c.kind == architecture::eagle3);
    CHECK(c.draft->block_size == 7);
    CHECK(c.draft->num_target_layers == 0);
    CHECK(c.draft->target_layer_ids == std::vector<int>{1, 7, 13, 19, 25});
    CHECK(c.draft->mask_token == sureleap::no_token);
    CHECK(c.draft->head == head_kind::none);
    CHECK(parsed(with(eagle3(), R"({"architectures": ["Eagle3DraftModel"]})")).kind == architecture::eagle3);
    CHECK(parsed(with(eagle3(), R"({"num_target_layers": 27})")).draft->num_target_layers == 27);
    CHECK(refusal(eagle3(), R"({"num_target_layers": 26})") ==
          "c.json: field 'target_layer_ids[4]' is 25, expected an integer in -1 .. 24");
}

TEST_CASE("the reference checkpoint's configuration") {
    model_config const c = engine::load_config(golden::path() + "/tiny_dspark_ckpt");
    CHECK(c.kind == architecture::dspark);
    CHECK(c.transformer == engine::transformer_config{.vocabulary = 97,
                                                      .hidden_size = 32,
                                                      .intermediate_size = 64,
                                                      .layers = 2,
                                                      .heads = 4,
                                                      .kv_heads = 2,
                                                      .head_dim = 8,
                                                      .max_positions = 64,
                                                      .rope_theta = 1e6,
                                                      .rms_norm_eps = 1e-6,
                                                      .tied_embeddings = false});
    CHECK(c.draft == engine::draft_config{.block_size = 7,
                                          .target_layer_ids = {0, 2, 4},
                                          .num_target_layers = 6,
                                          .mask_token = 96,
                                          .markov_rank = 8,
                                          .head = head_kind::vanilla,
                                          .confidence = true,
                                          .confidence_with_markov = true});
    CHECK(c.stop_tokens == std::vector<sureleap::token_id>{3});
}

TEST_CASE("what may differ between files that mean the same") {
    model_config const expected = parsed(target());
    auto const same = [&](char const* patch) { return parsed(with(target(), patch)) == expected; };
    CHECK(same(R"({"rope_theta": null, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}})"));
    CHECK(same(R"({"rope_theta": null, "rope_scaling": {"rope_theta": 1000000.0, "type": "default"}})"));
    CHECK(same(R"({"rope_parameters": {"rope_theta": 1000000}, "rope_scaling": {"rope_type": "default"}})"));
    CHECK(same(R"({"attention_bias": null, "use_sliding_window": null, "layer_types": null, "model_type": "llama"})"));
    CHECK(same(R"({"sliding_window": 4096, "use_sliding_window": false})"));  // configured, but not in use
    CHECK(same(R"({"layer_types": []})"));
    CHECK(same(R"({"eos_token_id": [151645]})"));
    CHECK(same(R"({"block_size": "no drafter, no matter"})"));

    // A field that Python does not set is null; the merge patch cannot say so.
    json document = target();
    for (char const* const name : {"attention_bias", "layer_types", "quantization_config", "rope_parameters"}) {
        document[name] = nullptr;
    }
    CHECK(parsed(document) == expected);

    // 1024 / 16
    CHECK(parsed(with(target(), R"({"head_dim": null})")).transformer.head_dim == 64);
    CHECK(parsed(with(dspark(), R"({"markov_head_type": "GATED"})")).draft->head == head_kind::gated);
    CHECK(parsed(with(dspark(), R"({"markov_head_type": "Rnn"})")).draft->head == head_kind::rnn);
}

TEST_CASE("the last value of a key that stands twice counts, as in Python") {
    std::string text = target().dump();
    text.insert(text.size() - 1, R"(,"vocab_size":1000,"eos_token_id":1)");
    CHECK(parse_config(text, "c.json").transformer.vocabulary == 1000);
}

TEST_CASE("stop tokens") {
    CHECK(stop_tokens("3") == std::vector<sureleap::token_id>{3});
    CHECK(stop_tokens("[151645, 151643, 151645]") == std::vector<sureleap::token_id>{151643, 151645});
    CHECK(stop_tokens("[]").empty());
    CHECK(stop_tokens("null").empty());
    CHECK(parsed(with(target(), R"({"eos_token_id": null})")).stop_tokens.empty());

    using engine::parse_stop_tokens;
    CHECK(parse_stop_tokens(R"({"eos_token_id": [9, 8]})", "g.json", 10) == std::vector<sureleap::token_id>{8, 9});
    CHECK(parse_stop_tokens(R"({"temperature": 0.6})", "g.json", 10) == std::nullopt);
    CHECK(error_text([] { static_cast<void>(parse_stop_tokens(R"({"eos_token_id": [9, 10]})", "g.json", 10)); }) ==
          "g.json: field 'eos_token_id[1]' is 10, expected an integer in 0 .. 9");
    CHECK(error_text([] { static_cast<void>(parse_stop_tokens("[]", "g.json", 10)); }) ==
          "g.json: expected a JSON object, found array");
}

TEST_CASE("limits belong to the range") {
    struct {
        char const* name;
        std::size_t limit;
    } const sizes[] = {{"vocab_size", engine::limits::vocabulary},
                       {"hidden_size", engine::limits::hidden_size},
                       {"intermediate_size", engine::limits::intermediate_size},
                       {"num_hidden_layers", engine::limits::layers},
                       {"num_attention_heads", engine::limits::heads},
                       {"max_position_embeddings", engine::limits::max_positions},
                       {"num_target_layers", engine::limits::layers},
                       {"block_size", engine::limits::block_size}};
    for (auto const& size : sizes) {
        INFO(size.name);
        json document = dspark();
        document[size.name] = size.limit;
        CHECK_NOTHROW(parsed(document));
        std::string const range = "expected an integer in 1 .. " + std::to_string(size.limit);
        document[size.name] = size.limit + 1;
        CHECK(refusal(document.dump()) ==
              std::string("c.json: field '") + size.name + "' is " + std::to_string(size.limit + 1) + ", " + range);
        document[size.name] = 0;
        CHECK(refusal(document.dump()) == std::string("c.json: field '") + size.name + "' is 0, " + range);
        document[size.name] = -1;
        CHECK(refusal(document.dump()) == std::string("c.json: field '") + size.name + "' is -1, " + range);
        document[size.name] = 8.0;
        CHECK(refusal(document.dump()) == std::string("c.json: field '") + size.name + "' is 8.0, " + range);
        document[size.name] = "8";
        CHECK(refusal(document.dump()) == std::string("c.json: field '") + size.name + "' is \"8\", " + range);
        document.erase(size.name);
        CHECK(refusal(document.dump()) == std::string("c.json: field '") + size.name + "' is missing, " + range);
        document[size.name] = nullptr;
        CHECK(refusal(document.dump()) == std::string("c.json: field '") + size.name + "' is null, " + range);
    }
    CHECK_NOTHROW(parsed(with(dspark(), R"({"head_dim": 4096, "markov_rank": 65536, "num_target_layers": 27})")));
    CHECK_NOTHROW(parsed(with(dspark(), R"({"head_dim": 2, "target_layer_ids": [-1], "num_target_layers": 1})")));
    CHECK_NOTHROW(parsed(with(dspark(), R"({"mask_token_id": 151935, "eos_token_id": 0, "rms_norm_eps": 1})")));
    CHECK_NOTHROW(parsed(with(target(), R"({"rope_theta": 1, "rms_norm_eps": 5e-324})")));
    CHECK_NOTHROW(parsed(with(target(), R"({"rope_theta": 1e12})")));
}

TEST_CASE("what is wrong with a configuration is told in full") {
    json const t = target();
    json const d = dspark();
    json const e = eagle3();
    struct {
        json const& document;
        char const* patch;
        char const* expected;
    } const cases[] = {
        {t, R"({"architectures": null})", "field 'architectures' is missing, expected a list"},
        {t, R"({"architectures": "Qwen3ForCausalLM"})",
         "field 'architectures' is \"Qwen3ForCausalLM\", expected a list"},
        {t, R"({"architectures": []})", "field 'architectures' is a list of 0, expected a list of one"},
        {t, R"({"architectures": ["Qwen3ForCausalLM", "Qwen3DSparkModel"]})",
         "field 'architectures' is a list of 2, expected a list of one"},
        {t, R"({"architectures": [3]})", "field 'architectures[0]' is 3, expected a string"},
        {t, R"({"architectures": ["Gemma4DSparkModel"]})",
         "field 'architectures[0]' is \"Gemma4DSparkModel\", expected Qwen3ForCausalLM, Qwen2ForCausalLM or "
         "LlamaForCausalLM, or of drafters Qwen3DSparkModel, Qwen3Eagle3Model, Eagle3DraftModel or DFlashDraftModel"},
        // numbers
        {t, R"({"num_attention_heads": "32"})",
         "field 'num_attention_heads' is \"32\", expected an integer in 1 .. 4096"},
        {t, R"({"vocab_size": 18446744073709551615})",
         "field 'vocab_size' is 18446744073709551615, expected an integer in 1 .. 16777216"},
        {t, R"({"vocab_size": 100000000000000000000})",
         "field 'vocab_size' is 1e+20, expected an integer in 1 .. 16777216"},
        {t, R"({"hidden_size": [1024]})", "field 'hidden_size' is a list of 1, expected an integer in 1 .. 262144"},
        {t, R"({"hidden_size": {"a": 1, "b": 2}})",
         "field 'hidden_size' is an object of 2, expected an integer in 1 .. 262144"},
        {t, R"({"hidden_size": true})", "field 'hidden_size' is true, expected an integer in 1 .. 262144"},
        {t, R"({"num_key_value_heads": 3})",
         "field 'num_key_value_heads' is 3, expected a divisor of 'num_attention_heads', 16"},
        {t, R"({"num_key_value_heads": 32})",
         "field 'num_key_value_heads' is 32, expected a divisor of 'num_attention_heads', 16"},
        {t, R"({"head_dim": 127})", "field 'head_dim' is 127, expected an even number: rotary positions turn pairs"},
        {t, R"({"head_dim": 0})", "field 'head_dim' is 0, expected an integer in 2 .. 4096"},
        {t, R"({"head_dim": null, "hidden_size": 1025})",
         "field 'hidden_size' is 1025, expected an even multiple, at most 4096, of 'num_attention_heads', 16, as "
         "'head_dim' is absent"},
        {t, R"({"head_dim": null, "hidden_size": 48})",
         "field 'hidden_size' is 48, expected an even multiple, at most 4096, of 'num_attention_heads', 16, as "
         "'head_dim' is absent"},
        {t, R"({"head_dim": null, "hidden_size": 131072})",
         "field 'hidden_size' is 131072, expected an even multiple, at most 4096, of 'num_attention_heads', 16, as "
         "'head_dim' is absent"},
        {t, R"({"rms_norm_eps": 0})", "field 'rms_norm_eps' is 0, expected a number above 0, at most 1"},
        {t, R"({"rms_norm_eps": -1e-6})", "field 'rms_norm_eps' is -1e-06, expected a number above 0, at most 1"},
        {t, R"({"rms_norm_eps": 1.5})", "field 'rms_norm_eps' is 1.5, expected a number above 0, at most 1"},
        {t, R"({"rms_norm_eps": "1e-6"})", "field 'rms_norm_eps' is \"1e-6\", expected a number"},
        {t, R"({"tie_word_embeddings": null})", "field 'tie_word_embeddings' is missing, expected true or false"},
        {t, R"({"tie_word_embeddings": 1})", "field 'tie_word_embeddings' is 1, expected true or false"},
        // rotary positions
        {t, R"({"rope_theta": null})",
         "field 'rope_theta' is missing, expected a number, here or in 'rope_parameters'"},
        {t, R"({"rope_theta": 0.5})", "field 'rope_theta' is 0.5, expected a number in 1 .. 1e+12"},
        {t, R"({"rope_theta": 1e300})", "field 'rope_theta' is 1e+300, expected a number in 1 .. 1e+12"},
        {t, R"({"rope_theta": "1e6"})", "field 'rope_theta' is \"1e6\", expected a number"},
        {t, R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})",
         "field 'rope_scaling.rope_type' is \"yarn\", expected \"default\" or \"llama3\", the only ones that are "
         "supported"},
        {t, R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
         "field 'rope_scaling.type' is \"linear\", expected \"default\" or \"llama3\", the only ones that are "
         "supported"},
        {t, R"({"rope_scaling": "yarn"})", "field 'rope_scaling' is \"yarn\", expected an object"},
        {t, R"({"rope_parameters": {"rope_theta": 10000}})",
         "field 'rope_parameters.rope_theta' is 10000, expected 1000000, the value of the other rope_theta"},
        {d, R"({"rope_parameters": {"rope_type": "dynamic"}})",
         "field 'rope_parameters.rope_type' is \"dynamic\", expected \"default\" or \"llama3\", the only ones that are "
         "supported"},
        {t, R"({"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4}})",
         "field 'rope_scaling.factor' is missing, expected a number"},
        {t, R"({"rope_scaling": {"rope_type": "llama3", "factor": 0, "low_freq_factor": 1, "high_freq_factor": 4}})",
         "field 'rope_scaling.factor' is 0, expected a number in 0.001 .. 1000"},
        {t, R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
                                 "original_max_position_embeddings": 8192}})",
         "field 'rope_scaling.high_freq_factor' is 4, expected more than 'low_freq_factor', 4"},
        // other arithmetic
        {t, R"({"hidden_act": "gelu"})", "field 'hidden_act' is \"gelu\", expected \"silu\""},
        {t, R"({"hidden_act": null})", "field 'hidden_act' is missing, expected a string"},
        {t, R"({"attention_bias": true})", "field 'attention_bias' is true, expected false: nothing else is supported"},
        {t, R"({"attention_bias": 0})", "field 'attention_bias' is 0, expected true or false"},
        {t, R"({"use_sliding_window": true, "sliding_window": 4096})",
         "field 'use_sliding_window' is true, expected false: nothing else is supported"},
        {t, R"({"layer_types": ["full_attention", "sliding_attention"]})",
         "field 'layer_types[1]' is \"sliding_attention\", expected \"full_attention\", the only supported one"},
        {t, R"({"layer_types": "full_attention"})", "field 'layer_types' is \"full_attention\", expected a list"},
        {t, R"({"layer_types": [1]})", "field 'layer_types[0]' is 1, expected a string"},
        {t, R"({"quantization_config": {"quant_method": "fp8"}})",
         "field 'quantization_config' is an object of 1, expected none: only unquantised weights are supported"},
        // stop tokens
        {t, R"({"eos_token_id": 151936})", "field 'eos_token_id' is 151936, expected an integer in 0 .. 151935"},
        {t, R"({"eos_token_id": -1})", "field 'eos_token_id' is -1, expected an integer in 0 .. 151935"},
        {t, R"({"eos_token_id": "</s>"})", "field 'eos_token_id' is \"</s>\", expected an integer in 0 .. 151935"},
        {t, R"({"eos_token_id": [1, [2]]})",
         "field 'eos_token_id[1]' is a list of 1, expected an integer in 0 .. 151935"},
        // drafters
        {d, R"({"target_layer_ids": null})", "field 'target_layer_ids' is missing, expected a list"},
        {d, R"({"target_layer_ids": []})", "field 'target_layer_ids' is a list of 0, expected at least one layer"},
        {d, R"({"target_layer_ids": [1, 7, 7]})",
         "field 'target_layer_ids[2]' is 7, expected more than the entry before, 7"},
        {d, R"({"target_layer_ids": [1, 0]})",
         "field 'target_layer_ids[1]' is 0, expected more than the entry before, 1"},
        {d, R"({"target_layer_ids": [-2, 0]})", "field 'target_layer_ids[0]' is -2, expected an integer in -1 .. 26"},
        {d, R"({"target_layer_ids": [1, 27]})", "field 'target_layer_ids[1]' is 27, expected an integer in -1 .. 26"},
        {d, R"({"target_layer_ids": [1, 2.5]})", "field 'target_layer_ids[1]' is 2.5, expected an integer in -1 .. 26"},
        {d, R"({"mask_token_id": null})", "field 'mask_token_id' is missing, expected an integer in 0 .. 151935"},
        {d, R"({"mask_token_id": 151936})", "field 'mask_token_id' is 151936, expected an integer in 0 .. 151935"},
        {d, R"({"mask_token_id": -1})", "field 'mask_token_id' is -1, expected an integer in 0 .. 151935"},
        {d, R"({"markov_rank": null})", "field 'markov_rank' is missing, expected an integer in 0 .. 65536"},
        {d, R"({"markov_rank": 65537})", "field 'markov_rank' is 65537, expected an integer in 0 .. 65536"},
        {d, R"({"markov_rank": 0})", "field 'markov_head_type' is \"vanilla\", expected none, as 'markov_rank' is 0"},
        {d, R"({"markov_head_type": null})", "field 'markov_head_type' is missing, expected a string"},
        {d, R"({"markov_head_type": "none"})", "field 'markov_head_type' is \"none\", expected vanilla, gated or rnn"},
        {d, R"({"enable_confidence_head": null})", "field 'enable_confidence_head' is missing, expected true or false"},
        {d, R"({"confidence_head_with_markov": null})",
         "field 'confidence_head_with_markov' is missing, expected true or false"},
        {d, R"({"markov_rank": 0, "markov_head_type": null})",
         "field 'confidence_head_with_markov' is true, expected false, as 'markov_rank' is 0 and there is nothing to "
         "read"},
        {e, R"({"num_hidden_layers": 2})", "field 'num_hidden_layers' is 2, expected 1, as every Eagle3 drafter has"},
        {e, R"({"ttt_length": null})", "field 'ttt_length' is missing, expected an integer in 1 .. 1024"},
        {e, R"({"ttt_length": 1025})", "field 'ttt_length' is 1025, expected an integer in 1 .. 1024"},
        {e, R"({"target_layer_ids": [1023]})",
         "field 'target_layer_ids[0]' is 1023, expected an integer in -1 .. 1022"},
    };
    for (auto const& c : cases) {
        INFO(c.patch);
        CHECK(refusal(c.document, c.patch) == std::string("c.json: ") + c.expected);
    }
}

TEST_CASE("a long value does not bury the message") {
    std::string const expected = "c.json: field 'hidden_act' is \"" + std::string(56, 'x') + "..., expected \"silu\"";
    json document = target();
    document["hidden_act"] = std::string(10000, 'x');
    CHECK(refusal(document.dump()) == expected);
}

TEST_CASE("text that is no JSON object") {
    CHECK(refusal("[1]") == "c.json: expected a JSON object, found array");
    CHECK(refusal("null") == "c.json: expected a JSON object, found null");
    CHECK(says(refusal(""), {"c.json: no valid JSON in 0 bytes: ", "unexpected end of input"}));
    CHECK(says(refusal(R"({"vocab_size": 5,})"), {"c.json: no valid JSON in 18 bytes: ", "column 18"}));
    CHECK(says(refusal("{\"a\": \"\xff\"}"), {"c.json: no valid JSON in 10 bytes: ", "UTF-8"}));
    CHECK(engine::is_utf8(refusal("{\"a\": \"\xff\"}")));  // though it quotes what it could not read
    CHECK(says(refusal(R"({"rope_theta": 1e999})"), {"c.json: no valid JSON in 21 bytes: ", "1e999"}));
    CHECK(refusal(std::string(1000000, '[')).size() < 300);
    CHECK(refusal("{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + "}") ==
          "c.json: field 'architectures' is missing, expected a list");

    // Every prefix of a good file is a bad one.
    std::string const text = dspark().dump();
    for (std::size_t n = 0; n < text.size(); ++n) {
        INFO("prefix of " << n);
        CHECK(says(refusal(text.substr(0, n)),
                   "c.json: no valid JSON in " + std::to_string(n) + " bytes: parse error at line 1, column "));
    }
}

TEST_CASE("the index of a sharded checkpoint") {
    auto const parse = [](std::string const& text) { return engine::parse_shard_index(text, "i.json"); };
    auto const refused = [&](std::string const& text) { return error_text([&] { static_cast<void>(parse(text)); }); };
    auto const index = parse(R"({"metadata": {"total_size": 8}, "weight_map": {"b": "2.safetensors", "a": "1"}})");
    CHECK(index == engine::shard_index{{"a", "1"}, {"b", "2.safetensors"}});

    CHECK(refused("{}") == "i.json: field 'weight_map' is missing, expected an object");
    CHECK(refused(R"({"weight_map": {}})") ==
          "i.json: field 'weight_map' is an object of 0, expected at least one tensor");
    CHECK(refused(R"({"weight_map": ["a"]})") == "i.json: field 'weight_map' is a list of 1, expected an object");
    CHECK(refused(R"({"weight_map": {"a": 1}})") == "i.json: field 'weight_map.a' is 1, expected a string");
    for (char const* const name : {"", ".", "..", "/etc/passwd", "../a", "b/a", "b\\\\a", "c:a", "a\\u0000b"}) {
        INFO(name);
        CHECK(refused(std::string(R"({"weight_map": {"w": ")") + name + "\"}}") ==
              std::string("i.json: field 'weight_map.w' is \"") + name +
                  "\", expected the name of a file in the same folder");
    }
}

TEST_CASE("a written configuration reads back as itself") {
    for (model_config const& c : {engine::qwen3_0_6b(), engine::qwen3_4b(), engine::dspark_qwen3_4b_block7(),
                                  engine::dflash_qwen3_4b_block7(), engine::dspark_qwen3_0_6b_block7()}) {
        CHECK(parse_config(engine::config_json(c), "c.json") == c);
    }

    support::dice roll(20250917);
    INFO("seed " << roll.seed());
    for (int i = 0; i < 500; ++i) {
        INFO("case " << i);
        model_config c;
        c.kind = static_cast<architecture>(roll.below(5));
        auto& t = c.transformer;
        t.vocabulary = 1 + roll.below(engine::limits::vocabulary);
        t.hidden_size = 1 + roll.below(engine::limits::hidden_size);
        t.intermediate_size = 1 + roll.below(engine::limits::intermediate_size);
        t.layers = c.kind == architecture::eagle3 ? 1 : 1 + roll.below(engine::limits::layers);
        t.kv_heads = 1 + roll.below(64);
        t.heads = t.kv_heads * (1 + roll.below(64));
        t.head_dim = 2 * (1 + roll.below(engine::limits::head_dim / 2));
        t.max_positions = 1 + roll.below(engine::limits::max_positions);
        t.rope_theta = roll.between(1.0, 1e7);
        t.rms_norm_eps = roll.between(1e-12, 1e-3);
        t.tied_embeddings = roll.chance(0.5);
        engine::set_attention(t, c.kind);
        for (std::size_t n = roll.below(4); n > 0; --n) {
            auto const token = static_cast<sureleap::token_id>(roll.below(t.vocabulary));
            if (c.stop_tokens.empty() || token > c.stop_tokens.back()) c.stop_tokens.push_back(token);
        }
        if (!is_target(c.kind)) {
            engine::draft_config d;
            d.block_size = 1 + roll.below(engine::limits::block_size);
            d.num_target_layers = 2 + roll.below(99);
            for (int id = -1; id < static_cast<int>(d.num_target_layers) - 1; ++id) {
                if (roll.chance(0.2)) d.target_layer_ids.push_back(id);
            }
            if (d.target_layer_ids.empty()) d.target_layer_ids.push_back(0);
            if (c.kind == architecture::dspark) {
                d.mask_token = static_cast<sureleap::token_id>(roll.below(t.vocabulary));
                d.head = static_cast<head_kind>(roll.below(4));
                d.markov_rank = d.head == head_kind::none ? 0 : 1 + roll.below(engine::limits::markov_rank);
                d.confidence = roll.chance(0.5);
                d.confidence_with_markov = d.confidence && d.markov_rank > 0 && roll.chance(0.5);
            }
            c.draft = std::move(d);
        }
        CHECK(parse_config(engine::config_json(c), "c.json") == c);
    }
}
