// SPDX-License-Identifier: MIT
//
// The five commands. Each returns false if it was interrupted, and throws sureleap::error for what it cannot use.
#pragma once

#include "options.hpp"

namespace train {

[[nodiscard]] bool execute(tokenizer_options const& chosen);
[[nodiscard]] bool execute(target_options const& chosen);
[[nodiscard]] bool execute(texts_options const& chosen);
[[nodiscard]] bool execute(vocabulary_options const& chosen);
[[nodiscard]] bool execute(draft_options const& chosen);

}  // namespace train
