// SPDX-License-Identifier: MIT
//
// Token rejection (Leviathan et al. 2023; Chen et al. 2023). Tokens are judged one by one:
//
//     for k = 0 .. l - 1, with u uniform in [0, 1):
//         if u q_k(x_k) >= p_k(x_k): emit what was kept and a draw of max(p_k - q_k, 0), the residual; end
//         keep x_k
//     emit the block and a draw of p_l, the bonus
//
// So x_k is kept with probability min(1, p(x_k) / q(x_k)).
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/residual.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Exact in law under a non-anticipating schedule. Each position is accepted with probability sum_v min(p, q).
///
/// DraftRule is categorical_draft or argmax_draft; with the latter q is one-hot: it accepts with p(x_k) and makes any
/// schedule exact. Touches a + 1 target rows, a the accepted tokens, and of q the drafted tokens and those that
/// draw_residual proposes.
template <class DraftRule = categorical_draft>
class token_rejection {
public:
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        std::size_t k = 0;
        for (; k < v.length(); ++k) {
            auto& p = v.target(k, totals::bounded);
            auto const& q = v.draft(k);
            if (!p.valid()) return {};
            // u q < p instead of u < p/q: no division, and p = 0 is never accepted.
            if (!keeps(p, q, v.token(k), v.key(k, purpose::accept), rng)) {
                return {true, k, draw_residual(p, q, 1.0, v.key(k, purpose::residual), rng, v.block_sums())};
            }
        }
        auto& p = v.target(k, totals::bounded);
        if (!p.valid()) return {};
        return {true, k, draw(p, v.key(k, purpose::bonus), rng)};
    }
};

SURELEAP_END_NAMESPACE
