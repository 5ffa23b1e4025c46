// SPDX-License-Identifier: MIT
//
// Models with random weights in the layout of released ones: the real shapes without the download. Tests use small
// ones in memory, benchmarks write folders of real size (a model's speed does not depend on what its weights say).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <sureleap/ext/safetensors_writer.hpp>

#include "checkpoint.hpp"
#include "layout.hpp"
#include "random_weights.hpp"

namespace engine {

/// A folder with config.json and model.safetensors; with `max_shard_bytes` > 0 shards of at most so many bytes (but at
/// least one tensor each) and their index. The folder is made if missing, files of these names are replaced.
void write_folder(std::filesystem::path const& folder, model_config const& config, storage type, std::uint64_t seed,
                  std::size_t max_shard_bytes = 0);

/// The same model without files.
[[nodiscard]] checkpoint make_in_memory(model_config const& config, storage type, std::uint64_t seed);

/// Hands the data of a tensor to the sink.
using tensor_source = std::function<void(sureleap::safetensors::tensor_spec const&, byte_sink const&)>;

/// A model without files and with any tensors: what a folder would hold, called `name` in errors.
[[nodiscard]] checkpoint make_in_memory(model_config const& config,
                                        std::vector<sureleap::safetensors::tensor_spec> const& specs,
                                        std::string const& name, tensor_source const& data_of);

// Released shapes.
[[nodiscard]] model_config qwen3_0_6b();
[[nodiscard]] model_config qwen3_4b();
[[nodiscard]] model_config dspark_qwen3_4b_block7();
[[nodiscard]] model_config dflash_qwen3_4b_block7();
/// Not a released one: what the recipe of the others would give for Qwen3-0.6B.
[[nodiscard]] model_config dspark_qwen3_0_6b_block7();

}  // namespace engine
