// SPDX-License-Identifier: MIT
//
// Traversal verification (Weng et al., "Traversal verification for speculative tree decoding", 2025): paths are judged from
// their leaves to the anchor, as block verification judges a chain. A path that fails at its last node may still be
// accepted up to an earlier one, or go on to a sibling.
//
// A path has a survival s: 1 at the anchor.
//
//     at child x: s becomes min(1, s p_j(x) / q_j(x))
//
// At its leaf the path is accepted with probability s. The token behind it is drawn from p_j then. Otherwise the leaf is
// removed, and its parent has less:
//
//     R = the mass of max(s p_j - q_j, 0),  p_{j+1} = that over R,  s becomes R / (R + 1 - s)
//
// p_j and q_j are what is left of a node's laws behind its rejected children (remaining.hpp). A node without children left is
// a leaf. Of a chain this is block verification. It accepts at least as many tokens as recursive rejection on average.
#pragma once

#include <algorithm>
#include <cstddef>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/tree/verification.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Exact under the conditions of recursive_rejection. Touches the rows of all nodes in the worst case; O(V) for each node that
/// is rejected.
template <class DraftRule = categorical_draft>
class traversal_verification {
    static_assert(!DraftRule::noise_returns,
                  "traversal_verification: coupled_draft meets its noise again in a later round, which biases rules "
                  "that sample; use "
                  "along_tree<keyed_coupling>, or draw with categorical_draft");

public:
    static constexpr fidelity guarantee =
        DraftRule::is_deterministic ? fidelity::schedule_invariant : fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] tree_decision operator()(Verification& v, Rng& rng) const {
        judged const end = judge(v, rng, anchor_node, 1.0, 0);
        return end.decision;
    }

private:
    struct judged {
        bool ended = false;  // the path ends in this subtree, or a row has no law
        tree_decision decision{};
    };

    // The subtree of a node that survives with probability `survival`. Depth is the depth of the tree, so recursion is
    // shallow. `used`: of the scratch for rejected children, by the ancestors.
    template <class Verification, class Rng>
    [[nodiscard]] static judged judge(Verification& v, Rng& rng, node_id n, double survival, std::size_t used) {
        draft_tree const& tree = v.tree();
        auto const& p = v.target(n);
        if (!p.valid()) return {true, {}};
        remaining<DraftRule, typename Verification::law, typename Verification::draft_law> left{
            p, v.draft(n), v.rejected().subspan(used)};
        for (node_id c = tree.first_child(n); c != no_node; c = tree.next_sibling(c)) {
            token_id const x = tree.token(c);
            double const kept = survival * left[x];
            double const drawn = left.drawn_with(x);
            if (kept > 0.0) {
                judged const below = judge(v, rng, c, kept < drawn ? kept / drawn : 1.0, used + left.rejected());
                if (below.ended) return below;
            }
            double const mass = left.reject(x, survival);
            if (survival < 1.0) survival = mass / (mass + (1.0 - survival));
        }
        if (!rng.bernoulli(v.key(n, purpose::accept), survival, 1.0)) return {};
        token_id const next = left.rejected() == 0 ? rng.categorical(v.key(n, purpose::bonus), p)
                                                   : draw_remaining(left, v.key(n, purpose::residual), rng);
        return {true, {true, n, next}};
    }
};

SURELEAP_END_NAMESPACE
