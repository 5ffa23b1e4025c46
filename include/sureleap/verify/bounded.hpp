// SPDX-License-Identifier: MIT
//
// Acceptance tests and draws that need the total of a target row, made from bounds of that total where they suffice
// (totals::bounded). Bounds cost half a pass over the row.
//
// An acceptance test mostly has the same outcome at both ends of the bounds. Where it has not, the total is computed.
// So every outcome is the one that the total gives. A draw by the upper bound may fall beyond the weights. It is then
// made again under another key, so tokens keep their probabilities.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A number is at least `low` and at most `high`.
struct bounds {
    double low;
    double high;
};

/// Makes p's total known and returns p. A const distribution stays as it is: total() then makes a pass for each call.
template <class P>
P& settled(P& p) noexcept {
    if constexpr (requires { p.settle(); }) p.settle();
    return p;
}

/// Brings the bounds of p's total closer.
template <class P>
void narrow(P& p) noexcept {
    if constexpr (requires { p.narrow(); }) {
        p.narrow();
    } else {
        static_cast<void>(settled(p));
    }
}

/// Bounds of p's total. Of a const distribution, which keeps none, the total itself: a pass for each call.
template <class P>
[[nodiscard]] bounds total_of(P& p) noexcept {
    if constexpr (requires { p.settle(); }) {
        return {p.least_total(), p.largest_total()};
    } else {
        double const sum = p.total();
        return {sum, sum};
    }
}

/// Settles p by a pass over its row. What the row brought along (a normaliser, block sums) is no longer used.
template <class P>
P& recounted(P& p) noexcept {
    if constexpr (requires { p.recount(); }) p.recount();
    return settled(p);
}

/// Before a draw: adds up the block sums that p's row brought, which gives the total. Nothing for other rows.
template <class P>
void add_up(P& p) noexcept {
    if constexpr (requires { p.add_up(); }) p.add_up();
}

/// After a draw that missed: sums that the row brought may be wrong, so they are made again.
template <class P>
void doubt(P& p) noexcept {
    if constexpr (requires { p.doubt(); }) p.doubt();
}

/// p[x]. If it exceeds the sum that the row brought, that sum is wrong: it is made again, and p[x] read again.
template <class P>
[[nodiscard]] double weight_of(P& p, token_id x) noexcept {
    auto const weight = static_cast<double>(p[x]);
    if constexpr (requires { p.recount(); }) {
        if (p.doubts(weight)) {
            p.recount();
            return static_cast<double>(p[x]);
        }
    }
    return weight;
}

/// The claim (decide) that is true with probability min(1, p(x) / q(x)); q(x) > 0.
template <class P, class Q>
class keep_claim {
public:
    keep_claim(P& p, Q const& q, token_id x) noexcept
        : p_(p), x_(x), weight_(weight_of(p, x)), drafted_(q.probability(x)) {}

    [[nodiscard]] odds low() const noexcept { return at(total_of(p_).high); }
    [[nodiscard]] odds high() const noexcept { return at(total_of(p_).low); }
    [[nodiscard]] bool open() const noexcept { return total_of(p_).low != total_of(p_).high; }
    void narrow() noexcept { sureleap::narrow(p_); }

private:
    [[nodiscard]] odds at(double total) const noexcept {
        return open() ? odds{weight_, drafted_ * total} : odds{p_.probability(x_), drafted_};
    }

    P& p_;
    token_id x_;
    double weight_;
    double drafted_;
};

/// True with probability min(1, p(x) / q(x)); q(x) > 0.
template <class P, class Q, class Rng>
[[nodiscard]] bool keeps(P& p, Q const& q, token_id x, draw_key const& key, Rng& rng) {
    return decide(rng, key, keep_claim{p, q, x});
}

/// The winner of the race of `key` over p; no_token if p is invalid. Needs no sum of p. `likely` is a guess of the winner,
/// which makes the race shorter and does not change its outcome.
template <class P, class Rng>
[[nodiscard]] token_id gumbel_max(P& p, draw_key const& key, token_id likely, Rng& rng) {
    if constexpr (requires { rng.gumbel_max(key, p, likely); }) {
        // Without a winner p is invalid, or its logits need another reference: the pass below says which.
        if (p.can_list()) {
            if (token_id const y = rng.gumbel_max(key, p, likely); y != no_token) return y;
        }
    }
    return recounted(p).valid() ? rng.gumbel_max(key, p) : no_token;
}

/// How often `draw` draws by bounds before it makes the sum. Each misses with probability 0.06 at most.
inline constexpr std::uint32_t draws_by_bounds = 7;

/// A token drawn from p. Uses the keys `key` and those whose index is 2^16, 2 2^16, ... 7 2^16 larger.
template <class P, class Rng>
[[nodiscard]] token_id draw(P& p, draw_key const& key, Rng& rng) {
    draw_key named = key;
    add_up(p);
    for (std::uint32_t i = 0; !p.is_settled() && i < draws_by_bounds; ++i) {
        if (token_id const y = rng.categorical(named, p); y != no_token) return y;
        named.index = key.index | (i + 1) << 16;
        doubt(p);
    }
    return rng.categorical(named, settled(p));
}

SURELEAP_END_NAMESPACE
