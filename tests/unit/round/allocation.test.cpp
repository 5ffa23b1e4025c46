// SPDX-License-Identifier: MIT
//
// A round allocates nothing. Global operator new is replaced by one that counts. It counts during step() of every
// combination of schedule, rule and drafter, from the first round after set-up to the last, with and without an
// executor.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/cost/cell.hpp>
#include <sureleap/cost/padded.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/refined_cost.hpp>
#include <sureleap/serving/speed_targets.hpp>
#include <sureleap/verify/any.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/allocations.hpp"
#include "support/executors.hpp"
#include "support/hash_models.hpp"

using namespace sureleap;

namespace {

constexpr std::size_t vocabulary = 11;
constexpr std::size_t block_size = 4;
constexpr std::size_t places = 3;
constexpr std::size_t most_tokens = 40;
constexpr token_id stops[] = {0};

capacity_table<staircase> const capacity{{{2, 1.0}, {6, 1.4}, {16, 2.5}}};

/// All memory of the models is here before the first round.
struct parts {
    std::vector<float> w1 = numbers(vocabulary * 2, 1), w2 = numbers(vocabulary * 2, 2), weights = numbers(5, 3);
    std::vector<float> hidden = numbers(places * block_size * 3, 4);
    std::vector<float> logits = numbers(places * block_size * vocabulary, 5);

    static std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
        std::vector<float> out;
        for (std::size_t i = 0; i < count; ++i) {
            out.push_back(static_cast<float>(2.0 * support::hashed(seed, static_cast<std::uint32_t>(i), 0, 0, 0)));
        }
        return out;
    }
    template <class Head>
    [[nodiscard]] auto semi_with(Head head) const {
        auto backbone = [this](std::span<request_view const> views) {
            std::size_t const rows = views.size() * block_size;
            return block_forward<float>{{hidden.data(), rows, 3}, {{logits.data(), rows, vocabulary}, {}}};
        };
        return semi_autoregressive{
            std::move(backbone), std::move(head),
            confidence_head<float>{{weights.data(), 1, 5}, 1.0f, {w1.data(), vocabulary, 2}},
            drafter_options{.block_size = block_size, .vocabulary = vocabulary, .hidden_size = 3}};
    }
    [[nodiscard]] auto semi() const {
        return semi_with(
            markov_head{matrix_view<float>{w1.data(), vocabulary, 2}, matrix_view<float>{w2.data(), vocabulary, 2}});
    }
    [[nodiscard]] static auto slow() {
        auto model = support::hash_model<float>(vocabulary, {.own = 7, .disagreement = 0.4});
        model.reserve(places, 200);
        return autoregressive{
            std::move(model), top1_confidence{}, {.block_size = block_size, .vocabulary = vocabulary}};
    }
    [[nodiscard]] static auto found() { return lookup{{.block_size = block_size, .target_vocabulary = vocabulary}}; }
};

struct ban_one {
    void operator()(hook_context const& at, std::span<float> logits) const noexcept {
        logits[(static_cast<std::size_t>(at.request.anchor) + at.drafted.size()) % logits.size()] -= 3.0f;
    }
};

/// Runs to the end and counts what step() and events() allocate; also that something happened at all.
template <class Decoder>
bool quiet(Decoder& dec, double temperature) {
    for (std::size_t i = 0; i < places; ++i) {
        request_settings settings{.temperature = temperature, .seed = 50 + i, .max_new_tokens = most_tokens - 7 * i};
        if (i == 1)
            settings.top_p = 0.9, settings.top_k = 8, settings.draft = transform{.temperature = 0.8, .top_k = 6};
        if (i == 2) settings.min_p = 0.01, settings.stop_tokens = stops;
        settings.log_probabilities = i != 0;
        token_id const prompt[] = {static_cast<token_id>(i), 3, 4, 3};
        dec.submit(prompt, settings);
    }
    std::size_t const before = allocations, released_before = releases;
    std::size_t emitted = 0;
    while (dec.step()) {
        for (request_event const& e : dec.events()) emitted += e.tokens.size();
    }
    bool const silent = allocations == before && releases == released_before;
    return silent && emitted > most_tokens && dec.report().verified() > 0;
}

/// `make` builds the drafter in place: a copy of a model would come without its reserved memory.
template <class Make, class Schedule, class Rule, class... Hook>
bool quiet_with(executor_ref lent, Make make, Schedule schedule, Rule rule, double temperature, Hook... hook) {
    auto target = support::hash_model<float>(vocabulary, {});
    target.reserve(places * (block_size + 1), 200);
    auto drafter = make();
    decoder_options const options{.max_requests = places, .executor = lent};
    if constexpr (is_lossless_round_v<Rule, Schedule, decltype(drafter)>) {
        decoder dec{target, drafter, schedule, rule, options, hook...};
        return quiet(dec, temperature);
    } else {
        decoder dec{target, drafter, schedule, rule, allow_lossy, options};
        return quiet(dec, temperature);
    }
}

/// Alone and divided among the threads of an executor that allocates nothing itself.
template <class... Parts>
bool quiet_round(Parts... all) {
    support::test_executor lent{support::task_order::descending, 2};
    return quiet_with({}, all...) && quiet_with(lent, all...) && lent.runs() > 0;
}

template <class Make, class Schedule>
void every_rule(Make make, Schedule schedule) {
    CHECK(quiet_round(make, schedule, token_rejection<>{}, 1.0));
    CHECK(quiet_round(make, schedule, token_rejection<argmax_draft>{}, 1.0));
    CHECK(quiet_round(make, schedule, block_verification<>{}, 1.0));
    CHECK(quiet_round(make, schedule, target_match<>{}, 1.0));
    CHECK(quiet_round(make, schedule, keyed_coupling{}, 1.0));
    CHECK(quiet_round(make, schedule, greedy_match{}, 0.0));
}

}  // namespace

TEST_CASE("the counter counts") {
    std::size_t const before = allocations;
    {
        std::vector<int> const v(10, 1);
        CHECK(v.size() == 10);
        struct alignas(128) wide {
            char bytes[128];
        };
        std::vector<wide> const w(2);
        CHECK(w.size() == 2);
    }
    CHECK(allocations >= before + 2);
}

TEST_CASE("no allocation in a round: every schedule, every rule") {
    parts const p;
    auto const semi = [&] { return p.semi(); };
    every_rule(semi, fixed_schedule{});
    every_rule(semi, greedy_schedule{capacity});
    every_rule(semi, top_k_schedule{capacity});
    every_rule(semi, planned_schedule{capacity});
    every_rule(semi, threshold_schedule{0.2});
    every_rule(semi, survival_threshold_schedule{0.1});
    every_rule(semi, retrospective_schedule{capacity});
}

TEST_CASE("no allocation in a round: parts that are chosen at run time") {
    parts const p;
    additive_cost const prices({.fixed = 1.0, .request = 0.1, .batch_token = 0.05, .draft_fixed = 0.2});
    for (any_schedule const& schedule :
         {any_schedule(never_lose{planned_schedule{prices}}), any_schedule(lagged_top_k<1>(prices)),
          any_schedule(greedy_schedule{prices})}) {
        for (any_rule const rule : {any_rule(block_verification{}), any_rule(keyed_coupling{})}) {
            auto target = support::hash_model<float>(vocabulary, {});
            target.reserve(places * (block_size + 1), 200);
            auto drafter = p.semi();
            decoder dec{target, drafter, schedule, rule, {.max_requests = places}};
            CHECK(quiet(dec, 1.0));
        }
    }
}

TEST_CASE("no allocation in a round: cost models, asked and learning") {
    parts const p;
    auto const semi = [&] { return p.semi(); };
    additive_cost const prices({.fixed = 1.0, .request = 0.1, .batch_token = 0.05, .draft_fixed = 0.2});
    std::vector<cost_sample> const cells{{{1, 2, 0, 0, 0}, 1.3}, {{1, 5, 0, 0, 0}, 1.2}, {{3, 6, 0, 0, 0}, 1.9}};
    padded_cost const padded{cell_cost{prices, cells}, {2, 4, 8}, {2, 4}};
    refined_cost cost{padded};
    every_rule(semi, greedy_schedule{padded});
    every_rule(semi, planned_schedule{cost_ref{cost}});
    std::size_t const before = allocations + releases;
    for (std::size_t i = 1; i < 100; ++i)
        cost.observe({.requests = i, .batch_tokens = 3 * i}, 0.1 * static_cast<double>(i));
    CHECK(cost.error().observed == 99);
    CHECK(allocations + releases == before);
}

TEST_CASE("no allocation in a round: adapters around a schedule") {
    parts const p;
    struct alone {
        std::size_t operator()(std::size_t batch) const noexcept { return batch; }
    };
    auto const adapted = agreed{never_lose{speed_targets{hysteresis{planned_schedule{capacity}}}}, alone{}};
    CHECK(quiet_round([&] { return p.semi(); }, adapted, token_rejection<>{}, 1.0));
}

TEST_CASE("no allocation in a round: heads in eight bits, and drafts on a shortlist") {
    parts const p;
    int8_matrix const eight{matrix_view<float>{p.w2.data(), vocabulary, 2}};
    markov_head const head{matrix_view<float>{p.w1.data(), vocabulary, 2}, eight.view()};
    successor_table const table{head, 2};
    every_rule([&] { return p.semi_with(head); }, greedy_schedule{capacity});
    auto const listed = [&] { return p.semi_with(shortlist_head{head, 4, table.view()}); };
    every_rule(listed, fixed_schedule{});
    every_rule(listed, greedy_schedule{capacity});
    every_rule(listed, planned_schedule{capacity});
    CHECK(quiet_round(listed, fixed_schedule{2}, token_rejection<>{}, 1.0, ban_one{}));
}

TEST_CASE("no allocation in a round: the other drafters, and a logits hook") {
    parts const p;
    every_rule(parts::slow, greedy_schedule{capacity});
    CHECK(quiet_round(parts::slow, top_k_schedule{capacity}, block_verification<>{}, 0.7));
    every_rule(parts::found, fixed_schedule{});
    CHECK(quiet_round([&] { return p.semi(); }, planned_schedule{capacity}, token_rejection<>{}, 1.0, ban_one{}));
    CHECK(quiet_round(parts::slow, fixed_schedule{2}, keyed_coupling{}, 0.9, ban_one{}));
}

TEST_CASE("no allocation when a place is taken again, beyond what submit itself does") {
    auto target = support::hash_model<float>(vocabulary, {});
    target.reserve(places * (block_size + 1), 200);
    auto drafter = parts::slow();
    decoder dec{target, drafter, top_k_schedule{capacity}, token_rejection<>{}, {.max_requests = 2}};
    std::size_t inside = 0, steps = 0;
    token_id const prompt[] = {1, 2};
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        dec.submit(prompt, {.seed = seed, .max_new_tokens = 10 + 5 * seed});
        for (bool finished = false; !finished;) {
            std::size_t const before = allocations + releases;
            finished = !dec.step();
            inside += allocations + releases - before;
            ++steps;
            for (request_event const& e : dec.events()) finished = finished || e.finished != finish_reason::none;
        }
    }
    CHECK(steps > 6);
    CHECK(inside == 0);
}

namespace {

/// Limits, a floor and records: what a schedule that learns does between rounds, with memory of its own from before.
struct learning : planned_schedule<capacity_table<staircase>> {
    std::size_t rounds = 0;

    learning() : planned_schedule(::capacity) {}
    void limit_drafts(std::span<request_view> requests) noexcept {
        for (request_view& r : requests) r.draft_limit = (rounds + r.slot) % (block_size + 1);
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept { return certain / 64; }
    void observe(round_record const&) noexcept { ++rounds; }
};

}  // namespace

TEST_CASE("no allocation in a round: priorities, limits, floors, a lent calibration and a clock, with a queue") {
    parts const p;
    auto target = support::hash_model<float>(vocabulary, {});
    target.reserve(places * (block_size + 1), 200);
    auto drafter = p.semi();
    auto const lower = [](std::size_t, double c) noexcept { return 0.9 * c; };
    double now = 0.0;
    auto const clock = [&]() noexcept { return now += 1.0; };
    decoder engine{target, drafter, learning{}, token_rejection<>{},
                   decoder_options{.max_requests = places, .calibration = lower, .clock = clock}};
    token_id const prompt[] = {3, 4, 3};
    for (std::size_t i = 0; i < places + 2; ++i) {
        static_cast<void>(engine.submit(
            prompt, {.seed = i, .max_new_tokens = most_tokens, .priority = 1.0 + static_cast<double>(i)}));
    }
    REQUIRE(engine.step());  // gives the places
    std::size_t const before = allocations, released_before = releases;
    bool anybody_finished = false;
    std::size_t steps = 0;
    while (!anybody_finished) {
        REQUIRE(engine.step());
        ++steps;
        for (request_event const& e : engine.events()) {
            anybody_finished = anybody_finished || e.finished != finish_reason::none;
        }
    }
    CHECK(steps > 3);
    CHECK(allocations == before);
    CHECK(releases == released_before);
}
