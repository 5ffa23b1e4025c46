// SPDX-License-Identifier: MIT
//
// A logit map that is fitted while it serves: decayed sums of constant size instead of samples.
//
//     P(accepted) = sigmoid(slope * logit(c) + offset + reliance * history)
//
// What is kept is the evidence of a least-squares problem. Let y be an observation made while the map said p =
// sigmoid(e). It counts as a measurement e + (y - p) / h of the argument, with weight h = p (1 - p). That is Newton's
// step on the log loss, taken once for every observation, at the map of its own time (recursive iteratively reweighted
// least squares). The map is the solution of the decayed sums and a prior. If the map is right, the measurements are
// right on average whatever the weights are, so the fit is unbiased. If it is off, later measurements correct it, and
// its own fade with the sums.
//
// Rejected: stochastic gradient steps, whose rate has to suit every position (one is observed by all requests of a
// round, another by one in fifty). Batches that are fitted again need memory for samples, and a pass that one round
// would have to wait for. Bins have as many parameters as bins, and fill slowly at late positions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What an acceptance is predicted from; known before the token is drawn.
struct logit_terms {
    double logit = 0.0;    ///< of the raw confidence
    double history = 0.0;  ///< how much better than others the request did of late, in logits; 0: nothing known

    /// A confidence of 0 or 1 counts as odds of e^12 (160,000 to one): a head that is certain can be mistaken, and no
    /// finite map would move infinity. NaN stays NaN.
    static constexpr double certain_logit = 12.0;

    [[nodiscard]] static logit_terms of_confidence(double c, double history = 0.0) noexcept {
        double const logit = std::log(c) - std::log1p(-c);
        return {std::clamp(logit, -certain_logit, certain_logit), history};
    }
};

/// The argument of the sigmoid, and its coefficients.
struct online_map {
    double slope = 1.0;     ///< 1 / temperature, positive
    double offset = 0.0;    ///< in logits
    double reliance = 0.0;  ///< on the request's history, not negative

    [[nodiscard]] double argument(logit_terms const& x) const noexcept {
        return slope * x.logit + offset + reliance * x.history;
    }
    [[nodiscard]] double operator()(logit_terms const& x) const noexcept {
        return 1.0 / (1.0 + std::exp(-argument(x)));
    }
    /// Without the history.
    [[nodiscard]] logit_scaling scaling() const noexcept { return {1.0 / slope, offset}; }
    /// Coefficient by coefficient: what one map adds to another.
    [[nodiscard]] friend online_map operator+(online_map const& a, online_map const& b) noexcept {
        return {a.slope + b.slope, a.offset + b.offset, a.reliance + b.reliance};
    }
    [[nodiscard]] friend online_map operator-(online_map const& a, online_map const& b) noexcept {
        return {a.slope - b.slope, a.offset - b.offset, a.reliance - b.reliance};
    }
    [[nodiscard]] bool operator==(online_map const&) const = default;
};

/// Which coefficients are fitted; the others stay at the prior's.
enum class online_terms : std::uint8_t {
    temperature = 1,  ///< the slope alone: the paper's sequential temperature scaling
    platt = 2,        ///< slope and offset: also mends acceptance that moved as a whole
    history = 3,      ///< and how far to rely on the request's own recent acceptance
};

/// Decayed sums over observations of one position: what it takes to fit a map, and how often x_k was accepted.
class logit_evidence {
public:
    static constexpr double lowest_slope = 0.1;  ///< above 0: the order of confidences is never turned round
    static constexpr double highest_slope = 10.0;
    static constexpr double largest_offset = 12.0;
    static constexpr double largest_reliance = 4.0;
    static constexpr std::size_t terms = 3;

    /// One observation under the map that was in force. O(1): an exponential.
    ///
    /// The weight is at least |p - y| / 4, so that no measurement is further than 4 logits from the map. Where p is
    /// nearly certain and wrong, p (1 - p) is next to 0, and one Newton step would go anywhere. For predictions that
    /// are right this adds less than half to the weights' mean, and nothing to that of the residuals.
    void add(logit_terms const& x, bool accepted, online_map const& in_force) noexcept {
        double const argument = in_force.argument(x);
        double const p = 1.0 / (1.0 + std::exp(-argument));
        double const residual = (accepted ? 1.0 : 0.0) - p;
        double const weight = std::max(p * (1.0 - p), 0.25 * std::fabs(residual));
        vector const row{x.logit, 1.0, x.history};
        for (std::size_t i = 0; i < terms; ++i) {
            for (std::size_t j = 0; j <= i; ++j) squares_[at(i, j)] += weight * row[i] * row[j];
            moments_[i] += (weight * argument + residual) * row[i];
        }
        observations_ += 1.0;
        if (accepted) accepted_ += 1.0;
    }

    /// Lets everything so far count `factor` of what it did; in [0, 1].
    void decay(double factor) noexcept {
        fade(factor);
        observations_ *= factor;
        accepted_ *= factor;
    }
    /// The same of what the map is fitted to, not of the acceptance rate.
    void fade(double factor) noexcept {
        for (double& s : squares_) s *= factor;
        for (double& m : moments_) m *= factor;
    }

    /// The map of this evidence and of a prior that counts as `prior_weight` > 0 observations at even odds with logits
    /// about 2 from 0. Coefficients within the limits above, in particular finite. O(1).
    [[nodiscard]] online_map fit(online_map const& prior, double prior_weight, online_terms fitted) const noexcept {
        constexpr vector precision{1.0, 0.25, 0.25};
        vector theta{prior.slope, prior.offset, prior.reliance};
        auto const free = static_cast<std::size_t>(fitted);
        // Relative to the prior, so that coefficients that are not fitted drop out of the equations.
        triangle a = squares_;
        vector b = moments_;
        for (std::size_t i = 0; i < free; ++i) {
            for (std::size_t j = 0; j < terms; ++j) b[i] -= squares_[at(std::max(i, j), std::min(i, j))] * theta[j];
            a[at(i, i)] += precision[i] * prior_weight;
        }
        vector step = solve(a, b, free);
        double const slope = std::clamp(theta[0] + step[0], lowest_slope, highest_slope);
        if (slope != theta[0] + step[0]) {  // held at its limit: the best of the others there
            double const held = slope - theta[0];
            a[at(0, 0)] = 1.0;
            b[0] = held;
            for (std::size_t i = 1; i < free; ++i) {
                b[i] -= a[at(i, 0)] * held;
                a[at(i, 0)] = 0.0;
            }
            step = solve(a, b, free);
        }
        for (std::size_t i = 0; i < free; ++i) theta[i] += step[i];
        return {slope, std::clamp(theta[1], -largest_offset, largest_offset),
                std::clamp(theta[2], 0.0, largest_reliance)};
    }

    /// The terms of an observation that informs as much as the others do on average; 0 without any.
    [[nodiscard]] logit_terms mean() const noexcept {
        double const weight = squares_[at(1, 1)];
        if (!(weight > 0.0)) return {};
        return {squares_[at(1, 0)] / weight, squares_[at(2, 1)] / weight};
    }
    /// How many observations count, decayed ones by what is left of them, and how many of these were accepted.
    [[nodiscard]] double observations() const noexcept { return observations_; }
    [[nodiscard]] double accepted() const noexcept { return accepted_; }

    /// The sums as numbers, to be kept over a restart: squares (lower triangle by rows), moments, observations,
    /// accepted.
    static constexpr std::size_t squares = terms * (terms + 1) / 2;
    static constexpr std::size_t size = squares + terms + 2;
    [[nodiscard]] std::array<double, size> numbers() const noexcept {
        std::array<double, size> n{};
        std::copy(moments_.begin(), moments_.end(), std::copy(squares_.begin(), squares_.end(), n.begin()));
        n[size - 2] = observations_;
        n[size - 1] = accepted_;
        return n;
    }
    [[nodiscard]] static logit_evidence of_numbers(std::array<double, size> const& n) noexcept {
        logit_evidence e;
        std::copy_n(n.begin(), squares, e.squares_.begin());
        std::copy_n(n.begin() + squares, terms, e.moments_.begin());
        e.observations_ = n[size - 2];
        e.accepted_ = n[size - 1];
        return e;
    }

private:
    using vector = std::array<double, terms>;
    using triangle = std::array<double, squares>;  // the lower one, by rows
    static constexpr double least_pivot = 0x1p-30;

    [[nodiscard]] static constexpr std::size_t at(std::size_t i, std::size_t j) noexcept { return i * (i + 1) / 2 + j; }

    // The first n unknowns of a x = b, for a positive definite a, by Cholesky; the others are 0. A pivot is at least
    // the prior's precision, except where rounding has eaten it: then it counts as next to nothing, and x stays finite.
    [[nodiscard]] static vector solve(triangle a, vector b, std::size_t n) noexcept {
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j <= i; ++j) {
                double sum = a[at(i, j)];
                for (std::size_t m = 0; m < j; ++m) sum -= a[at(i, m)] * a[at(j, m)];
                a[at(i, j)] = i == j ? std::sqrt(sum > least_pivot ? sum : least_pivot) : sum / a[at(j, j)];
            }
            for (std::size_t m = 0; m < i; ++m) b[i] -= a[at(i, m)] * b[m];
            b[i] /= a[at(i, i)];
        }
        vector x{};
        for (std::size_t i = n; i-- > 0;) {
            x[i] = b[i];
            for (std::size_t m = i + 1; m < n; ++m) x[i] -= a[at(m, i)] * x[m];
            x[i] /= a[at(i, i)];
        }
        return x;
    }

    triangle squares_{};  // sum of weight x x'
    vector moments_{};    // sum of weight x (measurement)
    double observations_ = 0.0;
    double accepted_ = 0.0;
};

SURELEAP_END_NAMESPACE
