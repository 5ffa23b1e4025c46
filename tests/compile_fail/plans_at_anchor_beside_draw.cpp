// SPDX-License-Identifier: MIT
//
// Only what past rounds left may be planned from beside the draw.
// expect-error: only a planner of past rounds .top_k_schedule. may run beside the draw
#include "parts.hpp"

using namespace parts;

int main() {
    auto const drafter = make_parallel(top1_confidence{});
#ifdef SURELEAP_EXPECT_FAILURE
    planned_schedule schedule{curve{}};
#else
    top_k_schedule schedule{curve{}};
#endif
    round_memory<float, float> memory{drafter, schedule, token_rejection<>{}, {}};
    plan(schedule, memory);
}
