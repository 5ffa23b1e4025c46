// SPDX-License-Identifier: MIT
//
// A model by its path, which names a Hugging Face folder or a GGUF file.
#pragma once

#include <filesystem>
#include <optional>

#include "chat.hpp"
#include "checkpoint.hpp"
#include "config.hpp"
#include "tokenizer.hpp"

namespace engine {

/// Whether a path is that of a GGUF file: of a file, not of a folder.
[[nodiscard]] bool is_gguf(std::filesystem::path const& path);

/// The configuration with its stop tokens. Throws sureleap::error.
[[nodiscard]] model_config config_of(std::filesystem::path const& path);

/// The tensors, to be computed as `products` says.
[[nodiscard]] checkpoint checkpoint_of(std::filesystem::path const& path, arithmetic products = arithmetic::full);
/// The same under another configuration: a shorter block, say.
[[nodiscard]] checkpoint checkpoint_of(std::filesystem::path const& path, model_config config);

/// The tokenizer, if there is one: a GGUF file has it inside, a folder beside the weights.
[[nodiscard]] std::optional<tokenizer> tokenizer_of(std::filesystem::path const& path);

/// What the conversations of a model begin with; nothing for a folder, whose template is not read.
[[nodiscard]] chat_template chat_template_of(std::filesystem::path const& path);

}  // namespace engine
