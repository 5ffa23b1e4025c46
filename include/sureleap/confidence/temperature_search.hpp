// SPDX-License-Identifier: MIT
//
// Which candidate of a grid is chosen, without evaluating most of them. Two parts.
//
// A bound. However samples fall into bins,
//     ECE(T) = (1/m) sum over bins |sum (a_i - y_i)| >= |mean a(T) - mean y|,
// and means of all candidates together cost one pass over the samples: the weight of each prefix goes to two nodes next to
// its logit, and then a mean is a sum over nodes instead of samples. Linear interpolation between nodes h apart is off by
// at most h^2/8 max |sigmoid''| / T^2, which is known. In a grid of a hundred temperatures a handful is left, mostly.
// Rejected: a bound that also sees that the unsure are too unsure and the sure too sure (the mean of (2a - 1)(a - y) less
// what bins may hide), for temperatures that leave the mean where it is. After the second position it hardly bounds.
//
// A rule. Candidates come in an order, and one beats another only by more than a tie, so what is chosen depends on all that
// came before. It does not depend on those that are more than a tie above everything that is left: as soon as one of the
// rest comes, it replaces them, and they replace none of the rest. So brackets around figures are narrowed, the most
// promising first, until those that cannot be told apart from the least are one, or are known exactly. There are four: the
// bound, figures from floats, figures from doubles, the reference's own.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/confidence/calibration_columns.hpp>
#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a candidate has to be better by.
inline constexpr double temperature_tie = 1e-12;

namespace detail {

/// Where a figure lies.
struct bracket {
    double low;
    double high;
};
[[nodiscard]] inline bracket around(estimate const& e) noexcept {
    return {e.value - e.radius, e.value + e.radius};
}
[[nodiscard]] inline bracket exactly(double value) noexcept {
    return {value, value};
}

/// The candidate that is left when all are tried in order and one replaces another if its figure is less by more than
/// temperature_tie. figure(candidate, level) brackets its figure, ever closer, and at level `levels` - 1 exactly.
template <class Figure>
[[nodiscard]] std::size_t least_candidate(std::size_t candidates, int levels, Figure const& figure) {
    struct known {
        bracket at;
        int level;
    };
    std::vector<known> all;
    for (std::size_t c = 0; c < candidates; ++c) all.push_back({figure(c, 0), 0});
    for (;;) {
        // Those left: whoever may be within a tie of the least, or of one that is left. Twice a tie, because the rule's
        // own comparison is rounded.
        double reach = std::numeric_limits<double>::infinity();
        for (known const& c : all) reach = std::min(reach, c.at.high);
        auto const left = [&](known const& c) { return c.at.low <= reach + 2.0 * temperature_tie; };
        for (bool grown = true; grown;) {
            grown = false;
            for (known const& c : all) {
                if (!left(c) || c.at.high <= reach) continue;
                reach = c.at.high;
                grown = true;
            }
        }
        std::size_t count = 0;
        std::size_t next = candidates;
        for (std::size_t c = 0; c < candidates; ++c) {
            if (!left(all[c])) continue;
            ++count;
            if (all[c].level + 1 == levels) continue;
            bool const better = next == candidates || all[c].level < all[next].level ||
                                (all[c].level == all[next].level && all[c].at.low < all[next].at.low);
            if (better) next = c;
        }
        if (count > 1 && next < candidates) {
            known& c = all[next];
            c = {figure(next, c.level + 1), c.level + 1};
            continue;
        }
        std::size_t best = candidates;
        for (std::size_t c = 0; c < candidates; ++c) {
            if (left(all[c]) && (best == candidates || all[c].at.low < all[best].at.low - temperature_tie)) best = c;
        }
        return best;
    }
}

/// What mean survivals say about ECE at the next position of some samples, for temperatures up to `highest`.
class mean_bound {
public:
    mean_bound(scaled_samples const& samples, double highest)
        : kernels_(samples.kernels()),
          count_(static_cast<double>(samples.observed())),
          labelled_(static_cast<double>(samples.columns().labelled(samples.position()))) {
        auto const [from, to] = range_of(samples.logits(), 40.0 * highest);
        for (std::size_t i = 0; i < samples.observed(); i += most_spread_samples) {
            std::size_t const size = std::min(most_spread_samples, samples.observed() - i);
            std::array<std::uint64_t, cells> pairs{};
            kernels_.spread(samples.prefix().data() + i, samples.logits().data() + i, size, from, to, cells,
                            pairs.data());
            for (std::size_t c = 0; c < cells; ++c) {
                weights_[c] += spread_unit * static_cast<double>(pairs[c] & 0xffffffffu);
                weights_[c + 1] += spread_unit * static_cast<double>(pairs[c] >> 32);
            }
        }
        spacing_ = (to - from) / static_cast<double>(cells);
        for (std::size_t j = 0; j <= cells; ++j) {
            places_[j] = from + spacing_ * static_cast<double>(j);
            tails_[j] = std::min(spacing_ - std::fabs(places_[j]), 0.0);
        }
    }

    /// ECE is at least that.
    [[nodiscard]] double least_ece(double temperature) const noexcept {
        auto const sum_at = [&](std::array<double, cells + 1> const& places) {
            std::array<double, cells + 1> terms;
            return kernels_.survive(weights_.data(), places.data(), cells + 1, temperature, 0.0, terms.data());
        };
        // |sigmoid''(x)| <= sigmoid(-|x|), and no logit of a cell is nearer to 0 than `tails_` of its ends says.
        double const step = spacing_ / temperature;
        double const curved = step * step / 8.0 * sum_at(tails_);
        // Logits beyond the ends may be anywhere there.
        auto const sigmoid = [&](double z) { return 1.0 / (1.0 + std::exp(-z / temperature)); };
        double const beyond = weights_.front() * sigmoid(places_.front()) + weights_.back() * sigmoid(-places_.back());
        // A weight and how it is split, each by half a unit; sums.
        double const rounded = (spread_unit + 1e-9) * count_;
        return std::max(std::fabs(sum_at(places_) - labelled_) - curved - beyond - rounded, 0.0) / count_;
    }

private:
    static constexpr std::size_t cells = 128;
    struct range {
        double from;
        double to;
    };

    /// The mean of some logits and five mean deviations around it. Any range is right, and a good one is narrow and holds
    /// most. What is beyond `certain` is 0 or 1 at every temperature.
    [[nodiscard]] static range range_of(std::span<double const> logits, double certain) noexcept {
        std::size_t const stride = logits.size() / 512 + 1;
        auto const mean_of = [&](auto const& value) {
            double sum = 0.0;
            double count = 0.0;
            for (std::size_t i = 0; i < logits.size(); i += stride) {
                sum += value(std::clamp(logits[i], -certain, certain));
                count += 1.0;
            }
            return sum / count;
        };
        double const middle = mean_of([](double z) { return z; });
        double const away = 5.0 * mean_of([&](double z) { return std::fabs(z - middle); }) + 1e-3;
        return {middle - away, middle + away};
    }

    sample_kernels const& kernels_;
    double count_;
    double labelled_;
    double spacing_ = 0.0;
    std::array<double, cells + 1> weights_{};
    std::array<double, cells + 1> places_{};
    std::array<double, cells + 1> tails_{};
};

}  // namespace detail
SURELEAP_END_NAMESPACE
