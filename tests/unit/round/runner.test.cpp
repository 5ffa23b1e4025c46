// SPDX-License-Identifier: MIT
//
// What a round takes besides its stages: limits and floors of a schedule, priorities, a calibration that was lent, a
// clock; and the record it leaves. Prices of whole steps reach every schedule.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/dice.hpp"
#include "support/hash_models.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;

namespace {

using tokens = std::vector<token_id>;

constexpr std::size_t vocabulary = 8;
constexpr std::size_t block = 4;
support::hash_language const target_language{};
support::hash_language const draft_language{.own = 5, .disagreement = 0.4};

auto target_of() {
    return support::hash_model<float>(vocabulary, target_language);
}

/// Counts the calls of its model, and has the confidence it is told for each position.
struct counted {
    std::size_t* calls;
    decltype(support::hash_model<float>(0, {})) inner = support::hash_model<float>(vocabulary, draft_language);

    auto forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        ++*calls;
        return inner.forward(requests, prefixes);
    }
};
struct told {
    std::vector<double> confidences;
    double operator()(distribution<float> const&, std::size_t k) const { return confidences[k]; }
};
auto drafter_of(std::size_t& calls, std::vector<double> confidences) {
    return autoregressive{
        counted{&calls}, told{std::move(confidences)}, {.block_size = block, .vocabulary = vocabulary}};
}

/// What a schedule adapter of a user may look like: limits, a floor, and records it was shown.
struct limiting : fixed_schedule {
    struct log {
        std::size_t limit = block;
        fixed_probability floor = 0;
        std::vector<std::size_t> batches{};
    };
    std::shared_ptr<log> seen = std::make_shared<log>();

    void limit_drafts(std::span<request_view> requests) {
        for (request_view& r : requests) r.draft_limit = r.slot == 0 ? seen->limit : 0;
    }
    [[nodiscard]] fixed_probability draft_floor() const { return seen->floor; }
    void observe(round_record const& record) noexcept { seen->batches.push_back(record.load.batch_tokens); }
};
static_assert(draft_limiter<limiting> && draft_stopper<limiting> && round_observer<limiting>);
static_assert(!draft_limiter<fixed_schedule> && !draft_stopper<fixed_schedule> && !round_observer<fixed_schedule>);
static_assert(frontier_scheduler<limiting> && causality_of_v<limiting> == causality::non_anticipating);

}  // namespace

TEST_CASE("a schedule's limits: who may not draft does not, and where nobody may the drafter is not called") {
    auto target = target_of();
    std::size_t calls = 0;
    limiting schedule;
    decoder dec{target, drafter_of(calls, {1, 1, 1, 1}), schedule, keyed_coupling{}, {.max_requests = 2, .seed = 1}};
    tokens const prompt{1, 2};
    dec.submit(prompt, {.seed = 5, .max_new_tokens = 60});
    dec.submit(prompt, {.seed = 6, .max_new_tokens = 60});
    for (std::size_t limit : {block, std::size_t{2}, std::size_t{0}, std::size_t{1}, std::size_t{99}}) {
        schedule.seen->limit = limit;
        calls = 0;
        REQUIRE(dec.step());
        round_record const& r = dec.round();
        std::size_t const most = std::min(limit, block);
        CHECK(r.verdicts[0].drafted == most);
        CHECK(r.verdicts[1].drafted == 0);
        CHECK(calls == most);
        CHECK(r.load == step_load{2, 2 + r.verdicts[0].verified, most > 0 ? 1u : 0u, most,
                                  r.requests[0].position + r.requests[1].position + 2});
        CHECK(schedule.seen->batches.back() == r.load.batch_tokens);
    }
}

TEST_CASE("a floor ends chains before the first position whose survival would be below it") {
    std::vector<double> const confidences{0.75, 0.5, 0.75, 0.5};  // survivals 0.75, 0.375, 0.28125, 0.140625
    auto const drafted_at = [&](fixed_probability floor) {
        auto target = target_of();
        std::size_t calls = 0;
        limiting schedule;
        schedule.seen->floor = floor;
        decoder dec{target, drafter_of(calls, confidences), schedule, token_rejection<>{}, {.seed = 1}};
        dec.submit(tokens{1, 2}, {.seed = 5, .max_new_tokens = 60});
        REQUIRE(dec.step());
        CHECK(calls == std::min(block, dec.round().verdicts[0].drafted + 1));  // one to know where it ends
        return dec.round().verdicts[0].drafted;
    };
    CHECK(drafted_at(0) == 4);
    CHECK(drafted_at(certain / 64 * 9) == 4);  // equal is not below
    CHECK(drafted_at(certain / 64 * 9 + 1) == 3);
    CHECK(drafted_at(certain / 8 * 3) == 2);
    CHECK(drafted_at(certain / 8 * 3 + 1) == 1);
    CHECK(drafted_at(certain / 4 * 3 + 1) == 0);
    CHECK(drafted_at(certain) == 0);
}

TEST_CASE("priorities weigh survivals relative to the most important request") {
    std::vector<request_settings> const settings{{.priority = 4.0}, {.priority = 1.0}, {.priority = 1e-300}};
    std::vector<request_view> views;
    for (auto const& s : settings) {
        views.push_back({.id = 1, .slot = views.size(), .anchor = 2, .remaining = 9, .settings = &s});
    }
    std::size_t calls = 0;
    auto const drafter = drafter_of(calls, {1, 1, 1, 1});
    fixed_schedule all;
    round_memory<float, float> memory{drafter, all, token_rejection<>{}, {.max_requests = 3}};
    auto const weights = [&] {
        REQUIRE(begin_round(all, std::span<request_view const>(views), memory));
        std::vector<fixed_probability> found;
        for (request_view const& r : memory.requests()) found.push_back(r.weight);
        for (request_view const& r : memory.requests()) memory.join(r.slot);
        return found;
    };
    CHECK(weights() == std::vector<fixed_probability>{certain, certain / 4, 1});
    views.erase(views.begin());
    CHECK(weights() == std::vector<fixed_probability>{certain, 1});

    // Two alike requests and room for one chain: it is the important one's.
    auto target = target_of();
    auto const lengths_of = [&](double first, double second) {
        decoder dec{target,
                    drafter_of(calls, {0.8, 0.8, 0.8, 0.8}),
                    greedy_schedule{capacity_table{std::vector<capacity_point>{{1, 1.0}, {6, 1.0}, {7, 9.0}}}},
                    token_rejection<>{},
                    {.max_requests = 2, .seed = 1}};
        tokens const prompt{1, 2};
        dec.submit(prompt, {.seed = 5, .max_new_tokens = 60, .priority = first});
        dec.submit(prompt, {.seed = 5, .max_new_tokens = 60, .priority = second});
        REQUIRE(dec.step());
        return std::vector<std::size_t>{dec.round().verdicts[0].verified, dec.round().verdicts[1].verified};
    };
    CHECK(lengths_of(1.0, 1.0) == std::vector<std::size_t>{2, 2});
    CHECK(lengths_of(3.0, 1.0) == std::vector<std::size_t>{4, 0});
    CHECK(lengths_of(1.0, 3.0) == std::vector<std::size_t>{0, 4});
    CHECK(lengths_of(0.75, 1.0) == std::vector<std::size_t>{1, 3});  // 1, 0.8, 0.64, 0.512 against 0.75 x those
}

TEST_CASE("weighted tables: walks in bulk are walks one by one") {
    support::dice roll(71);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 400; ++trial) {
        std::size_t const requests = 1 + roll.below(trial % 10 == 0 ? 3000 : 40);
        auto table = support::random_table(roll, requests, 5, 30);
        std::uint64_t weight = 0;
        for (std::size_t r = 0; r < requests; ++r) {
            auto const w = static_cast<fixed_probability>(1 + roll.below(certain));
            weight += w;
            fixed_probability survival = w;
            for (std::size_t k = 0; k < 5; ++k) {
                survival = extend_survival(survival, table.confidence[r * 5 + k]);
                table.survival[r * 5 + k] = survival;
            }
        }
        survival_table view = table.view();
        view.weight = weight;
        analytic_capacity const curve{1.0, roll.between(0.0, 4.0) * static_cast<double>(requests)};
        support::admission_memory room(requests);
        std::vector<std::uint32_t> const& lengths = room.lengths;
        frontier_memory const memory = room.view();

        std::vector<std::uint32_t> expected(requests);
        {
            causal_frontier frontier{view, memory};
            expected_step step{weight, requests};
            while (!frontier.empty()) {
                candidate const c = frontier.best();
                expected_step const longer = step.with(c);
                if (!(longer.throughput(curve) > step.throughput(curve))) break;
                step = longer;
                ++expected[c.request];
                frontier.admit(c.request);
            }
        }
        causal_frontier frontier{view, memory};
        greedy_schedule{curve}.admit(frontier);
        REQUIRE(lengths == expected);
    }
}

namespace {

/// c -> c / 2 from round 3 on, and it says whom it was asked about.
struct halving {
    bool on = false;
    double operator()(request_view const& request, std::size_t k, double c) const noexcept {
        return on && request.settings->tenant == 1 && k < block ? c / 2 : c;
    }
};

}  // namespace

TEST_CASE("a lent calibration changes confidences, live and at the anchor, and the record keeps what they were") {
    auto target = target_of();
    std::size_t calls = 0;
    halving calibration;
    decoder dec{target,
                drafter_of(calls, {0.8, 0.6, 0.8, 0.6}),
                survival_threshold_schedule{0.3},
                token_rejection<>{},
                {.max_requests = 2, .seed = 1, .calibration = calibration}};
    tokens const prompt{1, 2};
    dec.submit(prompt, {.seed = 5, .max_new_tokens = 60});
    dec.submit(prompt, {.seed = 6, .max_new_tokens = 60, .tenant = 1});
    for (bool const on : {false, true}) {
        calibration.on = on;
        REQUIRE(dec.step());
        round_record const& r = dec.round();
        for (std::size_t i = 0; i < 2; ++i) {
            REQUIRE(r.survivals.sizes[i] == block);
            CHECK(r.verdicts[i].verified == (on && i == 1 ? 1 : 3));
            for (std::size_t k = 0; k < block; ++k) {
                double const raw = k % 2 == 0 ? 0.8 : 0.6;
                CHECK(r.raw_confidence(i, k) == raw);
                double const c = on && i == 1 ? raw / 2 : raw;
                CHECK(std::abs(static_cast<double>(r.survivals.at(i, k).confidence) * 0x1p-24 - c) < 1e-7);
            }
        }
    }
    // A calibration that says what is no probability is reported like a confidence that is none.
    struct broken {
        double operator()(std::size_t k, double c) const noexcept { return k == 1 ? 2.0 : c; }
    } const none{};
    decoder odd{target,
                drafter_of(calls, {0.8, 0.6, 0.8, 0.6}),
                fixed_schedule{},
                token_rejection<>{},
                {.seed = 1, .calibration = none}};
    odd.submit(prompt, {.seed = 5});
    REQUIRE(odd.step());
    CHECK(odd.round().verdicts[0].draft_outcome == status::invalid_confidence);
    CHECK(odd.round().verdicts[0].drafted == 1);

    // At the anchor: the planner's table goes through the same map.
    struct flat {
        logits_row<float> row{};
        std::vector<float> logits = std::vector<float>(2 * block * vocabulary, 0.0f);
        block_forward<float> forward(std::span<request_view const> requests) {
            return {{}, {{logits.data(), requests.size() * block, vocabulary}, {}}};
        }
    };
    auto const planned_length = [&](bool on) {
        halving own{on};
        decoder planning{target,
                         semi_autoregressive{flat{}, no_head<float>{}, top1_confidence{},
                                             drafter_options{.block_size = block, .vocabulary = vocabulary}},
                         // a step of more than one token costs a tenth more, any number of them
                         planned_schedule{capacity_table{std::vector<capacity_point>{{1, 1.0}, {2, 1.1}, {9, 1.1}}}},
                         token_rejection<>{},
                         {.seed = 1, .calibration = own}};
        planning.submit(prompt, {.seed = 5, .tenant = 1});
        REQUIRE(planning.step());
        return planning.round().verdicts[0].verified;
    };
    CHECK(planned_length(false) == block);  // 1/8 + 1/64 + .. is worth a tenth
    CHECK(planned_length(true) == 0);       // 1/16 + 1/256 + .. is not
}

// What is lent must outlive the rounds, so nothing is taken that would not.
static_assert(std::is_constructible_v<calibration_ref, halving const&> &&
              std::is_constructible_v<calibration_ref, halving&>);
static_assert(!std::is_constructible_v<calibration_ref, halving>);
static_assert(std::is_copy_constructible_v<calibration_ref> && std::is_move_constructible_v<calibration_ref>);
struct stopped {
    double operator()() const noexcept { return 0.0; }
};
double two_seconds() noexcept {
    return 2.0;
}
static_assert(std::is_constructible_v<clock_ref, stopped const&> && !std::is_constructible_v<clock_ref, stopped>);
static_assert(std::is_copy_constructible_v<clock_ref> && std::is_move_constructible_v<clock_ref>);

TEST_CASE("a function is lent as it is") {
    CHECK(clock_ref(two_seconds)() == 2.0);
    clock_ref const lent{two_seconds};
    CHECK(clock_ref{lent}() == 2.0);
}

TEST_CASE("a lent clock times the rounds; without one nobody does") {
    auto target = target_of();
    std::size_t calls = 0;
    double now = 10.0;
    auto const clock = [&]() noexcept { return now += 0.25; };
    decoder timed{
        target, drafter_of(calls, {1, 1, 1, 1}), fixed_schedule{}, token_rejection<>{}, {.seed = 1, .clock = clock}};
    decoder untimed{target, drafter_of(calls, {1, 1, 1, 1}), fixed_schedule{}, token_rejection<>{}, {.seed = 1}};
    timed.submit(tokens{1, 2}, {.max_new_tokens = 30});
    untimed.submit(tokens{1, 2}, {.max_new_tokens = 30});
    REQUIRE(timed.step());
    REQUIRE(untimed.step());
    CHECK(timed.round().seconds == 0.25);
    CHECK(std::isnan(untimed.round().seconds));
}

namespace {

/// Two tables of step times, one for a few requests and one for many; contexts and drafts cost as well.
struct by_requests {
    [[nodiscard]] double step_seconds(step_load const& load) const {
        double const batch = static_cast<double>(load.batch_tokens) * (load.requests < 8 ? 0.01 : 0.4);
        return 1.0 + batch + static_cast<double>(load.context_tokens) * 1e-3 +
               static_cast<double>(load.draft_tokens) * 0.1;
    }
};
static_assert(cost_model<by_requests> && step_cost<by_requests> && !capacity_curve<by_requests>);
static_assert(capacity_curve<priced_round<by_requests>>);

/// Near misses: takes a number, or gives none.
struct of_batch {
    [[nodiscard]] double step_seconds(std::size_t) const { return 1.0; }
};
struct gives_nothing {
    void step_seconds(step_load const&) const {}
};
static_assert(!cost_model<of_batch> && !step_cost<of_batch> && !cost_model<gives_nothing>);

}  // namespace

TEST_CASE("a cost model prices the round a schedule decides about") {
    support::dice roll(72);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const requests = 1 + roll.below(16);
        auto table = support::random_table(roll, requests, 5, 30);
        survival_table view = table.view();
        view.load = {requests, requests, requests, roll.below(60), roll.below(4000)};
        support::admission_memory room(requests);
        std::vector<std::uint32_t> const& lengths = room.lengths;
        frontier_memory const memory = room.view();

        // The same step times as a table of this round alone.
        std::vector<capacity_point> points;
        for (std::size_t b = 1; b <= requests * 6; ++b) {
            step_load load = view.load;
            load.batch_tokens = b;
            points.push_back({b, by_requests{}.step_seconds(load)});
        }
        capacity_table const alike{points};
        auto const lengths_of = [&](auto const& schedule) {
            static_cast<void>(admit(schedule, draft_table{view, {}, {}}, {}, memory));
            return lengths;
        };
        auto const expected = lengths_of(retrospective_schedule{alike});
        REQUIRE(lengths_of(retrospective_schedule{by_requests{}}) == expected);
        auto const early = lengths_of(greedy_schedule{alike});
        REQUIRE(lengths_of(greedy_schedule{by_requests{}}) == early);
    }
}

TEST_CASE("a cost model sees the drafts and contexts of the round in every road to a budget") {
    // Drafting costs as much as seven tokens here, so what is drafted anyway is worth verifying; the schedule must see
    // that.
    auto target = target_of();
    std::size_t calls = 0;
    struct recording {
        std::shared_ptr<step_load> last;
        [[nodiscard]] double step_seconds(step_load const& load) const {
            *last = load;
            return 1.0 + 0.01 * static_cast<double>(load.batch_tokens);
        }
    };
    recording const cost{std::make_shared<step_load>()};
    auto const seen = [&](auto schedule, auto&& drafter) {
        *cost.last = {};
        decoder dec{target, drafter, schedule, keyed_coupling{}, {.max_requests = 2, .seed = 1}};
        dec.submit(tokens{1, 2, 3}, {.seed = 5, .max_new_tokens = 60});
        dec.submit(tokens{1}, {.seed = 6, .max_new_tokens = 3});
        REQUIRE(dec.step());
        step_load load = *cost.last;
        load.batch_tokens = 0;
        return load;
    };
    step_load const expected{2, 0, 2, block + 2, 4};
    auto slow = drafter_of(calls, {0.9, 0.9, 0.9, 0.9});
    CHECK(seen(greedy_schedule{cost}, slow) == expected);
    CHECK(seen(top_k_schedule{cost}, slow) == expected);
    CHECK(seen(retrospective_schedule{cost}, slow) == expected);
}
