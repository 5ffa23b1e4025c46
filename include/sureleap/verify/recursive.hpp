// SPDX-License-Identifier: MIT
//
// Recursive rejection (Miao et al., "SpecInfer", ASPLOS 2024; without replacement: Jeon et al. 2024, Yang et al. 2024):
// the children of a node are judged in the order of their draws.
//
//     n = the anchor;  p, q = the laws behind n
//     for each child x of n, with u uniform in [0, 1):
//         if u q(x) < p(x): go to x and begin again there
//         p = max(p - q, 0), normalised;  q(x) = 0, normalised
//     emit the path to n and a draw of p
//
// remaining.hpp has p and q behind rejected children. Of a chain this is token rejection.
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/bounded_remaining.hpp>
#include <sureleap/verify/verification.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Exact in law if no child's existence depends on its own token or its younger siblings' (drafter/grow.hpp). With
/// argmax_draft, whose children are chosen and not drawn, any tree will do that no draw of the round decided. Touches
/// the rows of the accepted path, and one more where it ends at a leaf. Bounds of their sums decide mostly
/// (verify/bounded_remaining.hpp); where q is no list, O(V) for each child that is rejected.
template <class DraftRule = categorical_draft>
class recursive_rejection {
    static_assert(!DraftRule::noise_returns,
                  "recursive_rejection: coupled_draft meets its noise again in a later round, which biases rules that "
                  "sample; use keyed_coupling, or draw with categorical_draft");

public:
    static constexpr bool judges_trees = true;
    static constexpr fidelity guarantee =
        DraftRule::is_deterministic ? fidelity::schedule_invariant : fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        draft_tree const& tree = v.tree();
        for (node_id n = anchor_node;;) {
            auto& p = v.target(n, totals::bounded);
            if (!p.valid()) return {};
            node_id c = tree.first_child(n);
            if (c == no_node) return {true, n, draw(p, v.key(n, purpose::bonus), rng)};
            using law_left = bounded_remaining<DraftRule, typename Verification::law, typename Verification::draft_law>;
            law_left left{nullptr, no_token, v.rejected()};
            left.look(p, v.draft(n));
            for (; c != no_node; c = tree.next_sibling(c)) {
                token_id const x = tree.token(c);
                if (left.keeps(x, v.key(c, purpose::accept), rng)) break;
                left.reject(x);
            }
            if (c == no_node) return {true, n, left.draw(v.key(n, purpose::residual), rng)};
            n = c;
        }
    }
};

SURELEAP_END_NAMESPACE
