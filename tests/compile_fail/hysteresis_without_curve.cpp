// SPDX-License-Identifier: MIT
//
// A planner of one's own has to say what it reckons with before its stairs can be known.
// expect-error: hysteresis: the planner has no capacity.., the cost that it reckons with, so stairs are not known
#include "parts.hpp"

#include <sureleap/schedule/hysteresis.hpp>

using namespace parts;

struct constant_budget {
    using origin = from_rounds<1>;
    std::size_t budget(planning_table<from_rounds<1>> const& past) const { return 2 * past.requests(); }
    double prior() const { return 0.5; }
#ifndef SURELEAP_EXPECT_FAILURE
    curve capacity() const noexcept { return {}; }
#endif
};

int main() {
    decoder dec{make_target(), make_drafter(), hysteresis{constant_budget{}}, token_rejection{}};
    return dec.step() ? 1 : 0;
}
