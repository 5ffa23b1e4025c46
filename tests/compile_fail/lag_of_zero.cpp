// SPDX-License-Identifier: MIT
//
// A lag of 0 rounds would be this round's own table.
// expect-error: from_rounds: a lag of 0 is this round's own table; use from_anchor or a frontier_scheduler
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), lagged_top_k<0>(curve{}), token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), lagged_top_k<1>(curve{}), token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
