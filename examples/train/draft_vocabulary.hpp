// SPDX-License-Identifier: MIT
//
// Which tokens a drafter drafts. Of a vocabulary of 50,000 the commonest 16,000 are nearly all of a text. A product
// with their rows alone takes a third of the time, in training and in every round of decoding.
//
// A file of them has the tensor d2t, I32 [tokens], rising: the same that a drafter's folder has.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include <sureleap/core/types.hpp>

#include "recorded_texts.hpp"

namespace train {

struct chosen_vocabulary {
    std::vector<token_id> tokens;  ///< rising
    double coverage = 0;           ///< share of the held-back texts that they are
    std::size_t held_back = 0;     ///< tokens of those
};

/// The `size` commonest tokens of what the target wrote. They are counted by the laws that tokens were drawn from,
/// which say more than the draws do: a token counts with its probability, and one that no recorded part of a law has,
/// as drawn. Every twentieth text is held back, to tell the coverage. Throws sureleap::error if the texts have fewer
/// tokens.
[[nodiscard]] chosen_vocabulary choose_vocabulary(recorded_texts const& recorded, std::size_t vocabulary,
                                                  std::size_t size);

void write_vocabulary(std::filesystem::path const& file, std::span<token_id const> tokens);
/// Throws sureleap::error unless the tokens rise and are below `vocabulary`.
[[nodiscard]] std::vector<token_id> read_vocabulary(std::filesystem::path const& file, std::size_t vocabulary);

}  // namespace train
