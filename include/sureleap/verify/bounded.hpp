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
#include <sureleap/sampling/interval.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE

// What a distribution knows of its total (sampling/distribution.hpp). One that is const, or of another kind, knows its
// total alone, which may take a pass for each call.

/// Makes p's total known and returns p.
template <class P>
P& settled(P& p) noexcept {
    if constexpr (requires { p.settle(); }) p.settle();
    return p;
}
/// Where p's total lies.
template <class P>
[[nodiscard]] interval mass_of(P& p) noexcept {
    if constexpr (requires { p.refine(); }) {
        return p.mass();
    } else {
        double const sum = p.total();
        return {sum, sum};
    }
}
/// Brings that closer.
template <class P>
void refine(P& p) noexcept {
    if constexpr (requires { p.refine(); }) p.refine();
}
/// Before a draw: what the row brought is added up.
template <class P>
void add_up(P& p) noexcept {
    if constexpr (requires { p.add_up(); }) p.add_up();
}
/// After a draw that missed: what the row brought may be wrong, and then there is no law.
template <class P>
void distrust(P& p) noexcept {
    if constexpr (requires { p.distrust(); }) p.distrust();
}
/// p[x]. If it exceeds the sum that the row brought, that sum is wrong.
template <class P>
[[nodiscard]] double weight_of(P& p, token_id x) noexcept {
    auto const weight = static_cast<double>(p[x]);
    if constexpr (requires { p.distrust(); }) {
        if (p.doubts(weight)) p.distrust();
    }
    return weight;
}

/// True with probability min(1, p(x) / q(x)); q(x) > 0.
template <class P, class Q, class Rng>
[[nodiscard]] bool keeps(P& p, Q const& q, token_id x, draw_key const& key, Rng& rng) {
    double const drafted = q.probability(x);
    auto const known = [&]() -> odds_interval {
        double const weight = weight_of(p, x);
        interval const mass = mass_of(p);
        if (mass.exact()) return odds_interval::of({p.probability(x), drafted});
        return {{weight, drafted * mass.high}, {weight, drafted * mass.low}};
    };
    return decide(rng, key, known, [&] { refine(p); });
}

/// The winner of the race of `key` over p; no_token if p is invalid. Needs no sum of p. `likely` is a guess of the
/// winner, which makes the race shorter and does not change its outcome.
template <class P, class Rng>
[[nodiscard]] token_id gumbel_max(P& p, draw_key const& key, token_id likely, Rng& rng) {
    if constexpr (requires { rng.gumbel_max(key, p, likely); }) {
        // Without a winner p is invalid, or its logits need another reference: the pass below says which.
        if (p.can_list()) {
            if (token_id const y = rng.gumbel_max(key, p, likely); y != no_token) return y;
        }
    }
    distrust(p);
    return settled(p).valid() ? rng.gumbel_max(key, p) : no_token;
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
        distrust(p);
    }
    return rng.categorical(named, settled(p));
}

SURELEAP_END_NAMESPACE
