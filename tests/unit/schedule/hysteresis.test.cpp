// SPDX-License-Identifier: MIT
//
// A budget that stays on its stair: against the definition by sorting, and in closed loop about an edge.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/top_k.hpp>

#include "support/closed_loop.hpp"
#include "support/error_text.hpp"
#include "support/survival_tables.hpp"

using namespace closed_loop;
using support::owned_table;

namespace {

/// Padded to stairs of a width, on a slope.
struct stairs {
    std::size_t width;
    double overhead;
    [[nodiscard]] double seconds(std::size_t b) const noexcept {
        return overhead + static_cast<double>((b + width - 1) / width * width);
    }
    [[nodiscard]] double steps_per_second(std::size_t b) const noexcept { return 1.0 / seconds(b); }
};

template <class Schedule>
std::size_t budget_of(Schedule const& schedule, owned_table const& table) {
    support::admission_memory memory(table.sizes.size());
    return schedule.budget(detail::planning_access::make<from_anchor>(table.view(), memory.view()));
}

template <class Schedule>
void tell_batch(Schedule& schedule, std::size_t batch) {
    round_record record;
    record.load = {.requests = 1, .batch_tokens = batch, .drafting = 1};
    schedule.observe(record);
}

/// The definition: the planner's prefix, unless the best prefix on the old stair is within the margin.
std::size_t by_sorting(owned_table const& table, stairs const& curve, std::size_t last,
                       hysteresis_options const& options) {
    std::size_t const requests = table.sizes.size();
    auto const order = support::sorted_candidates(table.view());
    std::vector<double> theta;
    std::uint64_t accepts = std::uint64_t{requests} << 24;
    for (std::size_t k = 0; k <= order.size(); ++k) {
        if (k > 0) accepts += order[k - 1].survival;
        theta.push_back(static_cast<double>(accepts) * 0x1p-24 * curve.steps_per_second(requests + k));
    }
    auto const free = static_cast<std::size_t>(std::max_element(theta.begin(), theta.end()) - theta.begin());
    if (last < requests || last > requests * (1 + table.block_size)) return free;
    auto const same = [&](std::size_t b) {
        return std::abs(curve.seconds(b) - curve.seconds(last)) <= options.height * curve.seconds(last);
    };
    std::size_t held = order.size() + 1;
    for (std::size_t k = 0; k <= order.size(); ++k) {
        if (same(requests + k) && (held > order.size() || theta[k] > theta[held])) held = k;
    }
    if (same(requests + free) || held > order.size()) return free;
    return theta[free] > (1.0 + options.margin) * theta[held] ? free : held;
}

/// Times that a batch lies on another stair than the one before.
std::size_t jumps(outcome const& o, std::size_t width) {
    std::size_t count = 0;
    for (std::size_t t = 1; t < o.batches.size(); ++t) {
        if ((o.batches[t] + width - 1) / width != (o.batches[t - 1] + width - 1) / width) ++count;
    }
    return count;
}

}  // namespace

TEST_CASE("it does what its definition says, stair by stair") {
    support::dice roll(20);
    std::size_t held = 0;
    for (int trial = 0; trial < 1500; ++trial) {
        bool const large = trial % 150 == 0;
        std::size_t const requests = large ? 1024 + roll.below(500) : 1 + roll.below(30);
        std::size_t const gamma = 1 + roll.below(7);
        auto const table = support::random_table(roll, requests, gamma, roll.chance(0.5) ? 4 : 1000);
        stairs const curve{1 + roll.below(large ? 700 : 40), roll.between(1.0, large ? 2000.0 : 100.0)};
        hysteresis_options const options{.margin = roll.chance(0.2) ? 0.0 : 0.2 * roll.real(), .height = 1e-9};
        std::size_t const last = roll.below(requests * (gamma + 1) + 20);
        hysteresis plain{planned_schedule{curve}, options};
        tell_batch(plain, last);
        std::size_t const expected = by_sorting(table, curve, last, options);
        INFO("seed " << roll.seed() << ", trial " << trial << ", requests " << requests << ", last batch " << last);
        CHECK(budget_of(plain, table) == expected);
        if (budget_of(planned_schedule{curve}, table) != expected) ++held;
    }
    CHECK(held > 50);
}

TEST_CASE("before a round was seen, and at another load, it does what it wraps") {
    support::dice roll(21);
    auto const table = support::random_table(roll, 20, 7, 1000);
    planned_schedule const bare{stairs{16, 30.0}};
    hysteresis schedule{bare};
    CHECK(budget_of(schedule, table) == budget_of(bare, table));
    tell_batch(schedule, 19);  // fewer tokens than there are anchors now
    CHECK(budget_of(schedule, table) == budget_of(bare, table));
    tell_batch(schedule, 20 * 8 + 1);
    CHECK(budget_of(schedule, table) == budget_of(bare, table));
    CHECK(schedule.last_batch() == 20 * 8 + 1);
    round_record idle;
    idle.load = {.requests = 20, .batch_tokens = 20};
    schedule.observe(idle);
    CHECK(schedule.last_batch() == 20 * 8 + 1);
}

TEST_CASE("a load that wobbles about an edge does not make it jump, for less than the margin") {
    machine const m{.padded_to = 32};
    blocks const world(3, 40, 1000, 7, [](std::size_t, std::size_t) { return code; });
    support::dice roll(22);
    std::vector<std::size_t> wobble;
    for (std::size_t t = 0; t < world.rounds; ++t) wobble.push_back(28 + roll.below(9));
    auto const load = [&](std::size_t t) { return wobble[t]; };
    auto const compare = [&](auto bare) {
        hysteresis schedule{bare, {.margin = 0.02}};
        outcome const free = run(world, bare, m, load);
        outcome const calm = run(world, schedule, m, load);
        double const price = 1.0 - calm.throughput() / free.throughput();
        INFO("jumps " << jumps(free, 32) << " without, " << jumps(calm, 32) << " with; price " << price);
        CHECK(jumps(calm, 32) * 3 < jumps(free, 32));
        CHECK(price < 0.01);
    };
    compare(planned_schedule{m});
    compare(top_k_schedule{m});
}

TEST_CASE("what hysteresis cannot use") {
    using support::error_text;
    using support::says;
    planned_schedule const bare{stairs{16, 30.0}};
    CHECK(says(error_text([&] { hysteresis{bare, {.margin = -0.1}}; }), {"margin", "-0.1"}));
    CHECK(says(error_text([&] { hysteresis{bare, {.height = std::nan("")}}; }), {"height", "nan"}));
    STATIC_REQUIRE(planner<hysteresis<planned_schedule<stairs>>>);
    STATIC_REQUIRE(causality_of_v<hysteresis<planned_schedule<stairs>>> == causality::non_anticipating);
    STATIC_REQUIRE(hysteresis<top_k_schedule<stairs, 3>>::origin::lag == 3);
}
