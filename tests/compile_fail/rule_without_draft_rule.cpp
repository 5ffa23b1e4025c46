// SPDX-License-Identifier: MIT
//
// A rule says how its tokens must be drawn; coupling with an ordinary draw would quietly accept less.
// expect-error: the acceptance rule is no acceptance_sampler; give it guarantee, access, draft_rule
#include "parts.hpp"

using namespace parts;

struct rule {
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
#ifndef SURELEAP_EXPECT_FAILURE
    using draft_rule = argmax_draft;
#endif
    template <class Verification, class Rng>
    decision operator()(Verification& v, Rng& rng) const {
        return {true, 0, rng.gumbel_max(v.noise(0), v.target(0))};
    }
};

int main() {
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, rule{}};
    return dec.step() ? 1 : 0;
}
