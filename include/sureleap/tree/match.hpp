// SPDX-License-Identifier: MIT
//
// Rules that choose the target's own token first, along a tree: it is accepted where any child of the node has it. The
// output is that of plain decoding with the same noise, for any tree, however it was grown.
#pragma once

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/tree/verification.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
// y = choose(n), no_token if row n has no law. Goes to the child that has it, until none does.
template <class Verification, class Choose>
[[nodiscard]] tree_decision follow_tree(Verification& v, Choose&& choose) {
    for (node_id n = anchor_node;;) {
        token_id const y = choose(n);
        if (y == no_token) return {};
        node_id const c = v.tree().child(n, y);
        if (c == no_node) return {true, n, y};
        n = c;
    }
}
}  // namespace detail

/// Draws y ~ p by inverse CDF: accepted with the mass that p has on the children. Best for the k likeliest tokens of q.
class tree_match {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    using draft_rule = argmax_draft;

    template <class Verification, class Rng>
    [[nodiscard]] tree_decision operator()(Verification& v, Rng& rng) const {
        return detail::follow_tree(v, [&](node_id n) {
            auto const& p = v.target(n);
            return p.valid() ? rng.categorical(v.noise(n), p) : no_token;
        });
    }
};

/// The likeliest token, the lowest id among equals. For requests at temperature 0.
class greedy_tree_match {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    static constexpr bool greedy_only = true;
    using draft_rule = argmax_draft;

    template <class Verification, class Rng>
    [[nodiscard]] tree_decision operator()(Verification& v, Rng&) const {
        return detail::follow_tree(v, [&](node_id n) {
            auto const& p = v.target(n);
            return p.valid() ? p.mode() : no_token;
        });
    }
};

/// The winner of the target's race. Children are the first of the draft's race over the same noise: the best k of
/// log q + noise, which is drawing without replacement.
class tree_coupling {
public:
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    using draft_rule = coupled_draft;

    template <class Verification, class Rng>
    [[nodiscard]] tree_decision operator()(Verification& v, Rng& rng) const {
        return detail::follow_tree(v, [&](node_id n) {
            auto const& p = v.target(n);
            return p.valid() ? rng.gumbel_max(v.noise(n), p) : no_token;
        });
    }
};

SURELEAP_END_NAMESPACE
