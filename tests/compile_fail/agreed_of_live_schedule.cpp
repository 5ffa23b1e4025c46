// SPDX-License-Identifier: MIT
//
// Ranks agree on a planner's batch; a schedule that decides live has none to say.
// expect-error: agreed: exchanges the batch that a planner decides on, and this schedule is none
#include "parts.hpp"

#include <sureleap/schedule/agreed.hpp>

using namespace parts;

struct alone {
    std::size_t operator()(std::size_t batch) const noexcept { return batch; }
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), agreed{threshold_schedule{0.5}, alone{}}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), agreed{top_k_schedule{curve{}}, alone{}}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
