// SPDX-License-Identifier: MIT
//
// A drafter fills blocks of its own numbers.
// expect-error: draw: the drafter cannot fill this round's block
// expect-error: where Q is its value_type
#include "parts.hpp"

using namespace parts;

int main() {
    auto drafter = make_drafter();
    fixed_schedule schedule{};
    token_rejection<> const rule{};
#ifdef SURELEAP_EXPECT_FAILURE
    round_memory<float, double> memory{drafter, schedule, rule, {.max_requests = 1}};
#else
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 1}};
#endif
    philox_randomness rng;
    draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
}
