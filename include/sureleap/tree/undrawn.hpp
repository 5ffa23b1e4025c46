// SPDX-License-Identifier: MIT
//
// What a further child of a node is drawn from: q without the tokens of its elder siblings.
//
//     q_j(v) = q(v) / sum of q over tokens that are no elder child; 0 for elder children
//
// It is no row: numbers are computed from q and the list of those tokens.
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

/// q without the tokens of children that are there already: what the next one is drawn from. A weight function in units of
/// q's weights.
template <class Q>
class undrawn {
public:
    using weight_type = typename Q::weight_type;

    undrawn(Q const& q, std::span<token_id const> drawn) noexcept : q_(q), drawn_(drawn), total_(q.total()) {
        for (token_id const x : drawn) total_ -= static_cast<double>(q[x]);
    }
    [[nodiscard]] std::size_t size() const noexcept { return q_.size(); }
    [[nodiscard]] weight_type operator[](token_id v) const noexcept { return is_drawn(v) ? weight_type(0) : q_[v]; }
    [[nodiscard]] double total() const noexcept { return total_; }
    [[nodiscard]] Q const& all() const noexcept { return q_; }
    [[nodiscard]] bool is_drawn(token_id v) const noexcept {
        return std::find(drawn_.begin(), drawn_.end(), v) != drawn_.end();
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`.
    void evaluate(token_id first, std::span<weight_type> out) const noexcept {
        q_.evaluate(first, out);
        for (token_id const x : drawn_) {
            auto const at = static_cast<std::size_t>(x - first);  // in front of `first` it becomes large
            if (at < out.size()) out[at] = weight_type(0);
        }
    }
    /// The same of a row over a part of the vocabulary (distribution::mapped_size).
    [[nodiscard]] std::size_t mapped_size() const noexcept { return q_.mapped_size(); }
    [[nodiscard]] token_id mapped_token(std::size_t i) const noexcept { return q_.mapped_token(i); }
    void mapped_weights(std::size_t first, std::span<weight_type> out) const noexcept {
        q_.mapped_weights(first, out);
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (is_drawn(q_.mapped_token(first + i))) out[i] = weight_type(0);
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
    /// The first token in the order of the row whose cumulative weight exceeds u * total(). O(size).
    [[nodiscard]] token_id quantile(double u) const noexcept {
        std::size_t const i = detail::find_weight<weight_type>(
            {0, 0.0}, row_size(), detail::block_sums_are::exact, u * total_,
            [this](std::size_t first, std::span<weight_type> out) { row_weights(first, out); });
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

    Q const& q_;
    std::span<token_id const> drawn_;
    double total_;
};

/// How often a further child is drawn from q, in which its elders are, before a pass leaves them out.
inline constexpr std::uint32_t undrawn_proposals = 16;

/// A token drawn from `weights`. Where the row has blocks, from q until it is no elder child: q finds a token without a pass.
/// Uses the keys `key` and those whose index is 2^16, 2 2^16, ... 15 2^16 larger.
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
