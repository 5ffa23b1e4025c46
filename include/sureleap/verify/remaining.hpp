// SPDX-License-Identifier: MIT
//
// What is left of the target's law behind a node some of whose children were rejected. Rejection behind rejection is
// the recursion of SpecInfer (Miao et al. 2024) for children drawn without replacement:
//
//     p_{j+1}(v) = max(s p_j(v) - q_j(v), 0) / its sum         s: survival of the node, 1 for token by token rules
//
// q_j is what the j-th child was drawn from (undrawn.hpp). Neither is a row: numbers are computed from p, q and what
// was rejected. So nothing of the size of the vocabulary is written. The sum takes a pass over p and q, by segments;
// where one of them has few tokens, over those.
//
// A pass in float rounds the sum by a part of p: 2^-21 of it, and 2^-22 more where the total of p is one. The sum may
// be as small. But that small it comes about as rarely: a rejection has the probability that is its sum. So each
// rejected child puts the law of the token off by 2^-20 at most, whatever the laws are. The token that is drawn has
// p_{j+1} up to the rounding of sums in double: what a rounded sum leaves over is spread over all tokens
// (find_share_of).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/undrawn.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE

/// p_j and q_j of a node. A weight function whose total is 1. With an argmax_draft children are not drawn: q_j is
/// one-hot at the j-th child.
///
/// All tokens but the rejected ones have p_j = max(a p - b q, 0) with two numbers a and b: where an elder child left
/// nothing, the next one leaves nothing either.
template <class DraftRule, class P, class Q>
class remaining {
public:
    using weight_type = double;

    /// `room`: as many as the node has children.
    remaining(P const& p, Q const& q, std::span<rejected_child> room) noexcept : p_(&p), q_(&q), room_(room) {}

    [[nodiscard]] std::size_t size() const noexcept { return p_->size(); }
    [[nodiscard]] static constexpr double total() noexcept { return 1.0; }
    [[nodiscard]] double operator[](token_id v) const noexcept {
        rejected_child const* const elder = find(v);
        return elder != nullptr ? elder->left : left_of(p_->probability(v), drafted(v, b_));
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`, at most a segment.
    void evaluate(token_id first, std::span<double> out) const noexcept {
        differences(first, out, a_, b_);
        for (rejected_child const& elder : rejected_children()) {
            auto const at = static_cast<std::size_t>(elder.token - first);  // in front of `first` it becomes large
            if (at < out.size()) out[at] = elder.left;
        }
    }
    /// q_j(x) of the next child, whose token is x: what it was drawn with.
    [[nodiscard]] double drawn_with(token_id x) const noexcept {
        return is_drawn ? q_->probability(x) / undrawn_ : 1.0;
    }
    /// q_j, of which only that number is asked.
    struct next {
        remaining const& of;
        [[nodiscard]] double probability(token_id x) const noexcept { return of.drawn_with(x); }
    };
    [[nodiscard]] next next_law() const noexcept { return {*this}; }
    /// The next child, x, was rejected while the node's survival was `scale`. O(V), or the tokens of q where that is a
    /// list. Returns the mass that is left of scale p_j. Where that is 0 the law stays as it was: the rejection had
    /// probability 0 but for rounding.
    double reject(token_id x, double scale) noexcept {
        SURELEAP_EXPECTS(rejected_ < room_.size());
        if (rejected_ == 0) few_count_ = p_->few_tokens(few_);
        double const before = (*this)[x];
        double const own = std::max(scale * before - drawn_with(x), 0.0);
        double const a = scale * a_;
        double const b = is_drawn ? scale * b_ + 1.0 / undrawn_ : 0.0;
        double const mass = mass_left(a, b, x, own, scale);
        rejected_child& child = room_[rejected_++];
        child = {x, mass > 0.0 ? own / mass : before, undrawn_};
        if constexpr (is_drawn) undrawn_ = undrawn<Q, rejected_child>(*q_, rejected_children()).part();
        if (!(mass > 0.0)) return mass;
        for (rejected_child& elder : room_.first(rejected_ - 1)) elder.left *= scale / mass;
        a_ = a / mass;
        b_ = b / mass;
        return mass;
    }
    [[nodiscard]] std::size_t rejected() const noexcept { return rejected_; }
    /// What p_j(v) / p(v) is at most.
    [[nodiscard]] double largest_gain() const noexcept { return a_; }
    /// How far the weights may add up to more than 1, or less.
    [[nodiscard]] double rounding() const noexcept {
        return largest_gain() * (2.0 * sum_rounding<typename P::weight_type> + p_->rounding());
    }
    /// The first token whose cumulative probability exceeds u, or any by its weight where rounding leaves none;
    /// no_token if none has weight. O(V), or the tokens of p where these are few.
    [[nodiscard]] token_id quantile(double u) const noexcept {
        double const claimed = 1.0 + rounding();
        if (few_count_ > 0) {
            std::size_t const i =
                detail::find_share_of<double>(few_count_, u, claimed, [this](std::size_t first, std::span<double> out) {
                    for (std::size_t j = 0; j < out.size(); ++j) out[j] = (*this)[few_[first + j]];
                });
            return i < few_count_ ? few_[i] : no_token;
        }
        std::size_t const i = detail::find_share_of<double>(
            size(), u, claimed,
            [this](std::size_t first, std::span<double> out) { evaluate(static_cast<token_id>(first), out); });
        return i < size() ? static_cast<token_id>(i) : no_token;
    }
    [[nodiscard]] P const& target() const noexcept { return *p_; }

private:
    static constexpr bool is_drawn = !DraftRule::is_deterministic;
    // Two rows in the formats that one function reads.
    static constexpr bool reads_rows = requires(P const& p, Q const& q) {
        p.functions().residual(p.plain_row().data(), p.side(1.0), q.plain_row().data(), q.side(1.0), 1, nullptr);
    };

    [[nodiscard]] std::span<rejected_child const> rejected_children() const noexcept { return room_.first(rejected_); }
    [[nodiscard]] rejected_child const* find(token_id v) const noexcept {
        for (rejected_child const& child : rejected_children()) {
            if (child.token == v) return &child;
        }
        return nullptr;
    }
    [[nodiscard]] double left_of(double p, double q) const noexcept { return std::max(a_ * p - b_ * q, 0.0); }
    // max(a p - b q, 0) of tokens first, first + 1 ...
    void differences(token_id first, std::span<double> out, double a, double b) const noexcept {
        detail::segment<typename P::weight_type> p;
        SURELEAP_EXPECTS(out.size() <= p.size());
        p_->evaluate(first, std::span(p).first(out.size()));
        double const of_p = a / p_->total();
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = of_p * static_cast<double>(p[i]);
        if (!(b > 0.0)) return;
        detail::segment<typename Q::weight_type> q;
        q_->evaluate(first, std::span(q).first(out.size()));
        double const of_q = b / q_->total();
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i] - of_q * static_cast<double>(q[i]), 0.0);
    }
    // The mass of max(scale p_j - q_j, 0): a and b of all tokens but those that were rejected, and x, whose own is
    // known.
    [[nodiscard]] double mass_left(double a, double b, token_id x, double own, double scale) const noexcept {
        // What is taken is taken from tokens of q. A difference of two numbers near each other says nothing.
        constexpr double near = 1e-4;
        if (few_count_ > 0) {
            double mass = 0.0;
            for (token_id const v : few_tokens()) {
                rejected_child const* const elder = find(v);
                double const other = elder != nullptr ? scale * elder->left : -1.0;
                mass += v == x ? own : other >= 0.0 ? other : std::max(a * p_->probability(v) - b * drafted(v, b), 0.0);
            }
            return mass;
        }
        if constexpr (!is_drawn) return std::max(scale - std::min(scale * (*this)[x], 1.0), 0.0);
        if (auto const listed = q_->support(); !listed.empty()) {
            double taken = 0.0;
            for (token_id const v : listed) {
                if (find(v) == nullptr) taken += std::min(scale * (*this)[v], drawn_with(v));
            }
            if (scale - taken > near) return scale - taken;
        }
        double mass = mass_of_differences(a, b);
        for (rejected_child const& elder : rejected_children()) {
            double const counted = std::max(a * p_->probability(elder.token) - b * q_->probability(elder.token), 0.0);
            mass += scale * elder.left - counted;
        }
        return mass;
    }
    [[nodiscard]] double drafted(token_id v, double b) const noexcept { return b > 0.0 ? q_->probability(v) : 0.0; }
    [[nodiscard]] std::span<token_id const> few_tokens() const noexcept {
        return std::span<token_id const>(few_).first(few_count_);
    }
    [[nodiscard]] double mass_of_differences(double a, double b) const noexcept {
        if constexpr (reads_rows) {
            auto const of_p = p_->plain_row();
            auto const of_q = q_->plain_row();
            if (!of_p.empty() && !of_q.empty()) {
                return p_->functions().residual(of_p.data(), p_->side(a), of_q.data(), q_->side(b), of_p.size(),
                                                nullptr);
            }
        }
        return detail::sum_of_part<double>(0, size(), [&](std::size_t first, std::span<double> out) {
            differences(static_cast<token_id>(first), out, a, b);
        });
    }

    P const* p_;
    Q const* q_;
    std::span<rejected_child> room_;
    std::size_t rejected_ = 0;
    double undrawn_ = 1.0;  // the part of q that rejected children have left
    double a_ = 1.0;
    double b_ = 0.0;
    std::array<token_id, 64> few_;  // the tokens of p, if it is truncated to so few
    std::size_t few_count_ = 0;
};

/// The token behind a node, by a pass. Nothing left means that the children had all of p up to rounding, where their
/// rejection has probability 0 but can round into existence: then p itself is the law, as in draw_residual
/// (verify/residual.hpp).
template <class DraftRule, class P, class Q, class Rng>
[[nodiscard]] token_id draw_remaining_by_pass(remaining<DraftRule, P, Q> const& left, draw_key const& key, Rng& rng) {
    token_id const y = rng.categorical(key, left);
    return y != no_token ? y : rng.categorical(key, left.target());
}

/// How often draw_remaining proposes before it makes a pass.
inline constexpr std::uint32_t remaining_proposals = 64;

/// The token behind a node some of whose children were rejected, drawn from `left`. `key` names the draw
/// (purpose::residual). Where a row has blocks, y ~ p is taken with probability p_j(y) / (p(y) largest_gain()) first,
/// which needs no pass; as draw_residual does (verify/residual.hpp). That takes largest_gain() proposals on average.
template <class DraftRule, class P, class Q, class Rng>
[[nodiscard]] token_id draw_remaining(remaining<DraftRule, P, Q> const& left, draw_key const& key, Rng& rng) {
    if (left.size() > row_block && left.largest_gain() < remaining_proposals / 4.0) {
        for (std::uint32_t i = 0; i < remaining_proposals; ++i) {
            draw_key named = key;
            named.index = key.index | i << 16;
            named.use = purpose::proposal;
            token_id const y = rng.categorical(named, left.target());
            if (y == no_token) break;
            named.use = purpose::proposal_accept;
            if (rng.bernoulli(named, left[y], left.target().probability(y) * left.largest_gain())) return y;
        }
    }
    return draw_remaining_by_pass(left, key, rng);
}

SURELEAP_END_NAMESPACE
