// SPDX-License-Identifier: MIT
//
// Algorithm 1 has no budget that could be held.
// expect-error: hysteresis: holds the budget of a planner, and this schedule has none
#include "parts.hpp"

#include <sureleap/schedule/hysteresis.hpp>

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), hysteresis{greedy_schedule{curve{}}}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), hysteresis{top_k_schedule{curve{}}}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
