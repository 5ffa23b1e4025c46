// SPDX-License-Identifier: MIT
#include "support/every_part.hpp"

using namespace every_part;

TEST_CASE("token rejection with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    for_each_draft_rule<token_rejection>(
        "token_rejection", [&](std::string const& name, auto const& rule) { check_rule(name, rule, seen); });
    check_tally(seen, true);
}
