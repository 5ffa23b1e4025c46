// SPDX-License-Identifier: MIT
#include "synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <sureleap/error.hpp>
#include <sureleap/types.hpp>

namespace engine {
namespace {

using sureleap::detail::fail_with;
using sureleap::safetensors::dtype;
using sureleap::safetensors::metadata_map;
using sureleap::safetensors::tensor_spec;

// ---- numbers -------------------------------------------------------------------------------------------------------

/// Names and indices become independent numbers by scrambling (the finaliser of SplitMix64), so no state has to be
/// carried along and any part of a tensor can be made on its own.
constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::uint64_t key_of(std::string_view name, std::uint64_t seed) noexcept {
    std::uint64_t key = scramble(seed);
    for (char const c : name) key = scramble(key ^ static_cast<unsigned char>(c));
    return key;
}

/// Uniform with this mean and deviation. A normal distribution would cost more and change nothing: every output is a
/// sum over many weights.
struct spread {
    double mean;
    double deviation;
};

spread spread_of(tensor_spec const& spec) {
    if (spec.name.ends_with("norm.weight")) return {1.0, 0.1};
    if (spec.name.ends_with(".bias")) return {0.0, 0.1};
    // The bias of the Markov head is a product of two small tables; with this it has a deviation of one.
    if (spec.name == "markov_head.markov_w1.weight") return {0.0, 1.0};
    return {0.0, 1.0 / std::sqrt(static_cast<double>(spec.shape.back()))};
}

/// The elements of a tensor, one chunk after another.
template <class Stored>
class element_stream {
public:
    element_stream(tensor_spec const& spec, std::uint64_t seed)
        : key_(key_of(spec.name, seed)),
          mean_(static_cast<number>(spread_of(spec).mean)),
          step_(static_cast<number>(spread_of(spec).deviation * std::sqrt(3.0) * 0x1p-31)) {}

    /// One scrambled number makes two elements, so all chunks but the last must be of even size.
    void next(std::span<Stored> out) {
        std::size_t i = 0;
        for (; i + 1 < out.size(); i += 2) {
            std::uint64_t const bits = scramble(key_ + pair_++);
            out[i] = element(static_cast<std::uint32_t>(bits));
            out[i + 1] = element(static_cast<std::uint32_t>(bits >> 32));
        }
        if (i < out.size()) out[i] = element(static_cast<std::uint32_t>(scramble(key_ + pair_++)));
    }

private:
    using number = sureleap::compute_t<Stored>;

    [[nodiscard]] Stored element(std::uint32_t bits) const noexcept {
        return Stored(mean_ + step_ * static_cast<number>(static_cast<std::int32_t>(bits)));
    }

    std::uint64_t key_;
    std::uint64_t pair_ = 0;
    number mean_;
    number step_;
};

std::size_t elements(tensor_spec const& spec) {
    std::size_t product = 1;
    for (std::size_t const extent : spec.shape) product *= extent;
    return product;
}

std::size_t bytes(tensor_spec const& spec) {
    return elements(spec) * size_of(spec.type);
}

/// Calls sink(bytes) with the tensor's data in pieces.
template <class Stored, class Sink>
void make_as(tensor_spec const& spec, std::uint64_t seed, Sink const& sink) {
    constexpr std::size_t chunk = 32768;
    std::vector<Stored> buffer(std::min(chunk, elements(spec)));
    element_stream<Stored> stream(spec, seed);
    for (std::size_t left = elements(spec); left > 0;) {
        std::span<Stored> const piece(buffer.data(), std::min(chunk, left));
        stream.next(piece);
        sink(std::as_bytes(piece));
        left -= piece.size();
    }
}

template <class Sink>
void make(tensor_spec const& spec, std::uint64_t seed, Sink const& sink) {
    switch (spec.type) {
        case dtype::bf16: return make_as<sureleap::bf16>(spec, seed, sink);
        case dtype::f16: return make_as<sureleap::half>(spec, seed, sink);
        case dtype::f32: return make_as<float>(spec, seed, sink);
        case dtype::f64: return make_as<double>(spec, seed, sink);
        default: fail_with("synthetic model: tensor '", spec.name, "' is ", name_of(spec.type), ", expected a float");
    }
}

dtype dtype_of(storage type) noexcept {
    switch (type) {
        case storage::f64: return dtype::f64;
        case storage::f32: return dtype::f32;
        case storage::f16: return dtype::f16;
        case storage::bf16: return dtype::bf16;
    }
    return dtype::bf16;
}

// ---- files ---------------------------------------------------------------------------------------------------------

metadata_map const& metadata() {
    static metadata_map const written_by_transformers{{"format", "pt"}};
    return written_by_transformers;
}

void write_text(std::filesystem::path const& file, std::string const& text) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out << text << '\n';
    out.close();
    if (!out) fail_with(file.string(), ": cannot be written");
}

void write_tensors(std::filesystem::path const& file, std::vector<tensor_spec> const& specs, std::uint64_t seed) {
    sureleap::safetensors::writer out(file, specs, metadata());
    for (tensor_spec const& spec : specs) {
        make(spec, seed, [&](std::span<std::byte const> piece) { out.append(piece); });
    }
    out.finish();
}

/// In order, a new shard where the next tensor would not fit.
std::vector<std::vector<tensor_spec>> split(std::vector<tensor_spec> const& specs, std::size_t max_shard_bytes) {
    std::vector<std::vector<tensor_spec>> shards;
    std::size_t room = 0;
    for (tensor_spec const& spec : specs) {
        if (shards.empty() || bytes(spec) > room) {
            shards.emplace_back();
            room = max_shard_bytes;
        }
        shards.back().push_back(spec);
        room -= std::min(room, bytes(spec));
    }
    return shards;
}

transformer_config qwen3_transformer(std::size_t hidden_size, std::size_t intermediate_size, std::size_t layers,
                                     std::size_t heads) {
    return {.vocabulary = 151936,
            .hidden_size = hidden_size,
            .intermediate_size = intermediate_size,
            .layers = layers,
            .heads = heads,
            .kv_heads = 8,
            .head_dim = 128,
            .max_positions = 40960,
            .rope_theta = 1e6,
            .rms_norm_eps = 1e-6,
            .tied_embeddings = true};
}

/// The recipe of the released drafters: five layers, block size 7, five features from the second layer on to the third
/// from the end, evenly.
model_config block7(model_config target, bool heads) {
    draft_config draft;
    draft.block_size = 7;
    draft.num_target_layers = target.transformer.layers;
    int const reach = static_cast<int>(target.transformer.layers) - 4;
    for (int i = 0; i < 5; ++i) draft.target_layer_ids.push_back(1 + i * reach / 4);
    draft.mask_token = 151669;
    if (heads) {
        draft.markov_rank = 256;
        draft.head = head_kind::vanilla;
        draft.confidence = draft.confidence_with_markov = true;
    }
    target.kind = architecture::dspark;
    target.transformer.layers = 5;
    target.transformer.tied_embeddings = false;
    target.draft = std::move(draft);
    return target;
}

}  // namespace

// ---- layout --------------------------------------------------------------------------------------------------------

std::vector<tensor_spec> layout(model_config const& config, storage type) {
    if (parse_config(config_json(config), "synthetic model") != config) {  // with the reader's checks
        fail_with("synthetic model: the configuration has settings that its architecture does not know");
    }
    transformer_config const& c = config.transformer;
    std::size_t const d = c.hidden_size;
    std::vector<tensor_spec> specs;
    auto const add = [&](std::string name, std::vector<std::size_t> shape) {
        specs.push_back({std::move(name), dtype_of(type), std::move(shape)});
    };
    std::string const prefix = config.kind == architecture::qwen3 ? "model." : "";
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
        add(layer + "self_attn.q_norm.weight", {c.head_dim});
        add(layer + "self_attn.k_norm.weight", {c.head_dim});
        add(layer + "mlp.gate_proj.weight", {c.intermediate_size, d});
        add(layer + "mlp.up_proj.weight", {c.intermediate_size, d});
        add(layer + "mlp.down_proj.weight", {d, c.intermediate_size});
    }

    if (config.draft) {
        draft_config const& draft = *config.draft;
        std::size_t const r = draft.markov_rank;
        add("fc.weight", {d, draft.target_layer_ids.size() * d});
        if (config.kind == architecture::dspark) add("hidden_norm.weight", {d});
        if (draft.head != head_kind::none) {
            add("markov_head.markov_w1.weight", {c.vocabulary, r});
            add("markov_head.markov_w2.weight", {c.vocabulary, r});
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
    return specs;
}

std::string config_json(model_config const& config) {
    transformer_config const& c = config.transformer;
    nlohmann::ordered_json json;
    json["architectures"] = {name_of(config.kind)};
    json["model_type"] = "qwen3";
    json["vocab_size"] = c.vocabulary;
    json["hidden_size"] = c.hidden_size;
    json["intermediate_size"] = c.intermediate_size;
    json["num_hidden_layers"] = c.layers;
    json["num_attention_heads"] = c.heads;
    json["num_key_value_heads"] = c.kv_heads;
    json["head_dim"] = c.head_dim;
    json["max_position_embeddings"] = c.max_positions;
    if (config.kind == architecture::qwen3) {  // as transformers 4 writes it; the drafters were made with 5
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
        if (config.kind == architecture::eagle3) {
            json["ttt_length"] = draft.block_size;
        } else {
            json["block_size"] = draft.block_size;
            json["mask_token_id"] = draft.mask_token;
            json["num_anchors"] = 512;  // of training only, but the reference code insists on it
            json["markov_rank"] = draft.markov_rank;
            if (draft.head != head_kind::none) json["markov_head_type"] = name_of(draft.head);
            json["enable_confidence_head"] = draft.confidence;
            if (draft.confidence) json["confidence_head_with_markov"] = draft.confidence_with_markov;
        }
    }
    return json.dump(2);
}

// ---- models --------------------------------------------------------------------------------------------------------

void write_folder(std::filesystem::path const& folder, model_config const& config, storage type, std::uint64_t seed,
                  std::size_t max_shard_bytes) {
    std::vector<tensor_spec> const specs = layout(config, type);
    std::filesystem::create_directories(folder);
    std::filesystem::path const single = folder / "model.safetensors";
    std::filesystem::path const index_file = folder / "model.safetensors.index.json";
    // What an earlier call left would be read instead of what comes now.
    std::filesystem::remove(single);
    std::filesystem::remove(index_file);
    write_text(folder / "config.json", config_json(config));
    if (max_shard_bytes == 0) {
        write_tensors(single, specs, seed);
        return;
    }

    nlohmann::ordered_json index;
    std::size_t total = 0;
    for (tensor_spec const& spec : specs) total += bytes(spec);
    index["metadata"]["total_size"] = total;
    std::vector<std::vector<tensor_spec>> const shards = split(specs, max_shard_bytes);
    for (std::size_t i = 0; i < shards.size(); ++i) {
        char name[64];
        std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
        write_tensors(folder / name, shards[i], seed);
        for (tensor_spec const& spec : shards[i]) index["weight_map"][spec.name] = name;
    }
    write_text(index_file, index.dump(2));
}

checkpoint make_in_memory(model_config const& config, storage type, std::uint64_t seed) {
    std::vector<tensor_spec> const specs = layout(config, type);
    nlohmann::ordered_json header;
    std::size_t end = 0;
    for (tensor_spec const& spec : specs) {
        std::size_t const begin = std::exchange(end, end + bytes(spec));
        header[spec.name] = {{"dtype", name_of(spec.type)}, {"shape", spec.shape}, {"data_offsets", {begin, end}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins aligned
    std::uint64_t const length = text.size();

    auto const file = std::make_shared<std::vector<std::byte>>();
    file->reserve(sizeof length + text.size() + end);
    auto const append = [&](std::span<std::byte const> piece) {
        file->insert(file->end(), piece.begin(), piece.end());
    };
    append(std::as_bytes(std::span(&length, 1)));
    append(std::as_bytes(std::span(text)));
    for (tensor_spec const& spec : specs) make(spec, seed, append);

    std::vector<sureleap::safetensors::file> files;
    files.push_back(sureleap::safetensors::file::view(*file, "synthetic model"));
    return checkpoint::from_files(config, std::move(files), file);
}

model_config qwen3_0_6b() {
    return {architecture::qwen3, qwen3_transformer(1024, 3072, 28, 16), std::nullopt, {151643, 151645}};
}

model_config qwen3_4b() {
    return {architecture::qwen3, qwen3_transformer(2560, 9728, 36, 32), std::nullopt, {151643, 151645}};
}

model_config dspark_qwen3_4b_block7() {
    return block7(qwen3_4b(), true);
}

model_config dflash_qwen3_4b_block7() {
    return block7(qwen3_4b(), false);
}

model_config dspark_qwen3_0_6b_block7() {
    return block7(qwen3_0_6b(), true);
}

}  // namespace engine
