// SPDX-License-Identifier: MIT
//
// Schedules over every cost model admit what a walk candidate by candidate admits, on random tables.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/cost/views.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/greedy.hpp>

#include "support/cost_checks.hpp"
#include "support/dice.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;

namespace {

template <class Cost>
double theta(expected_step const& s, Cost const& cost, step_load load) {
    load.batch_tokens = s.batch_tokens;
    return static_cast<double>(s.accepts) / 16777216.0 * (1.0 / cost.step_seconds(load));
}

struct walked {
    std::vector<std::uint32_t> greedy;  ///< lengths, up to the first candidate that does not raise Theta
    std::size_t budget = 0;             ///< where Theta is highest
};

/// One candidate after another.
template <class Cost>
walked walk(survival_table const& table, Cost const& cost) {
    support::admission_memory memory(table.requests());
    causal_frontier frontier{table, memory.view()};
    expected_step step{std::uint64_t{table.requests()} << 24, table.requests()};
    double last = theta(step, cost, table.load);
    double best = last;
    bool rising = true;
    walked result;
    while (!frontier.empty()) {
        candidate const c = frontier.best();
        step = {step.accepts + c.survival, step.batch_tokens + 1};
        double const now = theta(step, cost, table.load);
        if (rising && now <= last) {
            result.greedy = memory.lengths;
            rising = false;
        }
        frontier.admit(c.request);
        last = now;
        if (now > best) {
            best = now;
            result.budget = frontier.admitted();
        }
    }
    if (rising) result.greedy = memory.lengths;
    return result;
}

/// How many of the comparisons had something to decide.
template <class Cost>
std::size_t compare(support::owned_table const& owned, step_load const& load, Cost const& cost) {
    survival_table table = owned.view();
    table.load = load;
    walked const expected = walk(table, cost);
    support::admission_memory memory(table.requests());
    causal_frontier frontier{table, memory.view()};
    greedy_schedule{cost}.admit(frontier);
    REQUIRE((memory.lengths == expected.greedy));
    REQUIRE(best_budget(table, memory.view(), cost) == expected.budget);
    std::size_t candidates = 0;
    for (std::uint32_t const size : owned.sizes) candidates += size;
    return expected.budget > 0 && expected.budget < candidates ? 1 : 0;
}

void compare_all(support::dice& roll, std::size_t trials, std::size_t least, std::size_t most) {
    std::size_t decided = 0;
    std::size_t compared = 0;
    for (std::size_t trial = 0; trial < trials; ++trial) {
        std::size_t const requests = least + roll.below(most - least);
        std::size_t const gamma = 1 + roll.below(8);
        auto const owned = support::random_table(roll, requests, gamma, roll.chance(0.5) ? 1 + roll.below(9) : 1000);
        step_load const load = support::random_load(roll, requests, gamma);
        support::with_costs(roll, requests, [&](char const* name, auto const& cost) {
            INFO("trial " << trial << ", requests " << requests << ", gamma " << gamma << ", cost " << name);
            decided += compare(owned, load, cost);
            ++compared;
        });
    }
    CHECK(decided * 5 > compared);
}

}  // namespace

TEST_CASE("costs in schedules: the same lengths and budgets as one by one, small tables") {
    support::dice roll(81);
    INFO("seed " << roll.seed());
    compare_all(roll, 400, 1, 40);
}

TEST_CASE("costs in schedules: the same lengths and budgets as one by one, tables that are sampled") {
    support::dice roll(82);
    INFO("seed " << roll.seed());
    compare_all(roll, 6, 1024, 2500);
}

TEST_CASE("costs in schedules: where Theta is level, rounding decides as it does one by one") {
    // tau / (F + b B) with survivals of R / (F/b + R), the value at which Theta neither rises nor falls, and one unit
    // beside.
    support::dice roll(83);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const requests = trial % 30 == 0 ? 1024 + roll.below(1000) : 1 + roll.below(100);
        std::size_t const gamma = 1 + roll.below(6);
        std::size_t const overhead = roll.below(3 * requests + 1);
        std::uint64_t const level = (std::uint64_t{requests} << 24) / (overhead + requests);
        support::owned_table owned(requests, gamma);
        std::uint64_t const most = std::min<std::uint64_t>(level + roll.below(2), certain);
        for (std::size_t r = 0; r < requests; ++r) {
            owned.sizes[r] = static_cast<std::uint32_t>(gamma);
            for (std::size_t k = 0; k < gamma; ++k) {
                std::uint64_t const a = most - (k >= gamma / 2 && most > 0 ? 1 : 0);
                owned.survival[r * gamma + k] = static_cast<fixed_probability>(a);
            }
        }
        double const price = roll.between(0.1, 1.0);
        // Half of the overhead in contexts, half in drafting: neither depends on the batch.
        step_load const load{requests, requests, requests, requests * gamma, overhead};
        additive_cost const model({.batch_token = price,
                                   .context_token = 0.5 * price,
                                   .draft_fixed = 0.5 * price * static_cast<double>(overhead)});
        INFO("trial " << trial << ", requests " << requests << ", overhead " << overhead);
        compare(owned, load, model);
        compare(owned, load, cell_cost{model, support::random_cells(roll, model, requests, 1e-15)});
        compare(owned, load, refined_cost{model});
    }
}
