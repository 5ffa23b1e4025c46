// SPDX-License-Identifier: MIT
//
// Rules that choose the target's own token first and accept the draft where it agrees. Every output token is a function
// of its target row and of noise keyed by its absolute position. So the stream is that of plain decoding with the same
// noise, for any schedule, drafter and batch, and for trees as for chains: in a tree they go to the child that has the
// token.
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
// y = choose(n), no_token if row n has no law. While y was drafted behind row n, it is accepted, and the row behind it
// is the next; the first y that was not is the correction.
template <class Verification, class Choose>
[[nodiscard]] decision accept_matching(Verification& v, Choose&& choose) {
    for (std::size_t n = 0;;) {
        token_id const y = choose(n);
        if (y == no_token) return {};
        std::size_t const next = v.child(n, y);
        if (next == Verification::no_row) return {true, n, y};
        n = next;
    }
}
}  // namespace detail

/// Draws y_k ~ p_k by inverse CDF and accepts x_k = y_k: probability p(x_k), best for an argmax draft.
/// Touches a + 1 target rows; reads nothing of q. Judges chains and trees.
template <class DraftRule = argmax_draft>
class target_match {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    static constexpr bool judges_trees = true;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        return detail::accept_matching(v, [&](std::size_t n) {
            auto const& p = v.target(n);
            return p.valid() ? rng.categorical(v.noise(n), p) : no_token;
        });
    }
};

/// Greedy decoding: y_k = argmax p_k, the lowest id among equals. For requests at temperature 0 only (their target law
/// is one-hot); a decoder refuses others.
class greedy_match {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    static constexpr bool judges_trees = true;
    static constexpr bool greedy_only = true;
    using draft_rule = argmax_draft;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng&) const {
        return detail::accept_matching(v, [&](std::size_t n) {
            auto const& p = v.target(n);
            return p.valid() ? p.mode() : no_token;
        });
    }
};

SURELEAP_END_NAMESPACE
