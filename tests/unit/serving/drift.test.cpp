// SPDX-License-Identifier: MIT
//
// The drift monitor: the inequality behind its false alarms exactly, the alarms themselves on stationary rounds, delay,
// direction and beginning on shifted ones.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/serving/drift.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;

namespace {

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

/// suspicion after one observation of a fresh monitor, as the log of a likelihood ratio; 0 if that is negative.
double increment(double argument, bool accepted, drift_direction direction, drift_settings const& settings) {
    drift_monitor monitor(1, settings);
    monitor.observe(0, argument, accepted);
    monitor.close_round();
    return monitor.suspicion(0, direction) * std::log(2.0 * settings.false_alarm_rounds);
}

/// The same, negative values too: behind `padding` observations that raise the sum far enough.
double full_increment(double argument, bool accepted, drift_direction direction, drift_settings const& settings) {
    double const h = std::log(2.0 * settings.false_alarm_rounds);
    drift_monitor with(1, settings);
    drift_monitor without(1, settings);
    bool const raising = direction == drift_direction::more_accepted;
    for (int i = 0; i < 20; ++i) {
        with.observe(0, 0.0, raising);
        without.observe(0, 0.0, raising);
    }
    with.observe(0, argument, accepted);
    with.close_round();
    without.close_round();
    return (with.suspicion(0, direction) - without.suspicion(0, direction)) * h;
}

}  // namespace

TEST_CASE(
    "the expectation of a likelihood ratio is at most 1 while predictions are off by no more than what is tolerated") {
    drift_settings settings;
    settings.false_alarm_rounds = 1e30;  // so that nothing here is an alarm
    settings.tolerated = GENERATE(0.0, 0.1, 0.5);
    settings.shift = GENERATE(0.2, 0.4, 1.0);
    for (double const predicted : {-20.0, -3.0, -0.7, 0.0, 0.4, 2.5, 20.0}) {
        for (auto const direction : {drift_direction::less_accepted, drift_direction::more_accepted}) {
            double const up = full_increment(predicted, true, direction, settings);
            double const down = full_increment(predicted, false, direction, settings);
            double const sign = direction == drift_direction::more_accepted ? 1.0 : -1.0;
            auto const expectation = [&](double error) {
                double const p = sigmoid(predicted + error);
                return p * std::exp(up) + (1.0 - p) * std::exp(down);
            };
            CAPTURE(predicted, sign, settings.tolerated, settings.shift);
            // Exactly 1 at the edge, less on the safe side of it, more beyond: the test has power.
            CHECK(std::fabs(expectation(sign * settings.tolerated) - 1.0) < 1e-9);
            CHECK(expectation(-sign * settings.tolerated) <= 1.0 + 1e-9);
            CHECK(expectation(0.0) <= 1.0 + 1e-9);
            CHECK(expectation(-10.0 * sign) <= 1.0 + 1e-9);
            if (std::fabs(predicted) < 10.0) {
                CHECK(expectation(sign * (settings.tolerated + 2.0 * settings.shift)) > 1.0);
            }
        }
    }
}

// Alarms are at most a Poisson number with mean rounds / N; 3 standard deviations above it. How many there are is in
// the output with -s.
TEST_CASE("false alarms on stationary rounds are within their bound") {
    drift_settings settings;
    settings.false_alarm_rounds = 500.0;
    double const error = GENERATE(0.0, 0.1, -0.1);  // predictions off by no more than what is tolerated
    std::uint64_t const seed = 5;
    INFO("seed " << seed);
    support::dice roll(seed);
    drift_monitor monitor(7, settings);
    std::size_t alarms = 0;
    constexpr std::size_t rounds = 20000;
    for (std::size_t i = 0; i < rounds; ++i) {
        for (std::size_t r = 0; r < 8; ++r) {
            for (std::size_t k = 0; k < 7; ++k) {
                double const predicted = 0.8 + 1.5 * roll.bell();
                bool const accepted = roll.chance(sigmoid(predicted + error));
                monitor.observe(k, predicted, accepted);
                if (!accepted) break;
            }
        }
        alarms += monitor.close_round().size();
    }
    double const bound = static_cast<double>(rounds) / settings.false_alarm_rounds;
    CAPTURE(error, alarms, bound);
    CHECK(static_cast<double>(alarms) <= bound + 3.0 * std::sqrt(bound));
}

TEST_CASE("a shift is found where it is, which way, and since when") {
    double const shift = GENERATE(-1.0, -0.5, 0.5, 1.0);
    std::size_t const where = GENERATE(std::size_t{0}, std::size_t{3});
    std::uint64_t const seed = GENERATE(std::uint64_t{21}, std::uint64_t{22}, std::uint64_t{23});
    INFO("seed " << seed);
    support::dice roll(seed);
    drift_monitor monitor(7);
    constexpr std::uint64_t begins = 400;
    // Each round brings 64 observations of a position, the shift an information of about d^2 p q / 2 each.
    auto const rounds_at_most = static_cast<std::uint64_t>(std::fabs(shift) < 0.75 ? 40 : 10);
    std::vector<drift_report> found;
    for (std::uint64_t i = 0; i < begins + 100 && found.empty(); ++i) {
        for (std::size_t r = 0; r < 64; ++r) {
            for (std::size_t k = 0; k < 7; ++k) {
                double const predicted = 0.5 + roll.bell();
                double const error = i >= begins && k == where ? shift : 0.0;
                monitor.observe(k, predicted, roll.chance(sigmoid(predicted + error)));
            }
        }
        auto const now = monitor.close_round();
        found.assign(now.begin(), now.end());
    }
    REQUIRE(found.size() == 1);
    CAPTURE(shift, found[0].since, found[0].detected);
    CHECK(found[0].position == where);
    CHECK(found[0].direction == (shift < 0.0 ? drift_direction::less_accepted : drift_direction::more_accepted));
    CHECK(found[0].detected >= begins);
    CHECK(found[0].detected < begins + rounds_at_most);
    CHECK(found[0].since + 5 >= begins);
    CHECK(found[0].since < begins + 5);
}

TEST_CASE("over-confidence that means cancel shows in the excess, not in the mean") {
    std::uint64_t const seed = 31;
    INFO("seed " << seed);
    support::dice roll(seed);
    drift_monitor monitor(2);
    for (int i = 0; i < 500; ++i) {
        for (int r = 0; r < 16; ++r) {
            monitor.observe(0, 2.0, roll.chance(sigmoid(1.0)));    // too sure
            monitor.observe(0, -2.0, roll.chance(sigmoid(-1.0)));  // not sure enough
            double const predicted = 2.0 * roll.bell();
            monitor.observe(1, predicted, roll.chance(sigmoid(predicted)));
        }
        monitor.close_round();
    }
    CAPTURE(monitor.excess(0), monitor.excess(1));
    CHECK(monitor.excess(0) > 0.05);  // half of the predictions are 15 points too high
    CHECK(monitor.excess(1) < 0.01);
}

TEST_CASE("a monitor without observations says nothing, and a handful proves nothing") {
    drift_monitor monitor(3);
    for (int i = 0; i < 1000; ++i) CHECK(monitor.close_round().empty());
    CHECK(monitor.rounds() == 1000);
    CHECK(monitor.excess(2) == 0.0);
    monitor.observe(2, 3.0, false);
    CHECK(monitor.excess(2) < 0.01);
    CHECK(monitor.close_round().empty());
    monitor.restart();
    CHECK(monitor.rounds() == 1001);
}

TEST_CASE("predictions without bounds cost no more than very sure ones") {
    drift_settings settings;
    settings.false_alarm_rounds = 10.0;
    CHECK(std::isfinite(increment(1e300, true, drift_direction::more_accepted, settings)));
    CHECK(std::isfinite(increment(-1e300, true, drift_direction::more_accepted, settings)));
    CHECK(increment(1e300, false, drift_direction::less_accepted, settings) ==
          increment(30.0, false, drift_direction::less_accepted, settings));
}

TEST_CASE("settings of a drift monitor are checked") {
    auto const text = [](drift_settings const& s) { return support::error_text([&] { drift_monitor monitor(7, s); }); };
    drift_settings s;
    s.false_alarm_rounds = 0.5;
    CHECK(text(s) == "drift_monitor: false_alarm_rounds is 0.5, expected a finite number of at least 1");
    s = {};
    s.shift = std::numeric_limits<double>::quiet_NaN();
    CHECK(text(s) == "drift_monitor: shift is nan, expected a finite number of at least 0.001");
    CHECK(support::error_text([] { drift_monitor monitor(0); }) ==
          "drift_monitor: block size is 0, expected a finite number of at least 1");
}
