// SPDX-License-Identifier: MIT
//
// Policies by name. All are the library's decoder with one of its schedules, or one of schedules.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "simulation.hpp"

namespace serve {

/// "none", "fixed:K", "threshold:C", "survival:A", "tetris", "tetris:K", "closed-loop", "lagged", "lagged:N",
/// "planned", "greedy", "oracle"; and behind any of them, each once:
///
/// - "+never-lose" (planned, lagged, greedy, fixed:K): limits, gates and stops drafting;
/// - "+hysteresis" (planned, lagged): stays on a stair unless another is worth it;
/// - "+agreed" (planned, without those): replicas in step agree on the largest of their batches, and fill it;
/// - "+calibrated": confidences are calibrated while serving;
/// - "+refined": what the schedule believes of step times is corrected by those it sees.
///
/// Throws for others, naming them all.
[[nodiscard]] policy make_policy(std::string const& name);

/// What a static choice could be: none and fixed:1 .. fixed:gamma.
[[nodiscard]] std::vector<policy> static_policies(std::size_t block_size);

}  // namespace serve
