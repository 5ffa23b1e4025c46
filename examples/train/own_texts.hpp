// SPDX-License-Identifier: MIT
//
// Texts that a target writes itself. A drafter is trained on what it will have to foresee: the target's own choices, at
// the temperature it will be used at, not those of whoever wrote the corpus (paper, section 5.1).
//
// Several texts are written at once, one row each in a pass of the target. What a token is drawn from is known then,
// and so are the features that a drafter reads: a text comes with both (recorded_texts.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <engine/chat.hpp>
#include <engine/target.hpp>
#include <engine/thread_pool.hpp>
#include <engine/tokenizer.hpp>
#include <sureleap/core/types.hpp>

#include "documents.hpp"
#include "recorded_texts.hpp"

namespace train {

struct own_texts_settings {
    std::size_t texts = 0;             ///< how many, see prompt_of; 0: one for every prompt
    std::size_t longest = 512;         ///< tokens of a text, prompt included
    std::size_t max_new_tokens = 512;  ///< that the target writes
    std::uint64_t seed = 1;            ///< text i has the seed `seed` + i, whatever is written beside it
    sureleap::transform sampling{};
    std::vector<token_id> stop_tokens{};  ///< a text ends with one of these
    std::size_t seconds_between_reports = 15;
};

/// The prompt of text `number`. Texts go through all prompts in an order that the seed shuffles, and then begin again
/// with other draws. So a run that is stopped early has seen some of everything.
[[nodiscard]] std::vector<std::size_t> shuffled_prompts(std::size_t prompts, std::uint64_t seed);

/// The target continues prompts (the first document.prompt tokens of each document) to the end of a text; so many texts
/// at once as it has slots. Texts for which done(number) is true, and documents without a prompt or with one that
/// leaves no room, are left out. finished(text) is called in the order in which texts end, from the calling thread.
/// Prints progress to stdout. Ends early when interrupted(): texts that are not finished then are lost. Returns whether
/// all were written.
[[nodiscard]] bool write_own_texts(engine::target<float>& target, documents const& prompts,
                                   own_texts_settings const& settings, engine::thread_pool& pool,
                                   std::function<bool(std::size_t)> const& done,
                                   std::function<void(recorded_text)> const& finished);

/// Prompts from JSON lines, as documents that are all prompt: {"domain", "messages": [{"role", "content"}, ...]} for a
/// chat model, whose turns `format` says, or {"domain", "prompt"}, of which a completion is not read. Throws
/// sureleap::error, naming file and line.
[[nodiscard]] documents read_prompts(std::filesystem::path const& file, engine::tokenizer const& tokens,
                                     engine::chat_template const& format,
                                     std::map<std::string, std::size_t> const& repeats = {});

}  // namespace train
