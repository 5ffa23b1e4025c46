// SPDX-License-Identifier: MIT
//
// What an acceptance rule sees of one request: the drafted tokens with the q they were drawn from, and the target's
// laws, made on demand. Rows that no decision came to are never touched.
//
// Drafts are a chain or a tree. Row n of the request is the target's law behind n tokens of a chain, or behind node n
// of a tree (draft_tree.hpp); row 0 is behind the anchor. So a chain is the tree whose node n has one child, n + 1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/draft_tree.hpp>
#include <sureleap/verify/target_laws.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Scratch of the verification of a tree, beside a verification_memory.
struct tree_scratch {
    draft_tree tree{};                     ///< that is judged
    std::span<rejected_child> rejected{};  ///< [nodes]
    std::span<token_id> path{};            ///< [nodes] tokens before a row

    /// `most` drafted tokens of a tree.
    [[nodiscard]] static tree_scratch carve(workspace& ws, std::size_t most) noexcept {
        return {draft_tree(ws, most), ws.take<rejected_child>(most), ws.take<token_id>(most)};
    }
};

/// What a rule sees of the drafts of one request, and how its draws are named.
class judged_drafts {
public:
    /// A chain.
    judged_drafts(request_view const& request, std::span<token_id const> drafted) noexcept
        : request_(request), drafted_(drafted) {}
    /// The tree of `scratch`.
    judged_drafts(request_view const& request, tree_scratch const& scratch) noexcept
        : request_(request), drafted_(scratch.tree.tokens().subspan(1)), scratch_(&scratch) {}

    /// l, the number of drafted tokens to judge.
    [[nodiscard]] std::size_t length() const noexcept { return drafted_.size(); }
    /// x_{k+1}: of a chain the token behind row k, of a tree that of node k + 1.
    [[nodiscard]] token_id token(std::size_t k) const noexcept { return drafted_[k]; }
    /// Name of a draw of this block. A chain names that of x_{k+1} by k, a tree by its node: siblings have draws of
    /// their own.
    [[nodiscard]] draw_key key(std::size_t k, purpose use) const noexcept { return block_key(request_, k, use); }
    /// Name of the noise of the token behind row n, which all nodes of a depth share: for rules whose output is a
    /// function of the row and that noise.
    [[nodiscard]] draw_key noise(std::size_t n) const noexcept { return noise_key(request_, depth(n)); }

    // ---- of chains and trees, for rules that follow the target's token -----------------------------------------

    /// The row behind token y after row n, if y was drafted there; else no_row.
    static constexpr std::size_t no_row = static_cast<std::size_t>(-1);
    [[nodiscard]] std::size_t child(std::size_t n, token_id y) const noexcept {
        if (scratch_ == nullptr) return n < length() && drafted_[n] == y ? n + 1 : no_row;
        node_id const c = tree().child(static_cast<node_id>(n), y);
        return c == no_node ? no_row : static_cast<std::size_t>(c);
    }
    /// The first token that was drafted behind row n, or no_token.
    [[nodiscard]] token_id first_drafted(std::size_t n) const noexcept {
        std::size_t const k = first_behind(n);
        return k < length() ? drafted_[k] : no_token;
    }

    // ---- of trees ----------------------------------------------------------------------------------------------

    [[nodiscard]] draw_key key(node_id n, purpose use) const noexcept { return key(static_cast<std::size_t>(n), use); }
    [[nodiscard]] draw_key noise(node_id n) const noexcept { return noise(static_cast<std::size_t>(n)); }
    [[nodiscard]] draft_tree const& tree() const noexcept { return scratch_->tree; }
    /// [length()] scratch: a rule keeps there what it learned of the children that it rejected.
    [[nodiscard]] std::span<rejected_child> rejected() const noexcept { return scratch_->rejected; }

protected:
    [[nodiscard]] request_view const& request() const noexcept { return request_; }
    /// Which drafted token is the first behind row n; length() or more if none is.
    [[nodiscard]] std::size_t first_behind(std::size_t n) const noexcept {
        if (scratch_ == nullptr) return n;
        node_id const c = tree().first_child(static_cast<node_id>(n));
        return c == no_node ? length() : static_cast<std::size_t>(c) - 1;
    }
    [[nodiscard]] std::size_t depth(std::size_t n) const noexcept {
        return scratch_ == nullptr ? n : tree().depth(static_cast<node_id>(n));
    }
    /// The drafted tokens before row n.
    [[nodiscard]] std::span<token_id const> before(std::size_t n) const noexcept {
        return scratch_ == nullptr ? drafted_.first(n) : tree().prefix(static_cast<node_id>(n), scratch_->path);
    }

private:
    request_view const& request_;
    std::span<token_id const> drafted_;
    tree_scratch const* scratch_ = nullptr;
};

/// One request's side of the acceptance stage. T: target storage, Q: draft compute type.
template <class T, class Q, class Hook = no_logits_hook>
class verification : public judged_drafts {
public:
    using memory_type = verification_memory<T, Hook>;
    using law = typename target_laws<T, Hook>::law;
    using draft_law = distribution<Q>;

    /// Of a chain. Row n of the request is row first_row + n of `rows`. `drafted` holds the l tokens that were
    /// verified, `recorded` the laws they were drawn from.
    verification(request_view const& request, std::span<token_id const> drafted, std::span<draft_law const> recorded,
                 logits_rows<T> const& rows, std::size_t first_row, Hook const& hook,
                 memory_type const& memory) noexcept
        : verification({request, drafted}, recorded, {request, rows, first_row, hook, memory}) {}
    /// Of scratch.tree. `recorded` [length()]: what node n + 1 was drawn from, as its eldest sibling was.
    verification(request_view const& request, std::span<draft_law const> recorded, logits_rows<T> const& rows,
                 std::size_t first_row, Hook const& hook, memory_type const& memory,
                 tree_scratch const& scratch) noexcept
        : verification({request, scratch}, recorded, {request, rows, first_row, hook, memory}) {}

    /// q as recorded when the first token behind row n was drawn; of younger siblings see remaining.hpp. Where nothing
    /// was drafted there is none.
    [[nodiscard]] draft_law const& draft(std::size_t n) const noexcept {
        std::size_t const k = first_behind(n);
        return k < length() ? recorded_[k] : none_;
    }
    /// p, the target's transformed law behind row n. It is made at the first call for n. Of its sum as much is made as
    /// `how` says: all, bounds of it, or nothing (verify/bounded.hpp).
    // Also for requests that want log probabilities, which need the sum: asking for them must not change what is drawn.
    [[nodiscard]] law& target(std::size_t n, totals how = totals::exact) {
        bool& made = laws_.memory().made[n];
        if (!made) laws_.make(n, before(n), how);
        made = true;
        if (how == totals::exact) laws_[n].settle();
        return laws_[n];
    }
    [[nodiscard]] draft_law const& draft(node_id n) const noexcept { return draft(static_cast<std::size_t>(n)); }
    [[nodiscard]] law& target(node_id n, totals how = totals::exact) {
        return target(static_cast<std::size_t>(n), how);
    }
    /// No row that was asked for lacks a law, perhaps because the normaliser and the sums that it brought are not its
    /// own.
    [[nodiscard]] bool valid() const noexcept {
        bool all = true;
        for (std::size_t n = 0; n <= length(); ++n) all = all && (!laws_.memory().made[n] || laws_[n].valid());
        return all;
    }

    // ---- scratch -----------------------------------------------------------------------------------------------

    /// At least 2 length() numbers that a rule may use as it likes.
    [[nodiscard]] std::span<double> scratch() const noexcept { return laws_.memory().joint; }
    /// Room for the block sums of one row, for draw_residual.
    [[nodiscard]] std::span<double> block_sums() const noexcept { return laws_.block_sums(laws_.memory().laws.size()); }

private:
    verification(judged_drafts const& drafts, std::span<draft_law const> recorded,
                 target_laws<T, Hook> const& laws) noexcept
        : judged_drafts(drafts), recorded_(recorded), laws_(laws) {
        SURELEAP_EXPECTS(length() < laws_.memory().laws.size());
        std::fill_n(laws_.memory().made.begin(), length() + 1, false);
    }

    std::span<draft_law const> recorded_;
    target_laws<T, Hook> laws_;
    draft_law none_{};
};

namespace detail {
/// What a rule is handed that says access = q_access::none: rows of q may be other positions' by then (round_memory
/// keeps one).
template <class Verification>
class without_q : public Verification {
public:
    explicit without_q(Verification const& of) noexcept : Verification(of) {}
    template <class Row>
    [[nodiscard]] typename Verification::draft_law const& draft(Row) const noexcept {
        static_assert(
            sizeof(Row) == 0,
            "sureleap: this acceptance rule says access = q_access::none, so rows of q are not kept, and it reads "
            "draft(k); say static constexpr q_access access = q_access::row");
        return Verification::draft(std::size_t{0});
    }
};

/// What `rule` decides. Nothing is decided where a row that it came to has no law. A decision without a token is none.
template <class Rule, class Verification, class Rng>
[[nodiscard]] decision decide(Rule const& rule, Verification& v, Rng& rng) {
    decision d;
    if constexpr (requires { requires Rule::access == q_access::none; }) {
        without_q<Verification> blind{v};
        d = rule(blind, rng);
    } else {
        d = rule(v, rng);
    }
    d.valid = d.valid && v.valid() && d.next != no_token;
    return d;
}
}  // namespace detail

SURELEAP_END_NAMESPACE
