// SPDX-License-Identifier: MIT
//
// Block verification needs a stopping time as token rejection does.
// expect-error: this schedule looks ahead .it sees drafted tokens it decides about., which biases
// expect-error: or a rule that is exact under any schedule .target_match, keyed_coupling., or deterministic drafts
// expect-error: or pass sureleap::allow_lossy
#include "parts.hpp"

using namespace parts;

int main() {
    retrospective_schedule const search{curve{}};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), search, block_verification{}};
#else
    decoder dec{make_target(), make_drafter(), greedy_schedule{curve{}}, block_verification{}};
    auto parallel_drafter = make_parallel(top1_confidence{});
    decoder planned{make_target(), parallel_drafter, planned_schedule{curve{}}, block_verification{}};
    decoder coupled{make_target(), make_drafter(), search, keyed_coupling{}};
    decoder one_hot{make_target(), make_drafter(), search, block_verification<argmax_draft>{}};
    decoder lossy{make_target(), make_drafter(), search, block_verification{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}
