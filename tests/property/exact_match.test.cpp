// SPDX-License-Identifier: MIT
//
// Match rules and keyed coupling have the target's law under any schedule, the anticipating one included.
#include "support/exactness.hpp"

using namespace exactness;

TEST_CASE("target match, argmax drafts: exact under every schedule", "[exact][long]") {
    for_each_schedule([](std::string const& name, auto const& s) { check_trials(name, s, target_match<>{}); });
}

TEST_CASE("target match, sampled drafts: exact under every schedule", "[exact][long]") {
    for_each_schedule([](std::string const& name, auto const& s) {
        check_trials(name, s, target_match<categorical_draft>{}, true, false);
    });
}

TEST_CASE("keyed coupling: exact under every schedule", "[exact][long]") {
    for_each_schedule([](std::string const& name, auto const& s) { check_trials(name, s, keyed_coupling{}); });
}

TEST_CASE("greedy match: exact under every schedule", "[exact][long]") {
    for_each_schedule([](std::string const& name, auto const& s) { check_trials(name, s, greedy_match{}, false); });
}
