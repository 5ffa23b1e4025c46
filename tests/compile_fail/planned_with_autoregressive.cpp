// SPDX-License-Identifier: MIT
//
// An autoregressive draft has no hidden states before its first token is drawn, and later ones consume drafts.
// expect-error: planned_schedule asks for confidences at the anchor, before any token is drawn
// expect-error: It needs a parallel backbone .semi_autoregressive, parallel. and a confidence with at_anchor
// expect-error: use top_k_schedule otherwise
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), planned_schedule{curve{}}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), top_k_schedule{curve{}}, token_rejection{}};
    decoder planned{make_target(), make_parallel(top1_confidence{}), planned_schedule{curve{}}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
