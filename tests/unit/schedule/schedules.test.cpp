// SPDX-License-Identifier: MIT
//
// Every schedule against a few lines that do the same by sorting everything, and the worked example of Algorithm 1.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/dice.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;
using support::owned_table;

namespace {

/// A curve by its values; the last one holds beyond the end.
struct listed_capacity {
    std::vector<double> steps;
    [[nodiscard]] double steps_per_second(std::size_t b) const noexcept { return steps[std::min(b, steps.size() - 1)]; }
};

/// SPS(B) = 8000 / (96 + B).
struct worked_capacity {
    [[nodiscard]] double steps_per_second(std::size_t b) const noexcept {
        return 8000.0 / (96.0 + static_cast<double>(b));
    }
};

constexpr char const* shapes[] = {"hyperbola", "flat", "staircase", "noise", "line", "coarse noise"};

listed_capacity random_capacity(support::dice& roll, std::size_t shape, std::size_t most) {
    listed_capacity curve;
    double const overhead = roll.between(0.0, 100.0);
    std::size_t const step = 1 + roll.below(24);
    for (std::size_t b = 0; b <= most; ++b) {
        double const x = static_cast<double>(b);
        double value = 0.0;
        switch (shape) {
            case 0: value = 1000.0 / (1.0 + overhead + x); break;
            case 1: value = 3.0; break;
            case 2: value = 100.0 / (overhead + static_cast<double>((b + step - 1) / step * step)); break;
            case 3: value = roll.between(0.1, 10.0); break;
            case 4: value = 2.0 * static_cast<double>(most + 1) - x; break;
            default: value = static_cast<double>(1 + roll.below(2)); break;  // ties of Theta
        }
        curve.steps.push_back(value);
    }
    return curve;
}

double theta(std::uint64_t accepts, double steps_per_second) {
    return static_cast<double>(accepts) / 16777216.0 * steps_per_second;
}

/// Algorithm 1 as the paper writes it: sort all candidates, take them while Theta rises.
std::vector<std::uint32_t> algorithm_1(survival_table const& table, listed_capacity const& curve) {
    auto const order = support::sorted_candidates(table);
    std::vector<std::uint32_t> lengths(table.requests());
    std::uint64_t accepts = std::uint64_t{table.requests()} << 24;
    std::size_t batch = table.requests();
    double best = theta(accepts, curve.steps_per_second(batch));
    for (candidate const& c : order) {
        accepts += c.survival;
        double const now = theta(accepts, curve.steps_per_second(++batch));
        if (now <= best) break;
        best = now;
        ++lengths[c.request];
    }
    return lengths;
}

/// The smallest maximiser of Theta over all prefixes of the order.
std::size_t brute_budget(survival_table const& table, listed_capacity const& curve) {
    auto const order = support::sorted_candidates(table);
    std::vector<double> values;
    std::uint64_t accepts = std::uint64_t{table.requests()} << 24;
    for (std::size_t k = 0; k <= order.size(); ++k) {
        if (k > 0) accepts += order[k - 1].survival;
        values.push_back(theta(accepts, curve.steps_per_second(table.requests() + k)));
    }
    return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

/// The admit stage on a table alone.
template <class Schedule>
std::vector<std::uint32_t> lengths_of(Schedule const& schedule, owned_table const& table, verify_budget budget = {}) {
    support::admission_memory memory(table.sizes.size());
    auto const lengths = admit(schedule, draft_table{table.view(), {}, {}}, budget, memory.view());
    return {lengths.begin(), lengths.end()};
}

struct random_case {
    owned_table table;
    listed_capacity curve;
    std::size_t shape;
};

random_case make_case(support::dice& roll, std::size_t most_requests, std::size_t most_gamma) {
    std::size_t const requests = 1 + roll.below(most_requests);
    std::size_t const gamma = 1 + roll.below(most_gamma);
    std::size_t const levels = roll.chance(0.5) ? 1 + roll.below(6) : 1000;
    std::size_t const shape = roll.below(std::size(shapes));
    auto table = support::random_table(roll, requests, gamma, levels);
    return {std::move(table), random_capacity(roll, shape, requests * (gamma + 1)), shape};
}

/// The worked example: every request has the same confidences.
owned_table worked_table(std::size_t requests) {
    std::vector<double> const confidences{0.9, 0.85, 0.8, 0.7, 0.6, 0.5};
    owned_table table(requests, confidences.size());
    for (std::size_t r = 0; r < requests; ++r) {
        table.sizes[r] = static_cast<std::uint32_t>(confidences.size());
        for (std::size_t k = 0; k < confidences.size(); ++k) {
            fixed_probability c = 0;
            REQUIRE(quantise(confidences[k], c));
            table.set(r, k, c);
        }
    }
    return table;
}

std::size_t sum(std::vector<std::uint32_t> const& lengths) {
    std::size_t total = 0;
    for (auto const l : lengths) total += l;
    return total;
}

}  // namespace

TEST_CASE("worked example: Algorithm 1 with SPS(B) = 8000/(96+B)", "[worked]") {
    // Confidences (0.9, 0.85, 0.8, 0.7, 0.6, 0.5) for every request: the more requests share the step, the shorter
    // the blocks that pay.
    struct row {
        std::size_t requests, budget;
    };
    for (row const expected : {row{4, 5}, row{32, 3}, row{256, 1}}) {
        INFO(expected.requests << " requests");
        auto const table = worked_table(expected.requests);
        auto const lengths = lengths_of(greedy_schedule{worked_capacity{}}, table);
        CHECK(sum(lengths) == expected.budget * expected.requests);  // the mean budget
        CHECK(lengths == std::vector<std::uint32_t>(expected.requests, static_cast<std::uint32_t>(expected.budget)));
    }
}

TEST_CASE("greedy: equals sorting everything and stopping early") {
    support::dice roll(21);
    INFO("seed " << roll.seed());
    std::vector<std::size_t> tried(std::size(shapes)), partial(std::size(shapes));
    for (int trial = 0; trial < 20000; ++trial) {
        auto const c = make_case(roll, 40, 8);
        auto const expected = algorithm_1(c.table.view(), c.curve);
        auto const got = lengths_of(greedy_schedule{c.curve}, c.table);
        if (got != expected) {
            INFO("trial " << trial << ", curve " << shapes[c.shape]);
            REQUIRE(got == expected);
        }
        ++tried[c.shape];
        if (sum(expected) > 0 && sum(expected) < support::sorted_candidates(c.table.view()).size()) ++partial[c.shape];
    }
    for (std::size_t shape = 0; shape < std::size(shapes); ++shape) {
        INFO(shapes[shape]);
        CHECK(tried[shape] > 1000);
        if (shape != 1) CHECK(partial[shape] > 10);  // a flat curve takes everything that can survive
    }
}

TEST_CASE("greedy: a tie of Theta is not worth a row") {
    owned_table table(1, 3);
    table.sizes[0] = 3;
    for (std::size_t k = 0; k < 3; ++k) table.set(0, k, certain);
    // tau = 1, 2, 3, 4; Theta = 4, 4, 3, 40: the first step is a tie, and what comes after is never looked at.
    listed_capacity const curve{{4, 4, 2, 1, 10}};
    CHECK(lengths_of(greedy_schedule{curve}, table) == std::vector<std::uint32_t>{0});
    CHECK(lengths_of(retrospective_schedule{curve}, table) == std::vector<std::uint32_t>{3});
}

TEST_CASE("greedy: what was not revealed cannot change a length") {
    support::dice roll(22);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 3000; ++trial) {
        auto const c = make_case(roll, 6, 6);
        auto const before = lengths_of(greedy_schedule{c.curve}, c.table);
        auto changed = c.table;
        for (std::size_t r = 0; r < before.size(); ++r) {
            for (std::size_t k = 0; k < changed.sizes[r]; ++k) {
                // Position l_r was revealed and refused; everything behind it was never shown.
                auto const fresh = static_cast<fixed_probability>(roll.below(certain + 1));
                changed.set(r, k, k > before[r] ? fresh : changed.confidence[r * changed.block_size + k]);
            }
        }
        INFO("trial " << trial);
        REQUIRE(lengths_of(greedy_schedule{c.curve}, changed) == before);
    }
}

TEST_CASE("best_budget: the smallest maximiser over all prefixes, and the optimum over all lengths") {
    support::dice roll(23);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 5000; ++trial) {
        auto const c = make_case(roll, trial < 3000 ? 20 : 3, trial < 3000 ? 8 : 3);
        support::admission_memory memory(c.table.sizes.size());
        std::size_t const budget = best_budget(c.table.view(), memory.view(), c.curve);
        INFO("trial " << trial << ", curve " << shapes[c.shape]);
        REQUIRE(budget == brute_budget(c.table.view(), c.curve));
        if (trial < 3000) continue;
        // Small cases: no vector of lengths does better, sorted or not.
        std::size_t const requests = c.table.sizes.size();
        std::vector<std::uint32_t> lengths(requests);
        double best = 0.0;
        for (;;) {
            std::uint64_t accepts = std::uint64_t{requests} << 24;
            for (std::size_t r = 0; r < requests; ++r) {
                for (std::size_t k = 0; k < lengths[r]; ++k) accepts += c.table.survival[r * c.table.block_size + k];
            }
            best = std::max(best, theta(accepts, c.curve.steps_per_second(requests + sum(lengths))));
            std::size_t r = 0;
            while (r < requests && lengths[r] == c.table.sizes[r]) lengths[r++] = 0;
            if (r == requests) break;
            ++lengths[r];
        }
        std::uint64_t accepts = std::uint64_t{requests} << 24;
        auto const order = support::sorted_candidates(c.table.view());
        for (std::size_t i = 0; i < budget; ++i) accepts += order[i].survival;
        REQUIRE(theta(accepts, c.curve.steps_per_second(requests + budget)) == best);
    }
}

TEST_CASE("retrospective: the best prefix of this round's own table") {
    support::dice roll(24);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 3000; ++trial) {
        auto const c = make_case(roll, 12, 8);
        INFO("trial " << trial);
        auto const expected = support::lengths_of_first(c.table.view(), brute_budget(c.table.view(), c.curve));
        REQUIRE(lengths_of(retrospective_schedule{c.curve}, c.table) == expected);
    }
}

TEST_CASE("a planner's budget takes the first live candidates, and no more than there are") {
    support::dice roll(25);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 3000; ++trial) {
        auto const c = make_case(roll, 12, 8);
        std::size_t const budget = roll.below(c.table.sizes.size() * c.table.block_size + 3);
        INFO("trial " << trial << ", budget " << budget);
        auto const expected = support::lengths_of_first(c.table.view(), budget);
        REQUIRE(lengths_of(top_k_schedule{c.curve}, c.table, budget) == expected);
        REQUIRE(lengths_of(planned_schedule{c.curve}, c.table, budget) == expected);
    }
}

TEST_CASE("fixed and threshold schedules: the prefix they describe") {
    support::dice roll(26);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 3000; ++trial) {
        auto const c = make_case(roll, 12, 8);
        auto const table = c.table.view();
        std::size_t const length = roll.below(10);
        double const threshold = roll.chance(0.2)   ? 0.0
                                 : roll.chance(0.2) ? 1.0
                                                    : static_cast<double>(roll.below(7)) / 6.0;
        auto const prefix = [&](auto keep) {
            std::vector<std::uint32_t> lengths(table.requests());
            for (std::size_t r = 0; r < table.requests(); ++r) {
                while (lengths[r] < table.sizes[r] && keep(table.at(r, lengths[r]))) ++lengths[r];
            }
            return lengths;
        };
        auto const level = static_cast<fixed_probability>(std::lround(threshold * 16777216.0));
        INFO("trial " << trial << ", length " << length << ", threshold " << threshold);
        REQUIRE(lengths_of(fixed_schedule{length}, c.table) ==
                prefix([&](candidate x) { return x.position < length; }));
        REQUIRE(lengths_of(fixed_schedule{}, c.table) == c.table.sizes);
        REQUIRE(lengths_of(threshold_schedule{threshold}, c.table) ==
                prefix([&](candidate x) { return x.confidence >= level; }));
        REQUIRE(lengths_of(survival_threshold_schedule{threshold}, c.table) ==
                prefix([&](candidate x) { return x.survival >= level; }));
    }
}

TEST_CASE("thresholds are on probabilities: what a request is worth changes nothing") {
    support::dice roll(29);
    INFO("seed " << roll.seed());
    std::size_t weighed_down = 0;
    for (int trial = 0; trial < 2000; ++trial) {
        auto const c = make_case(roll, 12, 8);
        owned_table weighted = c.table;
        for (std::size_t r = 0; r < weighted.sizes.size(); ++r) {
            fixed_probability before =
                roll.chance(0.3) ? certain : static_cast<fixed_probability>(1 + roll.below(certain));
            for (std::size_t k = 0; k < weighted.block_size; ++k) {
                std::size_t const i = r * weighted.block_size + k;
                weighted.survival[i] = before = extend_survival(before, weighted.confidence[i]);
            }
        }
        double const threshold = roll.chance(0.2) ? static_cast<double>(roll.below(2)) : roll.real();
        fixed_probability level = 0;
        REQUIRE(quantise(threshold, level));
        INFO("trial " << trial << ", threshold " << threshold);
        REQUIRE(lengths_of(survival_threshold_schedule{threshold}, weighted) ==
                lengths_of(survival_threshold_schedule{threshold}, c.table));
        REQUIRE(lengths_of(threshold_schedule{threshold}, weighted) ==
                lengths_of(threshold_schedule{threshold}, c.table));
        for (std::size_t r = 0; r < weighted.sizes.size(); ++r) {
            bool const drafts = weighted.sizes[r] > 0;
            weighed_down +=
                drafts && c.table.view().at(r, 0).survival >= level && weighted.view().at(r, 0).survival < level;
        }
    }
    CHECK(weighed_down > 1000);  // requests that their weight alone would have kept below it
}

TEST_CASE("survival threshold: beside a request of priority 10 one of priority 1 is verified as far") {
    owned_table table(2, 3);
    fixed_probability const weights[] = {certain, certain / 10};
    for (std::size_t r = 0; r < 2; ++r) {
        table.sizes[r] = 3;
        for (std::size_t k = 0; k < 3; ++k) {
            std::size_t const i = r * 3 + k;
            table.confidence[i] = certain / 10 * 9;
            table.survival[i] = extend_survival(k == 0 ? weights[r] : table.survival[i - 1], table.confidence[i]);
        }
    }
    CHECK(lengths_of(survival_threshold_schedule{0.75}, table) == std::vector<std::uint32_t>{2, 2});
    CHECK(lengths_of(survival_threshold_schedule{0.0}, table) == std::vector<std::uint32_t>{3, 3});
    CHECK(lengths_of(survival_threshold_schedule{1.0}, table) == std::vector<std::uint32_t>{0, 0});
}

TEST_CASE("survival threshold: goes on from where a frontier stands") {
    support::dice roll(30);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 1000; ++trial) {
        auto const c = make_case(roll, 8, 8);
        auto const table = c.table.view();
        survival_threshold_schedule const schedule{roll.real()};
        auto const alone = lengths_of(schedule, c.table);
        support::admission_memory memory(table.requests());
        causal_frontier frontier{table, memory.view()};
        std::vector<std::uint32_t> first(table.requests());
        for (std::size_t r = 0; r < table.requests(); ++r) {
            std::uint64_t product = certain;
            for (std::size_t i = roll.below(table.block_size + 1); i > 0 && frontier.has_next(r); --i) {
                product = product * frontier.next(r).confidence / certain;
                frontier.admit(r);
                ++first[r];
            }
            REQUIRE(frontier.survival(r) == product);
        }
        schedule.admit(frontier);
        for (std::size_t r = 0; r < table.requests(); ++r) {
            INFO("trial " << trial << ", request " << r);
            REQUIRE(frontier.length(r) == std::max(first[r], alone[r]));
        }
    }
}

TEST_CASE("lengths are a function of the inputs: memory and repetition do not matter") {
    support::dice roll(27);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 500; ++trial) {
        auto const c = make_case(roll, 12, 8);
        support::admission_memory used(c.table.sizes.size());
        auto const again = [&](auto const& schedule, verify_budget budget) {
            auto const fresh = lengths_of(schedule, c.table, budget);
            for (int repeat = 0; repeat < 2; ++repeat) {
                auto const l = admit(schedule, draft_table{c.table.view(), {}, {}}, budget, used.view());
                if (!std::equal(l.begin(), l.end(), fresh.begin(), fresh.end())) return false;
            }
            return true;
        };
        REQUIRE(again(greedy_schedule{c.curve}, {}));
        REQUIRE(again(retrospective_schedule{c.curve}, {}));
        REQUIRE(again(top_k_schedule{c.curve}, roll.below(20)));
        REQUIRE(again(threshold_schedule{0.4}, {}));
    }
}

// ---- tables from before the block ------------------------------------------------------------------------------

namespace {

/// What survival_history should answer, kept per request and round in full.
struct naive_history {
    struct block {
        std::vector<fixed_probability> confidences{};
        bool ended = false;  // before its cap
    };
    std::size_t lag;
    std::map<std::size_t, std::map<std::size_t, block>> past;  // slot -> round -> block
    std::size_t round = 0;

    [[nodiscard]] std::vector<fixed_probability> lagged(std::size_t slot, std::size_t cap, fixed_probability prior) {
        std::vector<fixed_probability> out(cap, prior);
        if (round < lag) return out;
        auto const& rounds = past[slot];
        if (auto const found = rounds.find(round - lag); found != rounds.end()) {
            auto const& [known, ended] = found->second;
            if (ended) out.resize(std::min(cap, known.size()));
            for (std::size_t k = 0; k < std::min(out.size(), known.size()); ++k) out[k] = known[k];
        }
        return out;
    }
};

planning_memory carve_planning(std::vector<std::byte>& buffer, std::size_t requests, std::size_t gamma) {
    workspace sizer;
    static_cast<void>(planning_memory::carve(sizer, requests, gamma));
    buffer.resize(sizer.used());
    workspace ws{buffer};
    return planning_memory::carve(ws, requests, gamma);
}

template <std::size_t Lag>
void compare_histories(std::uint64_t seed) {
    support::dice roll(seed);
    INFO("seed " << seed << ", lag " << Lag);
    for (int trial = 0; trial < 60; ++trial) {
        std::size_t const slots = 1 + roll.below(6);
        std::size_t const gamma = 1 + roll.below(6);
        double const prior = roll.real();
        fixed_probability fixed_prior = 0;
        REQUIRE(quantise(prior, fixed_prior));

        survival_history history(slots, gamma, Lag, prior);
        naive_history model{Lag, {}, 0};
        std::vector<std::byte> buffer;
        auto memory = carve_planning(buffer, slots, gamma);
        std::vector<request_settings> settings(slots);

        for (int round = 0; round < 30; ++round) {
            // A random subset takes part; some of them have just joined.
            std::vector<request_view> requests;
            for (std::size_t slot = 0; slot < slots; ++slot) {
                if (roll.chance(0.15)) {
                    history.join(slot);
                    model.past[slot].clear();
                }
                if (roll.chance(0.25)) continue;
                settings[slot].max_draft_tokens = roll.chance(0.3) ? roll.below(gamma + 1) : gamma;
                requests.push_back({.slot = slot,
                                    .remaining = 1 + (roll.chance(0.2) ? roll.below(gamma) : gamma),
                                    .settings = &settings[slot]});
            }
            auto const table = history.template lagged<Lag>(requests, memory);
            REQUIRE(table.requests() == requests.size());
            bool equal = true;
            owned_table expected(requests.size(), gamma);
            for (std::size_t r = 0; r < requests.size(); ++r) {
                std::size_t const cap = requests[r].draft_cap(gamma);
                auto const row = model.lagged(requests[r].slot, cap, fixed_prior);
                expected.sizes[r] = static_cast<std::uint32_t>(row.size());
                equal = equal && table.survivals().sizes[r] == row.size();
                for (std::size_t k = 0; k < row.size() && equal; ++k) {
                    expected.set(r, k, row[k]);
                    equal = table.survivals().at(r, k).confidence == row[k] &&
                            table.survivals().at(r, k).survival == expected.view().at(r, k).survival;
                }
            }
            INFO("trial " << trial << ", round " << round);
            REQUIRE(equal);
            auto const curve = random_capacity(roll, roll.below(std::size(shapes)), slots * (gamma + 1));
            REQUIRE(lagged_top_k<Lag>(curve).budget(table) == brute_budget(expected.view(), curve));
            REQUIRE(lagged_top_k<Lag>(curve).budget(table) ==
                    brute_budget(expected.view(), curve));  // walk() starts anew

            auto const drawn = support::random_table(roll, requests.size(), gamma, 50);
            history.push(requests, drawn.view());
            for (std::size_t r = 0; r < requests.size(); ++r) {
                auto& kept = model.past[requests[r].slot][model.round];
                for (std::size_t k = 0; k < drawn.sizes[r]; ++k) {
                    kept.confidences.push_back(drawn.view().at(r, k).confidence);
                }
                kept.ended = drawn.sizes[r] < requests[r].draft_cap(gamma);
            }
            ++model.round;
        }
    }
}

}  // namespace

TEST_CASE("top_k: reads tables exactly Lag rounds old, and the prior where there is none") {
    compare_histories<1>(31);
    compare_histories<2>(32);
    compare_histories<3>(33);
    compare_histories<5>(34);
}

TEST_CASE("top_k: this round's and younger tables cannot change the budget") {
    // One request, lag 2: the table of round 0 acts in round 2, in none before and none after.
    request_settings const settings;
    request_view const request{.remaining = 10, .settings = &settings};
    std::span<request_view const> const requests{&request, 1};
    std::vector<std::byte> buffer;
    auto memory = carve_planning(buffer, 1, 2);
    survival_history history(1, 2, 2, 1.0);
    listed_capacity const flat{{1.0}};
    std::vector<std::size_t> budgets;
    for (std::size_t round = 0; round < 6; ++round) {
        budgets.push_back(top_k_schedule{flat}.budget(history.lagged<2>(requests, memory)));
        owned_table hopeless(1, 2);
        hopeless.sizes[0] = 2;  // confidences 0: nothing pays
        for (std::size_t k = 0; k < 2; ++k) hopeless.set(0, k, round % 3 == 0 ? 0 : certain);
        history.push(requests, hopeless.view());
    }
    CHECK(budgets == std::vector<std::size_t>{2, 2, 0, 2, 2, 0});
}

namespace {

/// The schedule, and the budget that it gave.
template <class Schedule>
struct telling {
    using origin = typename Schedule::origin;
    Schedule schedule;
    std::optional<std::size_t>* budget_given;

    [[nodiscard]] std::size_t budget(planning_table<origin> const& table) const {
        *budget_given = schedule.budget(table);
        return **budget_given;
    }
};

/// A drafter that counts how often it is asked for confidences at the anchor.
template <class Drafter>
struct asked : Drafter {
    std::size_t* plans;

    template <class Forward, class Block, class Memory>
    void plan(Forward const& forward, Block const& block, Memory const& memory, planning_memory& planning) const {
        ++*plans;
        Drafter::plan(forward, block, memory, planning);
    }
};

}  // namespace

TEST_CASE("planned: the budget comes from the anchor's confidences alone") {
    support::dice roll(35);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const requests = 1 + roll.below(5);
        std::size_t const gamma = 1 + roll.below(5);
        std::size_t const vocabulary = 2 + roll.below(5);
        std::vector<double> logits(requests * gamma * vocabulary);
        for (double& x : logits) x = 3.0 * roll.bell();
        auto const backbone = [&](std::span<request_view const> views) {
            return block_forward<double>{{}, {{logits.data(), views.size() * gamma, vocabulary}, {}}};
        };
        parallel drafter{backbone, top1_confidence{}, {.block_size = gamma, .vocabulary = vocabulary}};
        static_assert(decltype(drafter)::plans_at_anchor);

        std::vector<request_settings> settings(requests);
        std::vector<request_view> views;
        owned_table expected(requests, gamma);
        for (std::size_t r = 0; r < requests; ++r) {
            settings[r].max_draft_tokens = roll.chance(0.3) ? roll.below(gamma + 1) : gamma;
            settings[r].temperature = roll.chance(0.2) ? 0.0 : 0.5;
            views.push_back({.slot = r, .anchor = 0, .remaining = 1 + gamma, .settings = &settings[r]});
            std::size_t const cap = views.back().draft_cap(gamma);
            expected.sizes[r] = static_cast<std::uint32_t>(cap);
            for (std::size_t k = 0; k < cap; ++k) {
                double const* const row = logits.data() + (r * gamma + k) * vocabulary;
                double const largest = *std::max_element(row, row + vocabulary);
                // A greedy draft is as sure as the softmax behind it, not certain by decree.
                double const temperature = settings[r].temperature == 0.0 ? 1.0 : settings[r].temperature;
                double total = 0.0;
                for (std::size_t v = 0; v < vocabulary; ++v) total += std::exp((row[v] - largest) / temperature);
                fixed_probability c = 0;
                REQUIRE(quantise(1.0 / total, c));
                expected.set(r, k, c);
            }
        }
        auto const curve = random_capacity(roll, roll.below(std::size(shapes)), requests * (gamma + 1));
        std::optional<std::size_t> budget;
        telling schedule{planned_schedule{curve}, &budget};
        round_memory<double, double> memory{drafter, schedule, token_rejection<>{}, {requests}};
        static_cast<void>(begin_round(schedule, std::span<request_view const>(views), memory));
        plan(schedule, drafter, drafter.forward(memory.requests()), memory);
        INFO("trial " << trial);
        REQUIRE(budget.has_value());
        REQUIRE(*budget == brute_budget(expected.view(), curve));
        for (std::size_t r = 0; r < requests; ++r) REQUIRE(memory.block().size(r) == 0);  // nothing was drawn
    }
}

TEST_CASE("a schedule that decides live plans nothing") {
    std::vector<float> const logits(6);
    auto const backbone = [&](std::span<request_view const>) {
        return block_forward<float>{{}, {{logits.data(), 2, 3}, {}}};
    };
    std::size_t plans = 0;
    auto const batch_rows = [&](auto schedule) {
        parallel own{backbone, top1_confidence{}, {.block_size = 2, .vocabulary = 3}};
        asked<decltype(own)> drafter{own, &plans};
        round_memory<float, float> memory{drafter, schedule, token_rejection<>{}, {1}};
        philox_randomness rng;
        request_settings const settings;
        request_view const request{.anchor = 0, .remaining = 3, .settings = &settings};
        REQUIRE(begin_round(schedule, std::span(&request, 1), memory));
        auto const forward = drafter.forward(memory.requests());
        plan(schedule, drafter, forward, memory);
        draw(drafter, forward, token_rejection<>{}, rng, memory);
        return admit(schedule, memory).rows();
    };
    CHECK(batch_rows(fixed_schedule{}) == 3);  // no budget of 0
    CHECK(plans == 0);
    static_cast<void>(batch_rows(planned_schedule{analytic_capacity(1.0, 1.0)}));
    CHECK(plans == 1);
}
