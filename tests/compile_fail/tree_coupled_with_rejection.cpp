// SPDX-License-Identifier: MIT
//
// A node's children are the first of a race whose noise a later round meets again. Rejection would be biased by it.
// expect-error: traversal_verification: coupled_draft meets its noise again in a later round.*use keyed_coupling
#include "parts.hpp"

using namespace parts;

#ifdef SURELEAP_EXPECT_FAILURE
using draws = coupled_draft;
#else
using draws = categorical_draft;
#endif

int main() {
    traversal_verification<draws> const rule;
    return rule.access == q_access::row ? 0 : 1;
}
