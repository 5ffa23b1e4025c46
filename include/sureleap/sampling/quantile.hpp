// SPDX-License-Identifier: MIT
//
// The inverse CDF of a row: a number in [0, 1) in, a token out. Weights are computed on demand, so the sums of blocks
// give the block first, and only its weights are computed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/rows.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// Weights that are evaluated at once.
template <class Real>
using segment = std::array<Real, 256>;

/// In four sums side by side, since one would wait for every addition.
template <class Real>
[[nodiscard]] inline double sum_of(std::span<Real const> weights) noexcept {
    double sums[4] = {};
    std::size_t i = 0;
    for (; i + 4 <= weights.size(); i += 4) {
        for (std::size_t k = 0; k < 4; ++k) sums[k] += static_cast<double>(weights[i + k]);
    }
    for (; i < weights.size(); ++i) sums[0] += static_cast<double>(weights[i]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The sum of weights first .. end - 1. evaluate(first, out) writes weights first, first + 1 ...
template <class Real, class Evaluate>
[[nodiscard]] double sum_of_part(std::size_t first, std::size_t end, Evaluate const& evaluate) noexcept {
    segment<Real> some;
    double sum = 0.0;
    for (; first < end; first += some.size()) {
        auto const here = std::span(some).first(std::min(some.size(), end - first));
        evaluate(first, here);
        sum += sum_of<Real>(here);
    }
    return sum;
}

/// A part of a row and what is before it.
struct part_of_row {
    std::size_t first;
    double before;
};

/// The part in which a cumulative sum exceeds `threshold`; the last one with weight if rounding runs past the end, and
/// one that begins at `end` if none has any. sum(first) adds up the part that begins there.
template <class Sum>
[[nodiscard]] part_of_row find_part(std::size_t first, std::size_t end, std::size_t length, double before,
                                    double threshold, Sum const& sum) noexcept {
    part_of_row found{end, before};
    for (double cumulative = before; first < end && !(cumulative > threshold); first += length) {
        double const here = sum(first);
        if (!(here > 0.0)) continue;
        found = {first, cumulative};
        cumulative += here;
    }
    return found;
}

/// What the sums of blocks are.
enum class block_sums_are : bool { exact, bounds };

/// The block of a row of `size` weights in which their cumulative sum exceeds `threshold`, by the sums of the blocks;
/// the whole row if there are none. In segments of blocks first, since additions one by one wait for each other.
template <class Sum>
[[nodiscard]] part_of_row find_block(std::span<Sum const> sums, std::size_t size, double threshold) noexcept {
    constexpr std::size_t together = 16;
    if (sums.empty()) return {0, 0.0};
    auto const from = [&](std::size_t first) { return sums.subspan(first, std::min(together, sums.size() - first)); };
    auto at = find_part(0, sums.size(), together, 0.0, threshold,
                        [&](std::size_t first) { return sum_of<Sum>(from(first)); });
    at = find_part(at.first, std::min(at.first + together, sums.size()), 1, at.before, threshold,
                   [&](std::size_t block) { return static_cast<double>(sums[block]); });
    return {std::min(at.first * row_block, size), at.before};
}

/// The first weight in [at.first, end) whose cumulative sum exceeds `threshold`: by segments, then one by one.
/// evaluate(first, out) writes weights first, first + 1 ... If rounding runs past the end of a part, it is the last
/// positive weight before it; `end` if there is none.
///
/// Where the sums are bounds, a block has room behind its weights that belongs to nobody: `end` if the threshold falls
/// there. Whoever draws again in that case has drawn with the weights' own law, whatever the bounds are.
template <class Real, class Evaluate>
[[nodiscard]] std::size_t find_weight(part_of_row at, std::size_t end, block_sums_are what, double threshold,
                                      Evaluate const& evaluate) noexcept {
    segment<Real> some;
    auto const weights = [&](std::size_t first) {
        auto const here = std::span(some).first(std::min(some.size(), end - first));
        evaluate(first, here);
        return std::span<Real const>(here);
    };
    at = find_part(at.first, end, some.size(), at.before, threshold,
                   [&](std::size_t first) { return sum_of<Real>(weights(first)); });
    if (at.first == end) return end;
    std::size_t last = end;
    double cumulative = at.before;
    std::size_t v = at.first;
    for (Real const stored : weights(at.first)) {
        auto const weight = static_cast<double>(stored);
        if (weight > 0.0) {
            cumulative += weight;
            last = v;
            if (cumulative > threshold) return v;
        }
        ++v;
    }
    return what == block_sums_are::exact ? last : end;
}

/// The weight in [0, size) that the part `share` < 1 of their sum stands for, by a pass that makes the sum and another
/// one that searches; `size` if there is no sum.
///
/// What a draw by approximate sums leaves over goes this way. `share` is the place of its number in that rest, and is
/// uniform. So the rest is spread over all weights, and the draw has their law. Giving the rest to the last weight
/// would make that too probable, by the rounding of the sums.
template <class Real, class Evaluate>
[[nodiscard]] std::size_t find_share(std::size_t size, double share, Evaluate const& evaluate) noexcept {
    double const sum = sum_of_part<Real>(0, size, evaluate);
    if (!(sum > 0.0 && sum < std::numeric_limits<double>::infinity())) return size;
    return find_weight<Real>({0, 0.0}, size, block_sums_are::exact, share * sum, evaluate);
}

/// Where `threshold` is between `from` and `to`, 0 .. 1 without 1; just below 1 where rounding leaves nothing between
/// them.
[[nodiscard]] inline double share_between(double from, double to, double threshold) noexcept {
    constexpr double below_one = 1.0 - 0x1p-53;
    double const share = (threshold - from) / (to - from);
    return share < below_one ? std::max(share, 0.0) : below_one;
}

/// Where `threshold` leads to behind the weights of a part that ends at `end` and was taken to hold `claimed`: to a
/// weight of the whole row, by find_share.
template <class Real, class Evaluate>
[[nodiscard, gnu::cold, gnu::noinline]] std::size_t find_leftover(part_of_row const& part, std::size_t end,
                                                                  double claimed, double threshold, std::size_t size,
                                                                  Evaluate const& evaluate) noexcept {
    double const weights = sum_of_part<Real>(part.first, end, evaluate);
    return find_share<Real>(size, share_between(weights, claimed, threshold - part.before), evaluate);
}

/// The weight in [0, size) that the part `share` < 1 of `claimed` stands for, mostly by one pass as far as that weight;
/// `size` if there is no sum. `claimed` is at least the sum of the weights. What it is more is spread over all of them.
template <class Real, class Evaluate>
[[nodiscard]] std::size_t find_share_of(std::size_t size, double share, double claimed,
                                        Evaluate const& evaluate) noexcept {
    double const threshold = share * claimed;
    std::size_t const i = find_weight<Real>({0, 0.0}, size, block_sums_are::bounds, threshold, evaluate);
    return i < size ? i : find_leftover<Real>({0, 0.0}, size, claimed, threshold, size, evaluate);
}

}  // namespace detail

SURELEAP_END_NAMESPACE
