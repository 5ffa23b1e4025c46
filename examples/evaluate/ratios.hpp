// SPDX-License-Identifier: MIT
//
// Ratios of sums over texts, what is computed from them, and how far they may be off.
//
// Every figure here is a ratio of sums: tokens over rounds, tokens over seconds. Rounds of one text resemble each
// other, so the unit of chance is the text, never the round. A statistic carries what each text contributes to its
// error (its influence, the first-order term of a Taylor expansion); means and quotients of statistics combine the
// influences, and the variance is the sum of their squares. Two drafters measured on the same texts are thereby
// compared in pairs, with no formula for the covariance. A bootstrap gives the same intervals (the tests compare),
// takes a thousand times as long and a seed.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>

namespace evaluate {

/// What one text adds to numerator and denominator.
struct contribution {
    double over = 0;
    double under = 0;
};

/// A number and its influences. Domains are samples of their own: an inner vector is one of them, text by text.
class statistic {
public:
    statistic(double value, std::vector<std::vector<double>> influences)
        : value_(value), influences_(std::move(influences)) {}

    [[nodiscard]] double value() const noexcept { return value_; }
    [[nodiscard]] std::vector<std::vector<double>> const& influences() const noexcept { return influences_; }

    /// NaN if a domain has one text only.
    [[nodiscard]] double standard_error() const noexcept {
        double variance = 0;
        for (auto const& domain : influences_) {
            auto const n = static_cast<double>(domain.size());
            double squares = 0;
            for (double const x : domain) squares += x * x;
            variance += n > 1 ? squares * n / (n - 1) : std::numeric_limits<double>::quiet_NaN();
        }
        return std::sqrt(variance);
    }
    /// Half of a 95 % interval.
    [[nodiscard]] double margin() const noexcept { return 1.96 * standard_error(); }

private:
    double value_;
    std::vector<std::vector<double>> influences_;
};

/// sum over / sum under, of one domain. NaN without a denominator.
[[nodiscard]] inline statistic ratio_of_sums(std::span<contribution const> texts) {
    contribution sum;
    for (auto const& t : texts) {
        sum.over += t.over;
        sum.under += t.under;
    }
    double const ratio = sum.over / sum.under;
    std::vector<double> influence;
    for (auto const& t : texts) influence.push_back((t.over - ratio * t.under) / sum.under);
    return {ratio, {std::move(influence)}};
}

/// The mean over domains, each counting the same however many rounds it has: "macro" in the tables.
[[nodiscard]] inline statistic mean_over_domains(std::span<statistic const> domains) {
    auto const n = static_cast<double>(domains.size());
    double sum = 0;
    std::vector<std::vector<double>> influences;
    for (statistic const& d : domains) {
        sum += d.value();
        for (auto influence : d.influences()) {
            for (double& x : influence) x /= n;
            influences.push_back(std::move(influence));
        }
    }
    return {sum / n, std::move(influences)};
}

namespace detail {

/// A function of two statistics over the same texts, by its derivatives.
[[nodiscard]] inline statistic combined(double value, statistic const& a, double by_a, statistic const& b,
                                        double by_b) {
    auto const& x = a.influences();
    auto const& y = b.influences();
    bool same = x.size() == y.size();
    for (std::size_t d = 0; same && d < x.size(); ++d) same = x[d].size() == y[d].size();
    if (!same) sureleap::fail_with("statistics of different texts cannot be compared in pairs");
    std::vector<std::vector<double>> influences(x.size());
    for (std::size_t d = 0; d < x.size(); ++d) {
        for (std::size_t i = 0; i < x[d].size(); ++i) influences[d].push_back(by_a * x[d][i] + by_b * y[d][i]);
    }
    return {value, std::move(influences)};
}

}  // namespace detail

/// a / b over the same texts, in pairs.
[[nodiscard]] inline statistic quotient(statistic const& a, statistic const& b) {
    double const value = a.value() / b.value();
    return detail::combined(value, a, 1.0 / b.value(), b, -value / b.value());
}
/// a - b over the same texts, in pairs.
[[nodiscard]] inline statistic difference(statistic const& a, statistic const& b) {
    return detail::combined(a.value() - b.value(), a, 1.0, b, -1.0);
}

}  // namespace evaluate
