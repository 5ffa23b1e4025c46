// SPDX-License-Identifier: MIT
//
// Live, by its signature: it walks a copy of the frontier to the end of the block, and then decides about the first position.
// expect-error: use of deleted function .*causal_frontier::causal_frontier|call to deleted constructor of .*causal_frontier
#include "parts.hpp"

using namespace parts;

struct last_confidence_decides {
    void admit(causal_frontier& frontier) const {
#ifdef SURELEAP_EXPECT_FAILURE
        causal_frontier ahead = frontier;
#else
        causal_frontier& ahead = frontier;  // what it looks at is admitted
#endif
        fixed_probability last = 0;
        std::size_t positions = 0;
        for (; !ahead.empty(); ++positions) {
            last = ahead.best().confidence;
            ahead.admit(ahead.best().request);
        }
        frontier.admit_best(last > certain / 2 ? positions : 0);
    }
};

int main() {
    decoder dec{make_target(), make_drafter(), last_confidence_decides{}, token_rejection{}};
    return dec.step() ? 1 : 0;
}
