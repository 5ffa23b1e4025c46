// SPDX-License-Identifier: MIT
//
// An engine that calls the stages itself asks for the same check.
// expect-error: this schedule looks ahead
// expect-error: Use a schedule that only sees the causal_frontier
#include "parts.hpp"

using namespace parts;

int main() {
    using draft = decltype(make_drafter());
#ifdef SURELEAP_EXPECT_FAILURE
    check_round<draft, retrospective_schedule<curve>, token_rejection<>>();
#else
    check_round<draft, greedy_schedule<curve>, token_rejection<>>();
    check_round<draft, retrospective_schedule<curve>, keyed_coupling>();
    check_round<draft, retrospective_schedule<curve>, token_rejection<>, true>();
#endif
}
