// SPDX-License-Identifier: MIT
//
// A frontier that is moved leaves one behind that can be walked again.
// expect-error: use of deleted function .*causal_frontier::causal_frontier|call to deleted constructor of .*causal_frontier
#include <utility>

#include "parts.hpp"

using namespace parts;

struct takes_it_away {
    void admit(causal_frontier& frontier) const {
#ifdef SURELEAP_EXPECT_FAILURE
        causal_frontier mine{std::move(frontier)};
#else
        causal_frontier& mine = frontier;
#endif
        mine.admit_best(1);
    }
};

int main() {
    decoder dec{make_target(), make_drafter(), takes_it_away{}, block_verification{}};
    return dec.step() ? 1 : 0;
}
