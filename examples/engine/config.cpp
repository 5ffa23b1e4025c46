// SPDX-License-Identifier: MIT
#include "config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <system_error>
#include <utility>

#include <sureleap/core/error.hpp>

#include "json_field.hpp"

namespace engine {
namespace {

using sureleap::error_text;

architecture read_architecture(json_field const& list) {
    if (list.list_size() != 1) list.wrong("a list of one");
    std::string const name = list[0].text();
    for (architecture const kind :
         {architecture::qwen3, architecture::qwen2, architecture::llama, architecture::dspark, architecture::eagle3}) {
        if (name == name_of(kind)) return kind;
    }
    if (name == "Eagle3DraftModel") return architecture::eagle3;
    list[0].wrong(
        "Qwen3ForCausalLM, Qwen2ForCausalLM, LlamaForCausalLM, Qwen3DSparkModel, Qwen3Eagle3Model or Eagle3DraftModel");
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
void refuse_variants(json_field const& root) {
    if (std::string const activation = root["hidden_act"].text(); activation != "silu") {
        root["hidden_act"].wrong("\"silu\"");
    }
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

transformer_config read_transformer(json_field const& root) {
    refuse_variants(root);
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
    c.tied_embeddings = root["tie_word_embeddings"].boolean();

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

/// `layers`: of the target. Its last one is out of reach: transformers normalises what it hands out as the output of the
/// last layer, the training caches do not.
std::vector<int> read_layer_ids(json_field const& list, std::size_t layers) {
    if (list.list_size() == 0) list.wrong("at least one layer");
    std::vector<int> ids;
    for (std::size_t i = 0; i < list.list_size(); ++i) {
        auto const id = static_cast<int>(list[i].integer(-1, static_cast<std::int64_t>(layers) - 2));
        if (!ids.empty() && id <= ids.back()) list[i].wrong("more than the entry before, " + error_text(ids.back()));
        ids.push_back(id);
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

draft_config read_dspark(json_field const& root, transformer_config const& transformer) {
    if (!root["sample_from_anchor"].boolean_or(true)) {
        root["sample_from_anchor"].wrong("true: blocks whose first row predicts nothing are not supported");
    }
    draft_config c;
    c.block_size = root["block_size"].size(1, limits::block_size);
    c.num_target_layers = root["num_target_layers"].size(1, limits::layers);
    c.target_layer_ids = read_layer_ids(root["target_layer_ids"], c.num_target_layers);
    c.mask_token = static_cast<token_id>(root["mask_token_id"].size(0, transformer.vocabulary - 1));
    c.markov_rank = root["markov_rank"].size(0, limits::markov_rank);
    if (json_field const type = root["markov_head_type"]; c.markov_rank > 0) {
        c.head = read_head(type);
    } else if (type.present()) {
        type.wrong("none, as 'markov_rank' is 0");
    }
    c.confidence = root["enable_confidence_head"].boolean();
    if (json_field const with_markov = root["confidence_head_with_markov"]; c.confidence) {
        c.confidence_with_markov = with_markov.boolean();
        if (c.confidence_with_markov && c.head == head_kind::none) {
            with_markov.wrong("false, as 'markov_rank' is 0 and there is nothing to read");
        }
    }
    c.vocabulary = read_draft_vocabulary(root, transformer);
    if (json_field const temperatures = root["confidence_temperatures"]; temperatures.present()) {
        if (!c.confidence) temperatures.wrong("none, as 'enable_confidence_head' is false");
        if (temperatures.list_size() != c.block_size) temperatures.wrong("one for each of 'block_size' positions");
        temperatures.each([&](json_field const& t) {
            if (!limits::is_confidence_temperature(t.number())) t.wrong(limits::confidence_temperatures);
            c.confidence_temperatures.push_back(t.number());
        });
    }
    return c;
}

draft_config read_eagle3(json_field const& root, transformer_config const& transformer) {
    if (transformer.layers != 1) root["num_hidden_layers"].wrong("1, as every Eagle3 drafter has");
    draft_config c;
    c.block_size = root["ttt_length"].size(1, limits::block_size);
    if (json_field const layers = root["num_target_layers"]; layers.present()) {
        c.num_target_layers = layers.size(1, limits::layers);
    }
    c.target_layer_ids =
        read_layer_ids(root["target_layer_ids"], c.num_target_layers > 0 ? c.num_target_layers : limits::layers);
    c.vocabulary = read_draft_vocabulary(root, transformer);
    return c;
}

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
    }
    return "unknown head";
}

model_config parse_config(std::string_view text, std::string const& source) {
    auto const document = parse_json_object(text, source);
    json_field const root(document, source);
    model_config config;
    config.kind = read_architecture(root["architectures"]);
    config.transformer = read_transformer(root);
    set_attention(config.transformer, config.kind);
    if (config.kind == architecture::dspark) config.draft = read_dspark(root, config.transformer);
    if (config.kind == architecture::eagle3) config.draft = read_eagle3(root, config.transformer);
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
