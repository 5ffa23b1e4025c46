// SPDX-License-Identifier: MIT
//
// Decisions about a law of which only bounds of the sums are known (totals::bounded). Most of them fall either way
// whatever the sum is; the others make it known. Nothing of the law depends on the bounds: a decision is the one that the
// sum would have brought about, and a draw that falls between a bound and what it bounds is drawn again.
#pragma once

#include <cstdint>

#include <sureleap/config.hpp>
#include <sureleap/distribution.hpp>
#include <sureleap/random.hpp>

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

/// True with probability min(1, p(x) / q(x)); q(x) > 0.
template <class P, class Q, class Rng>
[[nodiscard]] bool keeps(P& p, Q const& q, token_id x, draw_key const& key, Rng& rng) {
    auto const weight = static_cast<double>(p[x]);
    double const drafted = q.probability(x);
    return decide(rng, key, {weight, drafted * p.largest_total()}, {weight, drafted * p.least_total()},
                  [&] { return odds{settled(p).probability(x), drafted}; });
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
    return settled(p).valid() ? rng.race(key, p) : no_token;
}

/// How often `draw` draws before it makes the pass. A draw misses with probability 0.06 at most.
inline constexpr std::uint32_t draws_by_bounds = 7;

/// A token of law p. Takes the keys of `key` and of 2^16, 2 2^16 ... 7 2^16 more in its index.
template <class P, class Rng>
[[nodiscard]] token_id draw(P& p, draw_key const& key, Rng& rng) {
    draw_key named = key;
    for (std::uint32_t i = 0; !p.is_settled() && i < draws_by_bounds; ++i) {
        named.index = key.index | i << 16;
        if (token_id const y = rng.categorical(named, p); y != no_token) return y;
    }
    if (!p.is_settled()) named.index = key.index | draws_by_bounds << 16;
    return rng.categorical(named, settled(p));
}

SURELEAP_END_NAMESPACE
