// SPDX-License-Identifier: MIT
//
// The fit of sequential Platt scaling. Position k gets the temperature T and the offset b with the smallest log loss of
// a_k. Those of positions 1..k-1 are fitted before and stay.
//
// The loss is that of Platt's paper with a product in the place of the sigmoid. With w = 1 / T, s = sigmoid(w z + b)
// and the survival A of the prefix it is
//     -sum_i [ y_i log(A_i s_i) + (1 - y_i) log(1 - A_i s_i) ] + ((w - 1)^2 + b^2) / 2
// The last term is a prior for the identity, worth about one observation. A position that few rounds reach stays near
// the identity, and one whose labels are all alike does not diverge. Rejected: a grid as fine as that of the
// temperatures, which would have the square of its size; ECE, which has no derivatives.
//
// The minimum is found by Fisher scoring, which needs no second derivatives and is Newton's method where A = 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/fit/calibration_data.hpp>
#include <sureleap/fit/sequential_fit.hpp>
#include <sureleap/fit/temperature_fit.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Temperatures stay within [lowest, highest]: a map that reverses the order of confidences is no calibration.
struct platt_settings {
    double lowest = 0.1;    ///< in (0, 1]
    double highest = 10.0;  ///< in [1, inf)
    std::size_t bins = 15;  ///< of the ECE in the record, >= 1

    [[nodiscard]] bool operator==(platt_settings const&) const = default;
};

/// The calibration together with the record of what it was fitted on.
struct platt_fit {
    sequential_scaling calibration;
    platt_settings settings;
    std::uint64_t fit_samples = 0;
    std::uint64_t evaluation_samples = 0;
    std::vector<position_fit> positions;  ///< [gamma]
};

namespace detail {

inline void check_platt_settings(std::string const& who, platt_settings const& s) {
    check_temperature_range(who, s.lowest, s.highest);
    if (s.bins == 0) fail_with(who, ": number of bins is 0, expected at least 1");
}

/// The loss of one position as a function of (w, b).
class platt_objective {
public:
    platt_objective(calibration_half const& samples, double lowest_w, double highest_w)
        : samples_(samples), lowest_w_(lowest_w), highest_w_(highest_w) {}

    /// From the identity, downhill until a step gains nothing.
    [[nodiscard]] logit_scaling minimum() const {
        point x{1.0, 0.0};
        double best = value(x);
        for (int iteration = 0; iteration < 100; ++iteration) {
            point const step = scoring_step(x);
            bool gained = false;
            for (double size = 1.0; size > 1e-6 && !gained; size /= 2.0) {
                point const next{std::clamp(x.w + size * step.w, lowest_w_, highest_w_), x.b + size * step.b};
                double const there = value(next);
                if (!(there < best - 1e-12 * std::fabs(best))) continue;
                best = there;
                x = next;
                gained = true;
            }
            if (!gained) break;
        }
        return {1.0 / x.w, x.b};
    }

private:
    struct point {
        double w;
        double b;
    };

    [[nodiscard]] double value(point x) const {
        return samples_.log_loss_sum({1.0 / x.w, x.b}) + 0.5 * ((x.w - 1.0) * (x.w - 1.0) + x.b * x.b);
    }

    // With u = 1 - s and r = u / (1 - A s), the derivative in the sigmoid's argument is r (a - y), and its expected
    // square u r a.
    [[nodiscard]] point scoring_step(point x) const {
        double g_w = x.w - 1.0, g_b = x.b;
        double h_ww = 1.0, h_wb = 0.0, h_bb = 1.0;
        samples_.for_each([&](double prefix, double logit, bool label) {
            if (!std::isfinite(logit)) return;  // certain under every map
            double const argument = x.w * logit + x.b;
            double const s = 1.0 / (1.0 + std::exp(-argument));
            double const u = 1.0 / (1.0 + std::exp(argument));
            double const ends = (1.0 - prefix) + prefix * u;
            if (!(ends > 0.0)) return;
            double const a = prefix * s;
            double const slope = u / ends * (a - (label ? 1.0 : 0.0));
            double const weight = u * u / ends * a;
            g_w += slope * logit;
            g_b += slope;
            h_ww += weight * logit * logit;
            h_wb += weight * logit;
            h_bb += weight;
        });
        bool const held = (x.w <= lowest_w_ && g_w > 0.0) || (x.w >= highest_w_ && g_w < 0.0);
        if (held) return {0.0, -g_b / h_bb};
        double const determinant = h_ww * h_bb - h_wb * h_wb;
        return {(h_wb * g_b - h_bb * g_w) / determinant, (h_wb * g_w - h_ww * g_b) / determinant};
    }

    calibration_half const& samples_;
    double lowest_w_;
    double highest_w_;
};

}  // namespace detail

/// Halves, determinism and errors are those of fit_temperatures. O(n gamma) time with a factor of about ten, O(n)
/// memory.
[[nodiscard]] inline platt_fit fit_platt(calibration_data const& data, platt_settings const& settings = {}) {
    detail::check_platt_settings("platt_settings", settings);
    auto fit = detail::fit_sequentially(data, settings.bins, [&](detail::calibration_half const& samples) {
        return detail::platt_objective(samples, 1.0 / settings.highest, 1.0 / settings.lowest).minimum();
    });
    return {sequential_scaling(fit.scalings()), settings, fit.fit_samples, fit.evaluation_samples,
            std::move(fit.positions)};
}

SURELEAP_END_NAMESPACE
