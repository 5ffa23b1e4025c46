// SPDX-License-Identifier: MIT
//
// A confidence in the drafted token decides by that token whether it is verified.
// expect-error: the drafter decides by a token whether it is there, which biases rules that sample
// expect-error: or a confidence that does not read the drafted token .learned_confidence.
// expect-error: or a rule that is exact for any draft or any tree .target_match, keyed_coupling
#include <sureleap/serving/learned_confidence.hpp>

#include "parts.hpp"

using namespace parts;

template <class Confidence>
auto drafter_with() {
    return autoregressive{make_target(), Confidence(2), {.block_size = 2, .vocabulary = 4}};
}

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), drafter_with<token_confidence>(), threshold_schedule{0.3}, token_rejection{}};
#else
    decoder dec{make_target(), drafter_with<learned_confidence>(), threshold_schedule{0.3}, token_rejection{}};
    decoder coupled{make_target(), drafter_with<token_confidence>(), threshold_schedule{0.3}, keyed_coupling{}};
    decoder matched{make_target(), drafter_with<token_confidence>(), threshold_schedule{0.3},
                    target_match<categorical_draft>{}};
    decoder argmax{make_target(), drafter_with<token_confidence>(), threshold_schedule{0.3},
                   token_rejection<argmax_draft>{}};
#endif
    return dec.step() ? 1 : 0;
}
