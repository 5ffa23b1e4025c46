// SPDX-License-Identifier: MIT
//
// Only what past rounds left may be planned from beside the draw.
// expect-error: only a planner of past rounds .top_k_schedule. may run beside the draw
#include "parts.hpp"

using namespace parts;

int main() {
    survival_history const history(1, 2, 2, 0.8);
    planning_memory memory;
#ifdef SURELEAP_EXPECT_FAILURE
    planned_schedule const schedule{curve{}};
#else
    top_k_schedule const schedule{curve{}};
#endif
    return plan(schedule, std::span<request_view const>{}, history, memory) ? 1 : 0;
}
