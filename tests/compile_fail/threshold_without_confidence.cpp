// SPDX-License-Identifier: MIT
//
// See greedy_without_confidence.cpp.
// expect-error: this schedule reads confidences and the drafter has none
// expect-error: Give the drafter a confidence_head or top1_confidence, or use fixed_schedule
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_parallel(no_confidence{}), threshold_schedule{0.5}, block_verification{}};
#else
    decoder dec{make_target(), make_parallel(top1_confidence{}), threshold_schedule{0.5}, block_verification{}};
#endif
    return dec.step() ? 1 : 0;
}
