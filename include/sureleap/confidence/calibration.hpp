// SPDX-License-Identifier: MIT
//
// Calibration: maps that make the survival
//     a_k = prod_{i<=k} c_i
// agree with how often prefixes really are accepted. Schedulers multiply a_k into expected accepts; an over-confident
// head would have them verify tokens that are rejected anyway. This header has the maps, and what a round tells about
// survival. The fits are in fit/temperature_fit.hpp and fit/platt_fit.hpp. A calibration is lent to the rounds
// (calibration_ref.hpp), which apply it to every confidence.
//
//   sequential_temperature_scaling   sigmoid(logit / T_k)         the paper's (section 3.2.1): how sure
//   sequential_platt_scaling         sigmoid(logit / T_k + b_k)   also how likely altogether
//
// A temperature leaves 1/2 where it is. So it corrects a head that is too sure or not sure enough, and nothing else. A
// change in acceptance itself (another sampling temperature, another kind of text) shifts all confidences. The offset
// corrects that (Platt, "Probabilistic outputs for support vector machines", 1999).
//
// Each map preserves the order of confidences at its position, so it changes no ranking by c_k.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

SURELEAP_BEGIN_NAMESPACE

// ---- calibrations ----------------------------------------------------------------------------------------------

/// The map of one position, on the argument of the sigmoid.
struct logit_scaling {
    double temperature = 1.0;  ///< T, positive
    double offset = 0.0;       ///< b

    [[nodiscard]] SURELEAP_HOST_DEVICE double operator()(double logit) const noexcept {
        return 1.0 / (1.0 + std::exp(-(logit / temperature + offset)));
    }
    /// The same of a confidence. 0, 1 and everything under the identity stay what they are; NaN stays NaN, for the
    /// round to report.
    [[nodiscard]] SURELEAP_HOST_DEVICE double of_confidence(double confidence) const noexcept {
        if (*this == logit_scaling{}) return confidence;
        // As a difference of logarithms and not as the logarithm of a quotient: both terms are monotone as rounded,
        // so the order of confidences survives the rounding.
        return (*this)(std::log(confidence) - std::log1p(-confidence));
    }
    [[nodiscard]] bool operator==(logit_scaling const&) const = default;
};

namespace detail {

inline void check_scalings(char const* who, std::span<logit_scaling const> positions) {
    if (positions.empty()) fail_with(who, ": no temperatures, expected one per position");
    for (std::size_t k = 0; k < positions.size(); ++k) {
        if (double const t = positions[k].temperature; !(t > 0.0 && std::isfinite(t) && std::isfinite(1.0 / t))) {
            fail_with(who, ": temperature at position ", k, " is ", t,
                      ", expected a positive finite number whose inverse is finite");
        }
        if (double const b = positions[k].offset; !std::isfinite(b)) {
            fail_with(who, ": offset at position ", k, " is ", b, ", expected a finite number");
        }
    }
}

}  // namespace detail

/// A map for each position. Models calibrator. Immutable, concurrently callable.
class sequential_scaling {
public:
    /// One per position of the block; `maker` is named where one of them cannot be used.
    explicit sequential_scaling(std::vector<logit_scaling> positions, char const* maker = "sequential_scaling")
        : positions_(std::move(positions)) {
        detail::check_scalings(maker, positions_);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return positions_.size(); }
    [[nodiscard]] std::span<logit_scaling const> positions() const noexcept { return positions_; }

    /// The calibrated conditional confidence at position k < block_size().
    [[nodiscard]] double operator()(std::size_t k, double confidence) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        return positions_[k].of_confidence(confidence);
    }
    /// The same from the argument of the sigmoid, if the head has it; saves a logarithm, and loses nothing where
    /// the confidence itself would round to 0 or 1.
    [[nodiscard]] double from_logit(std::size_t k, double logit) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        return positions_[k](logit);
    }

private:
    std::vector<logit_scaling> positions_;
};

/// temperatures[k] is the paper's T_{k+1}; positive and finite, one per position of the block.
[[nodiscard]] inline sequential_scaling sequential_temperature_scaling(std::vector<double> const& temperatures) {
    std::vector<logit_scaling> positions;
    for (double const t : temperatures) positions.push_back({t});
    return sequential_scaling(std::move(positions), "sequential_temperature_scaling");
}

/// One temperature and one offset per position of the block.
[[nodiscard]] inline sequential_scaling sequential_platt_scaling(std::vector<logit_scaling> positions) {
    return sequential_scaling(std::move(positions), "sequential_platt_scaling");
}

// ---- labels ----------------------------------------------------------------------------------------------------

/// What a round that verified l of gamma draft tokens and accepted a of them says about survival. Position k
/// survived iff k < accepted; the question is for which k that is usable.
struct survival_labels {
    std::size_t accepted = 0;
    /// Positions whose label is known. After a rejection that is all of them: nothing beyond it can survive,
    /// verified or not. After a trimmed prefix was accepted in full, survival beyond it was not observed: l.
    std::size_t known = 0;
    /// Positions that were verified: l. The right number of observations for a FIT on trimmed rounds. Whether k < l was
    /// decided before x_k was drawn, so it selects no outcome. `known` at k >= l selects the rounds with a rejection,
    /// all labelled 0, and leaves out those that went well. Every a_k beyond would be fitted towards 0. The two agree
    /// if all rounds verify all gamma tokens, which is the best data to fit on.
    std::size_t verified = 0;

    [[nodiscard]] std::uint8_t label(std::size_t k) const noexcept { return k < accepted ? 1 : 0; }
};

/// Requires accepted <= verified <= block_size.
[[nodiscard]] inline survival_labels label_round(std::size_t verified, std::size_t accepted,
                                                 std::size_t block_size) noexcept {
    SURELEAP_EXPECTS(accepted <= verified && verified <= block_size);
    return {accepted, accepted < verified ? block_size : verified, verified};
}

SURELEAP_END_NAMESPACE
