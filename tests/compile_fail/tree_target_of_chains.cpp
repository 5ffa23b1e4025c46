// SPDX-License-Identifier: MIT
//
// A target that attends to all rows before a row gives a node the law behind its siblings.
// expect-error: the drafter drafts trees, and the target does not say that it scores them
// expect-error: declares .static constexpr bool scores_trees = true
#include "parts.hpp"

using namespace parts;

struct target_of_chains {
    logits_rows<float> score(verify_batch const&) { return {}; }
};
struct target_of_trees : target_of_chains {
    static constexpr bool scores_trees = true;
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{target_of_chains{}, make_trees(), fixed_schedule{}, recursive_rejection{}};
#else
    decoder dec{target_of_trees{}, make_trees(), fixed_schedule{}, recursive_rejection{}};
    decoder chain{target_of_chains{}, make_parallel(half_sure{}), fixed_schedule{}, recursive_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
