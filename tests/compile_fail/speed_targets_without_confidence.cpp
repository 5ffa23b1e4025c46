// SPDX-License-Identifier: MIT
//
// A schedule that reads no survivals cannot favour anybody by weights.
// expect-error: speed_targets: this schedule reads no confidences, so weights do nothing; use planned_schedule
#include "parts.hpp"

#include <sureleap/serving/speed_targets.hpp>

using namespace parts;

int main() {
    speed_target_options const options{.window = 4.0};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), speed_targets{fixed_schedule{2}, curve{}, options}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), speed_targets{greedy_schedule{curve{}}, options}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
