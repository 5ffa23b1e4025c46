// SPDX-License-Identifier: MIT
//
// Token rejection judges the tokens of a chain one after another: siblings would be taken for successors.
// expect-error: the drafter drafts trees, and this acceptance rule judges chains
// expect-error: Use a rule that chooses the target's token first
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), with_lookup{make_trees()}, fixed_schedule{}, token_rejection{}};
#else
    decoder dec{make_target(), make_trees(), greedy_schedule{curve{}}, recursive_rejection{}};
    decoder coupled{make_target(), make_trees(), greedy_schedule{curve{}}, keyed_coupling{}};
    decoder joined{make_target(), with_lookup{make_trees()}, greedy_schedule{curve{}}, recursive_rejection{}};
    decoder chain{make_target(), make_parallel(half_sure{}), greedy_schedule{curve{}}, recursive_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
