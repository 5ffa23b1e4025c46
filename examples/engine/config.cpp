// SPDX-License-Identifier: MIT
#include "config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <system_error>
#include <utility>

#include <sureleap/core/error.hpp>

#include "drafter_config.hpp"
#include "json_field.hpp"

namespace engine {
namespace {

using sureleap::error_text;

architecture read_architecture(json_field const& list) {
    if (list.list_size() != 1) list.wrong("a list of one");
    std::string const name = list[0].text();
    for (architecture const kind : {architecture::qwen3, architecture::qwen2, architecture::llama}) {
        if (name == name_of(kind)) return kind;
    }
    list[0].wrong(
        "Qwen3ForCausalLM, Qwen2ForCausalLM or LlamaForCausalLM, or of drafters Qwen3DSparkModel, Qwen3Eagle3Model, "
        "Eagle3DraftModel or DFlashDraftModel");
}

/// transformers 4 writes rope_theta beside an optional rope_scaling, transformers 5 one object rope_parameters. A file
/// that went through both may have all of them; they must agree.
double read_rope_theta(json_field const& root) {
    std::optional<double> theta;
    auto const take = [&](json_field const& found) {
        if (!found.present()) return;
        double const value = found.number();
        if (!(value >= 1.0 && value <= limits::rope_theta))
            found.wrong("a number in 1 .. " + error_text(limits::rope_theta));
        if (theta && *theta != value) found.wrong(error_text(*theta) + ", the value of the other rope_theta");
        theta = value;
    };
    take(root["rope_theta"]);
    for (char const* const name : {"rope_parameters", "rope_scaling"}) {
        json_field const group = root[name];
        if (!group.present()) continue;
        for (char const* const key : {"rope_type", "type"}) {
            json_field const type = group[key];
            if (type.present() && type.text() != "default" && type.text() != "llama3") {
                type.wrong("\"default\" or \"llama3\", the only ones that are supported");
            }
        }
        take(group["rope_theta"]);
    }
    if (!theta) root["rope_theta"].wrong("a number, here or in 'rope_parameters'");
    return *theta;
}

/// Llama 3.1's scaling for long texts, as transformers computes it. Pairs that turn often within the texts of training
/// keep their frequency. Those that turn rarely have it divided by `factor`. Between the two it is a mean of both.
std::vector<double> read_rope_divisors(json_field const& root, transformer_config const& c) {
    for (char const* const name : {"rope_parameters", "rope_scaling"}) {
        json_field const group = root[name];
        if (!group.present()) continue;
        json_field const type = group[group["rope_type"].present() ? "rope_type" : "type"];
        if (!type.present() || type.text() != "llama3") continue;
        auto const number = [&](char const* key) {
            json_field const given = group[key];
            double const value = given.number();
            if (!limits::is_rope_divisor(value)) given.wrong(limits::rope_divisors);
            return value;
        };
        double const factor = number("factor");
        double const low = number("low_freq_factor");
        double const high = number("high_freq_factor");
        if (!(high > low)) group["high_freq_factor"].wrong("more than 'low_freq_factor', " + error_text(low));
        auto const trained =
            static_cast<double>(group["original_max_position_embeddings"].size(1, limits::max_positions));
        std::vector<double> divisors(c.head_dim / 2);
        for (std::size_t i = 0; i < divisors.size(); ++i) {
            double const frequency =
                std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
            double const turns = trained * frequency / (2.0 * std::numbers::pi);
            double const kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
            divisors[i] = 1.0 / ((1.0 - kept) / factor + kept);
        }
        return divisors;
    }
    return {};
}

/// Settings under which the same tensors would mean another function.
void refuse_variants(json_field const& root, bool whole) {
    json_field const activation = root["hidden_act"];
    if ((whole || activation.present()) && activation.text() != "silu") activation.wrong("\"silu\"");
    for (char const* const name : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
        if (root[name].boolean_or(false)) root[name].wrong("false: nothing else is supported");
    }
    if (json_field const types = root["layer_types"]; types.present()) {
        for (std::size_t i = 0; i < types.list_size(); ++i) {
            if (types[i].text() != "full_attention") types[i].wrong("\"full_attention\", the only supported one");
        }
    }
    if (json_field const quantised = root["quantization_config"]; quantised.present()) {
        quantised.wrong("none: only unquantised weights are supported");
    }
}

}  // namespace

transformer_config read_transformer(json_field const& root, bool whole) {
    refuse_variants(root, whole);
    transformer_config c;
    c.vocabulary = root["vocab_size"].size(1, limits::vocabulary);
    c.hidden_size = root["hidden_size"].size(1, limits::hidden_size);
    c.intermediate_size = root["intermediate_size"].size(1, limits::intermediate_size);
    c.layers = root["num_hidden_layers"].size(1, limits::layers);
    c.heads = root["num_attention_heads"].size(1, limits::heads);
    c.kv_heads = root["num_key_value_heads"].size(1, limits::heads);
    c.max_positions = root["max_position_embeddings"].size(1, limits::max_positions);
    c.rope_theta = read_rope_theta(root);
    c.rms_norm_eps = root["rms_norm_eps"].number();
    if (!(c.rms_norm_eps > 0.0 && c.rms_norm_eps <= 1.0)) root["rms_norm_eps"].wrong("a number above 0, at most 1");
    json_field const tied = root["tie_word_embeddings"];
    c.tied_embeddings = whole ? tied.boolean() : tied.boolean_or(false);

    if (c.heads % c.kv_heads != 0) {
        root["num_key_value_heads"].wrong("a divisor of 'num_attention_heads', " + error_text(c.heads));
    }
    if (json_field const given = root["head_dim"]; given.present()) {
        c.head_dim = given.size(2, limits::head_dim);
        if (c.head_dim % 2 != 0) given.wrong("an even number: rotary positions turn pairs");
    } else {
        c.head_dim = c.hidden_size / c.heads;
        if (c.head_dim * c.heads != c.hidden_size || c.head_dim % 2 != 0 || c.head_dim > limits::head_dim) {
            root["hidden_size"].wrong("an even multiple, at most " + error_text(limits::head_dim) +
                                      ", of 'num_attention_heads', " + error_text(c.heads) +
                                      ", as 'head_dim' is absent");
        }
    }
    c.rope_divisors = read_rope_divisors(root, c);
    return c;
}

namespace {

/// A number or a list of them.
std::optional<std::vector<token_id>> read_stop_tokens(json_field const& root, std::size_t vocabulary) {
    json_field const given = root["eos_token_id"];
    if (!given.present()) return std::nullopt;
    auto const token = [&](json_field const& f) { return static_cast<token_id>(f.size(0, vocabulary - 1)); };
    std::vector<token_id> tokens;
    if (!given.is_list()) {
        tokens.push_back(token(given));
    } else {
        for (std::size_t i = 0; i < given.list_size(); ++i) tokens.push_back(token(given[i]));
    }
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
}

}  // namespace

char const* name_of(architecture kind) noexcept {
    switch (kind) {
        case architecture::qwen3: return "Qwen3ForCausalLM";
        case architecture::qwen2: return "Qwen2ForCausalLM";
        case architecture::llama: return "LlamaForCausalLM";
        case architecture::dspark: return "Qwen3DSparkModel";
        case architecture::eagle3: return "Qwen3Eagle3Model";
    }
    return "unknown architecture";
}

char const* name_of(head_kind kind) noexcept {
    switch (kind) {
        case head_kind::none: return "none";
        case head_kind::vanilla: return "vanilla";
        case head_kind::gated: return "gated";
        case head_kind::rnn: return "rnn";
        case head_kind::domino: return "domino";
    }
    return "unknown head";
}

model_config parse_config(std::string_view text, std::string const& source) {
    auto const document = parse_json_object(text, source);
    json_field const root(document, source);
    model_config config;
    if (describes_drafter(root)) {
        config = read_drafter(root);
    } else {
        config.kind = read_architecture(root["architectures"]);
        config.transformer = read_transformer(root);
        set_attention(config.transformer, config.kind);
    }
    if (auto tokens = read_stop_tokens(root, config.transformer.vocabulary)) config.stop_tokens = std::move(*tokens);
    return config;
}

std::optional<std::vector<token_id>> parse_stop_tokens(std::string_view text, std::string const& source,
                                                       std::size_t vocabulary) {
    auto const document = parse_json_object(text, source);
    return read_stop_tokens(json_field(document, source), vocabulary);
}

model_config load_config(std::filesystem::path const& folder) {
    std::filesystem::path const file = folder / "config.json";
    model_config config = parse_config(read_text(file), file.string());
    std::filesystem::path const generation = folder / "generation_config.json";
    if (std::error_code ignored; std::filesystem::exists(generation, ignored)) {
        auto tokens = parse_stop_tokens(read_text(generation), generation.string(), config.transformer.vocabulary);
        if (tokens) config.stop_tokens = std::move(*tokens);
    }
    return config;
}

shard_index parse_shard_index(std::string_view text, std::string const& source) {
    auto const document = parse_json_object(text, source);
    json_field const root(document, source);
    json_field const map = root["weight_map"];
    shard_index index;
    for (auto const& [tensor, _] : map.object()) {
        std::string const& file = map[tensor].text();
        if (file.empty() || file == "." || file == ".." || file.find_first_of("/\\:") != file.npos ||
            file.find('\0') != file.npos) {
            map[tensor].wrong("the name of a file in the same folder");
        }
        index.emplace(tensor, file);
    }
    if (index.empty()) map.wrong("at least one tensor");
    return index;
}

}  // namespace engine
