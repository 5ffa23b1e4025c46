// SPDX-License-Identifier: MIT
//
// What a further child of a node is drawn from: q without the tokens of its elder siblings.
//
//     q_j(v) = q(v) / sum of q over tokens that are no elder child; 0 for elder children
//
// It is no row: numbers are computed from q and the list of those tokens.
//
// The draw goes by one sum, and the rule judges by the same (remaining.hpp). It is within 2^-22 of the weights' own,
// whatever is left: the total of q without the weights of elder children, or a sum of the blocks that are left. Where
// elder children have nearly all of q, the rounding of its total may be larger than what is left. What a draw finds
// behind the weights is spread over them (find_share_of). So a further child has the law q_j up to the rounding of sums
// in double, and the rule is told q_j within 2^-22.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/quantile.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The token of an elder child, of which it may be all that is known.
[[nodiscard]] constexpr token_id token_of(token_id child) noexcept {
    return child;
}

/// q without the tokens of children that are there already: what the next one is drawn from. A weight function in units
/// of q's weights. Child: a token, or what token_of() finds one in.
template <class Q, class Child = token_id>
class undrawn {
public:
    using weight_type = typename Q::weight_type;
    static constexpr double rounding = sum_rounding<float>;

    /// O(1) a child, or where a total in floats is no help O(V / 1024 + 1024) with q's sums of blocks, and O(V)
    /// without.
    undrawn(Q const& q, std::span<Child const> drawn) noexcept : q_(q), drawn_(drawn), total_(sum_left()) {}
    [[nodiscard]] std::size_t size() const noexcept { return q_.size(); }
    [[nodiscard]] weight_type operator[](token_id v) const noexcept { return is_drawn(v) ? weight_type(0) : q_[v]; }
    /// The sum of the weights, within the part `rounding` of itself; 0 if every token that q has is there.
    [[nodiscard]] double total() const noexcept { return total_; }
    /// The part of q that it is.
    [[nodiscard]] double part() const noexcept { return total_ / q_.total(); }
    [[nodiscard]] Q const& all() const noexcept { return q_; }
    [[nodiscard]] bool is_drawn(token_id v) const noexcept {
        return std::any_of(drawn_.begin(), drawn_.end(), [v](Child const& c) { return token_of(c) == v; });
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`.
    void evaluate(token_id first, std::span<weight_type> out) const noexcept {
        q_.evaluate(first, out);
        for (Child const& c : drawn_) {
            auto const at = static_cast<std::size_t>(token_of(c) - first);  // in front of `first` it becomes large
            if (at < out.size()) out[at] = weight_type(0);
        }
    }
    /// The same of a row over a part of the vocabulary (distribution::mapped_size).
    [[nodiscard]] std::size_t mapped_size() const noexcept { return q_.mapped_size(); }
    [[nodiscard]] token_id mapped_token(std::size_t i) const noexcept { return q_.mapped_token(i); }
    void mapped_weights(std::size_t first, std::span<weight_type> out) const noexcept {
        q_.mapped_weights(first, out);
        for (Child const& c : drawn_) {
            std::size_t const at = q_.place(token_of(c)) - first;
            if (at < out.size()) out[at] = weight_type(0);
        }
    }
    /// For races (sampling/gumbel_max.hpp). Tokens that are drawn are listed as well, and have no weight then.
    [[nodiscard]] bool can_list() const noexcept { return q_.can_list(); }
    [[nodiscard]] std::size_t above(std::size_t first, std::size_t count, double const* least,
                                    std::uint32_t* out) const noexcept {
        return q_.above(first, count, least, out);
    }
    [[nodiscard]] token_id likely() const noexcept {
        token_id const x = q_.likely();
        return is_drawn(x) ? no_token : x;
    }
    /// The first token in the order of the row whose cumulative weight exceeds u * total(), or any by its weight where
    /// rounding leaves none; no_token if none has weight. O(size).
    [[nodiscard]] token_id quantile(double u) const noexcept {
        if (!(total_ > 0.0)) return no_token;
        std::size_t const i =
            detail::find_share_of<weight_type>(row_size(), u, total_ * (1.0 + rounding), weights_of_row());
        return i == row_size() ? no_token : row_token(i);
    }
    /// The token of most weight, the first of the row among equals. O(size).
    [[nodiscard]] token_id mode() const noexcept {
        std::size_t best = row_size();
        weight_type most = 0;
        detail::segment<weight_type> some;
        for (std::size_t first = 0; first < row_size(); first += some.size()) {
            auto const here = std::span(some).first(std::min(some.size(), row_size() - first));
            row_weights(first, here);
            auto const top = std::max_element(here.begin(), here.end());
            if (!(*top > most)) continue;
            most = *top;
            best = first + static_cast<std::size_t>(top - here.begin());
        }
        return best == row_size() ? no_token : row_token(best);
    }

private:
    [[nodiscard]] std::size_t row_size() const noexcept { return mapped_size() > 0 ? mapped_size() : size(); }
    [[nodiscard]] token_id row_token(std::size_t i) const noexcept {
        return mapped_size() > 0 ? mapped_token(i) : static_cast<token_id>(i);
    }
    void row_weights(std::size_t first, std::span<weight_type> out) const noexcept {
        if (mapped_size() > 0) return mapped_weights(first, out);
        evaluate(static_cast<token_id>(first), out);
    }
    [[nodiscard]] auto weights_of_row() const noexcept {
        return [this](std::size_t first, std::span<weight_type> out) { row_weights(first, out); };
    }
    // A total of doubles is as good as a sum of what is left, unless that is less than a millionth. Else the sum:
    // blocks without a child have theirs already.
    [[nodiscard]] double sum_left() const noexcept {
        if (drawn_.empty()) return q_.total();
        double left = q_.total();
        for (Child const& c : drawn_) left -= static_cast<double>(q_[token_of(c)]);
        if (q_.total() * q_.rounding() <= left * rounding) return left;
        std::span<double const> const sums = q_.block_sums();
        double sum = 0.0;
        for (std::size_t first = 0; first < row_size(); first += row_block) {
            std::size_t const end = std::min(first + row_block, row_size());
            auto const is_here = [&](Child const& c) { return q_.place(token_of(c)) - first < end - first; };
            bool const is_whole = !sums.empty() && std::none_of(drawn_.begin(), drawn_.end(), is_here);
            sum += is_whole ? sums[first / row_block] : detail::sum_of_part<weight_type>(first, end, weights_of_row());
        }
        return sum;
    }

    Q const& q_;
    std::span<Child const> drawn_;
    double total_;
};
template <class Q>
undrawn(Q const&, std::span<token_id const>) -> undrawn<Q>;

/// How often a further child is drawn from q, in which its elders are, before a pass leaves them out.
inline constexpr std::uint32_t undrawn_proposals = 16;

/// A token drawn from `weights`. Where the row has blocks, from q until it is no elder child: q finds a token without a
/// pass. Uses the keys `key` and those whose index is 2^16, 2 2^16, ... 15 2^16 larger.
template <class Q, class Rng>
[[nodiscard]] token_id draw_undrawn(undrawn<Q> const& weights, draw_key const& key, Rng& rng) {
    draw_key named = key;
    if (weights.size() > row_block) {
        for (std::uint32_t i = 0; i + 1 < undrawn_proposals; ++i) {
            token_id const x = rng.categorical(named, weights.all());
            if (x == no_token || !weights.is_drawn(x)) return x;
            named.index = key.index | (i + 1) << 16;
        }
    }
    return rng.categorical(named, weights);
}

SURELEAP_END_NAMESPACE
