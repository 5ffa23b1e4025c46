// SPDX-License-Identifier: MIT
#include "support/every_part.hpp"

using namespace every_part;

TEST_CASE("rules that match along a tree with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    check_rule("along_tree<target_match>", along_tree<target_match<>>{}, seen);
    check_rule("along_tree<greedy_match>", along_tree<greedy_match>{}, seen);
    check_rule("along_tree<keyed_coupling>", along_tree<keyed_coupling>{}, seen);
    check_tally(seen, false);
}

TEST_CASE("traversal verification with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    check_rule("traversal_verification", traversal_verification<>{}, seen);
    check_rule("traversal_verification<argmax_draft>", traversal_verification<argmax_draft>{}, seen);
    check_tally(seen, true);
}
