// SPDX-License-Identifier: MIT
//
// What a decoding step costs on this machine, with these models: the target's pass by its number of batch tokens, and
// drafting.
#pragma once

#include <engine/parts.hpp>
#include <engine/thread_pool.hpp>

#include "loading.hpp"
#include "options.hpp"
#include "status_line.hpp"

namespace generate {

/// Times whole rounds: drafting, the pass and acceptance under these settings and this rule. Call it before anything is
/// decoded.
[[nodiscard]] engine::measured_cost measure_cost(models& loaded, options const& chosen, engine::any_rule const& rule,
                                                 engine::thread_pool& pool, status_line& status);

}  // namespace generate
