// SPDX-License-Identifier: MIT
//
// A round that failed, at an engine that runs it again as something else: refused, with the remedy, and with everything
// as it was. The law of what is allowed, and the bias of what is refused, are in tests/property/exact_repeats.test.cpp.
#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/error_text.hpp"
#include "support/small_world.hpp"

using namespace sureleap;
using namespace small_world;
using support::error_text;
using support::says;

namespace {

world const w{5, 3, 3};

/// A drafter that fails behind its draw, or draws from a generator of its own.
struct unsteady : decltype(semi_of(w)) {
    bool* fails;
    std::uint64_t* seeds;  // 0: it draws by the keys
    unsteady(bool* f, std::uint64_t* s) : decltype(semi_of(w))(semi_of(w)), fails(f), seeds(s) {}

    struct own_source {
        philox_randomness inner{};
        std::uint64_t seed = 0;
        template <class W>
        [[nodiscard]] token_id categorical(draw_key key, W const& weights) const {
            key.seed ^= seed;
            return inner.categorical(key, weights);
        }
        template <class W>
        [[nodiscard]] token_id gumbel_max(draw_key const& key, W const& weights) const {
            return inner.gumbel_max(key, weights);
        }
    };
    template <class Forward, class DraftRule, class Rng>
    void draw(Forward const& forward, DraftRule rule, draft_block<double>& block, memory_type const& memory, Rng&)
        const {
        own_source own{.seed = *seeds == 0 ? 0 : (*seeds)++};
        decltype(semi_of(w))::draw(forward, rule, block, memory, own);
        if (*fails) throw std::runtime_error("the drafter failed");
    }
};

template <class Schedule = fixed_schedule, class Rule = token_rejection<>>
struct engine {
    bool fails = false;
    std::uint64_t seeds = 0;
    unsteady drafter{&fails, &seeds};
    Schedule schedule;
    Rule rule{};
    philox_randomness rng{};
    decltype(target_of(w)) target = target_of(w);
    request_settings settings[4]{};
    std::vector<std::vector<token_id>> contexts{{0, 1}, {1, 1}, {2, 1}, {0, 2}};
    std::vector<request_view> views;
    round_memory<double, double> memory{drafter, schedule, rule, {.max_requests = 4}};

    explicit engine(Schedule s = Schedule()) : schedule(std::move(s)) { takes_part({0, 1}); }
    engine(engine const&) = delete;

    [[nodiscard]] request_view view(std::size_t r) const {
        return {.id = r + 1,
                .slot = r,
                .anchor = contexts[r].back(),
                .position = contexts[r].size() - 1,
                .context = contexts[r],
                .seed = 40 + r,
                .remaining = 100,
                .settings = &settings[r]};
    }
    void takes_part(std::vector<std::size_t> const& who) {
        views.clear();
        for (std::size_t const r : who) views.push_back(view(r));
    }
    void draft() {
        REQUIRE(begin_round(schedule, views, memory));
        auto const forward = drafter.forward(memory.requests());
        plan(schedule, drafter, forward, memory);
        draw(drafter, forward, rule, rng, memory);
    }
    [[nodiscard]] std::string begin_text() {
        return error_text([&] { static_cast<void>(begin_round(schedule, views, memory)); });
    }
    void fail_in_draw() {
        fails = true;
        CHECK_THROWS_AS(draft(), std::runtime_error);
        fails = false;
    }
    void fail_in_score() {
        draft();
        static_cast<void>(admit(schedule, memory));
    }
    [[nodiscard]] round_record finish() {
        verify_batch const& batch = admit(schedule, memory);
        accept(rule, score(target, batch), no_logits_hook{}, rng, memory);
        return end_round(schedule, memory);
    }
    [[nodiscard]] round_record round() {
        draft();
        return finish();
    }
};

}  // namespace

// ---- who runs it again -----------------------------------------------------------------------------------------

TEST_CASE("repeats: a round that failed while it drafted is run again by its requests and nobody else") {
    engine<> e;
    CHECK_FALSE(e.memory.undecided());
    e.fail_in_draw();
    CHECK(e.memory.undecided());
    e.takes_part({0, 1, 2});
    CHECK(says(e.begin_text(), "request 2 (id 3, slot 2) was not in the round that failed, expected its 2 requests"));
    e.takes_part({0});
    CHECK(says(e.begin_text(), "there are 1 of the 2 requests of the round that failed, expected all of them"));
    CHECK(says(e.begin_text(), "One that has left takes part once more"));
    e.takes_part({2});  // nor another round meanwhile, which the schedule would learn from
    CHECK(says(e.begin_text(), "before any other round"));
    e.takes_part({0, 1});
    e.views[1].id = 77;  // somebody else in the slot
    CHECK(says(e.begin_text(), "request 1 (id 77, slot 1) was not in the round that failed"));
    e.takes_part({1, 0});  // in any order
    for (verdict const& v : e.round().verdicts) CHECK(v.outcome == status::ok);
    CHECK_FALSE(e.memory.undecided());
}

TEST_CASE("repeats: a request in a round that failed before is held to it as the others are") {
    engine<> e;
    e.takes_part({0});
    e.fail_in_score();
    e.takes_part({0, 1});  // its length is decided, so company is allowed
    e.fail_in_draw();
    e.takes_part({1});
    CHECK(says(e.begin_text(), "there are 1 of the 2"));
    e.takes_part({0, 1});
    CHECK(e.round().verdicts[0].outcome == status::ok);
}

TEST_CASE("repeats: a round is given up when all of its requests are") {
    engine<> e;
    e.fail_in_draw();
    e.memory.join(0);
    CHECK(e.memory.undecided());
    e.takes_part({1});
    CHECK(says(e.begin_text(), "call join(slot) for each of them"));
    e.takes_part({0, 1});
    CHECK(says(e.begin_text(), "request 0 (id 1, slot 0) was not in the round that failed"));
    e.memory.join(2);  // has nothing to do with it
    CHECK(e.memory.undecided());
    e.memory.join(1);
    CHECK_FALSE(e.memory.undecided());
    e.takes_part({1, 2});
    CHECK(e.round().verdicts[0].outcome == status::ok);
}

TEST_CASE("repeats: nothing is held to a failure before the draw or after admission, or where any draft is exact") {
    engine<> before;
    REQUIRE(begin_round(before.schedule, before.views, before.memory));
    CHECK_FALSE(before.memory.undecided());
    before.takes_part({0, 2});
    CHECK(before.round().verdicts[0].outcome == status::ok);

    engine<> after;
    after.fail_in_score();
    CHECK_FALSE(after.memory.undecided());
    after.takes_part({1, 2});
    CHECK(after.round().verdicts[0].outcome == status::ok);
    after.takes_part({0});
    CHECK(after.round().verdicts[0].outcome == status::ok);

    engine<fixed_schedule, target_match<categorical_draft>> any;
    any.fail_in_draw();
    CHECK_FALSE(any.memory.undecided());
    any.takes_part({0, 2});
    CHECK(any.round().verdicts[0].outcome == status::ok);
    engine<fixed_schedule, token_rejection<argmax_draft>> chosen;
    chosen.fail_in_draw();
    CHECK_FALSE(chosen.memory.undecided());
}

TEST_CASE("repeats: a request is run again in its slot") {
    for (bool const in_draw : {true, false}) {
        INFO(in_draw);
        engine<> e;
        e.takes_part({0});
        if (in_draw) {
            e.fail_in_draw();
        } else {
            e.fail_in_score();
        }
        e.views[0].slot = 2;
        std::string const text = e.begin_text();
        CHECK(says(text, in_draw ? "was not in the round that failed" : "has slot 2, expected slot 0"));
        if (!in_draw) CHECK(says(text, "call join(0) if this is another request with the same id"));
        e.views[0].position += 1;  // another place of the sequence, which nothing was drawn for
        if (!in_draw) CHECK(e.begin_text().empty());
    }
    // Two that share an id and a seed, as where nobody gives any: each has its own slot's round.
    engine<> twins;
    twins.contexts[1] = twins.contexts[0];
    twins.takes_part({0, 1});
    twins.views[1].id = twins.views[0].id;
    twins.views[1].seed = twins.views[0].seed;
    twins.fail_in_score();
    CHECK(twins.round().verdicts[1].outcome == status::ok);
}

TEST_CASE("repeats: a refusal changes nothing") {
    engine<> e;
    e.fail_in_score();
    auto const before = e.memory.batch().rows();
    e.takes_part({2, 1});
    e.views[0].slot = 1;  // taken twice, noticed at the second
    CHECK(says(e.begin_text(), "which another request of this round has"));
    e.takes_part({0, 1});
    e.views[1].position += 1;
    CHECK(says(e.begin_text(), "where its last round began"));
    accept(e.rule, score(e.target, e.memory.batch()), no_logits_hook{}, e.rng, e.memory);  // the round goes on
    CHECK(e.memory.batch().rows() == before);
    CHECK(end_round(e.schedule, e.memory).verdicts[1].outcome == status::ok);
}

// ---- what is drafted -------------------------------------------------------------------------------------------

TEST_CASE("repeats: another draft after admission is a status, and the request stays as it was") {
    engine<> e;
    e.seeds = 1;
    e.fail_in_score();
    std::vector<token_id> const first(e.memory.batch().tokens().begin(), e.memory.batch().tokens().end());
    for (int attempt = 0; attempt < 3; ++attempt) {
        auto const record = e.round();
        CHECK(record.verdicts[0].outcome == status::other_draft);
        CHECK(record.verdicts[0].emitted.empty());
    }
    CHECK(to_string(status::other_draft) == std::string("another draft than in the attempt that failed"));
    e.seeds = 1;  // the generator of the first attempt
    e.draft();
    auto const again = admit(e.schedule, e.memory).tokens();
    CHECK(std::vector<token_id>(again.begin(), again.end()) == first);
    CHECK(e.finish().verdicts[0].outcome == status::ok);
}

TEST_CASE("repeats: another draft while lengths are not decided ends the attempt") {
    engine<> e;
    e.seeds = 1;
    e.fail_in_draw();
    e.draft();
    CHECK(says(error_text([&] { static_cast<void>(admit(e.schedule, e.memory)); }),
               "has another draft than in the attempt that failed"));
    CHECK(e.memory.undecided());
    e.seeds = 1;
    CHECK(e.round().verdicts[0].outcome == status::ok);
}

TEST_CASE("repeats: a draw that is left out is another draft, and so is that of another drafter") {
    engine<> e;
    e.fail_in_score();
    REQUIRE(begin_round(e.schedule, e.views, e.memory));  // and verifies nothing, because it failed
    CHECK(e.finish().verdicts[0].outcome == status::other_draft);

    unsteady twin{&e.fails, &e.seeds};  // its tokens are the same, its laws might not be
    REQUIRE(begin_round(e.schedule, e.views, e.memory));
    draw(twin, twin.forward(e.memory.requests()), e.rule, e.rng, e.memory);
    CHECK(e.finish().verdicts[0].outcome == status::other_draft);
    CHECK(e.round().verdicts[0].outcome == status::ok);
}

TEST_CASE("repeats: where any draft is exact, another one is as good") {
    engine<fixed_schedule, target_match<categorical_draft>> e;
    e.seeds = 1;
    e.fail_in_score();
    CHECK(e.round().verdicts[0].outcome == status::ok);
}

// ---- the parts of a round --------------------------------------------------------------------------------------

TEST_CASE("round: all stages are given the object that began it") {
    engine<threshold_schedule> e{threshold_schedule{0.0}};
    threshold_schedule strict{1.0};
    REQUIRE(begin_round(e.schedule, e.views, e.memory));
    draw(e.drafter, e.drafter.forward(e.memory.requests()), e.rule, e.rng, e.memory);
    CHECK(says(error_text([&] { static_cast<void>(admit(strict, e.memory)); }),
               "admit: this is another schedule than the one that began the round, though of its type"));
    static_cast<void>(admit(e.schedule, e.memory));
    accept(e.rule, score(e.target, e.memory.batch()), no_logits_hook{}, e.rng, e.memory);
    CHECK(says(error_text([&] { static_cast<void>(end_round(strict, e.memory)); }),
               "end_round: this is another schedule"));
    CHECK(end_round(e.schedule, e.memory).verdicts[0].outcome == status::ok);
}

TEST_CASE("round: another schedule may begin another round, but not one whose lengths are not decided") {
    engine<threshold_schedule> e{threshold_schedule{0.0}};
    threshold_schedule other{0.2};
    e.fail_in_draw();
    CHECK(says(error_text([&] { static_cast<void>(begin_round(other, e.views, e.memory)); }),
               "begin_round: this is another schedule"));
    e.fail_in_score();
    REQUIRE(begin_round(other, e.views, e.memory));
    draw(e.drafter, e.drafter.forward(e.memory.requests()), e.rule, e.rng, e.memory);
    static_cast<void>(admit(other, e.memory));
}

namespace {
struct flat_capacity {
    [[nodiscard]] double steps_per_second(std::size_t b) const { return 1.0 / (8.0 + static_cast<double>(b)); }
};
/// Keeps a state, as a rule does that is chosen when the program runs.
struct stateful_rule : token_rejection<> {
    int choice = 0;
};
}  // namespace

TEST_CASE(
    "round: a planner is asked by the object that began the round, a rule with a state is the one that was drawn for") {
    engine<planned_schedule<flat_capacity>> anchored{planned_schedule{flat_capacity{}}};
    planned_schedule const other{flat_capacity{}};
    REQUIRE(begin_round(anchored.schedule, anchored.views, anchored.memory));
    auto const forward = anchored.drafter.forward(anchored.memory.requests());
    CHECK(says(error_text([&] { plan(other, anchored.drafter, forward, anchored.memory); }), "plan: this is another"));
    engine<top_k_schedule<flat_capacity>> lagged{top_k_schedule{flat_capacity{}}};
    top_k_schedule const third{flat_capacity{}};
    REQUIRE(begin_round(lagged.schedule, lagged.views, lagged.memory));
    CHECK(says(error_text([&] { plan(third, lagged.memory); }), "plan: this is another"));

    engine<fixed_schedule, stateful_rule> chosen;
    chosen.fail_in_score();
    auto const rows = score(chosen.target, chosen.memory.batch());
    CHECK(says(error_text([&] { accept(stateful_rule{}, rows, no_logits_hook{}, chosen.rng, chosen.memory); }),
               "accept: this is another rule than the one that was drawn for"));
    accept(chosen.rule, rows, no_logits_hook{}, chosen.rng, chosen.memory);
    CHECK(end_round(chosen.schedule, chosen.memory).verdicts[0].outcome == status::ok);
    engine<> plain;  // without a state all are the same
    plain.fail_in_score();
    accept(token_rejection<>{}, score(plain.target, plain.memory.batch()), no_logits_hook{}, plain.rng, plain.memory);
}

// ---- limits ----------------------------------------------------------------------------------------------------

namespace {
/// Does to the requests what it is told.
struct limiter : fixed_schedule {
    void (*limit)(std::span<request_view>) = [](std::span<request_view>) {};
    void limit_drafts(std::span<request_view> requests) const { limit(requests); }
};
}  // namespace

TEST_CASE("round: a schedule lowers limits and raises none") {
    engine<limiter> e;
    e.views[0].draft_limit = 1;
    e.views[1].model_limit = 2;
    e.schedule.limit = [](std::span<request_view> requests) {
        for (request_view& r : requests) r.draft_limit = r.model_limit = 100;
    };
    e.draft();
    CHECK(e.memory.requests()[0].draft_limit == 1);
    CHECK(e.memory.requests()[0].model_limit == 3);  // as many as the drafter's model drafts
    CHECK(e.memory.requests()[1].model_limit == 2);
    CHECK(e.memory.block().size(0) == 1);
    CHECK(e.memory.block().size(1) == 2);
    e.memory.join(0), e.memory.join(1);
    e.schedule.limit = [](std::span<request_view> requests) { requests[1].draft_limit = 0; };
    e.draft();
    CHECK(e.memory.block().size(1) == 0);
}

TEST_CASE("round: a schedule that orders or changes requests is refused") {
    engine<limiter> e;
    auto const text = [&](void (*limit)(std::span<request_view>)) {
        e.schedule.limit = limit;
        return e.begin_text();
    };
    CHECK(says(text([](std::span<request_view> r) { std::swap(r[0], r[1]); }),
               "limit_drafts left request 2 of slot 1 at place 0, expected request 1 of slot 0 as it was"));
    CHECK(says(text([](std::span<request_view> r) { r[1].seed = 7; }), "at place 1"));
    CHECK(says(text([](std::span<request_view> r) { r[1].position += 1; }), "changes nothing else"));
    CHECK(says(text([](std::span<request_view> r) { r[0].remaining = 500; }), "at place 0"));
    CHECK(says(text([](std::span<request_view> r) { r[0].context = {}; }), "at place 0"));
    CHECK(text([](std::span<request_view> r) { r[0].weight = 5; }).empty());
}

TEST_CASE("round: a schedule that throws in limit_drafts leaves no stage of the round before to be called") {
    engine<limiter> e;
    e.fail_in_score();
    e.schedule.limit = [](std::span<request_view>) { throw std::runtime_error("limit"); };
    CHECK_THROWS_AS(begin_round(e.schedule, e.views, e.memory), std::runtime_error);
    CHECK(says(error_text([&] { accept(e.rule, logits_rows<double>{}, no_logits_hook{}, e.rng, e.memory); }),
               "call admit"));
    e.schedule.limit = [](std::span<request_view>) {};
    CHECK(e.round().verdicts[0].outcome == status::ok);
}

// ---- admission -------------------------------------------------------------------------------------------------

namespace {
struct too_long_once {
    bool* wrong = nullptr;
    static constexpr bool needs_confidence = false;
    void admit(draft_table const& table, frontier_memory const& memory) const {
        for (std::size_t r = 0; r < table.survivals.requests(); ++r) memory.lengths[r] = *wrong && r == 1 ? 7 : 1;
    }
};
}  // namespace

TEST_CASE("round: an admission that is refused for one request has decided nothing about the others") {
    engine<too_long_once, target_match<categorical_draft>> e;
    bool wrong = true;
    e.schedule.wrong = &wrong;
    e.draft();
    CHECK(says(error_text([&] { static_cast<void>(admit(e.schedule, e.memory)); }), "gives request 1 the length 7"));
    wrong = false;
    CHECK(admit(e.schedule, e.memory).rows() == 4);
    CHECK(e.finish().verdicts[1].outcome == status::ok);
}
