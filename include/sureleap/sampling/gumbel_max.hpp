// SPDX-License-Identifier: MIT
//
// Draws by a race of exponentials, the Gumbel-max trick without logarithms. Token v arrives at time E_v / w_v, where
// w_v is its weight and E_v ~ Exp(1) a number that a key owns. The first token wins. It is token v with probability w_v
// / sum w.
//
// The exponentials are made in groups of 128 tokens. First the smallest of the group, which is exponential with rate
// 128. Then its place, which is uniform among the 128. Then how much each of the others exceeds it, which is Exp(1)
// again and independent, since exponentials have no memory. These are 128 independent exponentials, exactly: only the
// order in which they are looked at is special. The smallest sets a weight that a token of the group needs to win,
// which costs one comparison a token. Rejected: one number for each token, which costs several times the reading of the
// row. Numbers of fewer bits cost less, but leave more tokens that need another one.
//
// The functions that make the exponentials are shared with the device (cuda/sampling/gumbel_max.cuh).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/detail/kernel/philox.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// An exponential -log(1 - u), of 52 random bits and a half: never 0, never infinite.
struct exponential_bits {
    double u;
    SURELEAP_HOST_DEVICE exponential_bits(std::uint32_t high, std::uint32_t low) noexcept
        : u((static_cast<double>(((std::uint64_t{high} << 32) | low) >> 12) + 0.5) * 0x1p-52) {}
    /// Not above value(), and near it where that is small.
    [[nodiscard]] SURELEAP_HOST_DEVICE double bound() const noexcept { return u; }
    [[nodiscard]] SURELEAP_HOST_DEVICE double value() const noexcept { return -std::log1p(-u); }
};

/// The smallest exponential of a group, and whose it is.
class group_noise {
public:
    /// Of the bits of lane group / 2, of which two groups have two words each.
    SURELEAP_HOST_DEVICE group_noise(std::uint32_t high, std::uint32_t low) noexcept
        : bits_(high, low), place_(low % static_cast<std::uint32_t>(row_group)) {}
    SURELEAP_HOST_DEVICE group_noise(key_bits const& bits, std::size_t group) noexcept
        : group_noise(half_of(bits, group)) {}
    SURELEAP_HOST_DEVICE group_noise(draw_key const& key, std::size_t group) noexcept
        : group_noise(key_bits{key, static_cast<std::uint32_t>(group / 2)}, group) {}

    [[nodiscard]] SURELEAP_HOST_DEVICE double bound() const noexcept {
        return bits_.bound() / static_cast<double>(row_group);
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE double smallest() const noexcept {
        return bits_.value() / static_cast<double>(row_group);
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE bool is_of(std::size_t v) const noexcept { return v % row_group == place_; }
    /// Whose it is, counted from the group's first token.
    [[nodiscard]] SURELEAP_HOST_DEVICE std::size_t place() const noexcept { return place_; }
    /// How far token v is above it.
    [[nodiscard]] static SURELEAP_HOST_DEVICE exponential_bits excess(draw_key const& key, std::size_t v) noexcept {
        draw_key more = key;
        more.use = purpose::excess;
        two_words const half = half_of(key_bits{more, static_cast<std::uint32_t>(v / 2)}, v);
        return {half.high, half.low};
    }

private:
    struct two_words {
        std::uint32_t high;
        std::uint32_t low;
    };
    // No index that is known at run time: it would put the words into memory where there are no others in it (CUDA).
    [[nodiscard]] static SURELEAP_HOST_DEVICE two_words half_of(key_bits const& bits, std::size_t which) noexcept {
        bool const second = which % 2 != 0;
        return {second ? bits.word[2] : bits.word[0], second ? bits.word[3] : bits.word[1]};
    }
    SURELEAP_HOST_DEVICE explicit group_noise(two_words const& both) noexcept : group_noise(both.high, both.low) {}

    exponential_bits bits_;
    std::uint32_t place_;  // of bits that u leaves
};

/// Weights that are evaluated many at a time: evaluate(v, out) writes those of v, v + 1 ..., with the values that they
/// have one at a time.
template <class Weights>
concept evaluated_in_segments = requires(Weights const& weights, token_id v,
                                         std::span<typename Weights::weight_type> out) { weights.evaluate(v, out); };

/// Weights that are searched many at a time, if can_list(): above(first, count, least, out) writes which of the row's
/// places first .. first + count - 1 may have more weight than the `least` of their 128, or a weight that is no number.
/// What is written counts from `first`, and none is left out. Place i is token i or, if mapped_size() is not 0,
/// mapped_token(i), and these ascend. likely() is a token that is likely to win, or no_token.
template <class Weights>
concept lists_heavy_tokens = requires(Weights const& weights, double const* least, std::uint32_t* out) {
    weights.can_list();
    weights.above(std::size_t{}, std::size_t{}, least, out);
    weights.likely();
};

/// Weights of a part of the tokens, if mapped_size() is not 0: so many, of mapped_token(0), mapped_token(1) ... in any
/// order. mapped_weights(i, out) writes those of mapped_token(i), mapped_token(i + 1) ..., with the values that they
/// have one at a time.
template <class Weights>
concept has_mapped_weights =
    requires(Weights const& weights, std::size_t i, std::span<typename Weights::weight_type> out) {
        { weights.mapped_size() } -> std::convertible_to<std::size_t>;
        { weights.mapped_token(i) } -> std::convertible_to<token_id>;
        weights.mapped_weights(i, out);
    };

/// So few tokens that the noise of each costs less than that of all groups: one for a block or less.
template <class Weights>
[[nodiscard]] bool is_short_list(Weights const& weights) noexcept {
    if constexpr (has_mapped_weights<Weights>) {
        return weights.mapped_size() > 0 && weights.mapped_size() <= weights.size() / row_block;
    } else {
        return false;
    }
}

/// Who is ahead, over tokens in any order.
class gumbel_search {
public:
    explicit gumbel_search(draw_key const& key) noexcept : key_(key) {}

    [[nodiscard]] token_id winner() const noexcept { return winner_; }
    /// Nobody wins who comes later than at this time.
    void know(double time) noexcept { best_ = time; }

    template <class Weights>
    void visit_all(Weights const& weights) noexcept {
        for (std::size_t first = 0; first < weights.size(); first += row_group) {
            std::size_t const end = std::min(first + row_group, weights.size());
            group_noise const noise{key_, first / row_group};
            if constexpr (evaluated_in_segments<Weights>) {
                std::array<typename Weights::weight_type, row_group> some;
                weights.evaluate(static_cast<token_id>(first), std::span(some).first(end - first));
                for (std::size_t v = first; v < end; ++v) visit(v, noise, static_cast<double>(some[v - first]));
            } else {
                for (std::size_t v = first; v < end; ++v) {
                    visit(v, noise, static_cast<double>(weights[static_cast<token_id>(v)]));
                }
            }
        }
    }
    /// The same winner: all other tokens have no weight.
    template <class Weights>
    void visit_mapped(Weights const& weights) noexcept {
        std::array<typename Weights::weight_type, row_group> some;
        std::size_t group = 0;
        group_noise noise{key_, group};
        for (std::size_t first = 0; first < weights.mapped_size(); first += row_group) {
            std::size_t const count = std::min(row_group, weights.mapped_size() - first);
            weights.mapped_weights(first, std::span(some).first(count));
            for (std::size_t i = 0; i < count; ++i) {
                auto const v = static_cast<std::size_t>(weights.mapped_token(first + i));
                if (v / row_group != group) {  // tokens mostly ascend, so that this is seldom
                    group = v / row_group;
                    noise = {key_, group};
                }
                visit(v, noise, static_cast<double>(some[i]));
            }
        }
    }
    /// The same winner again, where mapped tokens are few, each in a group of its own: the noise of eight tokens at a
    /// time. Most of them would need both their numbers one by one. A likely token first. False if a weight is no
    /// number, or of no use.
    template <class Weights>
    [[nodiscard]] bool visit_short(Weights const& weights, token_id likely) noexcept {
        if (likely != no_token && !visit_one(weights, static_cast<std::size_t>(likely))) return false;
        draw_key more = key_;
        more.use = purpose::excess;
        std::array<typename Weights::weight_type, philox_lanes> some;
        std::array<std::size_t, philox_lanes> tokens{};
        philox_bits of_groups, of_tokens;
        for (std::size_t first = 0; first < weights.mapped_size(); first += some.size()) {
            std::size_t const count = std::min(some.size(), weights.mapped_size() - first);
            weights.mapped_weights(first, std::span(some).first(count));
            for (std::size_t i = 0; i < count; ++i) {
                tokens[i] = static_cast<std::size_t>(weights.mapped_token(first + i));
            }
            make_bits(key_, tokens, 2 * row_group, of_groups);
            make_bits(more, tokens, 2, of_tokens);
            for (std::size_t i = 0; i < count; ++i) {
                auto const weight = static_cast<double>(some[i]);
                if (!(weight < too_large)) return false;
                std::size_t const g = tokens[i] / row_group % 2 * 2;
                std::size_t const t = tokens[i] % 2 * 2;
                visit(tokens[i], {of_groups[i][g], of_groups[i][g + 1]}, weight,
                      [&] { return exponential_bits{of_tokens[i][t], of_tokens[i][t + 1]}; });
            }
        }
        return true;
    }
    /// The same winner, of all tokens or the mapped ones. A likely one first, so that there is a time to beat; then
    /// those that may beat it. False if a weight is no number, or of no use as one.
    template <class Weights>
    [[nodiscard]] bool visit_some(Weights const& weights, token_id likely) noexcept {
        return visit_some(weights, likely, 0, weights.size());
    }
    /// Of the tokens from `begin`, which begins two groups, to `size`; mapped ones are among them.
    template <class Weights>
    [[nodiscard]] bool visit_some(Weights const& weights, token_id likely, std::size_t begin,
                                  std::size_t size) noexcept {
        SURELEAP_EXPECTS(begin % (2 * row_group) == 0);
        constexpr std::size_t groups = 2 * philox_lanes;
        places<Weights> const row{weights};
        if (likely != no_token && !visit_one(weights, static_cast<std::size_t>(likely))) return false;
        philox_bits bits;
        std::array<double, groups> least;
        std::array<std::uint32_t, groups * row_group> some;
        std::size_t place = 0;
        for (std::size_t first = begin; first < size; first += some.size()) {
            std::size_t const end = row.find(std::min(first + some.size(), size), place, some.size());
            std::size_t const group = first / row_group;
            auto const& [word] = key_counter(key_, static_cast<std::uint32_t>(group / 2));
            native_kernels<philox_kernels>().words(detail::philox_words_from(word[0]),
                                                   {word[0], word[1], word[2], word[3]}, key_.seed, bits);
            auto const noise = [&bits](std::size_t i) {
                return group_noise{bits[i / 2][2 * (i % 2)], bits[i / 2][2 * (i % 2) + 1]};
            };
            // Without a time to beat all would be looked at. The first of each group is likely to be early.
            bool const is_first = best_ == std::numeric_limits<double>::infinity();
            for (std::size_t i = 0; is_first && i < groups; ++i) {
                std::size_t const v = (group + i) * row_group + noise(i).place();
                if (v < size && !visit_one(weights, v, noise(i))) return false;
            }
            double const rate = (1.0 - 1e-12) / best_;  // rounding leaves none out either
            std::array<double, groups> bounds;
            for (std::size_t i = 0; i < groups; ++i) bounds[i] = noise(i).bound() * rate;
            // The tokens at 128 places of a mapped row are of several groups.
            for (std::size_t at = place, i = 0; at < end; at += row_group, ++i) {
                std::size_t const first_group = row.token(at) / row_group - group;
                std::size_t const last_group = row.token(std::min(at + row_group, end) - 1) / row_group - group;
                least[i] = *std::min_element(bounds.begin() + static_cast<std::ptrdiff_t>(first_group),
                                             bounds.begin() + static_cast<std::ptrdiff_t>(last_group) + 1);
            }
            std::size_t const listed = place < end ? weights.above(place, end - place, least.data(), some.data()) : 0;
            for (std::size_t i = 0; i < listed; ++i) {
                std::size_t const v = row.token(place + some[i]);
                if (!visit_one(weights, v, noise(v / row_group - group))) return false;
            }
            place = end;
        }
        return true;
    }

private:
    static constexpr double too_large = 1e30;  // as a weight

    template <class Weights>
    [[nodiscard]] bool visit_one(Weights const& weights, std::size_t v, group_noise const& noise) noexcept {
        auto const weight = static_cast<double>(weights[static_cast<token_id>(v)]);
        if (!(weight < too_large)) return false;
        visit(v, noise, weight);
        return true;
    }
    template <class Weights>
    [[nodiscard]] bool visit_one(Weights const& weights, std::size_t v) noexcept {
        return visit_one(weights, v, {key_, v / row_group});
    }
    // Of lanes tokens[i] / each.
    static void make_bits(draw_key const& key, std::array<std::size_t, philox_lanes> const& tokens, std::size_t each,
                          philox_bits& out) noexcept {
        philox_words lanes;
        for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = static_cast<std::uint32_t>(tokens[i] / each);
        auto const& [word] = key_counter(key, 0);
        native_kernels<philox_kernels>().words(lanes, {word[0], word[1], word[2], word[3]}, key.seed, out);
    }
    /// Which token stands where in the row.
    template <class Weights>
    struct places {
        Weights const& weights;
        std::size_t mapped = mapped_size(weights);

        [[nodiscard]] std::size_t token(std::size_t place) const noexcept {
            if constexpr (has_mapped_weights<Weights>) {
                if (mapped > 0) return static_cast<std::size_t>(weights.mapped_token(place));
            }
            return place;
        }
        /// The first place whose token is not below `end`, from `place` on and at most `most` further.
        [[nodiscard]] std::size_t find(std::size_t end, std::size_t place, std::size_t most) const noexcept {
            if (mapped == 0) return end;
            std::size_t last = std::min(mapped, place + most);
            while (place < last) {
                std::size_t const middle = place + (last - place) / 2;
                if (token(middle) < end) {
                    place = middle + 1;
                } else {
                    last = middle;
                }
            }
            return place;
        }
        [[nodiscard]] static std::size_t mapped_size(Weights const& weights) noexcept {
            if constexpr (has_mapped_weights<Weights>) return weights.mapped_size();
            return 0;
        }
    };

    void visit(std::size_t v, group_noise const& noise, double weight) noexcept {
        visit(v, noise, weight, [&] { return group_noise::excess(key_, v); });
    }
    template <class Excess>
    void visit(std::size_t v, group_noise const& noise, double weight, Excess const& excess_of) noexcept {
        if (!(weight > 0.0)) return;
        double const limit = best_ * weight;
        if (!(noise.bound() < limit)) return;
        double e = 0.0;
        if (noise.is_of(v)) {
            e = noise.smallest();
        } else {
            exponential_bits const excess = excess_of();
            if (!(noise.bound() + excess.bound() < limit)) return;  // most end here, before any logarithm
            e = noise.smallest() + excess.value();
        }
        if (!(e / weight < best_)) return;
        best_ = e / weight;
        winner_ = static_cast<token_id>(v);
    }

    draw_key key_;
    double best_ = std::numeric_limits<double>::infinity();
    token_id winner_ = no_token;
};

}  // namespace detail

/// E_v ~ Exp(1), which `key` owns for token v. A token of probability 1e-15 still wins a race with that probability.
[[nodiscard]] inline double exponential(draw_key const& key, std::size_t v) noexcept {
    detail::group_noise const noise{key, v / row_group};
    double const smallest = noise.smallest();
    return noise.is_of(v) ? smallest : smallest + noise.excess(key, v).value();
}

/// argmin over v of E_v / weights[v] with the exponentials of `key`; no_token if no weight is positive, or if one that
/// was met is no number. O(size): a call of Philox for 256 tokens, and two logarithms for a hundred tokens or so; less
/// the better `likely` does, a guess of the winner that does not change it.
template <class Weights>
[[nodiscard]] token_id gumbel_max(draw_key const& key, Weights const& weights, token_id likely = no_token) noexcept {
    detail::gumbel_search leader{key};
    if constexpr (detail::lists_heavy_tokens<Weights>) {
        if (weights.can_list()) {
            // A guess without weight, which a truncation left out, is no time to beat.
            if (likely == no_token || !(weights[likely] > 0)) likely = weights.likely();
            bool const found = detail::is_short_list(weights) ? leader.visit_short(weights, likely)
                                                              : leader.visit_some(weights, likely);
            return found ? leader.winner() : no_token;
        }
    }
    if constexpr (detail::has_mapped_weights<Weights>) {
        if (weights.mapped_size() > 0) {
            leader.visit_mapped(weights);
            return leader.winner();
        }
    }
    leader.visit_all(weights);
    return leader.winner();
}

SURELEAP_END_NAMESPACE
