// SPDX-License-Identifier: MIT
//
// From what the user wrote to the tokens a model continues.
#pragma once

#include <optional>
#include <vector>

#include <engine/tokenizer.hpp>
#include <sureleap/core/types.hpp>

#include "options.hpp"

namespace generate {

struct prompt {
    std::vector<token_id> tokens;                ///< none in a conversation, whose prompts come later
    std::optional<engine::tokenizer> tokenizer;  ///< none: ids came in, ids go out
};

/// Reads the tokenizer of the target's folder if the prompt is text. Throws if it, or the prompt, has tokens that the
/// target has not.
[[nodiscard]] prompt make_prompt(options const& chosen);

}  // namespace generate
