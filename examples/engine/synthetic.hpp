// SPDX-License-Identifier: MIT
//
// Models with random weights in the layout of released ones: the real shapes without the download. Tests use small
// ones in memory, benchmarks write folders of real size (a model's speed does not depend on what its weights say).
//
// Weights are scaled so that what matters for a test happens: activations neither die nor grow with depth, attention
// prefers some positions, logits have a spread of about one and the Markov bias moves them by as much. They are a
// function of the seed, the tensor's name and the element's index alone, so the same model comes out however its files
// are cut, and in every storage format the same up to rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <sureleap/ext/safetensors_writer.hpp>

#include "checkpoint.hpp"

namespace engine {

/// Every tensor of such a model, sorted by name: the released layout. Throws sureleap::error for a
/// configuration that parse_config would not have returned.
[[nodiscard]] std::vector<sureleap::safetensors::tensor_spec> layout(model_config const& config, storage type);

/// A config.json from which parse_config makes this configuration again.
[[nodiscard]] std::string config_json(model_config const& config);

/// A folder with config.json and model.safetensors; with `max_shard_bytes` > 0 shards of at most so many bytes (but at
/// least one tensor each) and their index. The folder is made if missing, files of these names are replaced.
void write_folder(std::filesystem::path const& folder, model_config const& config, storage type, std::uint64_t seed,
                  std::size_t max_shard_bytes = 0);

/// The same model without files.
[[nodiscard]] checkpoint make_in_memory(model_config const& config, storage type, std::uint64_t seed);

// Released shapes.
[[nodiscard]] model_config qwen3_0_6b();
[[nodiscard]] model_config qwen3_4b();
[[nodiscard]] model_config dspark_qwen3_4b_block7();
[[nodiscard]] model_config dflash_qwen3_4b_block7();
/// Not a released one: what the recipe of the others would give for Qwen3-0.6B.
[[nodiscard]] model_config dspark_qwen3_0_6b_block7();

}  // namespace engine
