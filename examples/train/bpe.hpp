// SPDX-License-Identifier: MIT
//
// Learns a byte-level BPE vocabulary from texts and writes it as a tokenizer.json, which engine::tokenizer and the
// Hugging Face library `tokenizers` read.
//
//   auto const learned = train::train_bpe(texts, {.vocabulary = 2048});
//   std::ofstream("tokenizer.json") << learned.json;
//
// The texts are cut into words by the pattern that goes into the file, so that learning and encoding see the same
// words. Every word starts as its bytes. The commonest pair of neighbours becomes a token and is joined wherever it
// occurs. This goes on until the vocabulary is full (Sennrich, Haddow and Birch 2016, arXiv:1508.07909, on bytes).
//
// What the file says, and why:
//
//   ids             the 256 bytes in the order of their symbols (byte_level.hpp: "!" is 0, as in GPT-2), then the
//                   merges in the order they were learned, then the special tokens
//   ties            of equally common pairs the one with the smaller left id, then with the smaller right id, as the
//                   tokenizers library decides. Nothing depends on the order of the texts or of a hash table.
//   rare pairs      a pair that occurs once in all texts is no regularity: learning ends early instead
//   normaliser      none. Qwen's NFC would make a few spellings alike, but decoding what was encoded would no longer
//                   give every text back, which is what one checks first.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/types.hpp>

namespace train {

using sureleap::token_id;

/// How Qwen2 and Qwen3 cut words (field pre_tokenizer of their tokenizer.json): contractions, letters with one mark or
/// blank in front, single digits, marks, line ends, blanks.
inline constexpr std::string_view qwen2_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct bpe_settings {
    std::size_t vocabulary = 2048;  ///< tokens in all, bytes and special tokens included
    std::vector<std::string> special = {"<|endoftext|>", "<|mask|>"};
};

struct learned_bpe {
    std::string json;  ///< the tokenizer.json
    /// Tokens in it: fewer than asked for if the texts have too few pairs that occur twice.
    std::size_t vocabulary = 0;
    std::vector<std::pair<token_id, token_id>> merges;  ///< in order
};

/// What is no UTF-8 in a text counts as U+FFFD, as in encoding. Throws if bytes and special tokens alone exceed the
/// vocabulary. Throws if a special token is empty, not UTF-8, given twice, or a word of the texts.
///
/// Time: cutting words is linear; a merge costs the length of the words that it changes. Memory: the distinct words.
[[nodiscard]] learned_bpe train_bpe(std::span<std::string const> texts, bpe_settings const& settings = {});

}  // namespace train
