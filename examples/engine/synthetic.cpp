// SPDX-License-Identifier: MIT
#include "synthetic.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

namespace engine {
namespace {

using sureleap::safetensors::tensor_spec;

std::size_t bytes(tensor_spec const& spec) {
    std::size_t product = size_of(spec.type);
    for (std::size_t const extent : spec.shape) product *= extent;
    return product;
}

// ---- files ---------------------------------------------------------------------------------------------------------

void write_tensors(std::filesystem::path const& file, std::vector<tensor_spec> const& specs, std::uint64_t seed) {
    sureleap::safetensors::writer out(file, specs, {{"format", "pt"}});  // as transformers writes it
    for (tensor_spec const& spec : specs) {
        make_tensor(spec, seed, [&](std::span<std::byte const> piece) { out.append(piece); });
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
    write_text(folder / "config.json", config_json(config) + "\n");
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
    write_text(index_file, index.dump(2) + "\n");
}

checkpoint make_in_memory(model_config const& config, storage type, std::uint64_t seed) {
    return make_in_memory(config, layout(config, type), "synthetic model",
                          [&](tensor_spec const& spec, byte_sink const& sink) { make_tensor(spec, seed, sink); });
}

checkpoint make_in_memory(model_config const& config, std::vector<tensor_spec> const& specs, std::string const& name,
                          tensor_source const& data_of) {
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
    byte_sink const append = [&](std::span<std::byte const> piece) {
        file->insert(file->end(), piece.begin(), piece.end());
    };
    append(std::as_bytes(std::span(&length, 1)));
    append(std::as_bytes(std::span(text)));
    for (tensor_spec const& spec : specs) data_of(spec, append);

    std::vector<sureleap::safetensors::file> files;
    files.push_back(sureleap::safetensors::file::view(*file, name));
    return checkpoint::from_files(config, std::move(files), file);
}

// ---- released shapes -----------------------------------------------------------------------------------------------

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
