// SPDX-License-Identifier: MIT
//
// A plan is made before there are tokens, so nothing can be said of them.
// expect-error: planned_schedule asks for confidences at the anchor, before any token is drawn
#include <sureleap/serving/learned_confidence.hpp>

#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_parallel(token_confidence(2)), planned_schedule{curve{}}, keyed_coupling{}};
#else
    decoder dec{make_target(), make_parallel(learned_confidence(2)), planned_schedule{curve{}}, keyed_coupling{}};
#endif
    return dec.step() ? 1 : 0;
}
