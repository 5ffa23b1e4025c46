// SPDX-License-Identifier: MIT
//
// The fit of sequential temperature scaling (paper, section 3.2.1): T_k is the temperature of a grid under which a_k
// agrees best with the outcomes, while T_1..T_{k-1} stay as fitted.
//
// What "best" means is the one choice. The paper minimises the expected calibration error (ECE), which is also what is
// reported. But as a function of the temperature it is jagged and nearly flat around its minimum. Where few prefixes
// survive, the lowest point may lie anywhere in that range. The log loss is smooth in the temperature: fits of the same
// rounds before and after their logits were scaled differ by that scale, where ECE's may not (docs/evaluation.md). It
// is the choice for comparing temperatures, or following them over time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/fit/calibration_data.hpp>
#include <sureleap/fit/sequential_fit.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a temperature is judged by, as a mean over samples with observed > k.
enum class temperature_objective {
    calibration_error,  ///< ECE of a_k (paper)
    log_loss,           ///< -log of the probability that a_k gave to what happened
};

/// A candidate beats another by more than this: figures that differ by less differ by rounding.
inline constexpr double temperature_tie = 1e-12;

/// The grid search at every position, written out so that a fit can be repeated.
///
/// Candidates: T = 1, and `temperatures` values spaced evenly in log T from `lowest` to `highest`, ends included.
/// Objective: as named; ECE with `bins` equal-width bins (probability_bin), which are those of the record as well.
/// Ties: a candidate beats another only by more than 1e-12 (temperature_tie); otherwise the one nearer to T = 1 in
/// |log T| (compared in units of 1e-9), then the smaller, is kept. A position without observations keeps T = 1.
struct temperature_settings {
    double lowest = 0.1;             ///< in (0, 1]
    double highest = 10.0;           ///< in [1, inf)
    std::size_t temperatures = 100;  ///< >= 2
    std::size_t bins = 15;           ///< >= 1
    temperature_objective objective = temperature_objective::calibration_error;

    [[nodiscard]] bool operator==(temperature_settings const&) const = default;
};

/// The calibration together with the record of what it was fitted on.
struct temperature_fit {
    sequential_scaling calibration;  ///< offsets are 0
    temperature_settings settings;
    std::uint64_t fit_samples = 0;
    std::uint64_t evaluation_samples = 0;
    std::vector<position_fit> positions;  ///< [gamma]; offsets are 0
};

namespace detail {

inline void check_temperature_range(std::string const& who, double lowest, double highest) {
    if (!(lowest > 0.0 && lowest <= 1.0 && std::isfinite(1.0 / lowest))) {
        fail_with(who, ": lowest temperature is ", lowest, ", expected a number in (0, 1] whose inverse is finite");
    }
    if (!(highest >= 1.0 && std::isfinite(highest))) {
        fail_with(who, ": highest temperature is ", highest, ", expected a finite number of at least 1");
    }
}

inline void check_temperature_settings(std::string const& who, temperature_settings const& s) {
    check_temperature_range(who, s.lowest, s.highest);
    if (s.temperatures < 2) fail_with(who, ": number of temperatures is ", s.temperatures, ", expected at least 2");
    if (s.bins == 0) fail_with(who, ": number of bins is 0, expected at least 1");
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

}  // namespace detail

/// Fits on samples 0, 2, 4, ... and evaluates on samples 1, 3, 5, ... Deterministic on a platform; another
/// platform's exp may differ in the last place. If neighbouring samples belong together (rounds of one request),
/// hand them over shuffled or by request, or the halves are less independent than they look.
///
/// O(n gamma temperatures) time: 0.4 s for 100,000 samples of 7 positions and 100 temperatures. O(n) memory. Errors: no
/// samples, gamma 0, sizes that disagree, a NaN logit, a label other than 0 and 1 or no prefix mask, observed beyond
/// gamma, unusable settings.
[[nodiscard]] inline temperature_fit fit_temperatures(calibration_data const& data,
                                                      temperature_settings const& settings = {}) {
    detail::check_temperature_settings("temperature_settings", settings);
    std::vector<double> const candidates = detail::temperature_candidates(settings);
    auto fit = detail::fit_sequentially(data, settings.bins, [&](detail::calibration_half& half) {
        auto const samples = static_cast<double>(half.observed());
        double least = std::numeric_limits<double>::infinity();
        logit_scaling best;
        for (double const t : candidates) {
            bool const by_ece = settings.objective == temperature_objective::calibration_error;
            double const error = by_ece ? half.ece({t}) : half.log_loss_sum({t}) / samples;
            if (!(error < least - temperature_tie)) continue;
            least = error;
            best = {t};
        }
        return best;
    });
    return {sequential_scaling(fit.scalings()), settings, fit.fit_samples, fit.evaluation_samples,
            std::move(fit.positions)};
}

SURELEAP_END_NAMESPACE
