// SPDX-License-Identifier: MIT
//
// Patterns that cut a text into words, as they were published with the models that brought them up. A tokenizer.json
// has its pattern written out. Other files only have a name for it.
#pragma once

#include <string_view>

namespace engine::text {

/// GPT-2 (encoder.py). A space belongs to the word after it.
inline constexpr std::string_view gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Qwen2 (tokenizer.json). Every digit alone, contractions in capitals, line ends with the punctuation before them.
inline constexpr std::string_view qwen2_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Llama 3 (tokenizer.json). The same with up to three digits together.
inline constexpr std::string_view llama3_words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                                                 R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// What a tokenizer.json calls Digits: a step before another pattern.
inline constexpr std::string_view digits = R"(\p{N})";

}  // namespace engine::text
