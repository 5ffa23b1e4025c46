// SPDX-License-Identifier: MIT
//
// Keyed Gumbel coupling: draft and target choose their token by an exponential race over the same noise, keyed by
// (seed, absolute position). Similar distributions mostly choose the same token (Daliri et al. 2024, "Coupling without
// communication"). The output is the winner of the target's own race, whatever was drafted.
//
//     e(v) = the exponential of (seed, position, v)
//     draft:  x = argmin_v e(v) / q(v)
//     target: y = argmin_v e(v) / p(v);  x is kept if it is y, else y is emitted and the block ends
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/match.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Pathwise exact. Accepts with probability at least (1 - TV) / (1 + TV), a little below token rejection's 1 - TV; in
/// return the stream does not depend on schedule, drafter or batch. The noise is one exponential per token ("flat"): a
/// hierarchy over blocks of tokens is cheaper but agrees less often. Touches a + 1 target rows; reads nothing of q.
///
/// Requires coupled_draft: with ordinary draws the output stays exact and acceptance quietly falls to sum p q.
class keyed_coupling {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    static constexpr bool judges_trees = true;
    using draft_rule = coupled_draft;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        return detail::accept_matching(v, [&](std::size_t n) {
            return gumbel_max(v.target(n, totals::none), v.noise(n), v.first_drafted(n), rng);
        });
    }
};

SURELEAP_END_NAMESPACE
