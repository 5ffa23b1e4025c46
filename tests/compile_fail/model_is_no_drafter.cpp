// SPDX-License-Identifier: MIT
//
// A draft model is not yet a drafter: how many tokens, and drawn how?
// expect-error: the drafter is no sureleap::drafter; wrap a model in autoregressive, parallel or semi_autoregressive
// expect-error: One of your own has value_type, is_deterministic, is_parallel, has_confidence, block_size
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_target(), fixed_schedule{}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
