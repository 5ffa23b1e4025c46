// SPDX-License-Identifier: MIT
//
// A confidence that is read off q comes too late for a tree, which has to know where to grow before q is made.
// expect-error: tree_drafter: a tree grows by confidences that are known before q is made
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    tree_drafter const trees{make_parallel(top1_confidence{})};
#else
    tree_drafter const trees{make_parallel(half_sure{})};
#endif
    return trees.block_size() == 8 ? 0 : 1;
}
