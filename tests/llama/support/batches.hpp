// SPDX-License-Identifier: MIT
//
// Batches of tokens, and rows of logits that outlive the next call.
//
//   token_batch().add(token, position, sequence).decode(context)    what llama_decode returns
//   logits_of(context, 0)                                           a copy of the row of the batch's token 0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

#include "tiny_models.hpp"

namespace support {

class token_batch {
public:
    /// `output`: that logits are asked for.
    token_batch& add(llama_token token, llama_pos position, llama_seq_id sequence = 0, bool output = true) {
        return add(token, position, std::vector{sequence}, output);
    }
    /// Of several sequences.
    token_batch& add(llama_token token, llama_pos position, std::vector<llama_seq_id> sequences, bool output = true) {
        tokens_.push_back(token);
        positions_.push_back(position);
        sequences_.push_back(std::move(sequences));
        outputs_.push_back(output ? 1 : 0);
        return *this;
    }
    token_batch& add(std::span<llama_token const> tokens, llama_pos first, llama_seq_id sequence = 0,
                     bool output = true) {
        for (llama_token const token : tokens) add(token, first++, sequence, output);
        return *this;
    }

    [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }

    [[nodiscard]] std::int32_t decode(tiny_context const& context) {
        std::vector<std::int32_t> counts;
        std::vector<llama_seq_id*> pointers;
        for (auto& of_token : sequences_) {
            counts.push_back(static_cast<std::int32_t>(of_token.size()));
            pointers.push_back(of_token.data());
        }
        return llama_decode(context.get(), {.n_tokens = static_cast<std::int32_t>(size()),
                                            .token = tokens_.data(),
                                            .embd = nullptr,
                                            .pos = positions_.data(),
                                            .n_seq_id = counts.data(),
                                            .seq_id = pointers.data(),
                                            .logits = outputs_.data()});
    }

private:
    std::vector<llama_token> tokens_;
    std::vector<llama_pos> positions_;
    std::vector<std::vector<llama_seq_id>> sequences_;
    std::vector<std::int8_t> outputs_;
};

/// The logits of token `index` of the last batch. Throws std::logic_error where it has none.
[[nodiscard]] inline std::vector<float> logits_of(tiny_context const& context, std::int32_t index) {
    float const* const row = llama_get_logits_ith(context.get(), index);
    if (row == nullptr) throw std::logic_error("logits_of: token " + std::to_string(index) + " has no logits");
    auto const* const vocabulary = llama_model_get_vocab(llama_get_model(context.get()));
    return {row, row + llama_vocab_n_tokens(vocabulary)};
}

}  // namespace support
