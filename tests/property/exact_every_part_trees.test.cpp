// SPDX-License-Identifier: MIT
#include "support/every_part.hpp"

using namespace every_part;

TEST_CASE("rules that match along a tree with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    check_rule("target_match, trees", support::with_trees<target_match<>>{}, seen);
    check_rule("greedy_match, trees", support::with_trees<greedy_match>{}, seen);
    check_rule("keyed_coupling, trees", support::with_trees<keyed_coupling>{}, seen);
    check_tally(seen, false);
}

TEST_CASE("traversal verification with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    check_rule("traversal_verification", traversal_verification<>{}, seen);
    check_rule("traversal_verification<argmax_draft>", traversal_verification<argmax_draft>{}, seen);
    check_tally(seen, true);
}
