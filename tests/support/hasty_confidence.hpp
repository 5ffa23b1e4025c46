// SPDX-License-Identifier: MIT
//
// Confidences that one round turns over: trusted at once, learned from one observation, forgotten after four, with
// drifts found everywhere. So what a round decides depends on every round before as strongly as it can.
#pragma once

#include <sureleap/serving/learned_confidence.hpp>

#include "support/small_world.hpp"

namespace small_world {

template <class Confidence>
[[nodiscard]] Confidence hasty_confidence(world const& w) {
    return Confidence(w.block_size, {.maps = {.prior_weight = 1.0,
                                              .memory = 4.0,
                                              .trusted_observations = 0.0,
                                              .tolerated_excess = 1.0,
                                              .drift = {.false_alarm_rounds = 1.0, .tolerated = 0.0, .shift = 2.0}},
                                     .max_requests = 2});
}

}  // namespace small_world
