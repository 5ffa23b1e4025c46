// SPDX-License-Identifier: MIT
//
// Logit maps that are fitted while they serve: the fit against maximum likelihood, limits, decay, and maps that stay
// maps whatever they are fed.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/serving/online_fit.hpp>
#include <sureleap/serving/online_maps.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::error_text;

static_assert(calibrator<online_maps>);

namespace {

struct sample {
    logit_terms x;
    bool accepted;
};

std::vector<sample> samples_of(online_map const& truth, std::size_t count, std::uint64_t seed) {
    support::dice roll(seed);
    std::vector<sample> out;
    for (std::size_t i = 0; i < count; ++i) {
        logit_terms const x{1.0 + 1.5 * roll.bell(), 0.7 * roll.bell()};
        out.push_back({x, roll.chance(truth(x))});
    }
    return out;
}

/// Maximum likelihood, by gradient ascent on the mean log likelihood, slow and plain.
online_map most_likely(std::vector<sample> const& samples) {
    online_map m;
    for (int i = 0; i < 60000; ++i) {
        std::array<double, 3> g{};
        for (sample const& s : samples) {
            double const residual = (s.accepted ? 1.0 : 0.0) - m(s.x);
            g[0] += residual * s.x.logit;
            g[1] += residual;
            g[2] += residual * s.x.history;
        }
        double const step = 0.5 / static_cast<double>(samples.size());
        m = m + online_map{step * g[0], step * g[1], step * g[2]};
    }
    return m;
}

logit_evidence evidence_of(std::vector<sample> const& samples, online_map const& in_force) {
    logit_evidence e;
    for (sample const& s : samples) e.add(s.x, s.accepted, in_force);
    return e;
}

double distance(online_map const& a, online_map const& b) {
    return std::max({std::fabs(a.slope - b.slope), std::fabs(a.offset - b.offset), std::fabs(a.reliance - b.reliance)});
}

bool is_map(online_map const& m) {
    return m.slope >= logit_evidence::lowest_slope && m.slope <= logit_evidence::highest_slope &&
           std::fabs(m.offset) <= logit_evidence::largest_offset && m.reliance >= 0.0 &&
           m.reliance <= logit_evidence::largest_reliance;
}

}  // namespace

TEST_CASE("maximum likelihood is where the fit stays, and where it goes") {
    auto const samples = samples_of({0.6, -0.4, 0.8}, 800, 3);
    online_map const best = most_likely(samples);
    // What was added under the most likely map asks for no change, from any prior that counts nothing.
    CHECK(distance(evidence_of(samples, best).fit(online_map{}, 1e-9, online_terms::history), best) < 1e-7);
    // From anywhere else the same samples lead there in a few rounds: each is Newton's step, shortened.
    online_map m{2.0, 3.0, 0.0};
    for (int i = 0; i < 25; ++i) m = evidence_of(samples, m).fit(m, 1e-9, online_terms::history);
    CHECK(distance(m, best) < 1e-6);
}

TEST_CASE("terms that are not fitted stay the prior's, the others are the best beside them") {
    auto const samples = samples_of({0.6, -0.4, 0.0}, 4000, 4);
    online_map const prior{1.25, 0.5, 0.25};
    auto const e = evidence_of(samples, prior);
    online_map const t = e.fit(prior, 1.0, online_terms::temperature);
    CHECK(t.offset == 0.5);
    CHECK(t.reliance == 0.25);
    CHECK(t.slope < 1.25);
    online_map const p = e.fit(prior, 1.0, online_terms::platt);
    CHECK(p.reliance == 0.25);
    CHECK(p.offset < 0.5);
    CHECK(p.scaling() == logit_scaling{1.0 / p.slope, p.offset});
    // Without evidence the prior, exactly.
    CHECK(logit_evidence{}.fit(prior, 3.0, online_terms::history) == prior);
}

TEST_CASE("a prior weighs as many observations as it says, a decayed observation as much as is left of it") {
    auto const samples = samples_of({1.0, -2.0, 0.0}, 2000, 5);
    auto e = evidence_of(samples, online_map{});
    double const free = e.fit(online_map{}, 1e-9, online_terms::platt).offset;
    double const held = e.fit(online_map{}, 1e9, online_terms::platt).offset;
    CHECK(free < -0.9);
    CHECK(std::fabs(held) < 1e-4);
    double const half = e.fit(online_map{}, 500.0, online_terms::platt).offset;
    CHECK(half > free);
    CHECK(half < held);
    e.decay(0.25);
    CHECK(std::fabs(e.fit(online_map{}, 125.0, online_terms::platt).offset - half) < 1e-12);
    CHECK(e.observations() == 500.0);
    CHECK(std::fabs(e.accepted() / e.observations() -
                    static_cast<double>(
                        std::count_if(samples.begin(), samples.end(), [](sample const& s) { return s.accepted; })) /
                        2000.0) < 1e-12);
}

TEST_CASE("one observation pulls by 4 logits at most, however sure the map was") {
    for (double const logit : {-12.0, -3.0, 0.0, 3.0, 12.0}) {
        for (bool const accepted : {false, true}) {
            logit_evidence e;
            logit_terms const x{logit, 0.0};
            e.add(x, accepted, online_map{});
            online_map const m = e.fit(online_map{}, 1e-6, online_terms::platt);
            CAPTURE(logit, accepted, m.argument(x));
            CHECK(std::fabs(m.argument(x) - logit) <= 4.0 + 1e-6);
            CHECK((accepted ? m.argument(x) >= logit : m.argument(x) <= logit));
        }
    }
}

TEST_CASE("confidences of 0 and 1 can be unlearned, NaN stays NaN") {
    CHECK(logit_terms::of_confidence(0.0).logit == -12.0);
    CHECK(logit_terms::of_confidence(1.0).logit == 12.0);
    CHECK(std::isnan(logit_terms::of_confidence(std::numeric_limits<double>::quiet_NaN()).logit));
    online_maps maps(1);
    CHECK(std::isnan(maps(0, std::numeric_limits<double>::quiet_NaN())));
    CHECK(std::isnan(maps(0, -0.5)));
    CHECK(std::isnan(maps(0, 1.5)));
    support::dice roll(6);
    for (int i = 0; i < 200; ++i) {
        for (int r = 0; r < 64; ++r) maps.observe(0, logit_terms::of_confidence(1.0), roll.chance(0.3));
        maps.close_round(64);
    }
    CHECK(std::fabs(maps(0, 1.0) - 0.3) < 0.02);
}

TEST_CASE("whatever is observed, maps stay increasing, finite and within their limits") {
    std::uint64_t const seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{41}));
    INFO("seed " << seed);
    support::dice roll(seed);
    online_settings settings;
    settings.terms = std::array{online_terms::temperature, online_terms::platt, online_terms::history}[roll.below(3)];
    settings.memory = roll.chance(0.5) ? 1.0 : 1000.0;
    settings.prior_weight = roll.chance(0.5) ? 1.0 : 100.0;
    online_maps maps(3, settings);
    double const extremes[] = {0.0, 1.0, 0.5, 1e-300, 1.0 - 0x1p-53, 0x1p-24, 0.9};
    for (int i = 0; i < 60; ++i) {
        std::size_t const rounds = roll.below(200);
        double const rate = roll.chance(0.3) ? 0.0 : roll.chance(0.3) ? 1.0 : roll.real();
        bool const backwards = roll.chance(0.3);
        for (std::size_t r = 0; r < rounds; ++r) {
            double const c = roll.chance(0.3) ? extremes[roll.below(7)] : roll.real();
            bool const accepted = backwards ? roll.chance(1.0 - c) : roll.chance(rate);
            maps.observe(roll.below(3), logit_terms::of_confidence(c, 5.0 * roll.bell()), accepted);
        }
        maps.close_round(rounds);
        for (std::size_t k = 0; k < 3; ++k) {
            REQUIRE(is_map(maps.map(k)));
            REQUIRE((maps.cap(k) > 0.0 && maps.cap(k) <= 1.0));
            double before = 0.0;
            for (double const c : {0.0, 1e-300, 1e-9, 0.1, 0.3, 0.3 + 1e-12, 0.5, 0.9, 1.0 - 0x1p-53, 1.0}) {
                double const now = maps(k, c);
                REQUIRE(now >= before);
                REQUIRE(now <= 1.0);
                before = now;
            }
        }
    }
}

TEST_CASE("a map changes when a round is closed, and not before") {
    online_maps maps(2);
    double const before = maps(1, 0.7);
    for (int i = 0; i < 100; ++i) maps.observe(1, logit_terms::of_confidence(0.7), false);
    CHECK(maps(1, 0.7) == before);
    maps.close_round(100);
    CHECK(maps(1, 0.7) < 0.2);
}

TEST_CASE("positions nobody has observed follow the one before") {
    online_maps maps(4);
    support::dice roll(8);
    for (int i = 0; i < 50; ++i) {
        for (int r = 0; r < 64; ++r) maps.observe(0, logit_terms::of_confidence(0.8), roll.chance(0.5));
        maps.close_round(64);
    }
    CHECK(maps.map(3) == maps.map(0));
    CHECK(maps.is_trusted(3));
    CHECK(std::fabs(maps.acceptance(3) - 0.5) < 0.03);
    CHECK(std::fabs(maps(3, 0.8) - 0.5) < 0.03);
}

TEST_CASE("a map that cannot be trusted is capped by what was accepted, and never above it") {
    online_settings settings;
    settings.trusted_observations = 200.0;
    online_maps maps(2, settings);
    CHECK_FALSE(maps.is_trusted(0));
    CHECK(maps(0, 0.999) <= 0.8);  // the acceptance assumed of anybody
    CHECK(maps(0, 0.1) < 0.11);    // a cap takes nothing from those below it
    // A head that is too sure: before the map is trusted, the cap is the rate of what was seen less its deviation.
    for (int i = 0; i < 100; ++i) maps.observe(0, logit_terms::of_confidence(0.99), i % 4 == 0);
    maps.close_round(100);
    CHECK_FALSE(maps.is_trusted(0));
    CHECK(maps.cap(0) < (25.0 + 8 * 0.8) / 108.0);
    CHECK(maps.cap(0) > 0.2);
    CHECK(maps(0, 1.0) <= maps.cap(0));
    for (int round = 0; round < 30; ++round) {
        for (int i = 0; i < 40; ++i) maps.observe(0, logit_terms::of_confidence(0.99), i % 4 == 0);
        maps.close_round(0);
    }
    CHECK(maps.is_trusted(0));
    CHECK(std::fabs(maps(0, 0.99) - 0.25) < 0.03);
}

TEST_CASE("an offline fit is trusted until a drift is found") {
    online_settings settings;
    settings.prior = {{1.5, -0.25}, {2.0, 0.5}};
    online_maps maps(2, settings);
    CHECK(maps.is_trusted(0));
    CHECK(maps.map(1).scaling() == logit_scaling{2.0, 0.5});
    CHECK(std::fabs(maps(1, 0.9) - logit_scaling{2.0, 0.5}.of_confidence(0.9)) < 1e-15);
    support::dice roll(9);
    // As the fit says, for a while; then much less.
    std::size_t drifts = 0;
    for (int i = 0; i < 200; ++i) {
        double const p = i < 100 ? maps.map(0)(logit_terms::of_confidence(0.9)) : 0.2;
        for (int r = 0; r < 32; ++r) maps.observe(0, logit_terms::of_confidence(0.9), roll.chance(p));
        auto const found = maps.close_round(32);
        if (i < 100) REQUIRE(found.empty());
        for (drift_report const& d : found) {
            ++drifts;
            CHECK(d.position == 0);
            CHECK(d.direction == drift_direction::less_accepted);
            CHECK(d.since >= 97);
            CHECK(d.since <= 103);
            CHECK(d.detected < 110);
            CHECK_FALSE(maps.is_trusted(0));
            CHECK(maps.observations(0) == 0.0);
        }
    }
    CHECK(drifts == 1);
    CHECK(maps.is_trusted(0));
    CHECK(std::fabs(maps(0, 0.9) - 0.2) < 0.03);
}

TEST_CASE("maps of a part shrink to those of the whole by what they have seen themselves") {
    online_maps whole(1);
    for (int i = 0; i < 4000; ++i) whole.observe(0, logit_terms::of_confidence(0.5), i % 2 == 0);
    whole.close_round(4000);
    online_maps part(1);
    part.refit(&whole, 400.0);
    CHECK(part.map(0) == whole.map(0));
    double before = part(0, 0.5);
    for (int i = 0; i < 4000; ++i) {
        part.observe(0, logit_terms::of_confidence(0.5), i % 10 == 0);
        // What it is told from the start is no drift, though the whole holds it back.
        if (i % 40 == 39) REQUIRE(part.close_round(0, &whole, 400.0).empty());
        if (i == 39 || i == 399 || i == 3999) {
            CAPTURE(i, part(0, 0.5));
            CHECK(part(0, 0.5) < before);
            before = part(0, 0.5);
        }
    }
    CHECK(part(0, 0.5) < 0.2);
    CHECK(part(0, 0.5) > 0.1);
}

TEST_CASE("evidence survives as numbers") {
    auto const e = evidence_of(samples_of({0.6, -0.4, 0.8}, 300, 10), online_map{});
    auto const back = logit_evidence::of_numbers(e.numbers());
    CHECK(back.numbers() == e.numbers());
    CHECK(back.fit(online_map{}, 2.0, online_terms::history) == e.fit(online_map{}, 2.0, online_terms::history));
    online_maps maps(2);
    logit_evidence const both[] = {e, logit_evidence{}};
    maps.restore(both);
    CHECK(maps.observations(0) == 300.0);
    CHECK(maps.is_trusted(0));
    CHECK(error_text([&] { maps.restore({both, 1}); }) ==
          "online_maps: restored evidence has 1 positions, expected block_size (gamma) = 2");
}

TEST_CASE("settings of maps are checked") {
    auto const text = [](auto const& change) {
        online_settings s;
        change(s);
        return error_text([&] { online_maps maps(2, s); });
    };
    CHECK(text([](auto& s) { s.prior_weight = 0.0; }) ==
          "online_settings: prior_weight is 0, expected a finite number of at least 1");
    CHECK(text([](auto& s) { s.memory = std::numeric_limits<double>::infinity(); }) ==
          "online_settings: memory is inf, expected a finite number of at least 1");
    CHECK(text([](auto& s) { s.assumed_acceptance = 1.0; }) ==
          "online_settings: assumed_acceptance is 1, expected a number in (0, 1)");
    CHECK(text([](auto& s) { s.prior = {{1.0, 0.0}}; }) ==
          "online_settings: prior has 1 positions, expected block_size (gamma) = 2");
    CHECK(text([](auto& s) { s.prior = {{1.0, 0.0}, {-1.0, 0.0}}; }) ==
          "online_settings: prior: temperature at position 1 is -1, expected a positive finite number whose inverse is "
          "finite");
    CHECK(text([](auto& s) {
              s.prior = {{1e-320, 0.0}, {1.0, 0.0}};
          }).starts_with("online_settings: prior: temperature at position 0 is 9.9998"));
}

TEST_CASE("a prior beyond what maps can be leaves them maps") {
    for (auto const& prior : {logit_scaling{1e-300, 0.0}, logit_scaling{1e300, -1e300}, logit_scaling{1e-9, 1e308}}) {
        for (auto const terms : {online_terms::temperature, online_terms::platt, online_terms::history}) {
            online_settings settings;
            settings.prior = {prior};
            settings.terms = terms;
            online_maps maps(1, settings);
            support::dice roll(7);
            for (int round = 0; round < 50; ++round) {
                for (int r = 0; r < 20; ++r) {
                    maps.observe(0, logit_terms::of_confidence(roll.real(), roll.bell()), roll.chance(0.6));
                }
                maps.close_round(20);
                for (double const c : {0.0, 0.1, 0.5, 1.0}) {
                    INFO("temperature " << prior.temperature << ", offset " << prior.offset << ", round " << round);
                    REQUIRE(maps(0, c) >= 0.0);
                    REQUIRE(maps(0, c) <= 1.0);
                }
            }
        }
    }
}
