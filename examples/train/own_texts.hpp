// SPDX-License-Identifier: MIT
//
// Texts that a target writes itself. A drafter is trained on what it will have to foresee: the target's own choices at
// temperature 1, not those of whoever wrote the corpus (paper, section 5.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <engine/thread_pool.hpp>

#include "documents.hpp"

namespace train {

struct own_texts_settings {
    std::size_t texts = 0;      ///< how many, evenly from all prompts; 0: one for every prompt
    std::size_t longest = 512;  ///< tokens of a document, prompt included
    std::size_t at_once = 64;   ///< texts being written
    std::uint64_t seed = 1;     ///< text i has the seed `seed` + i, whatever is written beside it
    double temperature = 1.0;
    std::size_t seconds_between_reports = 15;
};

/// The target in `folder` continues every prompt of `prompts` (their first document.prompt tokens) to the end of a text.
/// Documents without a prompt are left out. Prints progress to stdout.
[[nodiscard]] documents write_own_texts(std::filesystem::path const& folder, documents const& prompts,
                                        own_texts_settings const& settings, engine::thread_pool& pool);

}  // namespace train
