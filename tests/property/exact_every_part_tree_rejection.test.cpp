// SPDX-License-Identifier: MIT
#include "support/every_part.hpp"

using namespace every_part;

TEST_CASE("recursive rejection with every schedule and adapter: exact", "[exact][long]") {
    tally seen;
    check_rule("recursive_rejection", recursive_rejection<>{}, seen);
    check_rule("recursive_rejection<argmax_draft>", recursive_rejection<argmax_draft>{}, seen);
    check_tally(seen, true);
}
