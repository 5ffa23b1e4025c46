// SPDX-License-Identifier: MIT
#include "support/every_part.hpp"

using namespace every_part;

TEST_CASE("target match with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    for_each_draft_rule<target_match>("target_match",
                                      [&](std::string const& name, auto const& rule) { check_rule(name, rule, seen); });
    check_tally(seen, false);
}
