// SPDX-License-Identifier: MIT
//
// A shift between domains in the middle of a run: how soon calibration is true again, against a run that was calibrated
// freshly on the new domain, and what the way there costs. With -s, the figures of docs/serving_measured.md.
#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/fit/platt_fit.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/serving/online_calibration.hpp>

#include "support/traffic.hpp"

using namespace sureleap;
using support::domain;

namespace {

constexpr std::size_t block = 7;
constexpr std::size_t requests = 64;

using engine = support::traffic<greedy_schedule<analytic_capacity>>;

double seconds(analytic_capacity const& capacity, round_record const& round) {
    std::size_t batch = round.size();
    for (verdict const& v : round.verdicts) batch += v.verified;
    return 1.0 / capacity.steps_per_second(batch);
}

std::size_t tokens(round_record const& round) {
    std::size_t sum = round.size();
    for (verdict const& v : round.verdicts) sum += v.accepted;
    return sum;
}

/// A sequential Platt fit on full blocks of a domain, as if these had been recorded before.
sequential_scaling fresh_fit(domain const& truth, std::size_t samples, std::uint64_t seed) {
    support::dice roll(seed);
    std::vector<double> logits;
    std::vector<std::uint8_t> labels;
    for (std::size_t i = 0; i < samples; ++i) {
        bool alive = true;
        for (std::size_t k = 0; k < block; ++k) {
            auto const token = truth.draw(roll, k);
            alive = alive && token.accepted;
            logits.push_back(token.z);
            labels.push_back(alive ? 1 : 0);
        }
    }
    std::vector<std::uint32_t> const observed(samples, static_cast<std::uint32_t>(block));
    return fit_platt({block, logits, labels, observed}).calibration;
}

struct measured {
    double ece = 0.0;         ///< of survivals at verified positions, mean weighted by how often each was
    double throughput = 0.0;  ///< tokens per second
};

/// Rounds under a map that does not change.
template <class Map>
measured measure(Map const& map, analytic_capacity const& capacity, domain const& truth, int rounds) {
    engine traffic(requests, block, greedy_schedule{capacity}, 77);
    calibration_recorder recorder(block);
    double count = 0.0;
    double time = 0.0;
    for (int i = 0; i < rounds; ++i) {
        auto const round = traffic.round(map, [&](std::size_t) { return truth; });
        for (std::size_t r = 0; r < round.size(); ++r) {
            double survival = 1.0;
            for (std::size_t k = 0; k < round.verdicts[r].verified; ++k) {
                survival *= map(k, round.raw_confidence(r, k));
                recorder.add(k, survival, k < round.verdicts[r].accepted);
            }
        }
        count += static_cast<double>(tokens(round));
        time += seconds(capacity, round);
    }
    return {recorder.mean().ece, count / time};
}

}  // namespace

TEST_CASE("after a shift of domains, calibration is back within half a point of a fresh fit in 500 rounds") {
    // The noise is what the head cannot know: a logistic map is never quite the truth.
    domain const easy{.offset = 0.4, .decay = 0.05, .slope = 0.8, .noise = 0.5};
    domain const hard{.offset = -0.8, .decay = 0.1, .slope = 0.6, .noise = 0.8};
    bool const to_hard = GENERATE(true, false);
    domain const before = to_hard ? easy : hard;
    domain const after = to_hard ? hard : easy;
    // One step costs as much as 96 tokens, or as 1,000: heavy trimming and hardly any.
    analytic_capacity const capacity{20000.0, GENERATE(96.0, 1000.0)};
    std::uint64_t const seed = GENERATE(std::uint64_t{1}, std::uint64_t{2});
    INFO("seed " << seed << (to_hard ? ", easy to hard" : ", hard to easy") << ", overhead " << capacity.overhead());

    engine traffic(requests, block, greedy_schedule{capacity}, seed);
    online_calibration calibration(block);
    std::size_t too_early = 0;
    for (int i = 0; i < 1500; ++i) {
        calibration.observe(traffic.round(calibration, [&](std::size_t) { return before; }));
        too_early += calibration.drifts().size();
    }
    CHECK(too_early == 0);
    auto const stale = measure(calibration.shared(), capacity, after, 500);
    double count = 0.0;
    double time = 0.0;
    std::uint64_t since = 0;
    std::uint64_t detected = 0;
    std::size_t alarms = 0;
    std::array<double, 3> ece{};
    for (int i = 1; i <= 500; ++i) {
        auto const round = traffic.round(calibration, [&](std::size_t) { return after; });
        count += static_cast<double>(tokens(round));
        time += seconds(capacity, round);
        calibration.observe(round);
        for (calibration_drift const& d : calibration.drifts()) {
            if (alarms++ > 0) continue;
            since = d.what.since;
            detected = d.what.detected;
            CHECK(d.what.direction == (to_hard ? drift_direction::less_accepted : drift_direction::more_accepted));
        }
        if (i == 50) ece[0] = measure(calibration.shared(), capacity, after, 500).ece;
        if (i == 200) ece[1] = measure(calibration.shared(), capacity, after, 500).ece;
        if (i == 500) ece[2] = measure(calibration.shared(), capacity, after, 2000).ece;
    }
    auto const fresh = measure(fresh_fit(after, 64000, seed + 50), capacity, after, 2000);
    double const throughput = count / time / fresh.throughput;
    CAPTURE(stale.ece, ece[0], ece[1], ece[2], fresh.ece, stale.throughput / fresh.throughput, throughput, since,
            detected, alarms);
    CHECK(ece[2] < fresh.ece + 0.005);
    CHECK(ece[1] < stale.ece / 4.0);
    CHECK(throughput > 0.98);
    // Found in 10 rounds, and known to have begun where it did.
    CHECK(alarms >= 1);
    CHECK(detected <= 1510);
    CHECK(since >= 1490);
    CHECK(since <= 1502);
}

// Maps that learn make predictions with an error of their own; the tests tolerate it. At most rounds / N alarms plus
// three standard deviations, as for predictions that are given.
TEST_CASE("false alarms while learning on stationary rounds") {
    domain const truth{.offset = -0.3, .decay = 0.1, .slope = 0.7, .noise = 0.5};
    std::size_t const count = GENERATE(std::size_t{1}, std::size_t{16});
    online_settings settings;
    settings.drift.false_alarm_rounds = 1000.0;
    settings.memory = 4096.0;
    online_calibration calibration(block, {.maps = settings});
    std::uint64_t const seed = 4;
    INFO("seed " << seed);
    engine traffic(count, block, greedy_schedule{analytic_capacity{20000.0, 1000.0}}, seed);
    std::size_t alarms = 0;
    for (int i = 0; i < 10000; ++i) {
        calibration.observe(traffic.round(calibration, [&](std::size_t) { return truth; }));
        alarms += calibration.drifts().size();
    }
    CAPTURE(count, alarms);
    CHECK(alarms <= 10 + 9);
}
