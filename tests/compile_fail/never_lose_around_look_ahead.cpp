// SPDX-License-Identifier: MIT
//
// An adapter does not make a schedule causal that looks ahead.
// expect-error: sureleap: this schedule looks ahead .it sees drafted tokens it decides about., which biases
#include "parts.hpp"

#include <sureleap/serving/never_lose.hpp>

using namespace parts;

int main() {
    never_lose_options const options{.prior = 0.7};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), never_lose{retrospective_schedule{curve{}}, options}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), never_lose{greedy_schedule{curve{}}, options}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
