// SPDX-License-Identifier: MIT
//
// A planner gets the tables it declared, not those of another moment.
// expect-error: planning_table<.*from_rounds<1.*planning_table<.*from_rounds<2
#include "parts.hpp"

using namespace parts;

std::size_t search(top_k_schedule<curve> const& schedule, planning_table<from_rounds<1>> const& younger,
                   planning_table<from_rounds<2>> const& declared) {
#ifdef SURELEAP_EXPECT_FAILURE
    return schedule.budget(younger);
#else
    return schedule.budget(declared) + lagged_top_k<1>(curve{}).budget(younger);
#endif
}

int main() {}
