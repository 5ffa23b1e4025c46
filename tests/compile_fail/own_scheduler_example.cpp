// SPDX-License-Identifier: MIT
//
// examples/own_scheduler.cpp says what the compiler says to its second scheduler; here the compiler says it.
// expect-error: sureleap: this schedule looks ahead .it sees drafted tokens it decides about., which biases
#ifdef SURELEAP_EXPECT_FAILURE
#define LOOK_AHEAD
#endif
#include "../../examples/own_scheduler.cpp"
