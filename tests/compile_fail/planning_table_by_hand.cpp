// SPDX-License-Identifier: MIT
//
// A planner could be fed this round's live survivals if anybody could make a planning table. Nobody can.
// expect-error: planning_table<.* is private within|calling a private constructor of class .*planning_table
#include "parts.hpp"

using namespace parts;

std::size_t search(survival_table const& live, frontier_memory const& memory) {
#ifdef SURELEAP_EXPECT_FAILURE
    planning_table<from_anchor> const table{live, memory};
    return planned_schedule{curve{}}.budget(table);
#else
    retrospective_schedule{curve{}}.admit({live, {}, {}}, memory);  // does that, and is known to look ahead
    return memory.lengths[0];
#endif
}

int main() {}
