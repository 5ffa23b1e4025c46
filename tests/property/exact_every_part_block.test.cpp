// SPDX-License-Identifier: MIT
#include "support/every_part.hpp"

using namespace every_part;

TEST_CASE("block verification with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    for_each_draft_rule<block_verification>(
        "block_verification", [&](std::string const& name, auto const& rule) { check_rule(name, rule, seen); });
    check_tally(seen, true);
}
