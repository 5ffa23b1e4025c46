// SPDX-License-Identifier: MIT
//
// Schedules over many requests against the walk that admits one candidate after another: the same lengths and budgets
// for any table and any curve, near ties of Theta included, with every version of the passes.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/simple.hpp>

#include "support/dice.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;
using support::owned_table;

namespace {

using lengths_t = std::vector<std::uint32_t>;

// ---- the oracle: one candidate after another --------------------------------------------------------------------

template <class Capacity>
double theta(expected_step const& s, Capacity const& capacity) {
    return static_cast<double>(s.accepts) / 16777216.0 * capacity.steps_per_second(s.batch_tokens);
}

template <class Capacity>
lengths_t walk_greedy(survival_table const& table, Capacity const& capacity) {
    support::admission_memory memory(table.requests());
    causal_frontier frontier{table, memory.view()};
    expected_step step{std::uint64_t{table.requests()} << 24, table.requests()};
    while (!frontier.empty()) {
        candidate const c = frontier.best();
        expected_step const longer{step.accepts + c.survival, step.batch_tokens + 1};
        if (theta(longer, capacity) <= theta(step, capacity)) break;
        frontier.admit(c.request);
        step = longer;
    }
    return memory.lengths;
}

template <class Capacity>
std::size_t walk_budget(survival_table const& table, Capacity const& capacity) {
    support::admission_memory memory(table.requests());
    causal_frontier frontier{table, memory.view()};
    expected_step step{std::uint64_t{table.requests()} << 24, table.requests()};
    double best = theta(step, capacity);
    std::size_t budget = 0;
    while (!frontier.empty()) {
        candidate const c = frontier.best();
        frontier.admit(c.request);
        step = {step.accepts + c.survival, step.batch_tokens + 1};
        if (double const now = theta(step, capacity); now > best) {
            best = now;
            budget = frontier.admitted();
        }
    }
    return budget;
}

lengths_t admit_first(survival_table const& table, std::size_t count) {
    support::admission_memory memory(table.requests());
    causal_frontier frontier{table, memory.view()};
    while (!frontier.empty() && frontier.admitted() < count) frontier.admit(frontier.best().request);
    return memory.lengths;
}

// ---- tables -----------------------------------------------------------------------------------------------------

constexpr char const* table_kinds[] = {"spread", "levels", "equal", "certain", "zero", "tiny", "high", "two clusters"};

owned_table make_table(support::dice& roll, std::size_t requests, std::size_t gamma, std::size_t kind) {
    owned_table table(requests, gamma);
    bool const jagged = roll.chance(0.5);
    std::size_t const levels = 1 + roll.below(6);
    auto const same = static_cast<fixed_probability>(roll.below(certain + 1));
    for (std::size_t r = 0; r < requests; ++r) {
        table.sizes[r] = static_cast<std::uint32_t>(jagged ? roll.below(gamma + 1) : gamma);
        double const ease = roll.real();
        for (std::size_t k = 0; k < gamma; ++k) {
            double c = 0.0;
            switch (kind) {
                case 0: c = std::min(1.0, ease + 0.3 * roll.real()); break;
                case 1: c = static_cast<double>(roll.below(levels + 1)) / static_cast<double>(levels); break;
                case 2: c = k == 0 ? static_cast<double>(same) / certain : 1.0; break;
                case 3: c = 1.0; break;
                case 4: c = roll.chance(0.02) ? roll.real() : 0.0; break;
                case 5: c = k == 0 ? roll.real() * 1e-5 : 0.9 + 0.1 * roll.real(); break;
                case 6: c = 1.0 - roll.real() * 1e-3; break;
                default: c = k == 0 ? (roll.chance(0.5) ? 0.4 : 0.7) + 1e-6 * roll.real() : 1.0 - 1e-7 * roll.real();
            }
            fixed_probability fixed = 0;
            REQUIRE(quantise(c, fixed));
            table.set(r, k, fixed);
        }
        // What is behind a row is not in use.
        for (std::size_t k = table.sizes[r]; k < gamma; ++k) {
            table.survival[r * gamma + k] = static_cast<std::uint32_t>(roll.below(std::size_t{1} << 31));
        }
    }
    return table;
}

std::size_t candidates(owned_table const& table) {
    std::size_t sum = 0;
    for (std::uint32_t const size : table.sizes) sum += size;
    return sum;
}

// ---- curves -----------------------------------------------------------------------------------------------------

/// A curve by its values.
struct listed_capacity {
    std::vector<double> steps;
    [[nodiscard]] double steps_per_second(std::size_t b) const noexcept { return steps[std::min(b, steps.size() - 1)]; }
};

/// Points from 1 on; `convex`: growing slopes; `wobble`: relative noise; 0 for a flat table.
std::vector<capacity_point> random_points(support::dice& roll, std::size_t most, double slope, double convexity,
                                          double wobble) {
    std::vector<capacity_point> points;
    double const ratio = roll.between(1.05, 2.0);
    for (double b = 1.0 + std::floor(roll.between(0.0, static_cast<double>(most)));
         points.empty() || b < 1.2 * static_cast<double>(most); b = std::max(b + 1.0, b * ratio)) {
        double const x = std::floor(b) / static_cast<double>(most);
        double const noise = 1.0 + wobble * (roll.real() - 0.5);
        points.push_back({static_cast<std::size_t>(b), (1.0 + slope * x + convexity * x * x) * noise});
    }
    return points;
}

/// Calls f(name, curve) with one curve of every family.
template <class F>
void with_curves(support::dice& roll, std::size_t requests, std::size_t gamma, F&& f) {
    std::size_t const most = requests * (gamma + 1) + 1;
    double const slope = std::exp(roll.between(-3.0, 4.0));
    f("linear", capacity_table<>(random_points(roll, most, slope, 0.0, 0.0)));
    f("convex", capacity_table<>(random_points(roll, most, slope, slope, 0.0)));
    f("concave", capacity_table<>(random_points(roll, most, slope, -0.5 * slope / (1.0 + slope), 0.0)));
    double const noise_level = 0.1 * std::pow(10.0, -std::floor(roll.between(0.0, 14.0)));
    f("wobbling", capacity_table<>(random_points(roll, most, slope, slope, noise_level)));
    f("nearly linear", capacity_table<>(random_points(roll, most, slope, 0.0, noise_level)));
    f("flat", capacity_table<>(random_points(roll, most, 0.0, 0.0, 0.0)));
    f("stairs", capacity_table<staircase>(random_points(roll, most, slope, 0.0, 0.0)));
    std::vector<capacity_point> even;
    std::size_t const width = 1 + roll.below(roll.chance(0.5) ? 20 : requests * gamma + 1);
    for (std::size_t b = width; b < most + width && even.size() < 3000; b += width) {
        even.push_back(
            {b, 1.0 + slope * static_cast<double>(b) / static_cast<double>(most) + (roll.chance(0.1) ? -0.01 : 0.0)});
    }
    f("even stairs", capacity_table<staircase>(even));
    f("two points", capacity_table<>({{1, 1.0}, {most + 1, 1.0 + slope}}));
    f("one point", capacity_table<staircase>({{1 + roll.below(most), 1.0}}));
    // All survivals equal to R / (overhead + R), or nearly so: Theta is level, and rounding decides.
    f("closed form", analytic_capacity(8000.0, static_cast<double>(roll.below(2 * requests + 2))));
    listed_capacity noise;
    bool const coarse = roll.chance(0.5);
    for (std::size_t b = 0; b <= most; ++b) {
        noise.steps.push_back(coarse ? static_cast<double>(1 + roll.below(2)) : roll.between(0.5, 2.0));
    }
    f("noise", noise);
    listed_capacity rising;
    for (std::size_t b = 0; b <= most; ++b) rising.steps.push_back(1.0 + static_cast<double>(b) * 1e-3);
    f("rising", rising);
}

struct outcome {
    std::size_t compared = 0;
    std::size_t partial = 0;  ///< neither nothing nor everything was admitted
};

/// Greedy, global and first-n admission of one table under one curve.
template <class Capacity>
outcome compare(support::dice& roll, owned_table const& owned, Capacity const& curve, survival_kernels const& kernels) {
    survival_table const table = owned.view();
    support::admission_memory memory(table.requests());
    outcome seen;
    auto const check = [&](lengths_t const& expected) {
        REQUIRE((memory.lengths == expected));
        std::size_t sum = 0;
        for (std::uint32_t const l : expected) sum += l;
        ++seen.compared;
        if (sum > 0 && sum < candidates(owned)) ++seen.partial;
        return sum;
    };
    {
        causal_frontier frontier{table, memory.view(kernels)};
        greedy_schedule{curve}.admit(frontier);
        REQUIRE(frontier.admitted() == check(walk_greedy(table, curve)));
    }
    std::size_t const budget = walk_budget(table, curve);
    REQUIRE(best_budget(table, memory.view(kernels), curve) == budget);
    {
        retrospective_schedule{curve}.admit(draft_table{table, {}, {}}, memory.view(kernels));
        check(admit_first(table, budget));
    }
    std::size_t const count = roll.below(candidates(owned) + 3);
    causal_frontier frontier{table, memory.view(kernels)};
    frontier.admit_best(count);
    REQUIRE(frontier.admitted() == check(admit_first(table, count)));
    return seen;
}

/// Tables of every kind under every curve, by every version of the passes.
template <class Requests, class Gamma>
void compare_tables(std::size_t trials, Requests const& requests_of_a_table, Gamma const& gamma_of_a_table,
                    support::dice& roll) {
    for (auto const* kernels : available_kernels<survival_kernels>()) {
        outcome seen;
        for (std::size_t trial = 0; trial < trials; ++trial) {
            std::size_t const requests = requests_of_a_table();
            std::size_t const gamma = gamma_of_a_table();
            std::size_t const kind = trial % std::size(table_kinds);
            auto const table = make_table(roll, requests, gamma, kind);
            with_curves(roll, requests, gamma, [&](char const* name, auto const& curve) {
                INFO(kernels->name << ", trial " << trial << ", requests " << requests << ", gamma " << gamma
                                   << ", table " << table_kinds[kind] << ", curve " << name);
                outcome const now = compare(roll, table, curve, *kernels);
                seen.compared += now.compared;
                seen.partial += now.partial;
            });
        }
        CHECK(seen.partial * 4 > seen.compared);
    }
}

}  // namespace

TEST_CASE("bulk walk: the same lengths and budgets as one by one, small tables") {
    support::dice roll(71);
    INFO("seed " << roll.seed());
    compare_tables(
        400, [&] { return roll.below(roll.chance(0.25) ? 120 : 12); },
        [&] { return 1 + roll.below(roll.chance(0.15) ? 40 : 9); }, roll);
}

TEST_CASE("bulk walk: the same lengths and budgets as one by one, tables that are sampled") {
    support::dice roll(72);
    INFO("seed " << roll.seed());
    compare_tables(
        2 * std::size(table_kinds), [&] { return 1024 + roll.below(1500); }, [&] { return 1 + roll.below(9); }, roll);
}

TEST_CASE("bulk walk: where Theta is level, rounding decides as it does one by one") {
    // tau / (overhead + B) = R / (overhead + R) for every prefix, up to rounding, if every survival is R / (overhead +
    // R); and nearly so if it is one unit more or less.
    support::dice roll(73);
    INFO("seed " << roll.seed());
    std::size_t partial = 0;
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const requests = trial % 10 == 0 ? 1024 + roll.below(3000) : 1 + roll.below(200);
        std::size_t const gamma = 1 + roll.below(8);
        auto const overhead = static_cast<std::size_t>(roll.below(3 * requests + 1));
        std::uint64_t const level = (std::uint64_t{requests} << 24) / (overhead + requests);
        owned_table table(requests, gamma);
        bool const mixed = roll.chance(0.5);
        std::uint64_t const most = level + roll.below(2);
        for (std::size_t r = 0; r < requests; ++r) {
            table.sizes[r] = static_cast<std::uint32_t>(gamma);
            for (std::size_t k = 0; k < gamma; ++k) {
                std::uint64_t const a = most - (mixed && k >= gamma / 2 && most > 0 ? 1 : 0);
                table.survival[r * gamma + k] = static_cast<fixed_probability>(std::min<std::uint64_t>(a, certain));
            }
        }
        double const rate = roll.between(0.1, 10.0);
        analytic_capacity const closed(rate, static_cast<double>(overhead));
        std::size_t const last = requests * (gamma + 1);
        auto const seconds = [&](std::size_t b) { return static_cast<double>(overhead + b) / rate; };
        capacity_table<> const line(
            {{1, seconds(1)}, {last / 2 + 2, seconds(last / 2 + 2)}, {last + 3, seconds(last + 3)}});
        INFO("trial " << trial << ", requests " << requests << ", overhead " << overhead);
        auto const run = [&](auto const& curve) {
            partial += compare(roll, table, curve, native_kernels<survival_kernels>()).partial;
        };
        run(closed);
        run(line);
    }
    CHECK(partial > 100);
}

TEST_CASE("bulk walk: a table of 70,000 requests") {
    support::dice roll(74);
    INFO("seed " << roll.seed());
    for (std::size_t const kind : {std::size_t{0}, std::size_t{1}}) {
        auto const table = make_table(roll, 70000, 8, kind);
        double const overhead = 4.0 * 70000.0;
        compare(roll, table, analytic_capacity(1000.0, overhead), native_kernels<survival_kernels>());
        compare(roll, table, capacity_table<staircase>({{70000, 1.0}, {250000, 2.0}, {500000, 5.0}}),
                native_kernels<survival_kernels>());
    }
}

namespace {

/// Says yes to everything, writes down what it is shown, and proves at random.
struct curious_rule {
    support::dice* roll;
    double proofs;
    std::size_t stop;
    std::vector<expected_step> seen{};

    bool take(expected_step const& longer) {
        if (longer.batch_tokens > stop) return false;
        seen.push_back(longer);
        return true;
    }
    bool pass(admission_segment const& s) {
        if (s.to.batch_tokens > stop || !roll->chance(proofs)) return false;
        seen.push_back(s.to);
        return true;
    }
    void visit(expected_step const&) const {}
    [[nodiscard]] std::size_t answer() const { return stop; }
};

}  // namespace

TEST_CASE("bulk walk: shows the prefixes of the sorted order, whatever is proved on the way") {
    support::dice roll(75);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 600; ++trial) {
        std::size_t const requests = trial % 60 == 0 ? 1024 + roll.below(500) : 1 + roll.below(60);
        std::size_t const gamma = 1 + roll.below(8);
        auto const table = make_table(roll, requests, gamma, roll.below(std::size(table_kinds)));
        auto const order = support::sorted_candidates(table.view());
        std::vector<std::uint64_t> accepts{std::uint64_t{requests} << 24};
        for (candidate const& c : order) accepts.push_back(accepts.back() + c.survival);

        double const proofs = trial % 3 == 0 ? 0.0 : trial % 3 == 1 ? 0.3 : 0.8;
        curious_rule rule{&roll, proofs, requests + roll.below(order.size() + 2)};
        support::admission_memory memory(requests);
        causal_frontier frontier{table.view(), memory.view()};
        detail::frontier_access::admit_while(frontier, rule);
        bool right = true;
        std::size_t last = 0;
        for (expected_step const& s : rule.seen) {
            std::size_t const k = s.batch_tokens - requests;
            right = right && k > last && k < accepts.size() && s.accepts == accepts[k];
            if (proofs == 0.0) right = right && k == last + 1;
            last = k;
        }
        INFO("trial " << trial);
        REQUIRE(right);
        REQUIRE(last == std::min(order.size(), rule.stop - requests));
        REQUIRE(frontier.admitted() == last);
        REQUIRE((memory.lengths == support::lengths_of_first(table.view(), last)));
    }
}

TEST_CASE("bulk walk: what is admitted at once can be gone on with one by one, and the other way round") {
    support::dice roll(76);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 500; ++trial) {
        std::size_t const requests = 1 + roll.below(40);
        std::size_t const gamma = 1 + roll.below(8);
        auto const table = make_table(roll, requests, gamma, roll.below(std::size(table_kinds)));
        support::admission_memory memory(requests);
        causal_frontier frontier{table.view(), memory.view()};
        std::size_t admitted = 0;
        std::size_t const all = candidates(table);
        INFO("trial " << trial);
        while (admitted < all) {
            if (roll.chance(0.5)) {
                REQUIRE_FALSE(frontier.empty());
                frontier.admit(frontier.best().request);
                ++admitted;
            } else {
                std::size_t const more = roll.below(all);
                frontier.admit_best(more);
                admitted = std::min(all, admitted + more);
            }
            REQUIRE(frontier.admitted() == admitted);
            REQUIRE((memory.lengths == support::lengths_of_first(table.view(), admitted)));
        }
        REQUIRE(frontier.empty());
        frontier.admit_best(3);
        REQUIRE(frontier.admitted() == all);
    }
}

TEST_CASE("bulk walk: a request that was closed gets nothing more") {
    owned_table table(3, 4);
    for (std::size_t r = 0; r < 3; ++r) {
        table.sizes[r] = 4;
        for (std::size_t k = 0; k < 4; ++k) table.set(r, k, certain - static_cast<fixed_probability>(r));
    }
    support::admission_memory memory(3);
    causal_frontier frontier{table.view(), memory.view()};
    frontier.close(1);
    frontier.admit_best(6);
    CHECK(memory.lengths == lengths_t{4, 0, 2});
    greedy_schedule{capacity_table<>({{1, 1.0}})}.admit(frontier);
    CHECK(memory.lengths == lengths_t{4, 0, 4});
}

TEST_CASE("bulk walk: no requests, and no positions") {
    support::admission_memory none(0);
    owned_table const empty(0, 8);
    causal_frontier frontier{empty.view(), none.view()};
    greedy_schedule{analytic_capacity(1.0, 1.0)}.admit(frontier);
    frontier.admit_best(5);
    CHECK(frontier.admitted() == 0);
    CHECK(best_budget(empty.view(), none.view(), analytic_capacity(1.0, 1.0)) == 0);

    owned_table const idle(2000, 8);  // all sizes 0
    support::admission_memory memory(2000);
    causal_frontier still{idle.view(), memory.view()};
    greedy_schedule{analytic_capacity(1.0, 1.0)}.admit(still);
    CHECK(still.admitted() == 0);
    CHECK(best_budget(idle.view(), memory.view(), analytic_capacity(1.0, 1.0)) == 0);
}

// ---- proofs -------------------------------------------------------------------------------------------------------

TEST_CASE("proofs: what is proved of a segment holds for its candidates") {
    support::dice roll(77);
    INFO("seed " << roll.seed());
    std::size_t rises = 0;
    std::size_t below = 0;
    for (int trial = 0; trial < 4000; ++trial) {
        std::size_t const requests = 1 + roll.below(200);
        std::size_t const size = 1 + roll.below(60);
        std::size_t const start = requests + roll.below(5 * requests);
        std::vector<std::uint32_t> a(size);
        auto const low = roll.below(certain);
        auto const span =
            static_cast<std::size_t>(std::exp(roll.between(0.0, std::log(static_cast<double>(certain - low)))));
        for (auto& x : a) x = static_cast<std::uint32_t>(low + roll.below(span + 1));
        std::sort(a.begin(), a.end(), std::greater<>{});
        admission_segment s;
        s.from = {(std::uint64_t{requests} << 24) + roll.below((start - requests) * std::size_t{certain} + 1), start};
        s.to = s.from;
        for (auto const x : a) s.to = s.to.with(1, x);
        s.least = a.back() - static_cast<std::uint32_t>(std::min<std::size_t>(a.back(), roll.below(3)));
        s.most = static_cast<std::uint32_t>(std::min<std::size_t>(certain, a.front() + roll.below(3)));
        with_curves(roll, start, 1 + size / start, [&](char const* name, auto const& curve) {
            INFO("trial " << trial << ", curve " << name);
            bool all_rise = true;
            expected_step step = s.from;
            double best = theta(step, curve);
            for (auto const x : a) {
                expected_step const longer = step.with(1, x);
                all_rise = all_rise && theta(longer, curve) > theta(step, curve);
                step = longer;
                best = std::max(best, theta(step, curve));
            }
            if (detail::surely_rises(curve, s)) {
                ++rises;
                REQUIRE(all_rise);
            }
            for (double const bar : {best, best * (1.0 + 1e-15), best * (1.0 + 1e-9), best * 1.01}) {
                if (detail::surely_below(curve, s, bar)) {
                    ++below;
                    REQUIRE(best < bar);
                }
            }
        });
    }
    CHECK(rises > 5000);
    CHECK(below > 5000);
}
