// SPDX-License-Identifier: MIT
//
// Randomness by meaning. Components ask for a Bernoulli, a categorical draw or a race, and name the draw with a key;
// they never see bits. The same key gives the same outcome, so a draw is reproducible without carrying state, and the
// tests can own every outcome.
//
// Keys never repeat (see purpose): rules that sample name their draws by the anchor's position, which moves in every
// round. Naming them by absolute position is biased: a position that is drafted again would see the same draw after
// decisions that depended on it. Only `noise` is keyed by absolute position, and only rules whose output is a function
// of the target row and that noise may use it. The request id is no part of a key.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/config.hpp>
#include <sureleap/kernel/philox.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a draw is for; part of its key, so that no two decisions ever share a draw.
enum class purpose : std::uint32_t {
    anchor = 0,      ///< of training, no draw of a round: may a position be an anchor?; visit of a sequence, lane t
    draft = 1,       ///< x_k ~ q_k; anchor position, index k
    accept = 2,      ///< keep x_k?; anchor position, index k
    residual = 3,    ///< the correction after the first rejection; anchor position, index = accepted tokens
    bonus = 4,       ///< the extra token after a fully accepted block; anchor position, index = accepted tokens
    noise = 5,       ///< the target's own token; ABSOLUTE position of that token, index 0
    noise_tail = 6,  ///< further bits of `noise`, of which a race takes 16 a token first; same position and index
    proposal = 7,  ///< y ~ p that may become the correction; anchor position, index = accepted tokens + 2^16 * attempt
    proposal_accept = 8,  ///< does it?; the same
};

/// Name of one draw.
struct draw_key {
    std::uint64_t seed = 0;
    std::uint64_t position = 0;
    std::uint32_t index = 0;  ///< below 2^24
    purpose use = purpose::draft;

    [[nodiscard]] bool operator==(draw_key const&) const = default;
};

/// Key of a draw that belongs to a block: (seed, anchor position, k, purpose).
[[nodiscard]] inline draw_key block_key(request_view const& request, std::size_t k, purpose use) noexcept {
    return {request.seed, request.position, static_cast<std::uint32_t>(k), use};
}
/// Key of the noise that chooses the token at position k of the block: (seed, absolute position).
[[nodiscard]] inline draw_key noise_key(request_view const& request, std::size_t k) noexcept {
    return {request.seed, request.position + 1 + k, 0, purpose::noise};
}

// ---- Philox ----------------------------------------------------------------------------------------------------

/// 128 bits of a key. `lane` numbers the blocks of one key.
[[nodiscard]] SURELEAP_HOST_DEVICE inline std::array<std::uint32_t, 4> random_bits(draw_key const& key,
                                                                                   std::uint32_t lane) noexcept {
    return philox4x32({lane, (key.index << 8) | static_cast<std::uint32_t>(key.use),
                       static_cast<std::uint32_t>(key.position), static_cast<std::uint32_t>(key.position >> 32)},
                      key.seed);
}

/// Uniform on [0, 1), a multiple of 2^-53.
[[nodiscard]] SURELEAP_HOST_DEVICE inline double uniform(draw_key const& key) noexcept {
    auto const bits = random_bits(key, 0);
    return static_cast<double>(((std::uint64_t{bits[0]} << 32) | bits[1]) >> 11) * 0x1p-53;
}

/// What a race under `key` shares out among tokens.
[[nodiscard]] inline race_noise noise_of(draw_key const& key) noexcept {
    return {key.seed,
            {(key.index << 8) | static_cast<std::uint32_t>(key.use), static_cast<std::uint32_t>(key.position),
             static_cast<std::uint32_t>(key.position >> 32)}};
}

/// The exponential E_v ~ Exp(1) that `key` owns for token v, given the 16 bits of race_bits. E = -log(1 - u), and u has 52
/// bits more from `noise_tail`: a token of probability 1e-15 still wins a race with that probability.
[[nodiscard]] inline double exponential(draw_key const& key, std::uint32_t v, std::uint16_t bits) noexcept {
    draw_key more = key;
    more.use = purpose::noise_tail;
    auto const words = random_bits(more, v / 2);
    std::size_t const half = 2 * (v % 2);
    std::uint64_t const tail = ((std::uint64_t{words[half]} << 32) | words[half + 1]) >> 12;
    double const fraction = (static_cast<double>(tail) + 0.5) * 0x1p-52;
    return -std::log1p(-(static_cast<double>(bits) + fraction) * 0x1p-16);
}

// ---- leaf decisions --------------------------------------------------------------------------------------------

/// True with probability min(1, num/den), without a division. u = 0 accepts only if num > 0: `u * den <= num` would
/// accept tokens of probability 0.
[[nodiscard]] SURELEAP_HOST_DEVICE inline bool accepts(double u, double num, double den) noexcept {
    return u * den < num;
}

namespace detail {

/// Weights that find the token of a cumulative weight themselves: quantile(threshold) is the first token, in an order of
/// their own, whose cumulative weight exceeds the threshold; never one of weight zero.
template <class Weights>
concept has_quantile = requires(Weights const& weights, double threshold) { weights.quantile(threshold); };

/// Weights that are evaluated many at a time: evaluate(v, out) writes those of v, v + 1 ..., with the values that they
/// have one at a time.
template <class Weights>
concept evaluated_in_stretches = requires(Weights const& weights, token_id v,
                                          std::span<typename Weights::weight_type> out) { weights.evaluate(v, out); };

/// Weights that know which tokens may still win a race: contenders(noise, first, count, best, out) writes those of the
/// tokens first .. first + count - 1 whose arrival may be before `best`, and returns how many; it leaves none out.
template <class Weights>
concept lists_contenders = requires(Weights const& weights, race_noise const& noise, std::uint32_t* out) {
    { weights.can_list_contenders() } -> std::convertible_to<bool>;
    { weights.contenders(noise, std::uint32_t{}, std::size_t{}, 0.0, out) } -> std::convertible_to<std::size_t>;
};

template <class Real>
using stretch = std::array<Real, 256>;

/// Who is ahead in a race, over tokens in any order.
class race_leader {
public:
    explicit race_leader(draw_key const& key) noexcept : key_(key), noise_(noise_of(key)) {}

    [[nodiscard]] race_noise const& noise() const noexcept { return noise_; }
    [[nodiscard]] double best() const noexcept { return best_; }
    [[nodiscard]] token_id winner() const noexcept { return winner_; }

    /// Tokens first .. end - 1, of one group.
    template <class Weights>
    void meet(Weights const& weights, std::size_t first, std::size_t end) noexcept {
        std::array<std::uint16_t, race_group> bits;
        race_bits(noise_, static_cast<std::uint32_t>(first / race_group), bits);
        if constexpr (evaluated_in_stretches<Weights>) {
            std::array<typename Weights::weight_type, race_group> some;
            auto const here = std::span(some).first(end - first);
            weights.evaluate(static_cast<token_id>(first), here);
            for (std::size_t v = first; v < end; ++v) {
                enter(v, bits[v % race_group], static_cast<double>(here[v - first]));
            }
        } else {
            for (std::size_t v = first; v < end; ++v) {
                enter(v, bits[v % race_group], static_cast<double>(weights[static_cast<token_id>(v)]));
            }
        }
    }
    /// Token v alone.
    template <class Weights>
    void meet(Weights const& weights, std::uint32_t v) noexcept {
        enter(v, race_bits(noise_, v), static_cast<double>(weights[static_cast<token_id>(v)]));
    }

private:
    void enter(std::size_t v, std::uint16_t bits, double weight) noexcept {
        if (!(weight > 0.0) || !(static_cast<double>(bits) * 0x1p-16 < best_ * weight)) return;
        double const arrival = exponential(key_, static_cast<std::uint32_t>(v), bits) / weight;
        if (!(arrival < best_)) return;
        best_ = arrival;
        winner_ = static_cast<token_id>(v);
    }

    draw_key key_;
    race_noise noise_;
    double best_ = std::numeric_limits<double>::infinity();
    token_id winner_ = no_token;
};

}  // namespace detail

/// First index whose cumulative weight exceeds u * total, in the order of the index or of the weights' own quantile().
/// Zero weights are never chosen, not even at u = 0; if rounding runs past the end, the last positive weight is. O(size),
/// or what quantile() takes.
template <class Weights>
[[nodiscard]] token_id inverse_cdf(Weights const& weights, double u) noexcept {
    double const threshold = u * static_cast<double>(weights.total());
    if constexpr (detail::has_quantile<Weights>) return weights.quantile(threshold);
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

// ---- the production source -------------------------------------------------------------------------------------

/// Every draw is a pure function of its key. Stateless, so concurrently usable.
///
/// categorical has a resolution of 2^-53. A race costs a call of Philox for eight tokens and a logarithm for some twenty
/// tokens of a row.
class philox_randomness {
public:
    /// True with probability min(1, num/den); den > 0, num >= 0.
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const noexcept {
        return accepts(uniform(key), num, den);
    }
    /// Index v with probability weights[v] / weights.total().
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const noexcept {
        return inverse_cdf(weights, uniform(key));
    }
    /// argmin over v of E_v / weights[v], with E_v ~ Exp(1) owned by (key, v): index v with probability
    /// weights[v] / total, and the same E for every weights asked with this key. It is the Gumbel-max trick written
    /// without logarithms of the weights; two similar weightings mostly get the same winner.
    ///
    /// Nothing is approximated: E >= u, so a token whose first bits say u >= best * weight cannot win any more, and of
    /// all others E is computed in full.
    template <class Weights>
    [[nodiscard]] token_id race(draw_key const& key, Weights const& weights) const noexcept {
        detail::race_leader leader{key};
        std::size_t const size = weights.size();
        std::size_t first = 0;
        // One group alone, so that there is a time to beat. Then those are looked at that may beat it.
        if constexpr (detail::lists_contenders<Weights>) {
            if (weights.can_list_contenders()) {
                leader.meet(weights, 0, std::min(size, race_group));
                std::array<std::uint32_t, 1024> some;
                for (first = race_group; first < size;) {
                    std::size_t const count = std::min(some.size(), size - first);
                    std::size_t const listed = weights.contenders(leader.noise(), static_cast<std::uint32_t>(first),
                                                                  count, leader.best(), some.data());
                    for (std::size_t i = 0; i < listed; ++i) leader.meet(weights, some[i]);
                    first += count;
                }
                return leader.winner();
            }
        }
        for (; first < size; first += race_group) leader.meet(weights, first, std::min(size, first + race_group));
        return leader.winner();
    }
};

SURELEAP_END_NAMESPACE
