// SPDX-License-Identifier: MIT
//
// A target and one of its drafters, ready to decode. Every contestant has a target of its own, because a drafter
// decides which of the target's layers are kept for it; the weights are mapped files and in memory once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include <engine/config.hpp>
#include <engine/parts.hpp>
#include <engine/thread_pool.hpp>
#include <generate/loading.hpp>
#include <generate/status_line.hpp>

#include "options.hpp"

namespace evaluate {

struct contestant {
    std::string name;
    generate::models models;
    std::optional<engine::draft_config> config;  ///< as it is used; none without a model
    std::size_t layers = 0;                      ///< of the drafter
    bool joined = false;                         ///< lookup drafts where it finds something
    std::optional<std::size_t> max_draft;        ///< as asked for

    /// Tokens drafted in a round, at most.
    [[nodiscard]] std::size_t block_size() const {
        return std::min(models.block_size(), max_draft.value_or(models.block_size()));
    }
    /// "7", or "3 of 7".
    [[nodiscard]] std::string block_in_words() const;
    /// Plain decoding does not.
    [[nodiscard]] bool drafts() const { return !std::holds_alternative<sureleap::no_drafter<float>>(models.drafter); }
};

/// drafter = by. Drafters hold references, so the language has no such assignment.
void replace(engine::any_drafter<float>& drafter, engine::any_drafter<float> by);

/// Plain decoding as a contestant.
[[nodiscard]] draft_source plain_decoding();

/// For `slots` texts at a time of at most `context` positions.
[[nodiscard]] contestant load_contestant(options const& chosen, draft_source const& source, std::size_t slots,
                                         std::size_t context, engine::thread_pool& pool, generate::status_line& status);

/// Of the drafter that a source names, without loading it, and whatever its max_draft: that must not change prompts.
[[nodiscard]] std::size_t block_size_of(draft_source const& source);

}  // namespace evaluate
