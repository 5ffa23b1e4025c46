// SPDX-License-Identifier: MIT
//
// A confidence that learns cannot be const.
// expect-error: the confidence learns, and the drafter was given a const one; give it one that may change
#include <sureleap/serving/learned_confidence.hpp>

#include "parts.hpp"

using namespace parts;

#ifdef SURELEAP_EXPECT_FAILURE
using held = learned_confidence const;
#else
using held = learned_confidence;
#endif

int main() {
    held confidence(2);
    autoregressive drafter{make_target(), confidence, {.block_size = 2, .vocabulary = 4}};
    decoder dec{make_target(), drafter, threshold_schedule{0.3}, token_rejection{}};
    return dec.step() ? 1 : 0;
}
