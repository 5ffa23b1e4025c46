// SPDX-License-Identifier: MIT
//
// --chat without a prompt: a conversation, line by line.
#pragma once

#include <engine/thread_pool.hpp>

#include "decoding.hpp"
#include "loading.hpp"
#include "options.hpp"
#include "prompt.hpp"
#include "status_line.hpp"

namespace generate {

/// Gives a conversation room where the user did not say how much: so many positions, or as many as the model has.
inline constexpr std::size_t conversation_context = 2048;
[[nodiscard]] options with_room_to_talk(options chosen);

/// Reads questions from stdin, a line each, and answers them until an empty line or the end of the input. `base` has
/// what all answers share; its prompt and seed are those of each question.
void converse(options const& chosen, method const& how, job const& base, models& loaded, prompt const& asked,
              engine::thread_pool& pool, status_line& status);

}  // namespace generate
