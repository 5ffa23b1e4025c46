// SPDX-License-Identifier: MIT
//
// The samples that calibrations are fitted on, and the reports of fits. sequential_fit.hpp says in which order fits
// read the samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

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

inline void check_calibration_shapes(calibration_data const& data) {
    std::size_t const gamma = data.block_size;
    std::size_t const n = data.samples();
    if (gamma == 0) fail_with("calibration_data: block size is 0, expected at least 1");
    if (n < 2) fail_with("calibration_data: ", n, " samples, expected at least 2 (one to fit, one to evaluate on)");
    if (data.logits.size() / gamma != n || data.logits.size() % gamma != 0) {
        fail_with("calibration_data: ", data.logits.size(), " logits, expected ", n, " samples x ", gamma,
                  " positions");
    }
    if (data.labels.size() != data.logits.size()) {
        fail_with("calibration_data: ", data.labels.size(), " labels, expected ", n, " samples x ", gamma,
                  " positions");
    }
}

/// The shapes are right. Says which value is wrong, if one is.
inline void check_calibration_values(calibration_data const& data) {
    std::size_t const gamma = data.block_size;
    for (std::size_t i = 0; i < data.samples(); ++i) {
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

/// A certainty that was wrong costs 27.6 and not infinity, or one such sample would decide every fit.
inline constexpr double log_loss_floor = 1e-12;

/// -log of what a survival a gave its label, for a in [0, 1].
[[nodiscard]] inline double log_loss(double a, bool label) noexcept {
    return label ? -std::log(std::max(a, log_loss_floor)) : -std::log1p(-std::min(a, 1.0 - log_loss_floor));
}

}  // namespace detail

SURELEAP_END_NAMESPACE
