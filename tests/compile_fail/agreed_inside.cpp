// SPDX-License-Identifier: MIT
//
// Ranks agree last: what changes limits after them would make one of them wait for the others.
// expect-error: schedule_adapter: this schedule is wrapped already by one that has to be the outermost
#include "parts.hpp"

#include <sureleap/schedule/agreed.hpp>
#include <sureleap/serving/never_lose.hpp>

using namespace parts;

struct alone {
    std::size_t operator()(std::size_t batch) const noexcept { return batch; }
};

int main() {
    never_lose_options const options{.prior = 0.7};
    top_k_schedule const inner{curve{}};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), never_lose{agreed{inner, alone{}}, options}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), agreed{never_lose{inner, options}, alone{}}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
