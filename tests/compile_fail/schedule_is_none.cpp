// SPDX-License-Identifier: MIT
//
// A near miss: it may look at the frontier but keeps changing itself.
// expect-error: the schedule is no scheduler; give it admit.causal_frontier&. const
#include "parts.hpp"

using namespace parts;

struct alternating {
#ifdef SURELEAP_EXPECT_FAILURE
    void admit(causal_frontier& frontier){
#else
    void admit(causal_frontier& frontier) const {
#endif
        while (!frontier.empty()) frontier.admit(frontier.best().request);
}
}
;

int main() {
    decoder dec{make_target(), make_drafter(), alternating{}, token_rejection{}};
    return dec.step() ? 1 : 0;
}
