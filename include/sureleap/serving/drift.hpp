// SPDX-License-Identifier: MIT
//
// Detects when a calibration stops being true. One sequential test per position and direction reads every round. It
// says where predictions drifted, which way and since when.
//
// Each is a CUSUM (Page, "Continuous inspection schemes", 1954) of log likelihood ratios. For the direction of more
// acceptance than predicted, with p = sigmoid(e) predicted,
//
//     null hypothesis   sigmoid(e + t) at most      a tolerated error of t logits
//     alternative       sigmoid(e + t + d)          a shift of d logits beyond it
//     W <- max(0, W + sum over the round of log (alternative / null)),   alarm at W >= h
//
// and the mirror image for less. As long as no prediction is off by more than t, exp of a round's sum has an
// expectation of at most 1 given the past. So the expected number of rounds to a false alarm is at least e^h (Lorden,
// 1971). That holds for any confidences and any dependence between rounds. h = log(2 gamma N) makes that N rounds for
// all tests together. It is an inequality: the true number is ten times that and more. The price is delay: about h
// divided by the information of an observation, which is d^2 p (1 - p) / 2 for a shift of t + d. That is some 1,000
// observations at the defaults and gamma 7 (p = 0.75), a third of it for twice the shift.
//
// Rejected: ECE of a window against its noise floor. Its false alarms depend on the confidences that happen to come,
// and a window does not tell when a drift began. ECE is reported (excess()), not tested.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

SURELEAP_BEGIN_NAMESPACE

struct drift_settings {
    double false_alarm_rounds = 1e6;  ///< N: expected rounds to a false alarm of any position, at least; >= 1
    double tolerated = 0.1;           ///< t, logits; 2.5 points of probability at even odds; >= 0
    double shift = 0.4;               ///< d, logits; > 0
    /// Residuals behind excess() fade by this many rounds; >= 1.
    double residual_rounds = 256.0;
};

/// Which way truth left the predictions.
enum class drift_direction : std::uint8_t {
    less_accepted,  ///< predictions are over-confident: verification is spent on tokens that are rejected
    more_accepted,  ///< predictions are under-confident: tokens are not verified that would be accepted
};

/// A drift that was found.
struct drift_report {
    std::size_t position = 0;  ///< k
    drift_direction direction = drift_direction::less_accepted;
    std::uint64_t since = 0;     ///< the round in which it most likely began
    std::uint64_t detected = 0;  ///< the round whose end raised the alarm
};

/// Watches predictions of one block. All memory is taken at construction, O(gamma); observing is O(1) and allocates
/// nothing; a position beyond block_size() is an error. Rounds are counted from 0.
class drift_monitor {
public:
    explicit drift_monitor(std::size_t block_size, drift_settings const& settings = {})
        : settings_(settings), positions_(block_size), found_(2 * block_size) {
        check("block size", static_cast<double>(block_size), 1.0);
        check("false_alarm_rounds", settings.false_alarm_rounds, 1.0);
        check("tolerated", settings.tolerated, 0.0);
        check("shift", settings.shift, 1e-3);
        check("residual_rounds", settings.residual_rounds, 1.0);
        threshold_ = std::log(2.0 * static_cast<double>(block_size) * settings.false_alarm_rounds);
        null_ = std::exp(settings.tolerated);
        alternative_ = std::exp(settings.tolerated + settings.shift);
        fade_ = std::exp(-1.0 / settings.residual_rounds);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return positions_.size(); }
    [[nodiscard]] drift_settings const& settings() const noexcept { return settings_; }

    /// One outcome whose prediction was made before it: position k was reached and verified, and x_k accepted or not,
    /// with sigmoid(argument) predicted.
    void observe(std::size_t k, double argument, bool accepted) {
        detail::expect_position("drift_monitor", k, block_size());
        watched& at = positions_[k];
        double const odds = std::exp(std::clamp(argument, -30.0, 30.0));
        double const against = 1.0 / odds;
        double const d = settings_.shift;
        at.ratio[1] += (accepted ? d : 0.0) - std::log((1.0 + odds * alternative_) / (1.0 + odds * null_));
        at.ratio[0] += (accepted ? 0.0 : d) - std::log((1.0 + against * alternative_) / (1.0 + against * null_));

        double const p = odds / (1.0 + odds);
        residual_bin& bin = at.bins[std::min(static_cast<std::size_t>(p * bin_count), bin_count - 1)];
        bin.residual += p - (accepted ? 1.0 : 0.0);
        bin.variance += p * (1.0 - p);
        bin.count += 1.0;
    }

    /// Ends the round. Returns the drifts it brought to light, valid until the next call. An alarm starts that test
    /// anew.
    std::span<drift_report const> close_round() noexcept {
        found_count_ = 0;
        for (std::size_t k = 0; k < positions_.size(); ++k) {
            watched& at = positions_[k];
            for (std::size_t side = 0; side < 2; ++side) {
                if (at.sum[side] == 0.0) at.since[side] = round_;
                at.sum[side] = std::max(0.0, at.sum[side] + at.ratio[side]);
                at.ratio[side] = 0.0;
                if (at.sum[side] < threshold_) continue;
                at.sum[side] = 0.0;
                found_[found_count_++] = {k, static_cast<drift_direction>(side), at.since[side], round_};
            }
            for (residual_bin& bin : at.bins) {
                bin.residual *= fade_;
                bin.variance *= fade_;
                bin.count *= fade_;
            }
        }
        ++round_;
        return {found_.data(), found_count_};
    }

    /// Forgets what was observed, not what the time is: the predictions that follow come from another map.
    void restart() noexcept { std::fill(positions_.begin(), positions_.end(), watched{}); }

    /// As constructed.
    void clear() noexcept {
        restart();
        round_ = 0;
    }

    /// Over-confidence at position k that chance does not explain, in points of probability: the part of ECE from bins
    /// that predicted too much, beyond two standard deviations of each. What a logit map cannot mend shows here: a
    /// CUSUM follows the mean, in which too much for some and too little for others cancel. As if 64 more observations
    /// had gone as predicted: a handful proves nothing.
    [[nodiscard]] double excess(std::size_t k) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        double sum = 0.0;
        double count = 64.0;
        for (residual_bin const& bin : positions_[k].bins) {
            sum += std::max(0.0, bin.residual - 2.0 * std::sqrt(bin.variance));
            count += bin.count;
        }
        return sum / count;
    }
    /// How far the test of (k, direction) is on its way to an alarm, 0 to 1.
    [[nodiscard]] double suspicion(std::size_t k, drift_direction direction) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        return positions_[k].sum[static_cast<std::size_t>(direction)] / threshold_;
    }
    /// Rounds closed so far.
    [[nodiscard]] std::uint64_t rounds() const noexcept { return round_; }

private:
    static constexpr std::size_t bin_count = 8;

    struct residual_bin {
        double residual = 0.0;
        double variance = 0.0;
        double count = 0.0;
    };
    struct watched {  // by drift_direction
        std::array<double, 2> sum{};
        std::array<double, 2> ratio{};  // of this round
        std::array<std::uint64_t, 2> since{};
        std::array<residual_bin, bin_count> bins{};
    };

    static void check(char const* what, double value, double least) {
        if (!(value >= least && std::isfinite(value))) {
            fail_with("drift_monitor: ", what, " is ", value, ", expected a finite number of at least ", least);
        }
    }

    drift_settings settings_;
    std::vector<watched> positions_;
    std::vector<drift_report> found_;  // [2 gamma]
    std::size_t found_count_ = 0;
    double threshold_ = 0.0;
    double null_ = 1.0;
    double alternative_ = 1.0;
    double fade_ = 1.0;
    std::uint64_t round_ = 0;
};

SURELEAP_END_NAMESPACE
