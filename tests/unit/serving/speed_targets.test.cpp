// SPDX-License-Identifier: MIT
//
// Promised speeds in closed loop: met where they can be, at a price that is told; reported where they cannot, without
// starving the others.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/speed_targets.hpp>

#include "support/closed_loop.hpp"
#include "support/error_text.hpp"

using namespace closed_loop;

namespace {

constexpr std::size_t requests = 64;
constexpr std::size_t favoured = 8;  // of them, the first slots
machine const busy{.per_token = 1.0 / 40, .draft = 0.02, .per_draft_token = 0.0};

blocks make_world(std::size_t rounds) {
    return {17, requests, rounds, 7, [](std::size_t, std::size_t) { return code; }, 1000000};
}
std::size_t full(std::size_t) {
    return requests;
}

std::vector<request_settings> settings_of(double target, double priority = 1.0) {
    std::vector<request_settings> all(requests, request_settings{.max_new_tokens = 1u << 30});
    for (std::size_t r = 0; r < favoured; ++r) {
        all[r].tokens_per_second = target;
        all[r].priority = priority;
    }
    return all;
}

/// Mean tokens per second of some slots.
double speed(outcome const& o, std::size_t from, std::size_t to) {
    double const tokens = std::accumulate(o.by_slot.begin() + static_cast<std::ptrdiff_t>(from),
                                          o.by_slot.begin() + static_cast<std::ptrdiff_t>(to), 0.0);
    return tokens / o.seconds / static_cast<double>(to - from);
}

template <class Schedule>
outcome run_with(blocks const& world, Schedule schedule, std::vector<request_settings> const& settings,
                 bool timed = true, double noise = 0.0) {
    return run(world, schedule, busy, full,
               {.from = 300, .settings = &settings, .tell_seconds = timed, .noise = noise});
}

}  // namespace

TEST_CASE("a target that can be met is met, at a price") {
    blocks const world = make_world(1500);
    auto const none = settings_of(0.0);
    auto const check = [&](auto bare) {
        outcome const free = run_with(world, speed_targets{bare}, none);
        double const usual = speed(free, 0, favoured);
        for (double const more : {1.1, 1.3}) {
            auto const asked = settings_of(more * usual);
            for (bool const timed : {true, false}) {
                outcome const o = run_with(world, speed_targets{bare}, asked, timed, 0.05);
                double const price = 1.0 - o.throughput() / free.throughput();
                INFO("asked " << more << " x " << usual << ", got " << speed(o, 0, favoured) << "; others "
                              << speed(o, favoured, requests) << " after " << speed(free, favoured, requests)
                              << "; throughput -" << price);
                CHECK(speed(o, 0, favoured) >= 0.97 * more * usual);
                CHECK(speed(o, 0, favoured) <= 1.1 * more * usual);  // and no more is taken from others than that
                CHECK(price < 0.05);
                CHECK(speed(o, favoured, requests) >= 0.9 * speed(free, favoured, requests));
            }
        }
    };
    check(planned_schedule{busy});
    check(top_k_schedule{busy});
    check(greedy_schedule{busy});
}

TEST_CASE("each of the favoured reaches its own target") {
    blocks const world = make_world(1500);
    speed_targets schedule{planned_schedule{busy}};
    outcome const free = run_with(world, schedule, settings_of(0.0));
    double const target = 1.2 * speed(free, 0, favoured);
    auto const asked = settings_of(target);
    outcome const o = run(world, schedule, busy, full, {.from = 300, .settings = &asked});
    for (std::size_t r = 0; r < favoured; ++r) {
        INFO("slot " << r);
        CHECK(speed(o, r, r + 1) >= 0.95 * target);
        CHECK(schedule.report(r).reachable);
        CHECK(schedule.report(r).target == target);
        CHECK(schedule.report(r).speed > 0.7 * target);
    }
    CHECK(schedule.report(favoured).target == 0.0);
    CHECK(schedule.report(favoured).lambda == 0.0);
}

TEST_CASE("a target out of reach is reported, and the others go on") {
    blocks const world = make_world(2500);
    drafting_always plain{fixed_schedule{}, 0};
    outcome const without = run(world, plain, busy, full, {.from = 300});
    double const plain_speed = speed(without, 0, requests);
    outcome const free = run_with(world, speed_targets{planned_schedule{busy}}, settings_of(0.0));

    speed_targets schedule{planned_schedule{busy}};
    auto const asked = settings_of(20.0 * plain_speed);  // more than a whole block a step
    outcome const o = run(world, schedule, busy, full, {.from = 300, .settings = &asked});
    for (std::size_t r = 0; r < favoured; ++r) CHECK_FALSE(schedule.report(r).reachable);
    INFO("others " << speed(o, favoured, requests) << ", plain decoding " << plain_speed << ", without targets "
                   << speed(free, favoured, requests));
    CHECK(speed(o, favoured, requests) >= plain_speed);
    CHECK(speed(o, favoured, requests) >= 0.95 * speed(free, favoured, requests));
    CHECK(o.throughput() >= 0.98 * free.throughput());

    // Everybody asks for what nobody can have: equal weights again.
    std::vector<request_settings> all(requests, asked[0]);
    outcome const hopeless = run_with(world, speed_targets{planned_schedule{busy}}, all);
    CHECK(hopeless.throughput() >= 0.995 * free.throughput());
}

TEST_CASE("a target comes into reach when the load falls") {
    blocks const world = make_world(4000);
    speed_targets schedule{planned_schedule{busy}};
    auto const load = [](std::size_t t) -> std::size_t { return t < 400 ? requests : favoured; };
    outcome const few = [&] {
        speed_targets other{planned_schedule{busy}};
        auto const none = settings_of(0.0);
        return run(world, other, busy, [](std::size_t) { return favoured; }, {.from = 300, .settings = &none});
    }();
    auto const asked = settings_of(0.9 * speed(few, 0, favoured));
    std::vector<bool> reachable;
    auto const watched = [&](std::size_t t) {
        if (t == 400 || t == 3999) reachable.push_back(schedule.report(0).reachable);
        return load(t);
    };
    (void)run(world, schedule, busy, watched, {.settings = &asked});
    REQUIRE(reachable.size() == 2);
    CHECK_FALSE(reachable[0]);
    CHECK(reachable[1]);
}

TEST_CASE("priorities order speeds") {
    blocks const world = make_world(1000);
    double last = 0.0;
    for (double const priority : {0.25, 1.0, 4.0}) {
        outcome const o = run_with(world, speed_targets{planned_schedule{busy}}, settings_of(0.0, priority));
        INFO("priority " << priority << ": " << speed(o, 0, favoured) << " after " << last);
        CHECK(speed(o, 0, favoured) > 1.1 * last);
        if (priority > 1.0) CHECK(speed(o, 0, favoured) > 1.2 * speed(o, favoured, requests));
        last = speed(o, 0, favoured);
    }
}

TEST_CASE("with the controller around it targets are met as well") {
    blocks const world = make_world(1500);
    auto const make = [] { return never_lose{speed_targets{planned_schedule{busy}}}; };
    outcome const free = run_with(world, make(), settings_of(0.0));
    double const target = 1.2 * speed(free, 0, favoured);
    outcome const o = run_with(world, make(), settings_of(target));
    INFO("asked " << target << ", got " << speed(o, 0, favoured));
    CHECK(speed(o, 0, favoured) >= 0.95 * target);
    CHECK(o.throughput() >= 0.95 * free.throughput());
}

TEST_CASE("a slot that is given to another request forgets") {
    speed_targets schedule{greedy_schedule{busy}, {.window = 4.0}};
    schedule.set_up({.max_requests = 2, .block_size = 1});
    request_settings const ask{.max_new_tokens = 100, .tokens_per_second = 100.0};
    std::vector<token_id> emitted(1);
    std::vector<verdict> const verdicts{{.id = 7, .slot = 1, .emitted = emitted}};
    std::vector<request_view> views{{.id = 7, .slot = 1, .remaining = 10, .settings = &ask}};
    for (int i = 0; i < 20; ++i)
        schedule.observe({.requests = views, .verdicts = verdicts, .load = {1, 1}, .seconds = 1.0});
    CHECK(schedule.report(1).lambda > 1.0);
    CHECK(std::abs(schedule.report(1).speed - 1.0) < 1e-12);
    // Beside another, who is worth less as long as the slot is that of the one who is behind.
    std::vector<request_view> both{{.id = 1, .slot = 0, .remaining = 10, .settings = &ask}, views[0]};
    schedule.limit_drafts(both);
    CHECK(both[0].weight < certain / 2);
    views[0].id = both[1].id = 8;
    schedule.limit_drafts(both);
    CHECK(both[0].weight == certain);
    CHECK(both[1].weight == certain);
    CHECK(schedule.report(1).lambda > 1.0);  // of the last who had a round
    // Not timed: by the cost, 1 + 1/40.
    schedule.observe({.requests = views, .verdicts = verdicts, .load = {1, 1}});
    CHECK(std::abs(schedule.report(1).speed - 1.0 / (1.0 + 1.0 / 40)) < 1e-12);
    CHECK(schedule.report(1).lambda < 0.25);  // one step of the ascent, from 0
}

TEST_CASE("weights are numbers at the ends of a priority's range, and of a speed's") {
    constexpr double huge = std::numeric_limits<double>::max();
    constexpr double tiny = std::numeric_limits<double>::denorm_min();
    std::vector<token_id> const emitted(2);
    // Seconds of a round: as fast and as slow as a clock can say. A verdict may have no token.
    for (double const seconds : {tiny, 1.0, huge}) {
        for (double const target : {tiny, 1.0, huge}) {
            for (std::size_t const tokens : {0u, 2u}) {
                speed_targets schedule{greedy_schedule{busy}, {.window = 1.0, .step = 10.0, .most = 15.0}};
                schedule.set_up({.max_requests = 2, .block_size = 1});
                INFO(tokens << " tokens in " << seconds << " s, target " << target);
                request_settings first{.max_new_tokens = 100, .tokens_per_second = target};
                request_settings const second{.max_new_tokens = 100};
                std::vector<request_view> const views{{.id = 1, .slot = 0, .remaining = 10, .settings = &first},
                                                      {.id = 2, .slot = 1, .remaining = 10, .settings = &second}};
                std::vector<verdict> const verdicts{{.id = 1, .slot = 0, .emitted = std::span(emitted).first(tokens)},
                                                    {.id = 2, .slot = 1, .emitted = emitted}};
                for (int i = 0; i < 3; ++i) {
                    schedule.observe({.requests = views, .verdicts = verdicts, .load = {2, 2}, .seconds = seconds});
                }
                double const lambda = schedule.report(0).lambda;
                CHECK((lambda >= 0.0 && lambda <= 15.0));
                for (double const priority : {tiny, 1.0, huge}) {
                    INFO("priority " << priority);
                    first.priority = priority;
                    auto weighed = views;
                    schedule.limit_drafts(weighed);
                    // The second has priority 1 and no target.
                    fixed_probability const expected[] = {
                        priority < 1.0 ? 1 : certain, priority < 1.0 ? certain
                                                      : priority > 1.0
                                                          ? 1
                                                          : static_cast<fixed_probability>(certain / (1.0 + lambda))};
                    CHECK(weighed[0].weight == expected[0]);
                    CHECK(weighed[1].weight == expected[1]);
                }
            }
        }
    }
}

TEST_CASE("what speed_targets cannot use") {
    using support::error_text;
    using support::says;
    greedy_schedule const bare{busy};
    CHECK(says(error_text([&] { speed_targets{bare, {.window = 0.5}}; }), {"window", "0.5"}));
    CHECK(says(error_text([&] { speed_targets{bare, {.step = 0.0}}; }), {"step", "> 0"}));
    CHECK(says(error_text([&] { speed_targets{bare, {.step = std::numeric_limits<double>::infinity()}}; }),
               {"step", "inf", "finite"}));
    CHECK(says(error_text([&] { speed_targets{bare, {.most = -1.0}}; }), {"most", "-1"}));
    CHECK(says(error_text([&] { speed_targets{bare, {.patience = 0}}; }), "patience is 0"));
}
