// SPDX-License-Identifier: MIT
//
// A rule of chains that judges tokens by q knows one child a node. Along a tree it would be biased.
// expect-error: along_tree: the rule reads q.*use recursive_rejection or traversal_verification
#include "parts.hpp"

using namespace parts;

#ifdef SURELEAP_EXPECT_FAILURE
using rule_of_chains = token_rejection<>;
#else
using rule_of_chains = keyed_coupling;
#endif

int main() {
    along_tree<rule_of_chains> const rule;
    return rule.access == q_access::none ? 0 : 1;
}
