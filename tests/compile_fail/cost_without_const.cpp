// SPDX-License-Identifier: MIT
//
// What makes a class a cost is one function, and it is const: schedules are asked through const.
// expect-error: the schedule's cost is neither a cost_model nor a capacity_curve; give it .double step_seconds
#include "parts.hpp"

using namespace parts;

struct cost {
    double step_seconds(step_load const& load)
#ifndef SURELEAP_EXPECT_FAILURE
        const
#endif
    {
        return 1.0 + double(load.batch_tokens);
    }
};

int main() {
    decoder dec{make_target(), make_drafter(), greedy_schedule{cost{}}, token_rejection{}};
    return dec.step() ? 1 : 0;
}
