// SPDX-License-Identifier: MIT
//
// What an acceptance rule for trees sees of one request: the tree, the laws that children were drawn from, and the target's
// laws, made on demand. Rows of nodes that no decision came to are never touched.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/tree/draft_tree.hpp>
#include <sureleap/tree/remaining.hpp>
#include <sureleap/verify/target_laws.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a rule decided: the last node that is accepted, and the token behind it. The path to it is accepted as well.
struct tree_decision {
    bool valid = false;          ///< false: a target row that was needed holds no law
    node_id node = anchor_node;  ///< the anchor: no draft was accepted
    token_id next = no_token;    ///< correction or bonus
};

/// Scratch of the verification of a tree, beside a verification_memory.
struct tree_scratch {
    draft_tree tree{};                     ///< that is judged
    std::span<bool> made{};                ///< [nodes + 1] the law of the node is there
    std::span<rejected_child> rejected{};  ///< [nodes]
    std::span<token_id> path{};            ///< [nodes] tokens before a row

    /// `most` drafted tokens of a tree.
    [[nodiscard]] static tree_scratch carve(workspace& ws, std::size_t most) noexcept {
        return {draft_tree(ws, most), ws.take<bool>(most + 1), ws.take<rejected_child>(most), ws.take<token_id>(most)};
    }
};

/// One request's side of the acceptance of trees. T: target storage, Q: draft compute type.
template <class T, class Q, class Hook = no_logits_hook>
class tree_verification {
public:
    using memory_type = verification_memory<T, Hook>;
    using law = typename target_laws<T, Hook>::law;
    using draft_law = distribution<Q>;

    /// Row first_row + n is the target's law behind node n of scratch.tree. `recorded` [tree.size() - 1]: what node n + 1 was
    /// drawn from, as its eldest sibling was.
    tree_verification(request_view const& request, std::span<draft_law const> recorded, logits_rows<T> const& rows,
                      std::size_t first_row, Hook const& hook, memory_type const& memory,
                      tree_scratch const& scratch) noexcept
        : request_(request), recorded_(recorded), laws_(request, rows, first_row, hook, memory), scratch_(scratch) {
        SURELEAP_EXPECTS(tree().size() <= memory.laws.size());
        std::fill_n(scratch.made.begin(), tree().size(), false);
    }

    [[nodiscard]] draft_tree const& tree() const noexcept { return scratch_.tree; }
    [[nodiscard]] request_view const& request() const noexcept { return request_; }
    /// q of a node's first child; of its younger ones see remaining.hpp. Of a node without children there is none.
    [[nodiscard]] draft_law const& draft(node_id n) const noexcept {
        node_id const c = tree().first_child(n);
        return c == no_node ? none_ : recorded_[at(c) - 1];
    }
    /// p, the target's transformed law behind node n, and of its sum as much as `how` says, as verification::target.
    [[nodiscard]] law& target(node_id n, totals how = totals::exact) {
        law& p = laws_[at(n)];
        if (!scratch_.made[at(n)]) {
            laws_.make(at(n), tree().prefix(n, scratch_.path), how);
            scratch_.made[at(n)] = true;
        }
        if (how == totals::exact) p.settle();
        return p;
    }
    /// What `rule` decides, as verification::decide_by.
    template <class Rule, class Rng>
    [[nodiscard]] tree_decision decide_by(Rule const& rule, Rng& rng) {
        tree_decision d = rule(*this, rng);
        for (std::size_t n = 0; n < tree().size(); ++n) d.valid = d.valid && (!scratch_.made[n] || laws_[n].valid());
        if (d.next == no_token) d.valid = false;
        return d;
    }
    /// Name of a draw that belongs to a node: each node has its own, whatever its depth.
    [[nodiscard]] draw_key key(node_id n, purpose use) const noexcept { return block_key(request_, at(n), use); }
    /// Name of the noise of the token behind a node, which all nodes of a depth share: for rules whose output is a function of
    /// the row and that noise.
    [[nodiscard]] draw_key noise(node_id n) const noexcept { return noise_key(request_, tree().depth(n)); }
    /// [tree.size() - 1] scratch: a rule keeps there what it learned of the children that it rejected.
    [[nodiscard]] std::span<rejected_child> rejected() const noexcept { return scratch_.rejected; }

private:
    [[nodiscard]] static std::size_t at(node_id n) noexcept { return static_cast<std::size_t>(n); }

    request_view const& request_;
    std::span<draft_law const> recorded_;
    target_laws<T, Hook> laws_;
    tree_scratch const& scratch_;
    draft_law none_{};
};

namespace detail {
struct tree_verification_archetype {
    using law = verification_archetype::law;
    using draft_law = verification_archetype::law;
    [[nodiscard]] draft_tree const& tree() const { return tree_; }
    [[nodiscard]] draw_key key(node_id, purpose) const { return {}; }
    [[nodiscard]] draw_key noise(node_id) const { return {}; }
    [[nodiscard]] std::span<rejected_child> rejected() const { return {}; }
    [[nodiscard]] law const& target(node_id, totals = totals::exact) const { return law_; }
    [[nodiscard]] law const& draft(node_id) const { return law_; }

private:
    draft_tree tree_{};
    law law_{};
};
}  // namespace detail

/// Compares target rows with a tree of drafts, and decides which path is kept: `rule(tree_verification, rng)` returns a
/// tree_decision. Declares guarantee, draft_rule and access as an acceptance_sampler does, and
/// `static constexpr bool judges_trees = true`. A chain is a tree, so such a rule judges both.
template <class A>
concept tree_acceptance = requires {
    requires A::judges_trees;
} && requires(A const& rule, detail::tree_verification_archetype& v, detail::randomness_archetype& rng) {
    { std::integral_constant<fidelity, A::guarantee>{} };
    { std::integral_constant<q_access, A::access>{} };
    { std::bool_constant<A::draft_rule::is_deterministic>{} };
    { rule(v, rng) } -> std::same_as<tree_decision>;
};

SURELEAP_END_NAMESPACE
