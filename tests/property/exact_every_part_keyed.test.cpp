// SPDX-License-Identifier: MIT
#include "support/every_part.hpp"

using namespace every_part;

TEST_CASE("keyed coupling, greedy match with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    check_rule("keyed_coupling", keyed_coupling{}, seen);
    check_rule("greedy_match", greedy_match{}, seen);
    check_tally(seen, false);
}
