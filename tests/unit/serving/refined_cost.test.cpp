// SPDX-License-Identifier: MIT
//
// Refinement while serving: it learns what the machine does, forgets what it did, keeps to the model where it saw
// nothing, and no observation whatever can wreck it.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/serving/refined_cost.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::error_text;
using support::says;

namespace {

additive_cost const model({.fixed = 10e-3, .batch_token = 50e-6, .context_token = 1e-9, .draft_fixed = 1e-3});

step_load any_load(support::dice& roll, std::size_t most = 256) {
    std::size_t const r = 1 + roll.below(most);
    return {.requests = r,
            .batch_tokens = r + roll.below(7 * r + 1),
            .drafting = r,
            .draft_tokens = 7 * r,
            .context_tokens = 1000 * r};
}

}  // namespace

TEST_CASE("refined cost: the model, to the bit, before anything was seen") {
    support::dice roll(31);
    INFO("seed " << roll.seed());
    refined_cost const cost{model};
    for (int i = 0; i < 1000; ++i) {
        step_load const load = any_load(roll, 100000);
        REQUIRE(cost.step_seconds(load) == model.step_seconds(load));
        REQUIRE(cost.factor_at(load) == 1.0);
    }
    CHECK(cost.error().observed == 0);
}

TEST_CASE("refined cost: what is read and replayed is corrected apart from the round") {
    // Both prices are off by a factor, the rest of the model is right. Half of the steps read or replay nothing.
    support::dice roll(37);
    INFO("seed " << roll.seed());
    auto const prices = [](double read, double replay) {
        return additive_cost({.fixed = 10e-3,
                              .batch_token = 50e-6,
                              .draft_fixed = 1e-3,
                              .unread_token = read * 10e-6,
                              .replay = replay * 1e-3});
    };
    additive_cost const assumed = prices(1.0, 1.0);
    additive_cost const truth = prices(4.0, 0.6);
    refined_cost cost{assumed};
    auto const next_load = [&] {
        step_load load = any_load(roll, 16);
        if (roll.chance(0.5)) load.unread_tokens = load.requests * roll.below(500);
        if (roll.chance(0.5)) load.replays = roll.below(load.requests + 1);
        return load;
    };
    auto const observe = [&](int steps) {
        for (int i = 0; i < steps; ++i) {
            step_load const load = next_load();
            cost.observe(load, truth.step_seconds(load));
        }
    };
    auto const error_of_round = [&](step_load load) {
        load.unread_tokens = load.replays = 0;
        return std::abs(cost.factor_at(load) - 1.0);
    };
    // On average soon; everywhere once each of the 40 knots was seen often enough to unlearn what was not its own.
    observe(1000);
    double mean_error = 0.0;
    for (int i = 0; i < 500; ++i) {
        step_load const load = next_load();
        mean_error += std::abs(cost.step_seconds(load) / truth.step_seconds(load) - 1.0) / 500.0;
    }
    CHECK(mean_error < 0.05);
    observe(20000);
    for (int i = 0; i < 500; ++i) {
        step_load const load = next_load();
        REQUIRE(std::abs(cost.step_seconds(load) / truth.step_seconds(load) - 1.0) < 0.05);
        REQUIRE(error_of_round(load) < 0.05);
    }
    // A price of 0 is none: the round's own factor takes what is left.
    refined_cost without{prices(0.0, 0.0)};
    step_load const load{.requests = 4, .batch_tokens = 8, .drafting = 4, .draft_tokens = 4, .unread_tokens = 300};
    for (int i = 0; i < 300; ++i) without.observe(load, 1.2 * without.model().step_seconds(load));
    CHECK(std::abs(without.factor_at(load) - 1.2) < 0.03);
    CHECK(without.step_seconds(load) == without.step_seconds({4, 8, 4, 4}));
    without.forget();
    CHECK(without.factor_at(load) == 1.0);
}

TEST_CASE("refined cost: one observation by hand") {
    refined_cost cost{model, {.memory = 100.0, .prior = 3.0, .clip = 0.5}};
    step_load const load{.requests = 16, .batch_tokens = 64};
    cost.observe(load, 1.4 * model.step_seconds(load));
    // The machine: one observation of 1.4, three of 1 that have aged by a round. The knot at (16, 4): one of 1.4, three
    // of the machine's.
    double const machine = (1.4 + 3 * 0.99) / (1 + 3 * 0.99);
    double const knot = (1.4 + 3 * machine) / 4;
    CHECK(std::abs(cost.factor_at(load) - knot) < 1e-12);
    step_load const far{.requests = 128, .batch_tokens = 256};
    CHECK(std::abs(cost.factor_at(far) - machine) < 1e-12);
    // Halfway to the next knot, by differences in seconds.
    step_load const between{.requests = 16, .batch_tokens = 80};
    step_load const right{.requests = 16, .batch_tokens = 96};
    double const extra = (knot - 1.0) * model.step_seconds(load) + (machine - 1.0) * model.step_seconds(right);
    CHECK(std::abs(cost.step_seconds(between) - (model.step_seconds(between) + 0.5 * extra)) < 1e-15);
    CHECK(cost.error().observed == 1);
    CHECK(std::abs(cost.error().bias - 0.4) < 1e-12);
    CHECK(std::abs(cost.error().unrefined - 0.4) < 1e-12);
    CHECK(cost.error().clipped == 0);
    cost.forget();
    CHECK(cost.factor_at(load) == 1.0);
    CHECK(cost.error().observed == 0);
}

TEST_CASE("refined cost: learns a machine that is not the model, where it serves") {
    support::dice roll(32);
    INFO("seed " << roll.seed());
    // 20 % slower, and up to 60 % at large batches; 5 % noise; one step in fifty is preempted.
    auto const machine = [&](step_load const& load) {
        double const crowd = std::min(1.0, static_cast<double>(load.batch_tokens) / 2000.0);
        return model.step_seconds(load) * (1.2 + 0.4 * crowd);
    };
    refined_cost cost{model};
    for (int i = 0; i < 3000; ++i) {
        step_load const load = any_load(roll);
        double const noise = 1.0 + 0.05 * roll.bell();
        cost.observe(load, machine(load) * noise * (roll.chance(0.02) ? roll.between(2.0, 50.0) : 1.0));
    }
    double worst = 0.0;
    double sum = 0.0;
    for (int i = 0; i < 1000; ++i) {
        step_load const load = any_load(roll);
        double const off = std::abs(cost.step_seconds(load) / machine(load) - 1.0);
        worst = std::max(worst, off);
        sum += off;
    }
    CHECK(sum < 0.035 * 1000);  // the model is off by 20 to 60 %
    CHECK(worst < 0.15);        // with few requests, which hardly ever came
    CHECK(cost.error().size < 0.08);
    CHECK(cost.error().unrefined > 0.25);
    CHECK(std::abs(cost.error().bias) < 0.05);
    // Where it never served: the machine's own factor.
    step_load const never{.requests = 100000, .batch_tokens = 400000};
    CHECK(cost.factor_at(never) > 1.15);
    CHECK(cost.factor_at(never) < 1.5);
}

TEST_CASE("refined cost: follows a machine that changes, and forgets") {
    refined_cost cost{model, {.memory = 32.0, .idle = 256.0}};
    step_load const load{.requests = 20, .batch_tokens = 70};
    auto const serve = [&](double factor, int rounds) {
        for (int i = 0; i < rounds; ++i) cost.observe(load, factor * model.step_seconds(load));
        return cost.factor_at(load);
    };
    CHECK(std::abs(serve(3.0, 600) - 3.0) < 0.05);
    CHECK(std::abs(serve(1.0, 600) - 1.0) < 0.05);
    CHECK(std::abs(serve(0.6, 600) - 0.6) < 0.05);
    CHECK(serve(100.0, 5000) == 8.0);  // the bounds
    CHECK(serve(0.001, 5000) == 0.5);
    // A knot that is no longer served goes back to what the machine does elsewhere.
    step_load const other{.requests = 200, .batch_tokens = 210};
    for (int i = 0; i < 2000; ++i) cost.observe(other, 1.3 * model.step_seconds(other));
    CHECK(std::abs(cost.factor_at(load) - 1.3) < 0.05);
}

TEST_CASE("refined cost: garbage is discarded or clipped") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const inf = std::numeric_limits<double>::infinity();
    step_load const load{.requests = 20, .batch_tokens = 70};
    double const usual = model.step_seconds(load);

    refined_cost cost{model};
    for (int i = 0; i < 200; ++i) cost.observe(load, usual);
    CHECK(cost.factor_at(load) == 1.0);
    for (double const garbage : {0.0, -1.0, nan, inf, -inf}) cost.observe(load, garbage);
    cost.observe({}, 1.0);
    CHECK(cost.error().discarded == 6);
    CHECK(cost.error().observed == 200);
    CHECK(cost.factor_at(load) == 1.0);

    cost.observe(load, 100.0 * usual);
    CHECK(cost.error().clipped == 1);
    CHECK(cost.factor_at(load) < 1.01);
    cost.observe(load, 1e-300);
    cost.observe(load, 1e300);
    CHECK(cost.factor_at(load) < 1.02);
    CHECK(cost.factor_at(load) > 0.98);

    // As the very first observation.
    refined_cost fresh{model};
    fresh.observe(load, 1e300);
    CHECK(fresh.factor_at(load) < 1.11);
    CHECK(fresh.factor_at(load) > 1.0);

    // Rubbish only, forever: within the bounds everywhere, and finite.
    support::dice roll(33);
    INFO("seed " << roll.seed());
    refined_cost wrecked{model, {.memory = 2.0, .idle = 3.0, .prior = 1e-3, .clip = 0.99}};
    double const rubbish[] = {0.0, nan, inf, 1e-308, 1e308, 5e-324, 1.0, usual};
    for (int i = 0; i < 20000; ++i)
        wrecked.observe(any_load(roll, std::size_t{1} << (1 + roll.below(40))), rubbish[roll.below(8)]);
    for (int i = 0; i < 2000; ++i) {
        step_load const any = any_load(roll, std::size_t{1} << (1 + roll.below(40)));
        REQUIRE(wrecked.factor_at(any) >= 0.5 * (1.0 - 1e-12));
        REQUIRE(wrecked.factor_at(any) <= 8.0 * (1.0 + 1e-12));
    }
    CHECK(std::isfinite(wrecked.error().bias));
}

TEST_CASE("refined cost: what goes on in one direction is believed, what does not is not") {
    step_load const load{.requests = 20, .batch_tokens = 70};
    double const usual = model.step_seconds(load);
    auto const after = [&](auto&& seconds_of) {
        refined_cost cost{model};
        for (int i = 0; i < 200; ++i) cost.observe(load, usual);
        for (int i = 0; i < 120; ++i) cost.observe(load, seconds_of(i));
        return cost.factor_at(load);
    };
    CHECK(after([&](int) { return 3.0 * usual; }) > 1.9);
    CHECK(after([&](int) { return usual / 3.0; }) < 0.65);
    CHECK(after([&](int i) { return i % 10 == 0 ? 30.0 * usual : usual; }) < 1.12);  // an accident in ten
    CHECK(after([&](int i) { return i % 2 == 0 ? 30.0 * usual : usual / 30.0; }) < 1.12);
    CHECK(after([&](int i) { return i % 2 == 0 ? 30.0 * usual : usual / 30.0; }) > 0.9);
}

TEST_CASE("refined cost: no cliffs between knots") {
    support::dice roll(34);
    INFO("seed " << roll.seed());
    refined_cost cost{model, {.memory = 8.0, .prior = 0.1, .clip = 0.9}};
    for (int i = 0; i < 500; ++i) {
        step_load const load = any_load(roll);
        cost.observe(load, model.step_seconds(load) * roll.between(0.7, 4.0));
    }
    for (std::size_t r = 1; r < 300; r += 7) {
        double last = cost.step_seconds({.requests = r, .batch_tokens = r});
        for (std::size_t b = r + 1; b < 40 * r; ++b) {
            double const now = cost.step_seconds({.requests = r, .batch_tokens = b});
            // A knot's whole change is spread over the R tokens to the next.
            REQUIRE(
                std::abs(now - last) <
                8.0 * (50e-6 + cost.model().step_seconds({.requests = r, .batch_tokens = b}) / static_cast<double>(r)));
            last = now;
        }
    }
    // And none between requests: octaves meet.
    for (std::size_t r = 2; r < 400; ++r) {
        double const ratio = cost.factor_at({.requests = r + 1, .batch_tokens = 3 * (r + 1)}) /
                             cost.factor_at({.requests = r, .batch_tokens = 3 * r});
        REQUIRE(std::abs(ratio - 1.0) < 8.0 / static_cast<double>(r));
    }
}

TEST_CASE("refined cost: forgotten knots end at 0 and not among the denormals") {
    refined_cost cost{model, {.memory = 1.5, .idle = 1.5}};
    step_load const once{.requests = 1, .batch_tokens = 8};
    step_load const often{.requests = 64, .batch_tokens = 64};
    cost.observe(once, 2.0 * model.step_seconds(once));
    for (int i = 0; i < 5000; ++i) cost.observe(often, 1.25 * model.step_seconds(often));
    CHECK(cost.factor_at(once) == cost.factor_at({.requests = 4096, .batch_tokens = 8192}));
}

TEST_CASE("refined cost: a schedule sees it through a reference, from the next round on") {
    refined_cost cost{model};
    greedy_schedule const schedule{cost_ref{cost}};
    step_load const load{.requests = 4, .batch_tokens = 4};
    CHECK(schedule.capacity().step_seconds(load) == model.step_seconds(load));
    round_record record;
    record.load = load;
    cost.observe(record);  // nobody measured
    CHECK(cost.error().discarded == 1);
    record.seconds = 2.0 * model.step_seconds(load);
    cost.observe(record);
    CHECK(schedule.capacity().step_seconds(load) == cost.step_seconds(load));
    CHECK(cost.step_seconds(load) > model.step_seconds(load));
}

TEST_CASE("refined cost: settings out of range are refused by name") {
    auto const text = [](refined_cost_settings const& s) { return error_text([&] { refined_cost{model, s}; }); };
    CHECK(says(text({.memory = 1.0}), "refined_cost: memory is 1, expected a finite number of observations above 1"));
    CHECK(says(text({.idle = 0.5}), "idle is 0.5, expected a finite number of rounds above 1"));
    CHECK(says(text({.prior = 0.0}), "prior is 0"));
    CHECK(says(text({.clip = 0.0}), "clip is 0, expected a positive finite number"));
    CHECK(says(text({.clip = std::nan("")}), "clip is"));
    CHECK(says(text({.most = 1.0}), "most is 1"));
    CHECK(says(text({.clip = 1e300}), "clip is 1e+300, expected a positive finite number of at most 1e6"));
    CHECK(says(text({.most = 1e300}), "most is 1e+300, expected a finite factor above 1 and at most 1e6"));
    CHECK(text({.clip = 1e6, .most = 1e6}).empty());
    CHECK(text({}).empty());
}

TEST_CASE("refined cost: no time that anybody measures makes it forget what a number is") {
    refined_cost cost{model, {.clip = 1e6, .most = 1e6}};
    step_load const load{.requests = 4, .batch_tokens = 9};
    for (double const seconds : {1.7e308, 1e-320, 1.7e308, 1.7e308, 5e-324, 1.0}) {
        for (int i = 0; i < 100; ++i) cost.observe(load, seconds);
        REQUIRE(std::isfinite(cost.step_seconds(load)));
        REQUIRE(cost.step_seconds(load) > 0.0);
    }
}
