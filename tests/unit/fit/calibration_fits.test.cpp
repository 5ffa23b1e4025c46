// SPDX-License-Identifier: MIT
//
// The fits by log loss. Temperatures follow a known factor exactly. Platt scaling is compared with the conditions of
// its minimum, on known distortions, on hardly any data and at its bounds.
#include "support/calibration_rounds.hpp"
#include "support/catch.hpp"
#include "support/error_text.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/fit/platt_fit.hpp>
#include <sureleap/fit/temperature_fit.hpp>

using sureleap::fit_platt;
using sureleap::fit_temperatures;
using sureleap::logit_scaling;
using sureleap::platt_settings;
using sureleap::sequential_platt_scaling;
using sureleap::temperature_objective;

using support::error_text;
using support::rounds;
using support::says;
using support::sigmoid;
using support::synthetic;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// The loss of position k straight from its definition, over the samples that are fitted on, under scalings of 0..k.
double naive_loss(rounds const& data, std::size_t k, std::vector<logit_scaling> const& scalings) {
    double const w = 1.0 / scalings[k].temperature;
    double const b = scalings[k].offset;
    double loss = ((w - 1.0) * (w - 1.0) + b * b) / 2.0;
    for (std::size_t i = 0; i < data.observed.size(); i += 2) {
        if (data.observed[i] <= k) continue;
        double a = 1.0;
        for (std::size_t j = 0; j <= k; ++j) {
            a *= sigmoid(data.logits[i * data.gamma + j] / scalings[j].temperature + scalings[j].offset);
        }
        loss -= data.labels[i * data.gamma + k] != 0 ? std::log(a) : std::log(1.0 - a);
    }
    return loss;
}

}  // namespace

TEST_CASE("log loss: by hand, and finite where a certainty was wrong") {
    CHECK(sureleap::detail::log_loss(0.25, true) == std::log(4.0));
    CHECK(std::abs(sureleap::detail::log_loss(0.75, false) - std::log(4.0)) < 1e-15);
    CHECK(sureleap::detail::log_loss(1.0, true) == 0.0);
    CHECK(sureleap::detail::log_loss(0.0, false) == 0.0);
    CHECK(std::abs(sureleap::detail::log_loss(0.0, true) - 27.631) < 1e-3);
    CHECK(std::abs(sureleap::detail::log_loss(1.0, false) - 27.631) < 1e-3);
}

TEST_CASE("temperatures by log loss: a factor on the logits is a factor on the temperature") {
    // The loss at T of logits times f is that at T / f of the logits themselves. So the two minima differ by the factor
    // f within one step of the grid, which is 2.3 % here. That does not hold of ECE, which is jagged.
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    sureleap::temperature_settings const settings{.temperatures = 201, .objective = temperature_objective::log_loss};
    rounds const plain = synthetic(4000, std::vector<double>{1.0, 0.8, 1.3, 1.0}, draw);
    rounds scaled = plain;
    std::vector<double> const factor{1.5, 2.0, 3.0, 0.7};
    for (std::size_t i = 0; i < scaled.logits.size(); ++i) scaled.logits[i] *= factor[i % 4];
    auto const before = fit_temperatures(plain.view(), settings);
    auto const after = fit_temperatures(scaled.view(), settings);
    for (std::size_t k = 0; k < 4; ++k) {
        double const found = after.positions[k].scaling.temperature / before.positions[k].scaling.temperature;
        INFO("position " << k << " found " << found);
        // Positions after the first see their prefixes scaled by temperatures that are off by part of a step.
        CHECK(std::abs(std::log(found / factor[k])) < 0.03);
    }
}

TEST_CASE("temperatures by log loss: no candidate of the grid is better") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    rounds const data = synthetic(600, std::vector<double>{2.0, 0.5, 1.2}, draw);
    sureleap::temperature_settings const settings{.temperatures = 40, .objective = temperature_objective::log_loss};
    auto const fit = fit_temperatures(data.view(), settings);
    std::vector<logit_scaling> chosen(3);
    for (std::size_t k = 0; k < 3; ++k) {
        auto const loss = [&](double t) {
            chosen[k] = {t};
            double const w = 1.0 / t;
            return naive_loss(data, k, chosen) - (w - 1.0) * (w - 1.0) / 2.0;
        };
        double const best = loss(fit.positions[k].scaling.temperature);
        for (double const t : sureleap::detail::temperature_candidates(settings)) CHECK(best <= loss(t) + 1e-9);
        chosen[k] = fit.positions[k].scaling;
        CHECK(fit.positions[k].scaling.offset == 0.0);
    }
}

TEST_CASE("Platt scaling: maps by hand, and the order they keep") {
    auto const calibrate = sequential_platt_scaling({{2.0, 0.5}, {1.0, 0.0}, {0.5, -1.0}});
    CHECK(calibrate.block_size() == 3);
    CHECK(calibrate.from_logit(0, 3.0) == sigmoid(2.0));
    CHECK(std::abs(calibrate(0, sigmoid(3.0)) - sigmoid(2.0)) < 1e-12);
    CHECK(calibrate(1, 0.37) == 0.37);
    CHECK(std::abs(calibrate(2, 0.5) - sigmoid(-1.0)) < 1e-12);
    for (std::size_t k = 0; k < 3; ++k) {
        CHECK(calibrate(k, 0.0) == 0.0);
        CHECK(calibrate(k, 1.0) == 1.0);
        CHECK(std::isnan(calibrate(k, nan_value)));
        double previous = 0.0;
        for (int i = 0; i <= 20000; ++i) {
            double const c = calibrate(k, static_cast<double>(i) / 20000.0);
            REQUIRE(c >= previous);
            previous = c;
        }
    }
    CHECK(says(error_text([] { static_cast<void>(sequential_platt_scaling({})); }),
               "sequential_platt_scaling: no temperatures"));
    for (double const t : {0.0, -1.0, 1e-320, nan_value, infinity}) {
        CHECK(says(error_text([t] { static_cast<void>(sequential_platt_scaling({{1.0, 0.0}, {t, 0.0}})); }),
                   "temperature at position 1"));
    }
    for (double const b : {nan_value, infinity}) {
        CHECK(says(error_text([b] { static_cast<void>(sequential_platt_scaling({{1.0, b}})); }),
                   "offset at position 0 is"));
    }
}

TEST_CASE("Platt fit: stands at the minimum of its loss, position by position") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 10; ++repeat) {
        rounds data =
            synthetic(200 + draw() % 400, std::vector<logit_scaling>{{1.4, -0.4}, {0.8, 0.5}, {1.0, 0.0}}, draw);
        for (auto& o : data.observed) o = 1 + static_cast<std::uint32_t>(draw() % 3);
        auto const fit = fit_platt(data.view());
        std::vector<logit_scaling> chosen(3);
        for (std::size_t k = 0; k < 3; ++k) {
            INFO("repeat " << repeat << " position " << k);
            logit_scaling const found = fit.positions[k].scaling;
            CHECK(found == fit.calibration.positions()[k]);
            double const w = 1.0 / found.temperature;
            auto const loss = [&](double dw, double db) {
                chosen[k] = {1.0 / (w + dw), found.offset + db};
                return naive_loss(data, k, chosen);
            };
            double const h = 1e-4;
            // Some of these labels fall with their logits: then the flattest map is the best, and a flatter one is
            // none.
            bool const flattest = found.temperature == platt_settings{}.highest;
            if (flattest) {
                CHECK((loss(h, 0) - loss(0, 0)) / h > -1e-2);
            } else {
                CHECK(std::abs(loss(h, 0) - loss(-h, 0)) / (2 * h) < 1e-2);
            }
            CHECK(std::abs(loss(0, h) - loss(0, -h)) / (2 * h) < 1e-2);
            for (double const step : {0.01, 0.1, 0.3}) {
                for (double const angle : {0.0, 0.8, 1.6, 2.4, 3.2, 4.0, 4.8, 5.6}) {
                    if (flattest && std::cos(angle) < 0.0) continue;
                    CHECK(loss(0, 0) < loss(step * std::cos(angle), step * std::sin(angle)));
                }
            }
            chosen[k] = found;
        }
    }
}

TEST_CASE("Platt fit: known distortions are recovered, which temperatures alone cannot mend") {
    // A fixed seed, and bounds with room: over 30 others the worst were 0.08, 0.10, 0.011 and 0.47; 0.14 against
    // temperatures.
    constexpr double log_temperature_error = 0.15;
    constexpr double offset_error = 0.2;
    constexpr double calibrated_ece = 0.02;
    constexpr double remaining_share = 0.5;
    constexpr double share_of_temperatures = 0.3;
    constexpr std::size_t half = 30000;
    std::mt19937_64 draw(support::calibration_seed);
    std::vector<logit_scaling> const distortion{{2.0, -0.8}, {0.7, 0.6}, {1.3, -1.0}};
    rounds const data = synthetic(2 * half, distortion, draw);
    auto const fit = fit_platt(data.view());
    auto const temperatures = fit_temperatures(data.view());
    CHECK(fit.fit_samples == half);
    CHECK(fit.evaluation_samples == half);
    for (std::size_t k = 0; k < distortion.size(); ++k) {
        auto const& p = fit.positions[k];
        INFO("position " << k << " temperature " << p.scaling.temperature << " offset " << p.scaling.offset);
        CHECK(std::abs(std::log(p.scaling.temperature / distortion[k].temperature)) < log_temperature_error);
        CHECK(std::abs(p.scaling.offset - distortion[k].offset) < offset_error);
        CHECK(p.ece_after < calibrated_ece);
        CHECK(p.ece_after < remaining_share * p.ece_before);
    }
    CHECK(fit.positions[0].ece_after < share_of_temperatures * temperatures.positions[0].ece_after);
}

TEST_CASE("Platt fit: hardly any data moves it hardly") {
    // One observation at position 0, none beyond.
    rounds const few{2, {0.3, nan_value, 0.1, nan_value}, {1, 9, 0, 9}, {1, 1}};
    auto const fit = fit_platt(few.view());
    CHECK(std::abs(fit.positions[0].scaling.offset) < 0.5);
    CHECK(std::abs(fit.positions[0].scaling.temperature - 1.0) < 0.2);
    CHECK(fit.positions[1].fit_observed == 0);
    CHECK(fit.positions[1].scaling == logit_scaling{});
    CHECK(std::isnan(fit.positions[1].ece_before));
    CHECK(std::isnan(fit.positions[1].ece_after));
}

TEST_CASE("Platt fit: labels that are all alike, certainties that were wrong, order that is reversed") {
    rounds all{1, {}, {}, {}};
    rounds reversed{1, {}, {}, {}};
    for (int i = 0; i < 400; ++i) {
        double const z = (i % 40) / 10.0 - 2.0;
        all.logits.push_back(z), all.labels.push_back(1), all.observed.push_back(1);
        reversed.logits.push_back(z), reversed.labels.push_back(z < 0.0 ? 1 : 0), reversed.observed.push_back(1);
    }
    auto const sure = fit_platt(all.view()).positions[0];
    CHECK(std::isfinite(sure.scaling.offset));
    CHECK(sure.scaling.offset > 2.0);  // 200 out of 200: as sure as the prior lets it be
    CHECK(sure.ece_after < 0.05);

    // The best increasing map is as flat as it may be.
    platt_settings const settings{.lowest = 0.2, .highest = 5.0};
    auto const flat = fit_platt(reversed.view(), settings).positions[0].scaling;
    CHECK(std::abs(flat.temperature - 5.0) < 1e-12);
    CHECK(std::abs(flat.offset) < 0.05);

    rounds const wrong{1, {infinity, infinity, -infinity, -infinity, 1.0, 1.0}, {0, 0, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}};
    auto const finite = fit_platt(wrong.view()).positions[0].scaling;
    CHECK(std::isfinite(finite.temperature));
    CHECK(std::isfinite(finite.offset));
}

TEST_CASE("Platt fit: unusable settings and data") {
    rounds const good{1, {0.1, 0.2}, {1, 0}, {1, 1}};
    REQUIRE(error_text([&] { (void)fit_platt(good.view()); }) == "");
    auto const refused = [&](platt_settings const& s) { return error_text([&] { (void)fit_platt(good.view(), s); }); };
    CHECK(says(refused({.lowest = 0.0}), "platt_settings: lowest temperature is 0"));
    CHECK(says(refused({.highest = 0.5}), "platt_settings: highest temperature is 0.5"));
    CHECK(says(refused({.bins = 0}), "platt_settings: number of bins is 0"));
    rounds const bad{1, {nan_value, 0.2}, {1, 0}, {1, 1}};
    CHECK(says(error_text([&] { (void)fit_platt(bad.view()); }), "logit of sample 0 at position 0 is NaN"));
}
