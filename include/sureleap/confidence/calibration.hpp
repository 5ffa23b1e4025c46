// SPDX-License-Identifier: MIT
//
// Sequential temperature scaling (paper, section 3.2.1): one temperature per position makes the survival
//     a_k = prod_{i<=k} sigmoid(logit_i / T_i)
// agree with how often prefixes really are accepted. Schedulers multiply a_k into expected accepts; an
// over-confident head would have them verify tokens that are rejected anyway.
//
// The fit goes from left to right. T_k is the temperature of a grid with the smallest expected calibration error of
// a_k, while T_1..T_{k-1} stay what they became. Fitting all positions jointly would be a gamma-dimensional search,
// and fitting each c_k by itself would calibrate factors but not their product, in which errors add up.
//
// Each map preserves the order of confidences at its position, so it changes no ranking by c_k.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/confidence/metrics.hpp>
#include <sureleap/config.hpp>
#include <sureleap/error.hpp>

SURELEAP_BEGIN_NAMESPACE

// ---- calibrators -----------------------------------------------------------------------------------------------

/// Confidences as they come. Models calibrator.
struct no_calibration {
    [[nodiscard]] double operator()(std::size_t, double confidence) const noexcept { return confidence; }
};

/// One temperature per position. Models calibrator. Immutable, concurrently callable.
class sequential_temperature_scaling {
public:
    /// temperatures[k] is the paper's T_{k+1}; positive and finite, one per position of the block.
    explicit sequential_temperature_scaling(std::vector<double> temperatures) : temperatures_(std::move(temperatures)) {
        if (temperatures_.empty()) {
            detail::fail("sequential_temperature_scaling: no temperatures, expected one per position");
        }
        for (std::size_t k = 0; k < temperatures_.size(); ++k) {
            if (!(temperatures_[k] > 0.0 && std::isfinite(temperatures_[k]))) {
                detail::fail_with("sequential_temperature_scaling: temperature at position ", k, " is ",
                                  temperatures_[k], ", expected a positive finite number");
            }
        }
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return temperatures_.size(); }
    [[nodiscard]] std::span<double const> temperatures() const noexcept { return temperatures_; }

    /// The calibrated conditional confidence at position k < block_size(). 0, 1 and everything at T = 1 stay what
    /// they are; NaN stays NaN, for the round to report.
    [[nodiscard]] double operator()(std::size_t k, double confidence) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        if (temperatures_[k] == 1.0) return confidence;
        // As a difference of logarithms and not as the logarithm of a quotient: both terms are monotone as rounded,
        // so the order of confidences survives the rounding.
        return scaled(k, std::log(confidence) - std::log1p(-confidence));
    }

    /// The same from the argument of the sigmoid, if the head has it; saves a logarithm, and loses nothing where
    /// the confidence itself would round to 0 or 1.
    [[nodiscard]] double from_logit(std::size_t k, double logit) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        return scaled(k, logit);
    }

private:
    [[nodiscard]] double scaled(std::size_t k, double logit) const noexcept {
        return 1.0 / (1.0 + std::exp(-logit / temperatures_[k]));
    }

    std::vector<double> temperatures_;
};

// ---- labels ----------------------------------------------------------------------------------------------------

/// What a round that verified l of gamma draft tokens and accepted a of them says about survival. Position k
/// survived iff k < accepted; the question is for which k that is usable.
struct survival_labels {
    std::size_t accepted = 0;
    /// Positions whose label is known. After a rejection that is all of them: nothing beyond it can survive,
    /// verified or not. After a trimmed prefix was accepted in full, survival beyond it was not observed: l.
    std::size_t known = 0;
    /// Positions that were verified: l. The right number of observations for a FIT on trimmed rounds. Whether k < l
    /// was decided before x_k was drawn, so it selects no outcome; `known` at k >= l selects the rounds with a
    /// rejection, all labelled 0, and leaves out those that went well: every a_k beyond would be fitted towards 0.
    /// The two agree if all rounds verify all gamma tokens, which is the best data to fit on.
    std::size_t verified = 0;

    [[nodiscard]] std::uint8_t label(std::size_t k) const noexcept { return k < accepted ? 1 : 0; }
};

/// Requires accepted <= verified <= block_size.
[[nodiscard]] inline survival_labels label_round(std::size_t verified, std::size_t accepted,
                                                 std::size_t block_size) noexcept {
    SURELEAP_EXPECTS(accepted <= verified && verified <= block_size);
    return {accepted, accepted < verified ? block_size : verified, verified};
}

// ---- the fit ---------------------------------------------------------------------------------------------------

/// What is fitted on: n rounds of gamma positions, row-major; views of the caller's arrays.
struct calibration_data {
    std::size_t block_size = 0;            ///< gamma, >= 1
    std::span<double const> logits;        ///< [n, gamma] arguments of the sigmoid; +-inf is legal, NaN is not
    std::span<std::uint8_t const> labels;  ///< [n, gamma] 1 while the prefix survived, then 0
    /// [n] positions of the row that count (see survival_labels), at most gamma. The rest of the row is not read.
    std::span<std::uint32_t const> observed;

    [[nodiscard]] std::size_t samples() const noexcept { return observed.size(); }
};

/// The grid search at every position, written out so that a fit can be repeated.
///
/// Candidates: T = 1, and `temperatures` values spaced evenly in log T from `lowest` to `highest`, ends included.
/// Objective: ECE of a_k with `bins` equal-width bins (probability_bin), over samples with observed > k.
/// Ties: a candidate beats another only by more than 1e-12; otherwise the one nearer to T = 1 in |log T| (compared
/// in units of 1e-9), then the smaller, is kept. A position without observations keeps T = 1.
struct temperature_settings {
    double lowest = 0.1;             ///< in (0, 1]
    double highest = 10.0;           ///< in [1, inf)
    std::size_t temperatures = 100;  ///< >= 2
    std::size_t bins = 15;           ///< >= 1

    [[nodiscard]] bool operator==(temperature_settings const&) const = default;
};

/// One position of a fit. ECE is NaN where nothing was observed.
struct position_fit {
    double temperature = 1.0;
    std::uint64_t fit_observed = 0;         ///< samples that took part in the fit of this position
    std::uint64_t evaluation_observed = 0;  ///< held-out samples behind the next two numbers
    double ece_before = std::numeric_limits<double>::quiet_NaN();  ///< held out, all temperatures 1
    double ece_after = std::numeric_limits<double>::quiet_NaN();   ///< held out, fitted temperatures
};

/// The calibrator together with the record of what it was fitted on.
struct temperature_fit {
    sequential_temperature_scaling calibration;
    temperature_settings settings;
    std::uint64_t fit_samples = 0;
    std::uint64_t evaluation_samples = 0;
    std::vector<position_fit> positions;  ///< [gamma]
};

namespace detail {

inline void check_temperature_settings(std::string const& who, temperature_settings const& s) {
    if (!(s.lowest > 0.0 && s.lowest <= 1.0)) {
        fail_with(who, ": lowest temperature is ", s.lowest, ", expected a number in (0, 1]");
    }
    if (!(s.highest >= 1.0 && std::isfinite(s.highest))) {
        fail_with(who, ": highest temperature is ", s.highest, ", expected a finite number of at least 1");
    }
    if (s.temperatures < 2) fail_with(who, ": number of temperatures is ", s.temperatures, ", expected at least 2");
    if (s.bins == 0) fail_with(who, ": number of bins is 0, expected at least 1");
}

inline void check_calibration_data(calibration_data const& data) {
    std::size_t const gamma = data.block_size;
    std::size_t const n = data.samples();
    if (gamma == 0) fail("calibration_data: block size is 0, expected at least 1");
    if (n < 2) fail_with("calibration_data: ", n, " samples, expected at least 2 (one to fit, one to evaluate on)");
    if (data.logits.size() / gamma != n || data.logits.size() % gamma != 0) {
        fail_with("calibration_data: ", data.logits.size(), " logits, expected ", n, " samples x ", gamma,
                  " positions");
    }
    if (data.labels.size() != data.logits.size()) {
        fail_with("calibration_data: ", data.labels.size(), " labels, expected ", n, " samples x ", gamma,
                  " positions");
    }
    for (std::size_t i = 0; i < n; ++i) {
        if (data.observed[i] > gamma) {
            fail_with("calibration_data: observed of sample ", i, " is ", data.observed[i],
                      ", expected at most the block size ", gamma);
        }
        for (std::size_t k = 0; k < data.observed[i]; ++k) {
            int const label = data.labels[i * gamma + k];
            if (std::isnan(data.logits[i * gamma + k])) {
                fail_with("calibration_data: logit of sample ", i, " at position ", k, " is NaN");
            }
            if (label > 1) {
                fail_with("calibration_data: label of sample ", i, " at position ", k, " is ", label,
                          ", expected 0 or 1");
            }
            if (k > 0 && label > data.labels[i * gamma + k - 1]) {
                fail_with("calibration_data: label of sample ", i, " at position ", k,
                          " is 1 after a 0, expected the mask of an accepted prefix (survival, not conditional "
                          "acceptance)");
            }
        }
    }
}

/// All candidates of the grid in the order in which ties are decided.
[[nodiscard]] inline std::vector<double> temperature_candidates(temperature_settings const& s) {
    struct candidate_temperature {
        long long distance;
        double temperature;
    };
    std::vector<candidate_temperature> candidates{{0, 1.0}};
    double const low = std::log(s.lowest);
    double const high = std::log(s.highest);
    for (std::size_t i = 0; i < s.temperatures; ++i) {
        double const t = static_cast<double>(i) / static_cast<double>(s.temperatures - 1);
        double const logarithm = (1.0 - t) * low + t * high;
        candidates.push_back({std::llround(std::fabs(logarithm) * 1e9), std::exp(logarithm)});
    }
    std::sort(candidates.begin(), candidates.end(), [](auto const& a, auto const& b) {
        return a.distance != b.distance ? a.distance < b.distance : a.temperature < b.temperature;
    });
    std::vector<double> out;
    for (auto const& c : candidates) out.push_back(c.temperature);
    return out;
}

/// Every second sample, from `first` on, and the survival of its prefix under the temperatures so far.
class calibration_half {
public:
    calibration_half(calibration_data const& data, std::size_t first, std::size_t bins)
        : data_(data), first_(first), survival_((data.samples() - first + 1) / 2, 1.0), bins_(bins) {}

    [[nodiscard]] std::size_t samples() const noexcept { return survival_.size(); }

    [[nodiscard]] std::uint64_t observed(std::size_t k) const noexcept {
        std::uint64_t count = 0;
        for (std::size_t i = first_; i < data_.samples(); i += 2) count += data_.observed[i] > k ? 1u : 0u;
        return count;
    }

    /// ECE of a_k if T_k were `temperature`.
    [[nodiscard]] double ece(std::size_t k, double temperature) {
        std::fill(bins_.begin(), bins_.end(), reliability_bin{});
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            if (data_.observed[i] <= k) continue;
            double const a = survival_[j] * conditional(i, k, temperature);
            reliability_bin& bin = bins_[probability_bin(a, bins_.size())];
            ++bin.count;
            bin.sum_predictions += a;
            bin.sum_labels += data_.labels[i * data_.block_size + k];
        }
        return expected_calibration_error(bins_);
    }

    /// Settles T_k: later positions multiply on top of it.
    void fix(std::size_t k, double temperature) {
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            if (data_.observed[i] > k) survival_[j] *= conditional(i, k, temperature);
        }
    }

private:
    [[nodiscard]] double conditional(std::size_t i, std::size_t k, double temperature) const noexcept {
        return 1.0 / (1.0 + std::exp(-data_.logits[i * data_.block_size + k] / temperature));
    }

    calibration_data const& data_;
    std::size_t first_;
    std::vector<double> survival_;
    std::vector<reliability_bin> bins_;
};

}  // namespace detail

/// Fits on samples 0, 2, 4, ... and evaluates on samples 1, 3, 5, ... Deterministic on a platform; another
/// platform's exp may differ in the last place. If neighbouring samples belong together (rounds of one request),
/// hand them over shuffled or by request, or the halves are less independent than they look.
///
/// O(n gamma temperatures) time, O(n) memory. Errors: no samples, gamma 0, sizes that disagree, a NaN logit, a
/// label other than 0 and 1 or no prefix mask, observed beyond gamma, unusable settings.
[[nodiscard]] inline temperature_fit fit_temperatures(calibration_data const& data,
                                                      temperature_settings const& settings = {}) {
    detail::check_temperature_settings("temperature_settings", settings);
    detail::check_calibration_data(data);
    std::size_t const gamma = data.block_size;
    std::vector<double> const candidates = detail::temperature_candidates(settings);

    detail::calibration_half fitted(data, 0, settings.bins);
    detail::calibration_half held_out(data, 1, settings.bins);
    detail::calibration_half untouched(data, 1, settings.bins);
    std::vector<double> temperatures;
    std::vector<position_fit> positions;
    for (std::size_t k = 0; k < gamma; ++k) {
        position_fit p;
        p.fit_observed = fitted.observed(k);
        p.evaluation_observed = held_out.observed(k);
        if (p.fit_observed > 0) {
            double best = std::numeric_limits<double>::infinity();
            for (double const t : candidates) {
                if (double const e = fitted.ece(k, t); e < best - 1e-12) {
                    best = e;
                    p.temperature = t;
                }
            }
        }
        if (p.evaluation_observed > 0) {
            p.ece_before = untouched.ece(k, 1.0);
            p.ece_after = held_out.ece(k, p.temperature);
        }
        fitted.fix(k, p.temperature);
        held_out.fix(k, p.temperature);
        untouched.fix(k, 1.0);
        temperatures.push_back(p.temperature);
        positions.push_back(p);
    }
    return {sequential_temperature_scaling(std::move(temperatures)), settings, fitted.samples(), held_out.samples(),
            std::move(positions)};
}

SURELEAP_END_NAMESPACE
