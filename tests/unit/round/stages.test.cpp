// SPDX-License-Identifier: MIT
//
// The stages of a round as an engine may get them wrong: each mistake is refused in the round in which it happens, with
// the remedy, and nothing is committed. The law of what is allowed is enumerated in tests/property.
#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/drafter/lookup.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/error_text.hpp"
#include "support/small_world.hpp"

using namespace sureleap;
using namespace small_world;
using support::error_text;
using support::says;

namespace {

struct flat_capacity {
    [[nodiscard]] double steps_per_second(std::size_t b) const { return 1.0 / (8.0 + static_cast<double>(b)); }
};

world const w{5, 3, 3};

/// An engine with its requests; every stage can be called, left out or called at the wrong time.
template <class Schedule = fixed_schedule, class Rule = token_rejection<>, class Drafter = decltype(semi_of(w))>
struct engine {
    Drafter drafter;
    Schedule schedule;
    Rule rule{};
    philox_randomness rng{};
    decltype(target_of(w)) target = target_of(w);
    std::vector<request_settings> settings;
    std::vector<std::vector<token_id>> contexts;
    std::vector<request_view> views;
    round_memory<double, typename Drafter::value_type> memory;

    explicit engine(Schedule s = Schedule{}, std::size_t requests = 2)
        requires std::is_same_v<Drafter, decltype(semi_of(w))>
        : engine(std::move(s), requests, semi_of(w)) {}
    engine(Schedule s, std::size_t requests, Drafter d)
        : drafter(std::move(d)),
          schedule(std::move(s)),
          settings(requests),
          memory(drafter, schedule, rule, {.max_requests = requests + 1}) {
        for (std::size_t r = 0; r < requests; ++r) {
            contexts.push_back({static_cast<token_id>(r % 3), 1});
            views.push_back({.id = r + 1, .slot = r, .seed = 40 + r, .remaining = 100, .settings = &settings[r]});
        }
        refresh();
    }
    engine(engine const&) = delete;

    void refresh() {
        for (std::size_t r = 0; r < views.size(); ++r) {
            views[r].anchor = contexts[r].back();
            views[r].position = contexts[r].size() - 1;
            views[r].context = contexts[r];
        }
    }
    void append(std::span<verdict const> verdicts) {
        for (verdict const& v : verdicts) {
            contexts[v.slot].insert(contexts[v.slot].end(), v.emitted.begin(), v.emitted.end());
        }
        refresh();
    }
    bool begin() { return begin_round(schedule, views, memory); }
    void draft() {
        auto const forward = drafter.forward(memory.requests());
        plan(schedule, drafter, forward, memory);
        draw(drafter, forward, rule, rng, memory);
    }
    void judge() {
        auto const rows = score(target, memory.batch());
        accept(rule, rows, no_logits_hook{}, rng, memory);
    }
    void accept_nothing() { accept(rule, logits_rows<double>{}, no_logits_hook{}, rng, memory); }
    round_record round() {
        if (begin()) draft();
        static_cast<void>(admit(schedule, memory));
        judge();
        return end_round(schedule, memory);
    }
};

}  // namespace

// ---- stages out of order ---------------------------------------------------------------------------------------

TEST_CASE("round: a stage without the one before it is refused, in the first round and in later ones") {
    engine<> e;
    for (int round = 0; round < 3; ++round) {
        INFO("round " << round);
        auto const forward = e.drafter.forward(e.views);
        CHECK(says(error_text([&] { draw(e.drafter, forward, e.rule, e.rng, e.memory); }), "call begin_round first"));
        CHECK(says(error_text([&] { static_cast<void>(admit(e.schedule, e.memory)); }), "call begin_round first"));
        CHECK(says(error_text([&] { e.accept_nothing(); }), "call admit"));
        CHECK(says(error_text([&] { static_cast<void>(end_round(e.schedule, e.memory)); }), "call accept first"));
        REQUIRE(e.begin());
        CHECK(says(error_text([&] { e.accept_nothing(); }), "call admit"));
        e.draft();
        CHECK(says(error_text([&] { e.draft(); }), "drawn or admitted already"));
        static_cast<void>(admit(e.schedule, e.memory));
        CHECK(says(error_text([&] { static_cast<void>(end_round(e.schedule, e.memory)); }), "call accept first"));
        e.judge();
        e.append(end_round(e.schedule, e.memory).verdicts);
    }
    CHECK(e.contexts[0].size() > 4);
}

TEST_CASE("round: a planner that is not asked is missed") {
    engine<planned_schedule<flat_capacity>> anchored{planned_schedule{flat_capacity{}}};
    auto const forward = anchored.drafter.forward(anchored.views);
    CHECK(says(error_text([&] { plan(anchored.schedule, anchored.drafter, forward, anchored.memory); }),
               "call begin_round first"));
    REQUIRE(anchored.begin());
    draw(anchored.drafter, forward, anchored.rule, anchored.rng, anchored.memory);
    CHECK(says(error_text([&] { plan(anchored.schedule, anchored.drafter, forward, anchored.memory); }),
               "plan before draw"));
    CHECK(says(error_text([&] { static_cast<void>(admit(anchored.schedule, anchored.memory)); }), "call plan"));

    engine<top_k_schedule<flat_capacity>> lagged{top_k_schedule{flat_capacity{}}};
    CHECK(says(error_text([&] { plan(lagged.schedule, lagged.memory); }), "call begin_round first"));
    REQUIRE(lagged.begin());
    plan(lagged.schedule, lagged.memory);  // past rounds may be asked before, beside and after the draw
    lagged.draft();
    static_cast<void>(admit(lagged.schedule, lagged.memory));
}

TEST_CASE("round: a round that is not ended is no round") {
    engine<> e;
    e.round();
    CHECK(says(error_text([&] { e.begin(); }), " or later: its last round has ended there"));

    engine<> forgets;
    REQUIRE(forgets.begin());
    forgets.draft();
    static_cast<void>(admit(forgets.schedule, forgets.memory));
    forgets.judge();
    forgets.contexts[0].push_back(1);  // as if it had been told what was emitted
    forgets.refresh();
    CHECK(says(error_text([&] { forgets.begin(); }), "Call end_round after accept"));
}

TEST_CASE("round: what stages leave is nobody's to change") {
    using memory = round_memory<double, double>;
    static_assert(std::is_same_v<decltype(std::declval<memory&>().block()), draft_block<double> const&>);
    static_assert(std::is_same_v<decltype(std::declval<memory&>().batch()), verify_batch const&>);
    static_assert(std::is_same_v<decltype(std::declval<memory&>().requests()), std::span<request_view const>>);
    static_assert(!std::is_copy_constructible_v<memory>);
    engine<> e;
    REQUIRE(e.begin());
    e.draft();
    auto const& batch = admit(e.schedule, e.memory);
    std::size_t const rows = batch.rows();
    CHECK(rows > e.views.size());
    for (request_view& view : e.views) view.draft_limit = 0;  // views are copied when the round begins
    CHECK(admit(e.schedule, e.memory).rows() == rows);
}

// ---- parts that were not meant ---------------------------------------------------------------------------------

TEST_CASE("round: memory of one rule, drafter or schedule refuses another") {
    // A memory for a rule that reads no q keeps one row of each request; rejection would take it for all of them.
    engine<fixed_schedule, target_match<categorical_draft>> e;
    REQUIRE(e.begin());
    auto const forward = e.drafter.forward(e.memory.requests());
    CHECK(says(error_text([&] { draw(e.drafter, forward, token_rejection<>{}, e.rng, e.memory); }),
               "made for another acceptance rule"));
    e.draft();
    auto const rows = score(e.target, admit(e.schedule, e.memory));
    CHECK(says(error_text([&] { accept(token_rejection<>{}, rows, no_logits_hook{}, e.rng, e.memory); }),
               "make a round_memory for each rule"));
    CHECK(says(error_text([&] { accept(target_match<argmax_draft>{}, rows, no_logits_hook{}, e.rng, e.memory); }),
               "made for another acceptance rule"));
    threshold_schedule other{0.5};
    CHECK(says(error_text([&] { static_cast<void>(begin_round(other, e.views, e.memory)); }),
               "schedule of another type"));
    CHECK(says(error_text([&] { static_cast<void>(admit(other, e.memory)); }), "schedule of another type"));
    CHECK(says(error_text([&] { static_cast<void>(end_round(other, e.memory)); }), "schedule of another type"));

    engine<> mine;
    REQUIRE(mine.begin());
    world const longer{5, 3, 4};
    auto drafter = semi_of(longer);
    auto const blocks = drafter.forward(mine.memory.requests());
    CHECK(says(error_text([&] { draw(drafter, blocks, mine.rule, mine.rng, mine.memory); }),
               "made for a drafter of another type or shape"));
}

namespace {
/// Draws as it likes, whatever the rule asks for.
template <class Habit>
struct stubborn_drafter {
    using value_type = double;
    struct forward_type {};
    static constexpr bool is_deterministic = std::is_same_v<Habit, argmax_draft>;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;
    bool claims = false;

    [[nodiscard]] std::size_t block_size() const { return 3; }
    [[nodiscard]] std::size_t vocabulary() const { return 3; }
    [[nodiscard]] std::size_t target_vocabulary() const { return 3; }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const { return {}; }
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule, draft_block<double>& block, draft_rows<double> const& rows, Rng& rng) const {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            for (int k = 0; k < 9; ++k) {  // and without regard to caps
                auto const row = rows.next(block, r);
                row[0] = 0.1, row[1] = 0.5, row[2] = 0.3;
                auto const law = rows.law(block, r, row);
                token_id const x =
                    claims ? block.draw(r, categorical_draft{}, law, 1.0, rng) : block.draw(r, Habit{}, law, 1.0, rng);
                if (x == no_token) break;
            }
        }
    }
};
}  // namespace

TEST_CASE("round: tokens that were drawn by another draft rule reach no verdict") {
    auto const outcome = [](auto habit, auto rule, bool claims = false) {
        using drafter = stubborn_drafter<decltype(habit)>;
        engine<fixed_schedule, decltype(rule), drafter> e{fixed_schedule{}, 2, drafter{claims}};
        auto const record = e.round();
        for (verdict const& v : record.verdicts) {
            CHECK(v.outcome == record.verdicts[0].outcome);
            CHECK(v.emitted.empty() == (v.outcome != status::ok));
        }
        return record.verdicts[0].outcome;
    };
    CHECK(outcome(categorical_draft{}, token_rejection<>{}) == status::ok);
    CHECK(outcome(coupled_draft{}, token_rejection<>{}) == status::wrong_draft_rule);
    CHECK(outcome(coupled_draft{}, block_verification<>{}) == status::wrong_draft_rule);
    CHECK(outcome(categorical_draft{}, token_rejection<argmax_draft>{}) == status::wrong_draft_rule);
    CHECK(outcome(categorical_draft{}, keyed_coupling{}) == status::wrong_draft_rule);
    CHECK(outcome(coupled_draft{}, keyed_coupling{}) == status::ok);
    // One that says it is deterministic has no rows kept for it, and is held to what it says.
    CHECK(outcome(argmax_draft{}, token_rejection<>{}) == status::ok);
    CHECK(outcome(argmax_draft{}, token_rejection<>{}, true) == status::wrong_draft_rule);
}

TEST_CASE("round: a block is as long as its request allows, whatever the drafter does") {
    using drafter = stubborn_drafter<categorical_draft>;
    engine<fixed_schedule, token_rejection<>, drafter> e{fixed_schedule{}, 3, drafter{}};
    e.views[0].remaining = 2;
    e.settings[1].max_draft_tokens = 2;
    auto const record = e.round();
    CHECK(record.verdicts[0].drafted == 1);
    CHECK(record.verdicts[1].drafted == 2);
    CHECK(record.verdicts[2].drafted == 3);
}

namespace {
struct too_long {
    static constexpr bool needs_confidence = false;
    void admit(draft_table const& table, frontier_memory const& memory) const {
        for (std::size_t r = 0; r < table.survivals.requests(); ++r) memory.lengths[r] = r == 1 ? 7 : 0;
    }
};
template <std::size_t Accepted, token_id Next>
struct rule_that_says {
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    using draft_rule = categorical_draft;
    template <class Verification, class Rng>
    decision operator()(Verification&, Rng&) const {
        return {true, Accepted, Next};
    }
};
}  // namespace

TEST_CASE("round: lengths and decisions of parts of a user's own are not believed blindly") {
    engine<too_long, target_match<categorical_draft>> e{too_long{}};
    REQUIRE(e.begin());
    e.draft();
    CHECK(says(error_text([&] { static_cast<void>(admit(e.schedule, e.memory)); }),
               "gives request 1 the length 7, expected at most 3"));

    auto const outcome = [](auto rule) {
        engine<fixed_schedule, decltype(rule)> one{fixed_schedule{2}, 1};
        return one.round().verdicts[0].outcome;
    };
    CHECK(outcome(rule_that_says<2, 2>{}) == status::ok);
    CHECK(outcome(rule_that_says<3, 2>{}) == status::invalid_target);   // of two that were verified
    CHECK(outcome(rule_that_says<0, -1>{}) == status::invalid_target);  // no token
    CHECK(outcome(rule_that_says<0, 3>{}) == status::invalid_target);   // nor this, of three
}

// ---- requests that cannot take part ----------------------------------------------------------------------------

TEST_CASE("round: a request that cannot take part is refused with what is wrong") {
    engine<> e;
    auto const refusal = [&](auto const& change) {
        auto const views = e.views;
        auto const settings = e.settings;
        change();
        std::string const text = error_text([&] { e.begin(); });
        e.views = views;
        e.settings = settings;
        return text;
    };
    CHECK(refusal([] {}).empty());
    CHECK(says(refusal([&] { e.views[1].remaining = 0; }), "request 1 (id 2) has remaining = 0"));
    CHECK(says(refusal([&] { e.views[1].settings = nullptr; }), "has no settings"));
    CHECK(says(refusal([&] { e.views[1].anchor = 3; }), "has anchor 3, expected a token of the target, 0 .. 2"));
    CHECK(says(refusal([&] { e.views[1].anchor = -200; }), "has anchor -200"));
    CHECK(says(refusal([&] { e.views[1].anchor = 2; }), "but its context ends with 1"));
    CHECK(says(refusal([&] { e.views[1].slot = 3; }), "has slot 3, expected a slot below max_requests = 3"));
    CHECK(says(refusal([&] { e.views[1].slot = 0; }), "which another request of this round has"));
    CHECK(says(refusal([&] { e.settings[1].temperature = -1.0; }), "temperature is -1"));
    CHECK(says(refusal([&] { e.settings[1].temperature = 1e46; }),
               "temperature is 1e+46, expected a finite number >= 0 and at most 1000000"));
    CHECK(says(refusal([&] { e.settings[1].top_p = 0.0; }), "top_p is 0"));
    CHECK(says(refusal([&] { e.settings[1].draft = transform{.min_p = 2.0}; }), "draft min_p is 2"));
    CHECK(says(refusal([&] { e.settings[1].priority = 0.0; }), "priority is 0"));
    e.views.resize(4, e.views[0]);
    CHECK(says(error_text([&] { e.begin(); }), "there are 4 requests, expected at most max_requests = 3"));
}

TEST_CASE("round: a rule that decodes greedily refuses a request at a temperature, settings checked or not") {
    engine<fixed_schedule, greedy_match> e;
    CHECK(says(error_text([&] { e.begin(); }), "has temperature 1, expected 0"));
    for (auto& s : e.settings) s.temperature = 0.0;
    CHECK(e.round().verdicts[0].outcome == status::ok);
}

// ---- once more -------------------------------------------------------------------------------------------------

namespace {
/// Verifies as much as it is told.
struct told_length {
    std::size_t const* length;
    static constexpr bool needs_confidence = false;
    void admit(causal_frontier& frontier) const { fixed_schedule{*length}.admit(frontier); }
    void limit_drafts(std::span<request_view> requests) const {
        for (request_view& r : requests) r.draft_limit = std::min(r.draft_limit, *length);
    }
};
}  // namespace

TEST_CASE("round: a round that failed is run again as it was, whatever the schedule says by then") {
    std::size_t length = 2;
    engine<told_length> e{told_length{&length}};
    REQUIRE(e.begin());
    e.draft();
    std::size_t const rows = admit(e.schedule, e.memory).rows();
    CHECK(rows == 2 * 3);
    std::vector<token_id> const tokens(e.memory.batch().tokens().begin(), e.memory.batch().tokens().end());
    // The target failed. Fewer, more or all drafts: the same batch comes again.
    for (std::size_t const now : {0u, 1u, 3u}) {
        INFO("length " << now);
        length = now;
        REQUIRE(e.begin());
        e.draft();
        auto const again = admit(e.schedule, e.memory).tokens();
        CHECK(std::vector<token_id>(again.begin(), again.end()) == tokens);
    }
    // One by one, as an engine does whose batch was too large: each as it was, the other one still to come.
    auto const both = e.views;
    length = 0;
    for (std::size_t r = 0; r < 2; ++r) {
        e.views = {both[r]};
        REQUIRE(e.begin());
        e.draft();
        auto const alone = admit(e.schedule, e.memory).tokens();
        auto const first = tokens.begin() + static_cast<std::ptrdiff_t>(3 * r);
        CHECK(std::vector<token_id>(alone.begin(), alone.end()) == std::vector<token_id>(first, first + 3));
        e.judge();
        CHECK(end_round(e.schedule, e.memory).verdicts[0].outcome == status::ok);
    }
    // A round that has ended decides anew.
    for (std::size_t r = 0; r < 2; ++r) e.contexts[r].insert(e.contexts[r].end(), 3, 1);
    e.views = both;
    e.refresh();
    length = 1;
    REQUIRE(e.begin());
    e.draft();
    CHECK(admit(e.schedule, e.memory).rows() == 2 * 2);
}

TEST_CASE("round: a failure before the draw leaves everything open") {
    std::size_t length = 1;
    engine<told_length> e{told_length{&length}};
    REQUIRE(e.begin());  // then the drafter's pass fails
    length = 3;
    REQUIRE(e.begin());
    CHECK(e.memory.requests()[0].draft_limit == 3);
    // An engine whose draft model is out of room goes on without it, for one request or for all.
    e.views[0].draft_limit = 0;
    REQUIRE(e.begin());
    CHECK(e.memory.requests()[0].draft_limit == 0);
    CHECK(e.memory.requests()[1].draft_limit == 3);
    e.views[1].draft_limit = 0;
    CHECK_FALSE(e.begin());
    CHECK(admit(e.schedule, e.memory).rows() == 2);
    CHECK(says(error_text([&] { e.memory.join(3); }), "expected a slot below max_requests = 3"));
}

TEST_CASE("round: a request that was changed between two attempts is refused") {
    engine<> e;
    REQUIRE(e.begin());
    e.draft();
    static_cast<void>(admit(e.schedule, e.memory));
    e.settings[0].max_draft_tokens = 1;
    CHECK(says(error_text([&] { e.begin(); }), "may draft 1 tokens, but drafted 3 in the round that failed"));
}

TEST_CASE("round: prompt lookup through the stages ends before an id that is no token") {
    lookup drafter{{.block_size = 4, .target_vocabulary = 3}};
    fixed_schedule schedule{};
    round_memory<double, float> memory{drafter, schedule, token_rejection<>{}, {.max_requests = 1}};
    std::vector<token_id> const context{0, 1, 2, -200, 1, 0, 1};  // what followed 0, 1 before: 2, then a placeholder
    request_settings const settings{};
    request_view const view{.anchor = 1, .position = 6, .context = context, .remaining = 50, .settings = &settings};
    philox_randomness rng;
    REQUIRE(begin_round(schedule, {&view, 1}, memory));
    draw(drafter, drafter.forward(memory.requests()), token_rejection<>{}, rng, memory);
    auto const tokens = admit(schedule, memory).tokens();
    CHECK(std::vector<token_id>(tokens.begin(), tokens.end()) == std::vector<token_id>{1, 2});
}
