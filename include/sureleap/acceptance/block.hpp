// SPDX-License-Identifier: MIT
//
// Block verification (Sun et al., "Block verification accelerates speculative decoding", ICLR 2025): tokens are judged
// together instead of one by one, which accepts at least as many in expectation and is optimal among rules that emit
// one draft prefix and a correction.
//
// With p_0 = 1 and p_i = min(1, p_{i-1} p(x_i)/q(x_i)), prefix i survives with probability p_i: that identity holds at
// every node x^i, so the block may end at any length that is a function of x^i. Both the acceptance h_i and the
// residual max(p_i p - q, 0) are this rule's own; taking either from token rejection biases the output.
#pragma once

#include <cstddef>

#include <sureleap/acceptance/residual.hpp>
#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Exact in law under a non-anticipating schedule. Touches every target row up to the first p_i = 0, and makes a pass
/// over p and q for every position it tries from the end.
template <class DraftRule = categorical_draft>
class block_verification {
public:
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        std::size_t const length = v.length();
        auto const joint = v.scratch();  // joint[i] = p_{i+1}
        std::size_t alive = 0;           // prefixes with p_i > 0
        for (double before = 1.0; alive < length; ++alive) {
            auto const& p = v.target(alive);
            if (!p.valid()) return {};
            token_id const x = v.token(alive);
            double const ratio = before * p.probability(x);
            double const q = v.draft(alive).probability(x);
            if (!(ratio > 0.0)) break;
            joint[alive] = before = ratio < q ? ratio / q : 1.0;
        }
        if (!v.target(alive).valid()) return {};

        // The accepted prefix is the longest whose test succeeds, so testing from the end may stop at a success.
        std::size_t accepted = alive;
        for (; accepted > 0; --accepted) {
            double const survives = joint[accepted - 1];
            double num = survives;  // h_l = p_l at the end of the block
            double den = 1.0;
            if (accepted < length) {
                num = residual{v.target(accepted), v.draft(accepted), survives, v.block_sums()}.total();
                den = num + (1.0 - survives);
                // p_i = 1 and p = q beyond: nothing is left to correct, so stopping here must not be missed.
                if (!(den > 0.0)) num = den = 1.0;
            }
            if (rng.bernoulli(v.key(accepted - 1, purpose::accept), num, den)) break;
        }
        auto const& p = v.target(accepted);
        if (accepted == length) return {true, accepted, rng.categorical(v.key(accepted, purpose::bonus), p)};
        double const survives = accepted == 0 ? 1.0 : joint[accepted - 1];
        return {true, accepted,
                draw_residual(p, v.draft(accepted), survives, v.key(accepted, purpose::residual), rng, v.block_sums())};
    }
};

SURELEAP_END_NAMESPACE
