// SPDX-License-Identifier: MIT
//
// The prices of an additive cost from measured steps, of a profile at start-up (fit/profile.hpp) or of a log.
//
//   auto const fit = fit_additive_cost(samples);
//   if (fit.spread > 0.05) warn("step times are no sum of prices");
//   greedy_schedule schedule{fit.cost};
//
// Residuals are relative, since a schedule compares quotients of times. Prices are non-negative, since a price below 0
// makes tokens look free where nothing was measured. One step in five may be an outlier of any size. The fit starts
// from least absolute deviations and ends with Tukey's biweight, which gives a preempted step no weight at all.
// Rejected: Huber's loss, which each of them would still pull a little.
//
// Measurements often cannot tell prices apart: with every draft verified, a batch token, a request and a drafted token
// always come together. The fit says so, and gives what they share to the batch token where it can. This is the
// cautious choice: verification looks dear rather than free.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/sample.hpp>
#include <sureleap/fit/least_squares.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What the samples say about one price.
struct fitted_price {
    double seconds = 0.0;
    double error = 0.0;              ///< standard error; 0 where nothing is known
    bool known = false;              ///< the samples determine this price alone
    std::uint32_t blurred_with = 0;  ///< bit i: only a sum with term i is determined; none: no sample has this part
};

struct additive_fit {
    additive_cost cost;
    std::array<fitted_price, cost_terms> prices{};  ///< in the order of cost_term_names
    double spread = 0.0;                            ///< relative residual of ordinary samples, as a standard deviation
    std::size_t samples = 0;
    std::size_t outliers = 0;  ///< samples that were given no weight

    /// What is not known, as text: "request and batch_token only as a sum; context_token not at all". Empty if all is.
    /// That no sample has unread tokens, or a replay, is no gap: most engines have neither.
    [[nodiscard]] std::string unknown() const {
        std::string text;
        std::uint32_t told = 0;
        for (std::size_t i = 0; i < cost_terms; ++i) {
            if (prices[i].known || (told >> i & 1u) != 0) continue;
            if (i >= usual_cost_terms && prices[i].blurred_with == 0) continue;
            std::uint32_t const group = prices[i].blurred_with | 1u << i;
            told |= group;
            if (!text.empty()) text += "; ";
            std::string names;
            for (std::size_t j = 0; j < cost_terms; ++j) {
                if ((group >> j & 1u) == 0) continue;
                if (!names.empty()) names += (group >> j >> 1) != 0 ? ", " : " and ";
                names += cost_term_names[j];
            }
            text += names + (prices[i].blurred_with != 0 ? " only as a sum" : " not at all");
        }
        return text;
    }
};

namespace detail {

/// The value that `share` of the numbers do not exceed; reorders them.
[[nodiscard]] inline double quantile_of(std::vector<double>& values, double share) noexcept {
    auto const at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

/// Reweighted least squares of relative residuals.
class price_search {
public:
    explicit price_search(std::span<cost_sample const> samples)
        : samples_(samples), weights_(samples.size(), 1.0), residuals_(samples.size()) {
        for (cost_sample const& s : samples) scratch_.push_back(s.seconds);
        median_ = quantile_of(scratch_, 0.5);
        scales_.assign(samples.size(), median_);
    }

    void run() noexcept {
        for (int i = 0; i < 40; ++i) {
            solve();
            for (std::size_t j = 0; j < samples_.size(); ++j)
                weights_[j] = 1.0 / std::max(std::abs(residuals_[j]), 1e-6);
        }
        for (int i = 0; i < 100; ++i) {
            spread_ = spread();
            // Less than a tenth of a per cent is no reason to doubt a sample, however well the others fit.
            double const reach = 4.685 * std::max(spread_, 1e-3);
            for (std::size_t j = 0; j < samples_.size(); ++j) {
                double const x = residuals_[j] / reach;
                weights_[j] = std::abs(x) < 1.0 ? (1.0 - x * x) * (1.0 - x * x) : 0.0;
            }
            auto const before = prices_;
            solve();
            double change = 0.0;
            for (std::size_t k = 0; k < cost_terms; ++k) {
                change = std::max(change, std::abs(prices_[k] - before[k]) / std::max(prices_[k], before[k] + 1e-300));
            }
            if (change < 1e-14) break;
        }
        spread_ = spread();
    }

    [[nodiscard]] std::array<double, cost_terms> const& prices() const noexcept { return prices_; }
    [[nodiscard]] row_triangle<cost_terms> const& rows() const noexcept { return rows_; }
    [[nodiscard]] double last_spread() const noexcept { return spread_; }
    [[nodiscard]] std::size_t outliers() const noexcept {
        return static_cast<std::size_t>(std::count(weights_.begin(), weights_.end(), 0.0));
    }

private:
    static constexpr std::array<std::size_t, cost_terms> order = {2, 0, 1, 3, 4, 5, 6, 7, 8};  // batch tokens first

    void solve() noexcept {
        rows_ = {};
        for (std::size_t i = 0; i < samples_.size(); ++i) {
            if (weights_[i] == 0.0) continue;
            double const weight = std::sqrt(weights_[i]) / scales_[i];
            auto const part = parts_of(samples_[i].load);
            row_triangle<cost_terms>::row row{};
            for (std::size_t k = 0; k < cost_terms; ++k) row[k] = weight * part[k];
            row[cost_terms] = weight * samples_[i].seconds;
            rows_.add(row);
        }
        prices_ = non_negative_solution<cost_terms>(rows_, order).values();
        for (std::size_t i = 0; i < samples_.size(); ++i) {
            auto const part = parts_of(samples_[i].load);
            double fitted = 0.0;
            for (std::size_t k = 0; k < cost_terms; ++k) fitted += prices_[k] * part[k];
            // Relative to the fit and not to the sample: one that is far too short would outweigh all others.
            scales_[i] = std::max(fitted, 1e-3 * median_);
            residuals_[i] = (samples_[i].seconds - fitted) / scales_[i];
        }
    }

    /// By the upper quartile, 1.15 standard deviations: half of the samples may be of one load and fit exactly, which
    /// says nothing of the rest.
    [[nodiscard]] double spread() noexcept {
        scratch_.clear();
        for (double const r : residuals_) scratch_.push_back(std::abs(r));
        return quantile_of(scratch_, 0.75) / 1.1503493803760079;
    }

    std::span<cost_sample const> samples_;
    std::vector<double> weights_;
    std::vector<double> residuals_;
    std::vector<double> scales_;
    std::vector<double> scratch_;
    std::array<double, cost_terms> prices_{};
    row_triangle<cost_terms> rows_{};
    double median_ = 0.0;
    double spread_ = 0.0;
};

}  // namespace detail

/// Prices that explain the samples; exact, up to rounding, for samples that are sums of prices. Allocates; O(samples).
///
/// Error if there are no samples, or one is unusable (with its index). Error, too, if they cannot tell the price of a
/// batch token from that of a step: nothing can be scheduled without it. Measure more than one batch size.
[[nodiscard]] inline additive_fit fit_additive_cost(std::span<cost_sample const> samples) {
    detail::check_samples("fit_additive_cost", samples);
    detail::price_search search(samples);
    search.run();
    auto const& prices = search.prices();
    if (!(prices[0] + prices[1] + prices[2] >= detail::least_seconds)) {
        fail_with(
            "fit_additive_cost: the samples leave nothing for what every step pays (fixed, request, batch_token); "
            "expected times of whole steps, in seconds");
    }
    auto const report = detail::examine_columns(search.rows());
    additive_fit fit{.cost = additive_cost(prices_in_order(prices)),
                     .spread = search.last_spread(),
                     .samples = samples.size(),
                     .outliers = search.outliers()};
    for (std::size_t i = 0; i < cost_terms; ++i) {
        fit.prices[i] = {prices[i], report.error[i] * fit.spread, report.known[i], report.blurred_with[i]};
    }
    if ((fit.prices[2].blurred_with & 1u) != 0) {
        fail_with("fit_additive_cost: the samples determine ", fit.unknown(),
                  "; expected steps that differ in batch tokens, or the price of one cannot be told");
    }
    return fit;
}

SURELEAP_END_NAMESPACE
