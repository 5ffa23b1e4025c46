// SPDX-License-Identifier: MIT
//
// What a tokenizer consists of once its file is read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sureleap/core/types.hpp>

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "normal_form.hpp"
#include "sentence_piece.hpp"
#include "split.hpp"

namespace engine::text {

struct token_entry {
    std::string bytes;
    bool special = false;
};

/// Not to be copied: words refers to the strings in tokens.
struct pipeline {
    pipeline() = default;
    pipeline(pipeline const&) = delete;
    pipeline& operator=(pipeline const&) = delete;

    std::string source;  ///< for errors

    /// By id. A table would be faster, but its size would be the largest id of a file nobody has vouched for.
    std::unordered_map<token_id, token_entry> tokens;
    std::size_t vocabulary = 0;  ///< 1 + the largest id

    added_tokens verbatim;    ///< found in the text as it is
    added_tokens normalized;  ///< found in what the normaliser made of the rest
    std::unordered_map<std::string, token_id> added;

    std::vector<normal_form> normalizer;

    std::vector<split> splits;
    bool prefix_space = false;         ///< every piece begins with a space
    std::optional<split> space_words;  ///< GPT-2's own pattern, used after that

    bpe model;
    std::unordered_map<std::string_view, token_id> words;  ///< tokens of the model by their bytes
    bool whole_words_first = false;                        ///< a word that is a token needs no merges

    /// In place of all from the normaliser to here, where the vocabulary is SentencePiece's.
    std::optional<sentence_piece> pieces;

    std::vector<token_id> before;  ///< put in front of every text
    std::vector<token_id> after;
};

}  // namespace engine::text
