// SPDX-License-Identifier: MIT
//
// Of a rule that says it reads no q, rows of q are not kept: what it would read is another position's.
// expect-error: this acceptance rule says access = q_access::none, so rows of q are not kept, and it reads draft.k.
#include "parts.hpp"

using namespace parts;

struct ratio_rule {
    static constexpr fidelity guarantee = fidelity::distribution;
#ifdef SURELEAP_EXPECT_FAILURE
    static constexpr q_access access = q_access::none;
#else
    static constexpr q_access access = q_access::row;
#endif
    using draft_rule = categorical_draft;
    template <class Verification, class Rng>
    decision operator()(Verification& v, Rng& rng) const {
        bool const kept =
            v.length() > 0 && rng.bernoulli(v.key(0, purpose::accept), v.target(0).probability(v.token(0)),
                                            v.draft(0).probability(v.token(0)));
        return {true, kept ? 1u : 0u, rng.categorical(v.key(0, purpose::bonus), v.target(kept ? 1 : 0))};
    }
};

int main() {
    decoder dec{make_target(), make_drafter(), fixed_schedule{}, ratio_rule{}};
    return dec.step() ? 1 : 0;
}
