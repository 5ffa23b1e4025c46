// SPDX-License-Identifier: MIT
//
// Nodes that were drawn and then ranked by their own probability, as in EAGLE-2: whether a token is there depends on it.
// expect-error: the drafter decides by a token whether it is there, which biases rules that sample
// expect-error: or a rule that is exact for any draft or any tree .target_match, keyed_coupling
#include "parts.hpp"

using namespace parts;

struct ranked_trees : decltype(make_trees()) {
    static constexpr bool grows_by_tokens = true;
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), ranked_trees{make_trees()}, fixed_schedule{}, recursive_rejection{}};
#else
    decoder dec{make_target(), make_trees(), fixed_schedule{}, recursive_rejection{}};
    decoder matched{make_target(), ranked_trees{make_trees()}, fixed_schedule{}, target_match<>{}};
    decoder chosen{make_target(), ranked_trees{make_trees()}, fixed_schedule{}, recursive_rejection<argmax_draft>{}};
    decoder lossy{make_target(), ranked_trees{make_trees()}, fixed_schedule{}, recursive_rejection{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}
