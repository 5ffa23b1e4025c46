// SPDX-License-Identifier: MIT
//
// Traversal verification (Weng et al., "Traversal verification for speculative tree decoding", 2025): paths are judged
// from their leaves to the anchor, as block verification judges a chain. A path that fails at its last node may still
// be accepted up to an earlier one, or go on to a sibling.
//
// A path has a survival s: 1 at the anchor.
//
//     at child x: s becomes min(1, s p_j(x) / q_j(x))
//
// At its leaf the path is accepted with probability s. The token behind it is drawn from p_j then. Otherwise the leaf
// is removed, and its parent has less:
//
//     R = the mass of max(s p_j - q_j, 0),  p_{j+1} = that over R,  s becomes R / (R + 1 - s)
//
// p_j and q_j are what is left of a node's laws behind its rejected children (remaining.hpp). A node without children
// left is a leaf. Of a chain this is block verification. It accepts at least as many tokens as recursive rejection on
// average.
#pragma once

#include <cstddef>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/bounded_remaining.hpp>
#include <sureleap/verify/residual.hpp>
#include <sureleap/verify/verification.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Exact under the conditions of recursive_rejection. Touches the rows of all nodes that have children in the worst
/// case, and of the one at which the path ends. Bounds of their sums decide mostly (verify/bounded_remaining.hpp);
/// where q is no list, O(V) for each node that is rejected.
template <class DraftRule = categorical_draft>
class traversal_verification {
    static_assert(
        !DraftRule::noise_returns,
        "traversal_verification: coupled_draft meets its noise again in a later round, which biases rules that "
        "sample; use keyed_coupling, or draw with categorical_draft");

public:
    static constexpr bool judges_trees = true;
    static constexpr fidelity guarantee =
        DraftRule::is_deterministic ? fidelity::schedule_invariant : fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = DraftRule;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        return judge(v, rng, anchor_node, static_cast<law_left<Verification>*>(nullptr), 0).what;
    }

private:
    struct judged {
        bool ended = false;  // the path ends in this subtree, or a row has no law
        decision what{};
    };

    template <class Verification>
    using law_left = bounded_remaining<DraftRule, typename Verification::law, typename Verification::draft_law>;

    // The subtree of a node, whose survival `above` knows. Depth is the depth of the tree, so recursion is shallow.
    // `used`: of the scratch for rejected children, by the ancestors.
    template <class Verification, class Rng>
    [[nodiscard]] static judged judge(Verification& v, Rng& rng, node_id n, law_left<Verification>* above,
                                      std::size_t used) {
        draft_tree const& tree = v.tree();
        law_left<Verification> left{above, tree.token(n), v.rejected().subspan(used)};
        if (node_id c = tree.first_child(n); c != no_node) {
            auto& p = v.target(n, totals::bounded);
            if (!p.valid()) return {true, {}};
            left.look(p, v.draft(n));
            for (; c != no_node; c = tree.next_sibling(c)) {
                token_id const x = tree.token(c);
                if (left.of(x).high > 0.0) {
                    judged const below = judge(v, rng, c, &left, used + left.rejected());
                    if (below.ended) return below;
                }
                left.reject(x);
            }
        }
        // The row of a leaf is looked at if the path ends there, and not before.
        if (!happens(left, v.key(n, purpose::accept), rng)) return {};
        auto& p = v.target(n, totals::bounded);
        if (!p.valid()) return {true, {}};
        token_id const next =
            left.rejected() == 0 ? draw(p, v.key(n, purpose::bonus), rng) : left.draw(v.key(n, purpose::residual), rng);
        return {true, {true, n, next}};
    }
};

SURELEAP_END_NAMESPACE
