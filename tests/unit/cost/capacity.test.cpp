// SPDX-License-Identifier: MIT
//
// Capacity curves: values on, between and beyond the points, both policies; profiling against a scripted clock;
// every unusable table.
#include "support/catch.hpp"
#include "support/error_text.hpp"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/fit/profile.hpp>

using sureleap::analytic_capacity;
using sureleap::capacity_point;
using sureleap::capacity_table;
using sureleap::linear_step_time;
using sureleap::staircase;

using support::error_text;
using support::says;

namespace {

std::string rejects(std::vector<capacity_point> points) {
    return error_text([&] { capacity_table<>{std::move(points)}; });
}

static_assert(sureleap::capacity_curve<capacity_table<>>);
static_assert(sureleap::capacity_curve<capacity_table<staircase>>);
static_assert(sureleap::capacity_curve<analytic_capacity>);
static_assert(noexcept(std::declval<capacity_table<> const&>().steps_per_second(1)));
static_assert(noexcept(std::declval<capacity_table<staircase> const&>().steps_per_second(1)));
static_assert(noexcept(std::declval<analytic_capacity const&>().steps_per_second(1)));

}  // namespace

TEST_CASE("capacity: linear step times") {
    capacity_table<> const table({{2, 1.0}, {4, 2.0}, {8, 2.5}, {16, 2.25}, {32, 4.25}});
    CHECK(table.step_seconds(0) == 1.0);
    CHECK(table.step_seconds(1) == 1.0);
    CHECK(table.step_seconds(2) == 1.0);
    CHECK(table.step_seconds(3) == 1.5);
    CHECK(table.step_seconds(4) == 2.0);
    CHECK(table.step_seconds(6) == 2.25);
    CHECK(table.step_seconds(8) == 2.5);
    CHECK(table.step_seconds(12) == 2.375);  // measurements may fall
    CHECK(table.step_seconds(16) == 2.25);
    CHECK(table.step_seconds(32) == 4.25);
    CHECK(table.step_seconds(48) == 6.25);  // the last slope goes on
    CHECK(table.steps_per_second(48) == 1.0 / 6.25);
    CHECK_FALSE(table.is_flat());
}

TEST_CASE("capacity: a falling last segment is not continued") {
    capacity_table<> const table({{1, 2.0}, {2, 1.0}});
    CHECK(table.step_seconds(2) == 1.0);
    CHECK(table.step_seconds(1000) == 1.0);
}

TEST_CASE("capacity: one point") {
    capacity_table<> const line({{8, 0.5}});
    capacity_table<staircase> const stairs({{8, 0.5}});
    for (std::size_t const b : {0u, 1u, 8u}) {
        CHECK(line.step_seconds(b) == 0.5);
        CHECK(stairs.step_seconds(b) == 0.5);
    }
    CHECK(line.step_seconds(16) == 0.5);
    CHECK(stairs.step_seconds(16) == 1.0);
    CHECK(line.is_flat());
}

TEST_CASE("capacity: staircase of padded sizes") {
    capacity_table<staircase> const table({{1, 1.0}, {4, 2.0}, {8, 3.0}});
    CHECK(table.step_seconds(0) == 1.0);
    CHECK(table.step_seconds(1) == 1.0);
    CHECK(table.step_seconds(2) == 2.0);
    CHECK(table.step_seconds(4) == 2.0);
    CHECK(table.step_seconds(5) == 3.0);
    CHECK(table.step_seconds(8) == 3.0);
    CHECK(table.step_seconds(12) == 4.5);
}

TEST_CASE("capacity: linear policy agrees with a scan over all segments") {
    auto const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 draw(seed);
    for (int round = 0; round < 200; ++round) {
        std::vector<capacity_point> points;
        std::size_t batch = 0;
        std::size_t const size = 1 + draw() % 8;
        for (std::size_t i = 0; i < size; ++i) {
            batch += 1 + draw() % 9;
            points.push_back({batch, static_cast<double>(1 + draw() % 1000) / 64.0});
        }
        capacity_table<> const table(points);
        for (std::size_t b = 0; b <= points.back().batch_tokens; ++b) {
            double expected = points.front().seconds;
            for (std::size_t i = 0; i + 1 < points.size(); ++i) {
                auto const& l = points[i];
                auto const& r = points[i + 1];
                if (b < l.batch_tokens || b > r.batch_tokens) continue;
                double const t =
                    static_cast<double>(b - l.batch_tokens) / static_cast<double>(r.batch_tokens - l.batch_tokens);
                expected = (1.0 - t) * l.seconds + t * r.seconds;
            }
            REQUIRE(std::abs(table.step_seconds(b) - expected) <= 1e-13 * expected);
        }
        for (auto const& p : points) REQUIRE(table.step_seconds(p.batch_tokens) == p.seconds);
    }
}

TEST_CASE("capacity: flat tables are legal and can be told") {
    CHECK(capacity_table<>({{1, 0.5}, {8, 0.5}, {64, 0.5}}).is_flat());
    capacity_table<> const nearly({{1, 0.5}, {8, 0.504}});
    CHECK_FALSE(nearly.is_flat());
    CHECK(nearly.is_flat(0.01));
    CHECK_FALSE(nearly.is_flat(0.001));
}

TEST_CASE("capacity: unusable tables are refused with index and value") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const inf = std::numeric_limits<double>::infinity();
    CHECK(says(rejects({}), "the table is empty"));
    CHECK(says(rejects({{1, 1.0}, {8, 1.0}, {4, 1.0}}), "index 2: got 4 after 8, expected ascending order"));
    CHECK(says(rejects({{1, 1.0}, {8, 1.0}, {8, 2.0}}), "index 2: got 8 a second time"));
    CHECK(says(rejects({{0, 1.0}}), "batch tokens at index 0: got 0"));
    CHECK(says(rejects({{1, 1.0}, {2, 0.0}}), "seconds at index 1 (batch tokens 2): got 0"));
    CHECK(says(rejects({{1, -1.5}}), "seconds at index 0 (batch tokens 1): got -1.5"));
    CHECK(says(rejects({{1, nan}}), "expected a positive finite number"));
    CHECK(says(rejects({{1, inf}}), "expected a positive finite number"));
}

TEST_CASE("capacity: numbers that no step can have are refused, and their neighbours are not") {
    // A second has an inverse, and sums and products of what a table holds stay finite and within std::size_t.
    CHECK(says(rejects({{1, 1e-320}}), {"capacity_table: seconds at index 0 (batch tokens 1): got 9.9998",
                                        "e-321, expected a positive finite number in [1e-15, 1e9]"}));
    CHECK(says(rejects({{1, 1.0}, {2, 5e-16}}), "seconds at index 1 (batch tokens 2): got 5e-16"));
    CHECK(says(rejects({{1, 1e300}}), "seconds at index 0 (batch tokens 1): got 1e+300"));
    CHECK(says(rejects({{1, -0.0}}), "got -0"));
    std::size_t const most = std::size_t{1} << 62;
    CHECK(says(rejects({{1, 1.0}, {std::numeric_limits<std::size_t>::max(), 1.0}}),
               "batch tokens at index 1: got 18446744073709551615, expected at most 2^62 = 4611686018427387904"));
    CHECK(says(rejects({{most + 1, 1.0}}), "batch tokens at index 0: got 4611686018427387905"));
    CHECK(rejects({{1, 1e-15}, {2, 1e9}}).empty());
    CHECK(rejects({{1, 1.0}, {most, 2.0}}).empty());
    capacity_table<staircase> const widest({{1, 1e-15}, {most, 1e9}});
    capacity_table<> const steepest({{1, 1e-15}, {2, 1e9}});
    for (std::size_t const b : {std::size_t{1}, std::size_t{2}, most, 2 * most}) {
        CHECK(std::isfinite(widest.steps_per_second(b)));
        CHECK(std::isfinite(steepest.steps_per_second(b)));
        CHECK(steepest.steps_per_second(b) > 0.0);
    }
    CHECK(says(error_text([&] { (void)sureleap::profile([](std::size_t) {}, {1, most + 1}); }),
               "profile: batch tokens at index 1"));
}

TEST_CASE("capacity: closed form") {
    analytic_capacity const curve(8000.0, 96.0);
    CHECK(curve.steps_per_second(4) == 80.0);
    CHECK(curve.steps_per_second(32) == 62.5);
    CHECK(std::isfinite(analytic_capacity(1.0, 0.0).steps_per_second(0)));
    CHECK(says(error_text([] { analytic_capacity(0.0, 1.0); }), "rate is 0"));
    CHECK(says(error_text([] { analytic_capacity(1.0, -1.0); }), "overhead is -1"));
    CHECK(says(error_text([] { analytic_capacity(std::nan(""), 1.0); }), "rate is"));
    CHECK(says(error_text([] { analytic_capacity(1.0, std::nan("")); }), "overhead is"));
    CHECK(
        says(error_text([] { analytic_capacity(1e300, 0.0); }),
             "analytic_capacity: with a rate of 1e+300 and an overhead of 0 a step of one token takes 1e-300 seconds, "
             "expected a number in [1e-15, 1e9]"));
    CHECK(says(error_text([] { analytic_capacity(5e-324, 1.0); }), "takes inf seconds"));
    CHECK(says(error_text([] { analytic_capacity(1.0, 1e300); }), "takes 1e+300 seconds"));
    CHECK(error_text([] { analytic_capacity(1e15, 0.0); }).empty());
    CHECK(error_text([] { analytic_capacity(1.0, 1e8); }).empty());
}

namespace {

// A clock that stands still except when the functor under test moves it.
struct scripted_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<scripted_clock>;
    [[maybe_unused]] static constexpr bool is_steady = true;
    static inline time_point current{};
    static time_point now() noexcept { return current; }
};

}  // namespace

TEST_CASE("capacity: profile takes the median of the timed runs") {
    std::vector<std::size_t> calls;
    auto const step = [&](std::size_t tokens) {
        calls.push_back(tokens);
        auto cost = std::chrono::milliseconds(10 + tokens);
        if (calls.size() <= 4) cost *= 100;                       // warm-up
        if (calls.size() == 7 || calls.size() == 12) cost *= 50;  // a disturbed run of each size
        scripted_clock::current += cost;
    };
    auto const table = sureleap::profile<staircase, scripted_clock>(step, {2, 8}, {.warm_up = 2, .repeats = 5});
    REQUIRE(calls.size() == 2 * (2 + 5));
    REQUIRE(table.points().size() == 2);
    CHECK(table.points()[0].batch_tokens == 2);
    CHECK(table.points()[1].batch_tokens == 8);
    CHECK(std::abs(table.points()[0].seconds - 0.012) < 1e-12);
    CHECK(std::abs(table.points()[1].seconds - 0.018) < 1e-12);

    int run = 0;  // an even number of repeats: the mean of the middle two
    auto const uneven = sureleap::profile<linear_step_time, scripted_clock>(
        [&](std::size_t) {
            ++run;
            scripted_clock::current += std::chrono::seconds(run == 4 ? 9 : run);
        },
        {1}, {.warm_up = 0, .repeats = 4});
    CHECK(uneven.points()[0].seconds == 2.5);
}

TEST_CASE("capacity: profile times real work with the default clock") {
    double volatile sink = 0.0;
    auto const table = sureleap::profile(
        [&](std::size_t tokens) {
            for (std::size_t i = 0; i < tokens * 200000; ++i) sink = sink + 1.0;
        },
        {1, 16}, {.warm_up = 1, .repeats = 3});
    CHECK(table.step_seconds(16) > table.step_seconds(1));
}

TEST_CASE("capacity: profile refuses a bad grid before it runs anything") {
    int runs = 0;
    auto const step = [&](std::size_t) { ++runs; };
    CHECK(says(error_text([&] { (void)sureleap::profile(step, {}); }), "profile: the table is empty"));
    CHECK(says(error_text([&] { (void)sureleap::profile(step, {4, 2}); }), "index 1: got 2 after 4"));
    CHECK(says(error_text([&] { (void)sureleap::profile(step, {1}, {.repeats = 0}); }), "repeats is 0"));
    CHECK(runs == 0);
    CHECK(says(error_text([&] { (void)sureleap::profile<linear_step_time, scripted_clock>(step, {1}); }),
               "the median at index 0 (batch tokens 1) is 0 seconds"));
}
