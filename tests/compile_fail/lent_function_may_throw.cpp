// SPDX-License-Identifier: MIT
//
// A function is lent like an object. One that may throw is refused with its own words.
// expect-error: function_ref: a function that is lent must have the arguments and the result of the signature, and
#include <sureleap/round/record.hpp>

#ifdef SURELEAP_EXPECT_FAILURE
double now() {
    return 0.0;
}
#else
double now() noexcept {
    return 0.0;
}
#endif

int main() {
    sureleap::clock_ref const clock = now;
    return static_cast<int>(clock());
}
