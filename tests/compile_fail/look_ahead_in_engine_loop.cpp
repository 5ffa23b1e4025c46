// SPDX-License-Identifier: MIT
//
// An engine that calls the stages itself meets the same check, where it makes the memory of its rounds.
// expect-error: this schedule looks ahead
// expect-error: Use a schedule that only sees the causal_frontier
#include "parts.hpp"

using namespace parts;

int main() {
    auto const drafter = make_drafter();
    retrospective_schedule looks_ahead{curve{}};
#ifdef SURELEAP_EXPECT_FAILURE
    round_memory<float, float> const memory{drafter, looks_ahead, token_rejection<>{}, {}};
#else
    greedy_schedule live{curve{}};
    round_memory<float, float> const memory{drafter, live, token_rejection<>{}, {}};
    round_memory<float, float> const coupled{drafter, looks_ahead, keyed_coupling{}, {}};
    round_memory<float, float> const lossy{drafter, looks_ahead, token_rejection<>{}, allow_lossy, {}};
#endif
}
