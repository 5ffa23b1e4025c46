// SPDX-License-Identifier: MIT
//
// Rules that choose the target's own token first (verify/match.hpp, verify/coupled.hpp), along a tree: the token is accepted
// where any child of the node has it. The output is that of plain decoding with the same noise, for any tree, however it was
// grown.
//
//     along_tree<target_match<>>     children: best the k likeliest tokens of q
//     along_tree<keyed_coupling>     children: the first of the draft's race over the noise that the target chooses with
//     along_tree<greedy_match>       for requests at temperature 0
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/tree/verification.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// What a rule sees of the path that it has accepted so far: a block that goes on to one child or another.
template <class Verification>
class tree_path {
public:
    explicit tree_path(Verification& v) noexcept : v_(v) {}

    [[nodiscard]] auto& target(std::size_t, totals how = totals::exact) { return v_.target(node_, how); }
    [[nodiscard]] draw_key noise(std::size_t) const noexcept { return v_.noise(node_); }
    /// One more position, if there is a child: the token that is likeliest to be kept there.
    [[nodiscard]] std::size_t length() const noexcept { return v_.tree().depth(node_) + (first() == no_node ? 0 : 1); }
    [[nodiscard]] token_id token(std::size_t) const noexcept { return v_.tree().token(first()); }
    /// Goes to the child that has token y; false if none does.
    [[nodiscard]] bool follow(token_id y) noexcept {
        node_id const c = v_.tree().child(node_, y);
        if (c == no_node) return false;
        node_ = c;
        return true;
    }
    [[nodiscard]] node_id node() const noexcept { return node_; }

private:
    [[nodiscard]] node_id first() const noexcept { return v_.tree().first_child(node_); }

    Verification& v_;
    node_id node_ = anchor_node;
};

}  // namespace detail

/// Promises what Rule does. Touches the rows of the accepted path, its end included; reads nothing of q.
template <class Rule>
class along_tree {
    static_assert(Rule::access == q_access::none,
                  "along_tree: the rule reads q, of which a chain has one row a position; use recursive_rejection or "
                  "traversal_verification, or a rule that chooses the target's token first, such as keyed_coupling");

public:
    static constexpr bool judges_trees = true;
    static constexpr fidelity guarantee = Rule::guarantee;
    static constexpr q_access access = Rule::access;
    using draft_rule = typename Rule::draft_rule;
    static constexpr bool greedy_only = requires { requires Rule::greedy_only; };

    along_tree() = default;
    explicit along_tree(Rule const& rule) : rule_(rule) {}

    template <class Verification, class Rng>
    [[nodiscard]] tree_decision operator()(Verification& v, Rng& rng) const {
        detail::tree_path path{v};
        decision const d = rule_(path, rng);
        return {d.valid && d.next != no_token, path.node(), d.next};
    }

private:
    Rule rule_{};
};

SURELEAP_END_NAMESPACE
