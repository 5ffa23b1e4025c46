// SPDX-License-Identifier: MIT
//
// The best batch of this round, searched on the live frontier: it is chosen by confidences of the whole block.
// expect-error: best_budget: a live schedule sees one candidate a request, and this search sees the whole block
// expect-error: Stop where Theta falls .greedy_schedule., or plan the budget before the block is drawn
#include "parts.hpp"

using namespace parts;

struct best_batch {
    void admit(causal_frontier& frontier) const {
#ifdef SURELEAP_EXPECT_FAILURE
        frontier.admit_best(best_budget(frontier, curve{}));
#else
        greedy_schedule{curve{}}.admit(frontier);
#endif
    }
};

int main() {
    decoder dec{make_target(), make_drafter(), best_batch{}, token_rejection{}};
    return dec.step() ? 1 : 0;
}
