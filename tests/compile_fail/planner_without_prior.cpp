// SPDX-License-Identifier: MIT
//
// A planner of past rounds says what to assume of a request that has no past.
// expect-error: round_memory: a planner of past rounds needs prior.., the confidence of requests that have no past
#include "parts.hpp"

using namespace parts;

struct constant_budget {
    using origin = from_rounds<1>;
    std::size_t budget(planning_table<from_rounds<1>> const& past) const { return 2 * past.requests(); }
#ifndef SURELEAP_EXPECT_FAILURE
    double prior() const { return 0.5; }
#endif
};

int main() {
    decoder dec{make_target(), make_drafter(), constant_budget{}, token_rejection{}};
    return dec.step() ? 1 : 0;
}
