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
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/config.hpp>
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
    noise_tail = 6,  ///< further bits of `noise` where 32 do not suffice; same position and index
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

/// Philox4x32-10: 128 random bits for a 128-bit counter and a 64-bit key (Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011). A pure function, hence the same on every platform.
[[nodiscard]] SURELEAP_HOST_DEVICE inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                                  std::uint64_t key) noexcept {
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        std::uint64_t const product0 = std::uint64_t{0xD2511F53u} * counter[0];
        std::uint64_t const product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
                   static_cast<std::uint32_t>(product0)};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/// 128 bits of a key. `lane` numbers the blocks of one key (four tokens each in a race).
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

/// The exponential E_v ~ Exp(1) that `key` owns for token v, given its 32 bits. Small E decide who wins a race; where
/// E is below 2^-16 another 32 bits refine it: a token of probability 1e-15 still wins with that probability, which 32
/// bits alone (E = 0 or E > 1e-10) could not give.
[[nodiscard]] inline double exponential(draw_key const& key, std::uint32_t v, std::uint32_t bits) noexcept {
    double tail = 0.5;
    if (bits < 0x10000u) {
        draw_key more = key;
        more.use = purpose::noise_tail;
        tail = (static_cast<double>(random_bits(more, v / 4)[v % 4]) + 0.5) * 0x1p-32;
    }
    return -std::log1p(-(static_cast<double>(bits) + tail) * 0x1p-32);
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

template <class Real>
using stretch = std::array<Real, 256>;

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
/// categorical has a resolution of 2^-53. A race costs one Philox call for four tokens and one logarithm a token.
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
    template <class Weights>
    [[nodiscard]] token_id race(draw_key const& key, Weights const& weights) const noexcept {
        token_id winner = no_token;
        double best = std::numeric_limits<double>::infinity();
        std::array<std::uint32_t, 4> bits{};
        auto const enter = [&](token_id v, double weight) {
            auto const lane = static_cast<std::uint32_t>(v);
            if (lane % 4 == 0) bits = random_bits(key, lane / 4);
            if (!(weight > 0.0)) return;
            double const arrival = exponential(key, lane, bits[lane % 4]) / weight;
            if (arrival < best) {
                best = arrival;
                winner = v;
            }
        };
        std::size_t const size = weights.size();
        if constexpr (detail::evaluated_in_stretches<Weights>) {
            detail::stretch<typename Weights::weight_type> some;
            for (std::size_t first = 0; first < size; first += some.size()) {
                auto const here = std::span(some).first(std::min(some.size(), size - first));
                weights.evaluate(static_cast<token_id>(first), here);
                for (std::size_t i = 0; i < here.size(); ++i) {
                    enter(static_cast<token_id>(first + i), static_cast<double>(here[i]));
                }
            }
        } else {
            for (std::size_t v = 0; v < size; ++v) {
                enter(static_cast<token_id>(v), static_cast<double>(weights[static_cast<token_id>(v)]));
            }
        }
        return winner;
    }
};

SURELEAP_END_NAMESPACE
