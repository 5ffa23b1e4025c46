// SPDX-License-Identifier: MIT
//
// A trained model as a Hugging Face folder in the released layout: config.json and model.safetensors in BF16.
#pragma once

#include <filesystem>
#include <span>

#include <engine/config.hpp>

#include "gemm.hpp"
#include "parameters.hpp"

namespace train {

/// A drafter is written without embedding and LM head, which are its target's; `drafted` are its tokens, if it drafts a
/// part of the target's (draft_vocab_size). The folder is made if missing.
void write_model(std::filesystem::path const& folder, engine::model_config const& config,
                 parameter_layout const& layout, std::span<float const> values,
                 std::span<sureleap::token_id const> drafted = {});

/// config.json and the parameters as training uses them, from such a folder or any other. Throws sureleap::error.
[[nodiscard]] aligned_vector<float> read_parameters(std::filesystem::path const& folder,
                                                    parameter_layout const& layout);

}  // namespace train
