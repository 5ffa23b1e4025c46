// SPDX-License-Identifier: MIT
//
// Prices from measured steps: exact where steps are sums of prices, unmoved by steps that are anything, honest about
// what the samples cannot tell apart; and the profiles that samples come from, against a scripted clock.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/cost/additive.hpp>
#include <sureleap/fit/cost_fit.hpp>
#include <sureleap/fit/least_squares.hpp>
#include <sureleap/fit/profile.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::error_text;
using support::says;

namespace {

cost_prices const engine{.fixed = 9e-3,
                         .request = 2e-5,
                         .batch_token = 4e-5,
                         .context_token = 3e-9,
                         .draft_fixed = 1e-3,
                         .drafting_request = 5e-6,
                         .draft_token = 2e-5,
                         .unread_token = 1e-6,
                         .replay = 3e-4};

step_load any_load(support::dice& roll) {
    std::size_t const requests = 1 + roll.below(256);
    std::size_t const cap = roll.below(8);
    std::size_t const drafting = cap > 0 ? 1 + roll.below(requests) : 0;
    return {.requests = requests,
            .batch_tokens = requests + roll.below(drafting * cap + 1),
            .drafting = drafting,
            .draft_tokens = drafting * cap,
            .context_tokens = requests * (100 + roll.below(4000)),
            .unread_tokens = roll.chance(0.5) ? drafting * roll.below(200) : 0,
            .replays = roll.chance(0.5) ? roll.below(requests + 1) : 0};
}

std::vector<cost_sample> samples_of(support::dice& roll, cost_prices const& prices, std::size_t count) {
    std::vector<cost_sample> samples;
    for (std::size_t i = 0; i < count; ++i) {
        step_load const load = any_load(roll);
        samples.push_back({load, additive_cost(prices).step_seconds(load)});
    }
    return samples;
}

void check_prices(additive_fit const& fit, cost_prices const& expected, double tolerance) {
    auto const truth = in_order(expected);
    auto const found = in_order(fit.cost.prices());
    for (std::size_t i = 0; i < cost_terms; ++i) {
        INFO(cost_term_names[i]);
        CHECK(found[i] == fit.prices[i].seconds);
        CHECK(std::abs(found[i] - truth[i]) <= tolerance * truth[i] + tolerance * 1e-5);
    }
}

std::string unknown_of(std::vector<cost_sample> const& samples) {
    return fit_additive_cost(samples).unknown();
}

}  // namespace

TEST_CASE("cost fit: exact for steps that are sums of prices") {
    support::dice roll(21);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 20; ++trial) {
        cost_prices prices = engine;
        if (trial % 4 == 1) prices.request = prices.context_token = prices.draft_token = 0.0;
        if (trial % 4 == 2) prices.fixed = prices.draft_fixed = 0.0;
        if (trial % 4 == 3) prices = {.fixed = 0.0, .batch_token = 1e-3};
        auto const fit = fit_additive_cost(samples_of(roll, prices, 40 + roll.below(200)));
        check_prices(fit, prices, 1e-10);
        CHECK(fit.spread < 1e-12);
        CHECK(fit.outliers == 0);
        CHECK(fit.unknown().empty());
    }
}

TEST_CASE("cost fit: one step in five may be anything") {
    support::dice roll(22);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 20; ++trial) {
        auto samples = samples_of(roll, engine, 300);
        std::size_t wild = 0;
        for (cost_sample& s : samples) {
            if (!roll.chance(0.2)) continue;
            s.seconds *= trial % 2 == 0 || roll.chance(0.5) ? roll.between(1.1, 100.0) : roll.between(1e-4, 0.9);
            ++wild;
        }
        auto const fit = fit_additive_cost(samples);
        check_prices(fit, engine, 1e-10);
        CHECK(fit.outliers == wild);
        CHECK(fit.samples == 300);
    }
}

TEST_CASE("cost fit: noise is measured, and so is what it does to the prices") {
    support::dice roll(23);
    INFO("seed " << roll.seed());
    double squared = 0.0;
    std::size_t count = 0;
    for (int trial = 0; trial < 40; ++trial) {
        auto samples = samples_of(roll, engine, 400);
        for (cost_sample& s : samples) {
            s.seconds *= 1.0 + 0.03 * std::sqrt(3.0) * roll.bell();  // bell() has a variance of 1/3
            if (roll.chance(0.05)) s.seconds *= 20.0;
        }
        auto const fit = fit_additive_cost(samples);
        CHECK(std::abs(fit.spread - 0.03) < 0.008);
        auto const truth = in_order(engine);
        for (std::size_t i = 0; i < cost_terms; ++i) {
            CHECK(std::abs(fit.prices[i].seconds - truth[i]) < 6.0 * fit.prices[i].error);
            squared += std::pow((fit.prices[i].seconds - truth[i]) / fit.prices[i].error, 2.0);
            ++count;
        }
        for (cost_sample const& s : samples_of(roll, engine, 50)) {
            CHECK(std::abs(fit.cost.step_seconds(s.load) / s.seconds - 1.0) < 0.03);
        }
    }
    // Errors that are neither much too small nor much too large; bounds at 0 make a few smaller.
    double const ratio = std::sqrt(squared / static_cast<double>(count));
    CHECK(ratio > 0.6);
    CHECK(ratio < 1.4);
}

TEST_CASE("cost fit: prices that cannot be told apart are named, not invented") {
    support::dice roll(24);
    INFO("seed " << roll.seed());
    auto const make = [&](auto&& edit) {
        std::vector<cost_sample> samples;
        for (int i = 0; i < 100; ++i) {
            step_load load = any_load(roll);
            edit(load);
            samples.push_back({load, additive_cost(engine).step_seconds(load)});
        }
        return samples;
    };
    CHECK(unknown_of(make([](step_load&) {})).empty());
    CHECK(unknown_of(make([](step_load& l) { l.context_tokens = 0; })) == "context_token not at all");
    // No engine is asked for what it does not have, but for what it cannot tell apart.
    CHECK(unknown_of(make([](step_load& l) { l.unread_tokens = l.replays = 0; })).empty());
    CHECK(unknown_of(make([](step_load& l) { l.replays = l.requests; })) == "request and replay only as a sum");
    CHECK(unknown_of(make([](step_load& l) { l.context_tokens = 1000 * l.requests; })) ==
          "request and context_token only as a sum");
    CHECK(unknown_of(make([](step_load& l) {
              l.drafting = l.draft_tokens = 0;
              l.context_tokens = 7;
          })) ==
          "fixed and context_token only as a sum; draft_fixed not at all; drafting_request not at all; draft_token not "
          "at "
          "all");
    // Everything drafted is verified, by everybody: the lot goes to the batch token, and predictions are exact.
    auto const full = make([](step_load& l) {
        l.drafting = l.requests;
        l.draft_tokens = l.requests * (1 + l.draft_tokens % 7);
        l.batch_tokens = l.requests + l.draft_tokens;
    });
    auto const fit = fit_additive_cost(full);
    CHECK(fit.unknown() ==
          "fixed and draft_fixed only as a sum; request, batch_token, drafting_request and draft_token only as a sum");
    CHECK_FALSE(fit.prices[2].known);
    CHECK(fit.prices[3].known);
    CHECK(fit.prices[2].seconds > engine.batch_token);
    for (cost_sample const& s : full) CHECK(std::abs(fit.cost.step_seconds(s.load) / s.seconds - 1.0) < 1e-10);
}

TEST_CASE("cost fit: where the signs forbid the first choice, the others explain the steps") {
    // batch = requests + drafted: b B + r R + d D has r' = r - x, b' = b + x, d' = d - x for any x, and only some are
    // >= 0.
    support::dice roll(25);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 50; ++trial) {
        cost_prices const prices{.fixed = roll.real(),
                                 .request = roll.chance(0.3) ? 0.0 : roll.real(),
                                 .batch_token = roll.chance(0.3) ? 0.0 : roll.real(),
                                 .draft_token = roll.chance(0.3) ? 0.0 : roll.real()};
        if (prices.fixed + prices.batch_token + prices.request < 0.1) continue;
        std::vector<cost_sample> samples;
        for (int i = 0; i < 60; ++i) {
            step_load load = any_load(roll);
            load.batch_tokens = load.requests + load.draft_tokens;
            samples.push_back({load, additive_cost(prices).step_seconds(load)});
        }
        auto const fit = fit_additive_cost(samples);
        for (cost_sample const& s : samples) REQUIRE(std::abs(fit.cost.step_seconds(s.load) / s.seconds - 1.0) < 1e-9);
    }
}

TEST_CASE("cost fit: unusable samples are refused") {
    auto const text = [](std::vector<cost_sample> const& samples) {
        return error_text([&] { (void)fit_additive_cost(samples); });
    };
    CHECK(says(text({}), "fit_additive_cost: no samples"));
    CHECK(says(text({{{1, 1, 0, 0, 0}, 1.0}, {{1, 1, 0, 0, 0}, -2.0}}), "fit_additive_cost: sample 1: seconds is -2"));
    CHECK(says(text({{{0, 1, 0, 0, 0}, 1.0}}), "sample 0: requests is 0"));
    CHECK(says(text({{{1, 1, 0, 0, 0}, std::nan("")}}), "sample 0: seconds is"));
    CHECK(says(
        text({{{1, 1, 0, 0, 5}, 1.0}, {{1, 1, 0, 0, 5}, 1.1}}),
        {"fixed, request, batch_token and context_token only as a sum", "expected steps that differ in batch tokens"}));
    CHECK(text({{{1, 1, 0, 0, 5}, 1.0}, {{1, 2, 0, 0, 5}, 1.1}}).empty());
    CHECK(says(text({{{1, 1, 0, 0, 100}, 1.0}, {{1, 2, 0, 0, 200}, 2.0}, {{1, 3, 0, 0, 150}, 1.5}}),
               "leave nothing for what every step pays"));
}

TEST_CASE("least squares: non-negative solutions satisfy the conditions of optimality") {
    support::dice roll(26);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 500; ++trial) {
        constexpr std::size_t n = 5;
        std::vector<std::array<double, n + 1>> rows(3 + roll.below(12));
        bool const dependent = roll.chance(0.3);
        for (auto& row : rows) {
            for (double& x : row) x = roll.bell();
            if (dependent) row[3] = row[0] + 2.0 * row[1];
        }
        detail::row_triangle<n> triangle;
        for (auto const& row : rows) triangle.add(row);
        auto const b = detail::non_negative_solution<n>(triangle, {4, 2, 0, 1, 3}).values();
        double scale = 0.0;
        std::array<double, n> gradient{};
        for (auto const& row : rows) {
            double rest = row[n];
            for (std::size_t j = 0; j < n; ++j) rest -= row[j] * b[j];
            for (std::size_t j = 0; j < n; ++j) gradient[j] += rest * row[j];
            scale += row[n] * row[n];
        }
        INFO("trial " << trial);
        for (std::size_t j = 0; j < n; ++j) {
            REQUIRE(b[j] >= 0.0);
            REQUIRE(gradient[j] < 1e-9 * (1.0 + scale));
            if (b[j] > 0.0) REQUIRE(std::abs(gradient[j]) < 1e-9 * (1.0 + scale));
        }
        auto const report = detail::examine_columns(triangle);
        if (rows.size() >= n) {
            for (std::size_t j = 0; j < n; ++j) {
                bool const involved = dependent && (j == 0 || j == 1 || j == 3);
                REQUIRE(report.known[j] == !involved);
                REQUIRE(report.blurred_with[j] == (involved ? 0b01011u & ~(1u << j) : 0u));
            }
        } else {
            REQUIRE(std::count(report.known.begin(), report.known.end(), true) < 5);
        }
    }
}

// ---- profiles ---------------------------------------------------------------------------------------------------

namespace {

/// Stands still except when the functor under test moves it.
struct scripted_clock {
    using duration = std::chrono::duration<double>;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<scripted_clock>;
    [[maybe_unused]] static constexpr bool is_steady = true;
    static inline time_point current{};
    static time_point now() noexcept { return current; }
};
void pass_time(double seconds) {
    scripted_clock::current += scripted_clock::duration(seconds);
}

}  // namespace

TEST_CASE("profile: the median of rounds over the grid, and its spread") {
    std::vector<step_load> const grid{{1, 1, 0, 0, 0}, {1, 8, 1, 7, 0}};
    std::vector<std::size_t> calls;
    double const script[] = {1.0, 1.02, 0.98, 50.0, 1.01};
    auto const step = [&](step_load const& load) {
        std::size_t const timed = calls.size() < 4 ? 0 : (calls.size() - 4) / 2;
        calls.push_back(load.batch_tokens);
        pass_time(calls.size() <= 4 ? 1000.0 : script[timed] * static_cast<double>(load.batch_tokens));
    };
    auto const profile = profile_steps<scripted_clock>(step, grid, {.warm_up = 2, .repeats = 5});
    CHECK(calls == std::vector<std::size_t>{1, 1, 8, 8, 1, 8, 1, 8, 1, 8, 1, 8, 1, 8});
    REQUIRE(profile.steps.size() == 2);
    CHECK(profile.steps[1].load == grid[1]);
    CHECK(std::abs(profile.steps[0].seconds - 1.01) < 1e-9);
    CHECK(std::abs(profile.steps[1].seconds - 8.08) < 1e-9);
    CHECK(std::abs(profile.steps[0].spread - 1.4826 * 0.01 / 1.01) < 1e-9);  // deviations 0, 0.01, 0.01, 0.03, 49
    CHECK(profile.steps[0].runs == 5);
    CHECK(profile.noisy() == 0);
    CHECK(profile.samples()[1] == cost_sample{grid[1], profile.steps[1].seconds});
}

TEST_CASE("profile: what is noisy is measured again, and told if it stays so") {
    std::vector<step_load> const grid{{1, 1, 0, 0, 0}, {1, 2, 0, 0, 0}, {1, 3, 0, 0, 0}};
    std::map<std::size_t, std::size_t> calls;
    auto const step = [&](step_load const& load) {
        std::size_t const call = calls[load.batch_tokens]++;
        double seconds = 1.0;
        if (load.batch_tokens == 2 && call < 3) seconds = 1.0 + static_cast<double>(call);  // calms down
        if (load.batch_tokens == 3) seconds = 1.0 + static_cast<double>(call % 3);          // never does
        pass_time(seconds);
    };
    auto const profile = profile_steps<scripted_clock>(step, grid, {.warm_up = 0, .repeats = 3, .retries = 2});
    CHECK(calls[1] == 3);
    CHECK(calls[2] == 6);
    CHECK(calls[3] == 9);
    CHECK_FALSE(profile.steps[1].noisy);
    CHECK(profile.steps[1].seconds == 1.0);
    CHECK(profile.steps[1].runs == 6);
    CHECK(profile.steps[2].noisy);
    CHECK(profile.steps[2].runs == 9);
    CHECK(profile.noisy() == 1);
}

TEST_CASE("profile: a bad grid is refused before anything runs") {
    int runs = 0;
    auto const step = [&](step_load const&) { ++runs; };
    auto const text = [&](std::vector<step_load> const& grid, step_profile_settings const& settings) {
        return error_text([&] { (void)profile_steps<scripted_clock>(step, grid, settings); });
    };
    CHECK(says(text({}, {}), "profile_steps: the grid is empty"));
    CHECK(
        says(text({{1, 1, 0, 0, 0}, {2, 1, 0, 0, 0}}, {}), "profile_steps: load 1: batch_tokens is 1 with 2 requests"));
    CHECK(says(text({{1, 1, 0, 0, 0}}, {.repeats = 0}), "repeats is 0"));
    CHECK(says(text({{1, 1, 0, 0, 0}}, {.most_spread = std::nan("")}), "most_spread is"));
    CHECK(runs == 0);
    CHECK(says(text({{1, 4, 0, 0, 0}}, {}), "the median of load 0 (requests 1, batch tokens 4) is 0 seconds"));
    CHECK(says(error_text([] { (void)profile_grid({.max_requests = 0}); }), "max_requests is 0"));
    CHECK(says(error_text([] { (void)profile_grid({.contexts = {}}); }), "contexts is empty"));
    CHECK(
        says(error_text([] { (void)profile_grid({.max_requests = SIZE_MAX}); }),
             "profile_grid: max_requests is 18446744073709551615 and block_size 1, expected a largest step of at most "
             "2^62 = 4611686018427387904 tokens"));
    CHECK(says(error_text([] { (void)profile_grid({.max_requests = 2, .block_size = SIZE_MAX}); }),
               "expected a largest"));
    CHECK(says(error_text([] { (void)profile_grid({.max_requests = 4, .contexts = {1, std::uint64_t{1} << 61}}); }),
               "profile_grid: context 1 is 2305843009213693952 tokens for each of 4 requests, expected"));
}

TEST_CASE("profile: the grid tells all prices apart, and a profiled engine is priced exactly") {
    additive_cost const truth(engine);
    for (std::size_t const requests : {std::size_t{4}, std::size_t{100}}) {
        for (std::size_t const gamma : {std::size_t{2}, std::size_t{7}}) {
            auto const grid = profile_grid({.max_requests = requests,
                                            .block_size = gamma,
                                            .contexts = {128, 4096},
                                            .unread = 256,
                                            .replays = true});
            CHECK(grid.back().requests == requests);
            int run = 0;
            auto const step = [&](step_load const& load) {
                pass_time(truth.step_seconds(load) * (++run % 7 == 0 ? 30.0 : 1.0));  // preempted now and then
            };
            auto const profile = profile_steps<scripted_clock>(step, grid);
            auto const fit = fit_additive_cost(profile.samples());
            CHECK(fit.unknown().empty());
            check_prices(fit, engine, 1e-4);  // a clock that has been running for hours has digits for no more
        }
    }
    CHECK(fit_additive_cost(
              profile_steps<scripted_clock>([&](step_load const& load) { pass_time(truth.step_seconds(load)); },
                                            profile_grid({.max_requests = 64, .block_size = 7}))
                  .samples())
              .unknown() == "request and context_token only as a sum");
}
