// SPDX-License-Identifier: MIT
//
// A rule that says it is lossy is used knowingly or not at all.
// expect-error: this acceptance rule is lossy: the output would not have the target's law
// expect-error: Use token_rejection, block_verification, target_match or keyed_coupling, or pass sureleap::allow_lossy
#include "parts.hpp"

using namespace parts;

// "Typical acceptance": keep every draft the target does not find absurd.
struct typical_acceptance {
    static constexpr fidelity guarantee = fidelity::lossy;
    static constexpr q_access access = q_access::none;
    using draft_rule = categorical_draft;

    template <class Verification, class Rng>
    decision operator()(Verification& v, Rng& rng) const {
        std::size_t k = 0;
        while (k < v.length() && v.target(k).probability(v.token(k)) > 0.1) ++k;
        return {true, k, rng.categorical(v.key(k, purpose::bonus), v.target(k))};
    }
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, typical_acceptance{}};
#else
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, typical_acceptance{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}
