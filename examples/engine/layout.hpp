// SPDX-License-Identifier: MIT
//
// The layout of released models, for whoever writes one: which tensors a folder has, and what its config.json says. The
// readers (config.hpp and the models) know it from their side; tests hold the two together.
#pragma once

#include <string>
#include <vector>

#include <sureleap/ext/safetensors_writer.hpp>

#include "config.hpp"

namespace engine {

/// Every tensor of such a model, sorted by name; integers, if there are any, come last.
[[nodiscard]] std::vector<sureleap::safetensors::tensor_spec> tensors_of(model_config const& config, storage type);
/// The same, for whoever writes a folder. Throws sureleap::error for a configuration that parse_config would not have
/// returned.
[[nodiscard]] std::vector<sureleap::safetensors::tensor_spec> layout(model_config const& config, storage type);

/// A config.json from which parse_config makes this configuration again.
[[nodiscard]] std::string config_json(model_config const& config);

}  // namespace engine
