// SPDX-License-Identifier: MIT
//
// Block verification has the target's law under every causal schedule, and with argmax drafts under any schedule.
#include "support/exactness.hpp"

using namespace exactness;

TEST_CASE("block verification, sampled drafts: exact under every causal schedule", "[exact][long]") {
    for_each_causal_schedule(
        [](std::string const& name, auto const& s) { check_trials(name, s, block_verification<>{}); });
}

TEST_CASE("block verification, argmax drafts: exact under every schedule", "[exact][long]") {
    for_each_schedule(
        [](std::string const& name, auto const& s) { check_trials(name, s, block_verification<argmax_draft>{}); });
}
