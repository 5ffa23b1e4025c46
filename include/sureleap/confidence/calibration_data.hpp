// SPDX-License-Identifier: MIT
//
// What calibrations are fitted on, and the sequence that their fits share: from left to right, the map of position k is
// the one that serves a_k best while those of 1..k-1 stay what they became. Fitting all positions jointly would be a
// search in gamma dimensions or more, and fitting each c_k by itself would calibrate factors but not their product, in
// which errors add up.
//
// Every second sample is held out and says what the fit is worth.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/confidence/metrics.hpp>
#include <sureleap/config.hpp>
#include <sureleap/error.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What is fitted on: n rounds of gamma positions, row-major; views of the caller's arrays.
struct calibration_data {
    std::size_t block_size = 0;            ///< gamma, >= 1
    std::span<double const> logits;        ///< [n, gamma] arguments of the sigmoid; +-inf is legal, NaN is not
    std::span<std::uint8_t const> labels;  ///< [n, gamma] 1 while the prefix survived, then 0
    /// [n] positions of the row that count (see survival_labels), at most gamma. The rest of the row is not read.
    std::span<std::uint32_t const> observed;

    [[nodiscard]] std::size_t samples() const noexcept { return observed.size(); }
};

/// What a fit found at one position. ECE is NaN where nothing was observed.
struct position_fit {
    logit_scaling scaling;                  ///< the identity where nothing was observed
    std::uint64_t fit_observed = 0;         ///< samples that took part in the fit of this position
    std::uint64_t evaluation_observed = 0;  ///< held-out samples behind the next two numbers
    double ece_before = std::numeric_limits<double>::quiet_NaN();  ///< held out, no position scaled
    double ece_after = std::numeric_limits<double>::quiet_NaN();   ///< held out, all positions scaled
};

namespace detail {

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

/// -log of what a survival a gave its label, for a in [0, 1]. A certainty that was wrong costs 27.6 and not infinity,
/// or one such sample would decide every fit.
[[nodiscard]] inline double log_loss(double a, bool label) noexcept {
    constexpr double least = 1e-12;
    return label ? -std::log(std::max(a, least)) : -std::log1p(-std::min(a, 1.0 - least));
}

/// Every second sample, from `first` on, and the survival of its prefix under the scalings so far.
class calibration_half {
public:
    calibration_half(calibration_data const& data, std::size_t first, std::size_t bins)
        : data_(data), first_(first), survival_((data.samples() - first + 1) / 2, 1.0), bins_(bins) {}

    [[nodiscard]] std::size_t samples() const noexcept { return survival_.size(); }

    [[nodiscard]] std::uint64_t observed(std::size_t k) const noexcept {
        std::uint64_t count = 0;
        for_each(k, [&](double, double, bool) { ++count; });
        return count;
    }

    /// f(survival of the prefix before k, logit at k, label at k) for the samples observed at k, in order.
    template <class F>
    void for_each(std::size_t k, F const& f) const {
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            std::size_t const at = i * data_.block_size + k;
            if (data_.observed[i] > k) f(survival_[j], data_.logits[at], data_.labels[at] != 0);
        }
    }

    /// ECE of a_k under `scaling` at k.
    [[nodiscard]] double ece(std::size_t k, logit_scaling scaling) {
        std::fill(bins_.begin(), bins_.end(), reliability_bin{});
        for_each(k, [&](double prefix, double logit, bool label) {
            double const a = prefix * scaling(logit);
            reliability_bin& bin = bins_[probability_bin(a, bins_.size())];
            ++bin.count;
            bin.sum_predictions += a;
            bin.sum_labels += label ? 1.0 : 0.0;
        });
        return expected_calibration_error(bins_);
    }

    /// Mean log loss of a_k under `scaling` at k.
    [[nodiscard]] double mean_log_loss(std::size_t k, logit_scaling scaling) const {
        double sum = 0.0;
        std::uint64_t count = 0;
        for_each(k, [&](double prefix, double logit, bool label) {
            sum += log_loss(prefix * scaling(logit), label);
            ++count;
        });
        return sum / static_cast<double>(count);
    }

    /// Settles position k: later ones multiply on top of it.
    void fix(std::size_t k, logit_scaling scaling) {
        for (std::size_t j = 0; j < samples(); ++j) {
            std::size_t const i = first_ + 2 * j;
            if (data_.observed[i] > k) survival_[j] *= scaling(data_.logits[i * data_.block_size + k]);
        }
    }

private:
    calibration_data const& data_;
    std::size_t first_;
    std::vector<double> survival_;
    std::vector<reliability_bin> bins_;
};

/// The fit of all positions.
struct sequential_fit {
    std::uint64_t fit_samples = 0;
    std::uint64_t evaluation_samples = 0;
    std::vector<position_fit> positions;  ///< [gamma]

    [[nodiscard]] std::vector<logit_scaling> scalings() const {
        std::vector<logit_scaling> out;
        for (position_fit const& p : positions) out.push_back(p.scaling);
        return out;
    }
};

/// choose(half, k) -> logit_scaling of position k, for the half that is fitted on, where k is observed.
template <class Choose>
[[nodiscard]] sequential_fit fit_sequentially(calibration_data const& data, std::size_t bins, Choose const& choose) {
    check_calibration_data(data);
    calibration_half fitted(data, 0, bins);
    calibration_half held_out(data, 1, bins);
    calibration_half untouched(data, 1, bins);
    sequential_fit out{fitted.samples(), held_out.samples(), {}};
    for (std::size_t k = 0; k < data.block_size; ++k) {
        position_fit p;
        p.fit_observed = fitted.observed(k);
        p.evaluation_observed = held_out.observed(k);
        if (p.fit_observed > 0) p.scaling = choose(fitted, k);
        if (p.evaluation_observed > 0) {
            p.ece_before = untouched.ece(k, {});
            p.ece_after = held_out.ece(k, p.scaling);
        }
        fitted.fix(k, p.scaling);
        held_out.fix(k, p.scaling);
        untouched.fix(k, {});
        out.positions.push_back(p);
    }
    return out;
}

}  // namespace detail

SURELEAP_END_NAMESPACE
