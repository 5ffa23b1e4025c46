// SPDX-License-Identifier: MIT
//
// The global search over this round's confidences decides about x_k by c_{k+1}, which depends on x_k (Appendix A).
// expect-error: this schedule looks ahead .it sees drafted tokens it decides about., which biases
// expect-error: biases rules whose guarantee is fidelity::distribution .token_rejection
// expect-error: Use a schedule that only sees the causal_frontier .greedy_schedule, threshold_schedule.
// expect-error: or plans before drafting .planned_schedule, top_k_schedule.
// expect-error: or a rule that is exact under any schedule .target_match, keyed_coupling., or deterministic drafts
// expect-error: or pass sureleap::allow_lossy
#include "parts.hpp"

using namespace parts;

int main() {
    retrospective_schedule const search{curve{}};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), search, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), greedy_schedule{curve{}}, token_rejection{}};
    decoder planned{make_target(), make_parallel(top1_confidence{}), planned_schedule{curve{}}, token_rejection{}};
    decoder lagged{make_target(), make_drafter(), top_k_schedule{curve{}}, token_rejection{}};
    decoder coupled{make_target(), make_drafter(), search, keyed_coupling{}};
    decoder matched{make_target(), make_drafter(), search, target_match{}};
    decoder one_hot{make_target(), make_drafter(), search, token_rejection<argmax_draft>{}};
    decoder lossy{make_target(), make_drafter(), search, token_rejection{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}
