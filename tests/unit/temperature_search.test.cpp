// SPDX-License-Identifier: MIT
//
// The search for temperatures against the exhaustive one, which must find the same: on data made for near ties, with every
// table of passes. Its parts by themselves: the rule among brackets against its replay, the bound against ECE.
#include "support/calibration_rounds.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <sureleap/confidence/temperature_fit.hpp>
#include <sureleap/confidence/temperature_search.hpp>
#include <sureleap/kernel/sample_native.hpp>

using sureleap::fit_temperatures;
using sureleap::fit_temperatures_exhaustively;
using sureleap::logit_scaling;
using sureleap::temperature_objective;
using sureleap::temperature_settings;

using support::rounds;
using support::synthetic;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

bool same_figure(double a, double b) {
    return std::isnan(a) ? std::isnan(b) : std::fabs(a - b) < 1e-12;
}

void check_same(rounds const& data, temperature_settings const& settings) {
    auto const expected = fit_temperatures_exhaustively(data.view(), settings);
    for (sureleap::sample_kernels const* const kernels : sureleap::available_sample_kernels()) {
        INFO(kernels->name << ", " << data.observed.size() << " samples, " << settings.temperatures << " temperatures, "
                           << settings.bins << " bins");
        auto const found = fit_temperatures(data.view(), settings, *kernels);
        CHECK(found.fit_samples == expected.fit_samples);
        CHECK(found.evaluation_samples == expected.evaluation_samples);
        REQUIRE(found.positions.size() == expected.positions.size());
        for (std::size_t k = 0; k < data.gamma; ++k) {
            INFO("position " << k);
            auto const& f = found.positions[k];
            auto const& e = expected.positions[k];
            CHECK(f.scaling == e.scaling);
            CHECK(f.fit_observed == e.fit_observed);
            CHECK(f.evaluation_observed == e.evaluation_observed);
            CHECK(same_figure(f.ece_before, e.ece_before));
            CHECK(same_figure(f.ece_after, e.ece_after));
        }
    }
}

temperature_settings some_settings(std::mt19937_64& draw) {
    static constexpr std::array<std::size_t, 8> bins{1, 2, 3, 15, 16, 20, 100, 1000};
    temperature_settings s{.temperatures = 2 + draw() % 40, .bins = bins[draw() % bins.size()]};
    if (draw() % 2 == 0) s.temperatures = 21;  // with T = 1 among them
    if (draw() % 3 == 0) s.lowest = 0.5, s.highest = 1.0;
    if (draw() % 3 == 0) s.objective = temperature_objective::log_loss;
    return s;
}

rounds some_rounds(std::size_t n, std::mt19937_64& draw) {
    std::vector<double> distortion(1 + draw() % 5);
    for (double& d : distortion) d = 0.4 + static_cast<double>(draw() % 30) / 10.0;
    rounds data = synthetic(n, distortion, draw);
    if (draw() % 2 == 0) {
        for (auto& o : data.observed) o = static_cast<std::uint32_t>(draw() % (data.gamma + 1));
    }
    return data;
}

}  // namespace

TEST_CASE("temperature search: the rule among brackets is the rule among figures") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 4000; ++repeat) {
        // Figures that are fractions of a tie apart, in chains; in some rounds most are far above.
        std::vector<double> figures(1 + draw() % 12);
        for (double& f : figures) {
            f = 0.01 + static_cast<double>(draw() % 40) * 0.3e-12 + (draw() % 3 == 0 ? 0.001 : 0.0);
        }
        std::size_t expected = 0;
        double least = infinity;
        for (std::size_t c = 0; c < figures.size(); ++c) {
            if (figures[c] < least - sureleap::temperature_tie) {
                least = figures[c];
                expected = c;
            }
        }
        int const levels = 1 + static_cast<int>(draw() % 4);
        std::uniform_real_distribution<double> uniform;
        auto const figure = [&](std::size_t c, int level) {
            if (level + 1 == levels) return sureleap::detail::exactly(figures[c]);
            double const width = std::pow(10.0, -2.0 - 5.0 * level) * uniform(draw);
            double const below = uniform(draw) * width;
            return sureleap::detail::bracket{figures[c] - below, figures[c] + (width - below)};
        };
        INFO("repeat " << repeat);
        REQUIRE(sureleap::detail::least_candidate(figures.size(), levels, figure) == expected);
    }
}

TEST_CASE("temperature search: most candidates are never looked at") {
    std::size_t looked_at = 0;
    auto const figure = [&](std::size_t c, int level) {
        double const value = std::fabs(static_cast<double>(c) - 60.0) / 100.0 + 0.03;
        looked_at += level > 0 ? 1 : 0;
        return level == 0 ? sureleap::detail::bracket{value - 0.02, 1.0} : sureleap::detail::exactly(value);
    };
    CHECK(sureleap::detail::least_candidate(100, 2, figure) == 60);
    CHECK(looked_at <= 5);
}

TEST_CASE("temperature search: the bound is one, and figures from floats are within their radius") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 60; ++repeat) {
        rounds data = some_rounds(2 + draw() % 300, draw);
        double const scale = std::pow(10.0, static_cast<double>(draw() % 7) - 3.0);
        for (double& z : data.logits) z = draw() % 30 == 0 ? (z > 0 ? infinity : -infinity) : z * scale;
        auto const view = data.view();
        for (sureleap::sample_kernels const* const kernels : sureleap::available_sample_kernels()) {
            INFO("repeat " << repeat << " " << kernels->name);
            sureleap::detail::sample_columns columns(view, 0);
            for (std::size_t j = 0; j < columns.samples(); j += columns.tile) columns.copy(view, j, *kernels);
            sureleap::detail::scaled_samples samples(view, columns, 1 + draw() % 20, *kernels);
            for (std::size_t k = 0; k < data.gamma && columns.observed(k) > 0; ++k) {
                sureleap::detail::mean_bound const bound(samples, 10.0);
                for (double const t : {0.1, 0.3, 0.9, 1.0, 2.5, 10.0}) {
                    CHECK(bound.least_ece(t) <= samples.ece({t}).value + 1e-12);
                }
                // Brackets from floats, narrow where floats reach, hold the figure; beyond them they are those from doubles.
                for (double const t : {1e-300, 1e-17, 0.1, 0.9, 1.0, 10.0, 1e17, 1e300}) {
                    sureleap::detail::estimate const exact = samples.ece({t});
                    sureleap::detail::estimate const screened = samples.screened_ece(t);
                    CHECK(std::fabs(screened.value - exact.value) <= screened.radius + exact.radius);
                    CHECK(screened.radius < 1e-6);
                }
                samples.settle({1.0 + static_cast<double>(k)});
            }
        }
    }
}

TEST_CASE("temperature search: random rounds, as the exhaustive search") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 60; ++repeat) check_same(some_rounds(2 + draw() % 400, draw), some_settings(draw));
    for (int repeat = 0; repeat < 4; ++repeat) check_same(some_rounds(5001, draw), some_settings(draw));
}

TEST_CASE("temperature search: few distinct logits, so that many samples and temperatures tie") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 80; ++repeat) {
        rounds data = some_rounds(2 + draw() % 200, draw);
        // Logits whose sigmoids are on edges of 2, 4 and 20 bins at T = 1, also as products.
        std::vector<double> const values{0.0,      std::log(3.0), -std::log(3.0), std::log(4.0), std::log(19.0),
                                         infinity, -infinity};
        std::size_t const distinct = 1 + draw() % values.size();
        std::size_t const offset = draw() % values.size();
        for (double& z : data.logits) z = values[(offset + draw() % distinct) % values.size()];
        temperature_settings settings = some_settings(draw);
        if (draw() % 2 == 0) settings.bins = std::array<std::size_t, 3>{2, 4, 20}[draw() % 3];
        check_same(data, settings);
    }
}

TEST_CASE("temperature search: labels that are all alike, logits far out, hardly any samples") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 draw(seed);
    for (int repeat = 0; repeat < 60; ++repeat) {
        rounds data = some_rounds(2 + draw() % (draw() % 2 == 0 ? 4 : 60), draw);
        std::uint64_t const kind = draw() % 4;
        for (std::uint8_t& y : data.labels) y = kind == 0 ? 0 : kind == 1 ? 1 : y;
        double const scale = std::pow(10.0, static_cast<double>(draw() % 9) - 4.0);
        for (double& z : data.logits) {
            z *= scale;
            if (kind == 2) z = std::fabs(z);
            if (draw() % 10 == 0) z = draw() % 2 == 0 ? infinity : -infinity;
        }
        check_same(data, some_settings(draw));
    }
    // Nothing observed at some positions, or at all.
    rounds data = synthetic(9, {2.0, 0.5, 1.0}, draw);
    for (auto& o : data.observed) o = 1;
    check_same(data, {});
    for (auto& o : data.observed) o = 0;
    check_same(data, {});
    data.observed[1] = 3;  // only held out
    check_same(data, {});
}

TEST_CASE("temperature search: many samples at logits 0 tie at every temperature") {
    rounds data{2, {}, {}, {}};
    for (int i = 0; i < 3000; ++i) {
        data.logits.insert(data.logits.end(), {0.0, i % 3 == 0 ? 0.0 : 1.0});
        data.labels.insert(data.labels.end(), {std::uint8_t{i % 2 == 0}, std::uint8_t{i % 6 == 0}});
        data.observed.push_back(2);
    }
    for (std::size_t const bins : std::vector<std::size_t>{2, 15}) check_same(data, {.temperatures = 21, .bins = bins});
}
