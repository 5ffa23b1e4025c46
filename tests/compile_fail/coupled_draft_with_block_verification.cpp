// SPDX-License-Identifier: MIT
//
// Noise that a position meets again when it is drafted again is for rules that do not depend on the draft.
// expect-error: coupled_draft names its noise by absolute position, so a position that is drafted again meets noise
// expect-error: Give token_rejection and block_verification categorical_draft or argmax_draft, or use keyed_coupling
#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, block_verification<coupled_draft>{}};
#else
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, block_verification<categorical_draft>{}};
    decoder coupled{make_target(), make_drafter(), fixed_schedule{}, keyed_coupling{}};
    decoder matched{make_target(), make_drafter(), fixed_schedule{}, target_match<coupled_draft>{}};
    decoder lossy{make_target(), make_drafter(), fixed_schedule{}, block_verification<coupled_draft>{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}
