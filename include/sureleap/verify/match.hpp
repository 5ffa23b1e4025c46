// SPDX-License-Identifier: MIT
//
// Rules that choose the target's own token first and accept the draft where it agrees. Every output token is a function
// of its target row and of noise keyed by its absolute position. So the stream is that of plain decoding with the same
// noise, for any schedule, drafter and batch.
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
// y_k = choose(k), no_token if row k has no law; keep x_k while it equals y_k; the first y_k that differs is the
// correction.
// A tree has several x_k, and goes to the one that is y_k (tree/match.hpp).
template <class Verification, class Choose>
[[nodiscard]] decision accept_matching(Verification& v, Choose&& choose) {
    auto const keeps = [&](std::size_t k, token_id y) {
        if constexpr (requires { v.follow(y); }) {
            return v.follow(y);
        } else {
            return k < v.length() && y == v.token(k);
        }
    };
    for (std::size_t k = 0;; ++k) {
        token_id const y = choose(k);
        if (y == no_token) return {};
        if (!keeps(k, y)) return {true, k, y};
    }
}
}  // namespace detail

/// Draws y_k ~ p_k by inverse CDF and accepts x_k = y_k: probability p(x_k), best for an argmax draft.
/// Touches a + 1 target rows; reads nothing of q.
template <class DraftRule = argmax_draft>
class target_match {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        return detail::accept_matching(v, [&](std::size_t k) {
            auto const& p = v.target(k);
            return p.valid() ? rng.categorical(v.noise(k), p) : no_token;
        });
    }
};

/// Greedy decoding: y_k = argmax p_k, the lowest id among equals. For requests at temperature 0 only (their target law
/// is one-hot); a decoder refuses others.
class greedy_match {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    static constexpr bool greedy_only = true;
    using draft_rule = argmax_draft;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng&) const {
        return detail::accept_matching(v, [&](std::size_t k) {
            auto const& p = v.target(k);
            return p.valid() ? p.mode() : no_token;
        });
    }
};

SURELEAP_END_NAMESPACE
