// SPDX-License-Identifier: MIT
//
// A controller reckons with what steps cost; a fixed schedule does not know.
// expect-error: never_lose: this schedule has no cost to reckon with; pass one: never_lose.schedule, cost, options.
#include "parts.hpp"

#include <sureleap/serving/never_lose.hpp>

using namespace parts;

int main() {
    never_lose_options const options{.prior = 0.7};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), never_lose{fixed_schedule{}, options}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), never_lose{fixed_schedule{}, curve{}, options}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
