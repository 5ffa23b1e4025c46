// SPDX-License-Identifier: MIT
//
// What any_schedule holds its type does not say. So an adapter goes around the schedule, and any_schedule around both.
// expect-error: Neither does an adapter go around any_schedule: wrap the schedule
#include "parts.hpp"

#include <sureleap/schedule/any.hpp>
#include <sureleap/serving/never_lose.hpp>

using namespace parts;

int main() {
    top_k_schedule const inner{curve{}};
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), never_lose{any_schedule{inner}, curve{}}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), any_schedule{never_lose{inner, curve{}}}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
