// SPDX-License-Identifier: MIT
//
// Decisions about a law of which only bounds of the sums are known (totals::bounded). Most of them fall either way
// whatever the sum is; the others make it known. Nothing of the law depends on the bounds: a decision is the one that the
// sum would have brought about, and a draw that falls between a bound and what it bounds is drawn again.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a number is at least and at most.
struct bounds {
    double low;
    double high;
};

/// `p` with its total known. A law that is const is left as it is: total() is always right, and at worst a pass.
template <class P>
P& settled(P& p) noexcept {
    if constexpr (requires { p.settle(); }) p.settle();
    return p;
}

/// `p` with bounds of its total that are closer.
template <class P>
void narrow(P& p) noexcept {
    if constexpr (requires { p.narrow(); }) {
        p.narrow();
    } else {
        static_cast<void>(settled(p));
    }
}

/// Bounds of p's total. A law that is const cannot be settled: then it is a pass, once for each call.
template <class P>
[[nodiscard]] bounds total_of(P& p) noexcept {
    if constexpr (requires { p.settle(); }) {
        return {p.least_total(), p.largest_total()};
    } else {
        double const sum = p.total();
        return {sum, sum};
    }
}

/// `p` as its own row says, whatever that brought along.
template <class P>
P& recounted(P& p) noexcept {
    if constexpr (requires { p.recount(); }) p.recount();
    return settled(p);
}

/// `p` ready to be drawn from: block sums that its row brought are added up.
template <class P>
void add_up(P& p) noexcept {
    if constexpr (requires { p.add_up(); }) p.add_up();
}

/// What `p` makes of a draw that missed.
template <class P>
void doubt(P& p) noexcept {
    if constexpr (requires { p.doubt(); }) p.doubt();
}

/// The weight of x. One that cannot be, by what the row brought, shows that it is wrong.
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

/// The winner of the race of `key` over p, whatever is known of its sum; no_token if p is no law. `likely` is a guess.
template <class P, class Rng>
[[nodiscard]] token_id race(P& p, draw_key const& key, token_id likely, Rng& rng) {
    if constexpr (requires { rng.race(key, p, likely); }) {
        // The winner passes over numbers that no sum would stand: no law perhaps, or one that needs another scale.
        if (p.can_list()) {
            if (token_id const y = rng.race(key, p, likely); y != no_token) return y;
        }
    }
    return recounted(p).valid() ? rng.race(key, p) : no_token;
}

/// How often `draw` draws before it makes the pass. A draw misses with probability 0.06 at most.
inline constexpr std::uint32_t draws_by_bounds = 7;

/// A token of law p. Takes the keys of `key` and of 2^16, 2 2^16 ... 7 2^16 more in its index.
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
