// SPDX-License-Identifier: MIT
//
// A schedule that reads confidences needs a drafter that has some; without, every position would count as certain.
// expect-error: this schedule reads confidences and the drafter has none
// expect-error: Give the drafter a confidence_head or top1_confidence, or use fixed_schedule
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_unsure_drafter(), greedy_schedule{curve{}}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), greedy_schedule{curve{}}, token_rejection{}};
    decoder fixed{make_target(), make_unsure_drafter(), fixed_schedule{}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
