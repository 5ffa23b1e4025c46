// SPDX-License-Identifier: MIT
//
// The source of randomness. Components ask for a Bernoulli, a categorical or a Gumbel-max draw, and name it with a key
// (draw_key.hpp). They never see bits.
#pragma once

#include <concepts>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/gumbel_max.hpp>
#include <sureleap/sampling/interval.hpp>

SURELEAP_BEGIN_NAMESPACE

// ---- leaf decisions --------------------------------------------------------------------------------------------

/// True with probability min(1, num/den), without a division. u = 0 accepts only if num > 0: `u * den <= num` would
/// accept tokens of probability 0.
[[nodiscard]] SURELEAP_HOST_DEVICE inline bool accepts(double u, double num, double den) noexcept {
    return u * den < num;
}

namespace detail {

/// Weights that find a token by its share of the total themselves: quantile(u) is the first token, in an order of their
/// own, whose cumulative weight exceeds u * total; never one of weight zero.
template <class Weights>
concept has_quantile = requires(Weights const& weights, double u) { weights.quantile(u); };

}  // namespace detail

/// First index whose cumulative weight exceeds u * total, in the order of the index or of the weights' own quantile().
/// Zero weights are never chosen, not even at u = 0; if rounding runs past the end of sums in double, the last positive
/// weight is. O(size), or what quantile() takes.
template <class Weights>
[[nodiscard]] token_id inverse_cdf(Weights const& weights, double u) noexcept {
    if constexpr (detail::has_quantile<Weights>) return weights.quantile(u);
    double const threshold = u * static_cast<double>(weights.total());
    double cumulative = 0.0;
    token_id last = no_token;
    auto const size = static_cast<token_id>(weights.size());
    for (token_id v = 0; v < size; ++v) {
        auto const weight = static_cast<double>(weights[v]);
        if (!(weight > 0.0)) continue;
        cumulative += weight;
        last = v;
        if (cumulative > threshold) break;
    }
    return last;
}

/// True with probability min(1, the odds). `known()` tells what is known of them, an odds_interval, and `refine()`
/// brings that closer. A source that can use bounds stops as soon as they decide; another one is told the odds
/// themselves.
template <class Rng, class Known, class Refine>
[[nodiscard]] bool decide(Rng& rng, draw_key const& key, Known&& known, Refine&& refine) {
    if constexpr (requires { rng.bernoulli(key, known, refine); }) {
        return rng.bernoulli(key, known, refine);
    } else {
        odds_interval at = known();
        for (; !at.exact(); at = known()) refine();
        return rng.bernoulli(key, at.low.num, at.low.den);
    }
}

// ---- the production source -------------------------------------------------------------------------------------

/// Every draw is a pure function of its key. Stateless, so concurrently usable. categorical has a resolution of 2^-53.
/// Tokens keep their probabilities up to the rounding of sums in double, also where a row was summed in float
/// (distribution::quantile). So a token of probability 1e-12 is drawn that often. A race resolves 2^-52 of each token's
/// own time.
class philox_randomness {
public:
    static constexpr bool is_concurrent = true;  ///< see concurrent_randomness

    /// True with probability min(1, num/den); den > 0, num >= 0.
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const noexcept {
        return accepts(uniform(key), num, den);
    }
    /// The same of odds that are refined until they decide (decide). NaN decides against.
    template <std::invocable Known, std::invocable Refine>
    [[nodiscard]] bool bernoulli(draw_key const& key, Known&& known, Refine&& refine) const noexcept {
        double const u = uniform(key);
        for (;; refine()) {
            odds_interval const at = known();
            if (accepts(u, at.low.num, at.low.den)) return true;
            if (!accepts(u, at.high.num, at.high.den)) return false;
        }
    }
    /// Index v with probability weights[v] / weights.total().
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const noexcept {
        return inverse_cdf(weights, uniform(key));
    }
    /// argmin over v of E_v / weights[v], with E_v ~ Exp(1) owned by (key, v): index v with probability
    /// weights[v] / total, and the same E for every weights asked with this key; two similar weightings mostly get the
    /// same winner. `likely` is a guess of the winner that does not change it.
    template <class Weights>
    [[nodiscard]] token_id gumbel_max(draw_key const& key, Weights const& weights,
                                      token_id likely = no_token) const noexcept {
        return sureleap::gumbel_max(key, weights, likely);
    }
};

namespace detail {
/// Answers a draw with a token that was drawn elsewhere, and with none from a law in which nobody draws it.
struct given_token {
    token_id token;
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const&, Weights const& weights) const noexcept {
        return static_cast<double>(weights[token]) > 0.0 ? token : no_token;
    }
};
}  // namespace detail

SURELEAP_END_NAMESPACE
