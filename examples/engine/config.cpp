// SPDX-License-Identifier: MIT
#include "config.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <sureleap/error.hpp>

namespace engine {
namespace {

using nlohmann::json;
using sureleap::detail::fail_with;
using sureleap::detail::show;

constexpr std::size_t max_text = std::size_t{64} << 20;

/// A value of a document, or its absence, together with the way to it: whatever is wrong with it can be told in full.
/// A key that stands twice counts as its last value, which is how Python reads it.
class field {
public:
    field(json const* value, std::string const& source, std::string path)
        : value_(value), source_(&source), path_(std::move(path)) {}

    [[nodiscard]] field operator[](std::string const& key) const {
        if (!is(&json::is_object)) wrong("an object");
        auto const found = value_->find(key);
        return {found == value_->end() ? nullptr : &*found, *source_, path_.empty() ? key : path_ + "." + key};
    }
    [[nodiscard]] field operator[](std::size_t i) const {
        return {&(*value_)[i], *source_, path_ + "[" + std::to_string(i) + "]"};
    }

    /// Python writes None for what is not set, so null is the same as nothing.
    [[nodiscard]] bool present() const { return value_ != nullptr && !value_->is_null(); }
    [[nodiscard]] bool is_list() const { return is(&json::is_array); }

    [[nodiscard]] std::vector<std::string> keys() const {
        if (!is(&json::is_object)) wrong("an object");
        std::vector<std::string> names;
        for (auto const& item : value_->items()) names.push_back(item.key());
        return names;
    }
    [[nodiscard]] std::size_t list_size() const {
        if (!is_list()) wrong("a list");
        return value_->size();
    }
    [[nodiscard]] std::string text() const {
        if (!is(&json::is_string)) wrong("a string");
        return value_->get<std::string>();
    }
    [[nodiscard]] bool boolean() const {
        if (!is(&json::is_boolean)) wrong("true or false");
        return value_->get<bool>();
    }
    [[nodiscard]] bool boolean_or(bool fallback) const { return present() ? boolean() : fallback; }
    /// An integer will do.
    [[nodiscard]] double number() const {
        if (!is(&json::is_number)) wrong("a number");
        return value_->get<double>();
    }
    /// 8.0 is no integer: it would stand for a file that something has rewritten.
    [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const {
        bool const fits = is(&json::is_number_unsigned)
                              ? value_->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max()
                              : is(&json::is_number_integer);
        if (!fits || value_->get<std::int64_t>() < low || value_->get<std::int64_t>() > high) {
            wrong("an integer in " + show(low) + " .. " + show(high));
        }
        return value_->get<std::int64_t>();
    }
    [[nodiscard]] std::size_t size(std::size_t low, std::size_t high) const {
        return static_cast<std::size_t>(integer(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)));
    }

    [[noreturn]] void wrong(std::string const& expected) const {
        fail_with(*source_, ": field '", path_, "' is ", shortened(), ", expected ", expected);
    }

private:
    [[nodiscard]] bool is(bool (json::*type)() const noexcept) const { return value_ != nullptr && (value_->*type)(); }

    [[nodiscard]] std::string shortened() const {
        if (value_ == nullptr) return "missing";
        if (value_->is_object()) return "an object of " + show(value_->size());
        if (value_->is_array()) return "a list of " + show(value_->size());
        std::string shown = value_->dump();
        if (shown.size() > 60) shown = shown.substr(0, 57) + "...";  // a long string would bury the message
        return shown;
    }

    json const* value_;
    std::string const* source_;
    std::string path_;
};

json parse(std::string_view text, std::string const& source) {
    json document;
    try {
        document = json::parse(text);
    } catch (json::exception const& e) {
        std::string why = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 18: ..."
        why.erase(0, why.find("] ") == why.npos ? 0 : why.find("] ") + 2);
        fail_with(source, ": no valid JSON in ", text.size(), " bytes: ", why.substr(0, 200));
    }
    if (!document.is_object()) fail_with(source, ": expected a JSON object, found ", document.type_name());
    return document;
}

architecture read_architecture(field const& list) {
    if (list.list_size() != 1) list.wrong("a list of one");
    std::string const name = list[0].text();
    for (architecture const kind : {architecture::qwen3, architecture::dspark, architecture::eagle3}) {
        if (name == name_of(kind)) return kind;
    }
    if (name == "Eagle3DraftModel") return architecture::eagle3;
    list[0].wrong("Qwen3ForCausalLM, Qwen3DSparkModel, Qwen3Eagle3Model or Eagle3DraftModel");
}

/// transformers 4 writes rope_theta beside an optional rope_scaling, transformers 5 one object rope_parameters. A file
/// that went through both may have all of them; they must agree.
double read_rope_theta(field const& root) {
    std::optional<double> theta;
    auto const take = [&](field const& found) {
        if (!found.present()) return;
        double const value = found.number();
        if (!(value >= 1.0 && value <= limits::rope_theta)) found.wrong("a number in 1 .. " + show(limits::rope_theta));
        if (theta && *theta != value) found.wrong(show(*theta) + ", the value of the other rope_theta");
        theta = value;
    };
    take(root["rope_theta"]);
    for (char const* const name : {"rope_parameters", "rope_scaling"}) {
        field const group = root[name];
        if (!group.present()) continue;
        for (char const* const key : {"rope_type", "type"}) {
            field const type = group[key];
            if (type.present() && type.text() != "default") type.wrong("\"default\", the only one that is supported");
        }
        take(group["rope_theta"]);
    }
    if (!theta) root["rope_theta"].wrong("a number, here or in 'rope_parameters'");
    return *theta;
}

/// Settings under which the same tensors would mean another function.
void refuse_variants(field const& root) {
    if (std::string const activation = root["hidden_act"].text(); activation != "silu") {
        root["hidden_act"].wrong("\"silu\"");
    }
    for (char const* const name : {"attention_bias", "use_sliding_window"}) {
        if (root[name].boolean_or(false)) root[name].wrong("false: nothing else is supported");
    }
    if (field const types = root["layer_types"]; types.present()) {
        for (std::size_t i = 0; i < types.list_size(); ++i) {
            if (types[i].text() != "full_attention") types[i].wrong("\"full_attention\", the only supported one");
        }
    }
    if (field const quantised = root["quantization_config"]; quantised.present()) {
        quantised.wrong("none: only unquantised weights are supported");
    }
}

transformer_config read_transformer(field const& root) {
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
        root["num_key_value_heads"].wrong("a divisor of 'num_attention_heads', " + show(c.heads));
    }
    if (field const given = root["head_dim"]; given.present()) {
        c.head_dim = given.size(2, limits::head_dim);
        if (c.head_dim % 2 != 0) given.wrong("an even number: rotary positions turn pairs");
    } else {
        c.head_dim = c.hidden_size / c.heads;
        if (c.head_dim * c.heads != c.hidden_size || c.head_dim % 2 != 0 || c.head_dim > limits::head_dim) {
            root["hidden_size"].wrong("an even multiple, at most " + show(limits::head_dim) +
                                      ", of 'num_attention_heads', " + show(c.heads) + ", as 'head_dim' is absent");
        }
    }
    return c;
}

/// `layers`: of the target. Its last one is out of reach: transformers normalises what it hands out as the output of the
/// last layer, the training caches do not.
std::vector<int> read_layer_ids(field const& list, std::size_t layers) {
    if (list.list_size() == 0) list.wrong("at least one layer");
    std::vector<int> ids;
    for (std::size_t i = 0; i < list.list_size(); ++i) {
        auto const id = static_cast<int>(list[i].integer(-1, static_cast<std::int64_t>(layers) - 2));
        if (!ids.empty() && id <= ids.back()) list[i].wrong("more than the entry before, " + show(ids.back()));
        ids.push_back(id);
    }
    return ids;
}

head_kind read_head(field const& type) {
    std::string name = type.text();
    for (char& c : name) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    for (head_kind const kind : {head_kind::vanilla, head_kind::gated, head_kind::rnn}) {
        if (name == name_of(kind)) return kind;
    }
    type.wrong("vanilla, gated or rnn");
}

draft_config read_dspark(field const& root, transformer_config const& transformer) {
    draft_config c;
    c.block_size = root["block_size"].size(1, limits::block_size);
    c.num_target_layers = root["num_target_layers"].size(1, limits::layers);
    c.target_layer_ids = read_layer_ids(root["target_layer_ids"], c.num_target_layers);
    c.mask_token = static_cast<token_id>(root["mask_token_id"].size(0, transformer.vocabulary - 1));
    c.markov_rank = root["markov_rank"].size(0, limits::markov_rank);
    if (field const type = root["markov_head_type"]; c.markov_rank > 0) {
        c.head = read_head(type);
    } else if (type.present()) {
        type.wrong("none, as 'markov_rank' is 0");
    }
    c.confidence = root["enable_confidence_head"].boolean();
    if (field const with_markov = root["confidence_head_with_markov"]; c.confidence) {
        c.confidence_with_markov = with_markov.boolean();
        if (c.confidence_with_markov && c.head == head_kind::none) {
            with_markov.wrong("false, as 'markov_rank' is 0 and there is nothing to read");
        }
    }
    return c;
}

draft_config read_eagle3(field const& root, transformer_config const& transformer) {
    if (transformer.layers != 1) root["num_hidden_layers"].wrong("1, as every Eagle3 drafter has");
    draft_config c;
    c.block_size = root["ttt_length"].size(1, limits::block_size);
    if (field const layers = root["num_target_layers"]; layers.present()) {
        c.num_target_layers = layers.size(1, limits::layers);
    }
    c.target_layer_ids =
        read_layer_ids(root["target_layer_ids"], c.num_target_layers > 0 ? c.num_target_layers : limits::layers);
    return c;
}

/// A number or a list of them.
std::optional<std::vector<token_id>> read_stop_tokens(field const& root, std::size_t vocabulary) {
    field const given = root["eos_token_id"];
    if (!given.present()) return std::nullopt;
    auto const token = [&](field const& f) { return static_cast<token_id>(f.size(0, vocabulary - 1)); };
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
    json const document = parse(text, source);
    field const root(&document, source, "");
    model_config config;
    config.kind = read_architecture(root["architectures"]);
    config.transformer = read_transformer(root);
    if (config.kind == architecture::dspark) config.draft = read_dspark(root, config.transformer);
    if (config.kind == architecture::eagle3) config.draft = read_eagle3(root, config.transformer);
    if (auto tokens = read_stop_tokens(root, config.transformer.vocabulary)) config.stop_tokens = std::move(*tokens);
    return config;
}

std::optional<std::vector<token_id>> parse_stop_tokens(std::string_view text, std::string const& source,
                                                       std::size_t vocabulary) {
    json const document = parse(text, source);
    return read_stop_tokens(field(&document, source, ""), vocabulary);
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
    json const document = parse(text, source);
    field const root(&document, source, "");
    field const map = root["weight_map"];
    shard_index index;
    for (std::string const& tensor : map.keys()) {
        std::string file = map[tensor].text();
        if (file.empty() || file == "." || file == ".." || file.find_first_of("/\\:") != file.npos ||
            file.find('\0') != file.npos) {
            map[tensor].wrong("the name of a file in the same folder");
        }
        index.emplace(tensor, std::move(file));
    }
    if (index.empty()) map.wrong("at least one tensor");
    return index;
}

std::string read_text(std::filesystem::path const& file) {
    std::string const name = file.string();
    std::error_code failed;
    if (!std::filesystem::is_regular_file(file, failed)) fail_with(name, ": no such file");
    std::uintmax_t const size = std::filesystem::file_size(file, failed);
    if (size > max_text) fail_with(name, ": ", size, " bytes, expected at most ", max_text);
    std::ifstream in(file, std::ios::binary);
    std::string text(static_cast<std::size_t>(size), '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(size))) fail_with(name, ": cannot be read");
    return text;
}

}  // namespace engine
