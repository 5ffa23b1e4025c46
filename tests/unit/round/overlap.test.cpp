// SPDX-License-Identifier: MIT
//
// Rounds of two memories that overlap over the same parts: what a later pass has overwritten is refused by the stage
// that would read it, with the remedy, and the round goes on from there. What a drafter learns comes from the round's
// own draft. The law of every order of stages is enumerated in tests/property/exact_overlap.test.cpp.
#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/core/pass.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/allocations.hpp"
#include "support/error_text.hpp"
#include "support/every_drafter.hpp"

using namespace sureleap;
using namespace every_drafter;
using support::error_text;
using support::says;

namespace {

world const w{5, 3, 3};

/// A loop's round over parts that another loop may use as well.
template <class Drafter, class Target, class Rule = token_rejection<>>
struct loop {
    Drafter& drafter;
    Target& target;
    std::vector<std::vector<token_id>> texts;
    std::vector<request_view> views{};
    request_settings settings{};
    fixed_schedule schedule{};
    philox_randomness rng{};
    round_memory<double, typename Drafter::value_type> memory;

    loop(Drafter& d, Target& t, std::vector<std::vector<token_id>> prompts, request_id first = 1)
        : drafter(d),
          target(t),
          texts(std::move(prompts)),
          memory(d, schedule, Rule{}, {.max_requests = texts.size()}) {
        for (std::size_t r = 0; r < texts.size(); ++r) {
            views.push_back(
                {.id = first + r, .slot = r, .seed = 10 * first + r, .remaining = 100, .settings = &settings});
        }
    }
    loop(loop const&) = delete;

    [[nodiscard]] auto forward() {
        for (std::size_t r = 0; r < texts.size(); ++r) {
            views[r].anchor = texts[r].back();
            views[r].position = texts[r].size() - 1;
            views[r].context = texts[r];
        }
        static_cast<void>(begin_round(schedule, views, memory));
        return drafter.forward(memory.requests());
    }
    template <class Forward>
    void draft(Forward const& lent) {
        sureleap::draw(drafter, lent, Rule{}, rng, memory);
    }
    [[nodiscard]] auto score() { return target.score(admit(schedule, memory)); }
    void judge(logits_rows<double> const& rows) { accept(Rule{}, rows, no_logits_hook{}, rng, memory); }
    round_record end() {
        auto const record = end_round(schedule, memory, target, drafter);
        for (verdict const& v : record.verdicts)
            texts[v.slot].insert(texts[v.slot].end(), v.emitted.begin(), v.emitted.end());
        return record;
    }
    void rest() {
        judge(score());
        end();
    }
    void round() {
        draft(forward());
        rest();
    }
};
template <class D, class T>
loop(D&, T&, std::vector<std::vector<token_id>>) -> loop<D, T>;
template <class D, class T>
loop(D&, T&, std::vector<std::vector<token_id>>, int) -> loop<D, T>;

std::vector<std::vector<token_id>> const some{{0, 1}, {2, 1}};
std::vector<std::vector<token_id>> const others{{1, 1}, {1, 2}};

char const* const later_pass = "of the same model has begun since, which overwrites that";

}  // namespace

TEST_CASE("overlap: a forward pass is refused once the drafter's next has begun, and the round goes on with another") {
    auto drafter = semi_of(w);
    auto target = target_of(w);
    loop a{drafter, target, some};
    loop b{drafter, target, others, 3};
    auto const first = a.forward();
    auto const second = b.forward();
    auto const text = error_text([&] { a.draft(first); });
    CHECK(text ==
          "draw: what forward returned is of pass 1, and pass 2 of the same model has begun since, which overwrites "
          "that; draw "
          "each round before the drafter's next forward, or give each round_memory a drafter with a model of its own");
    b.draft(second);
    b.rest();
    a.draft(drafter.forward(a.memory.requests()));
    a.rest();

    auto alone = semi_of(w);
    loop reference{alone, target, some};
    reference.round();
    CHECK(a.texts == reference.texts);
}

TEST_CASE("overlap: a plan is refused like a draw") {
    struct flat_cost {
        [[nodiscard]] double steps_per_second(std::size_t b) const { return 1.0 / (8.0 + static_cast<double>(b)); }
    };
    auto drafter = semi_of(w);
    planned_schedule schedule{flat_cost{}};
    round_memory<double, double> memory{drafter, schedule, token_rejection<>{}, {.max_requests = 1}};
    request_settings const settings;
    token_id const text[] = {0, 1};
    request_view const view{
        .id = 1, .anchor = 1, .position = 1, .context = text, .remaining = 9, .settings = &settings};
    REQUIRE(begin_round(schedule, {&view, 1}, memory));
    auto const first = drafter.forward(memory.requests());
    static_cast<void>(drafter.forward(memory.requests()));
    CHECK(says(error_text([&] { plan(schedule, drafter, first, memory); }),
               {"plan: what forward returned is", later_pass}));
}

TEST_CASE("overlap: rows are refused once the target's next pass has begun, before and after the verdicts") {
    auto drafter = autoregressive_of(w);
    auto target = target_of(w);
    loop a{drafter, target, some};
    loop b{drafter, target, others, 3};
    auto const draft = [](auto& one) { one.draft(one.forward()); };
    draft(a);
    draft(b);
    auto const stale = a.score();
    auto const rows = b.score();
    CHECK(error_text([&] { a.judge(stale); }) ==
          "accept: the target's rows are of pass 1, and pass 2 of the same model has begun since, which overwrites "
          "that; accept "
          "and end each round before the target's next pass, or give each round_memory a target with rows of its own");
    b.judge(rows);
    auto const again = a.score();
    CHECK(says(error_text([&] { b.end(); }), {"end_round: the target's rows are of pass 2, and pass 3", later_pass}));
    a.judge(again);
    a.end();
    b.judge(b.score());  // the same verdicts
    b.end();

    auto alone = autoregressive_of(w);
    loop reference{alone, target, others, 3};
    reference.round();
    CHECK(b.texts == reference.texts);
}

TEST_CASE("overlap: rows that tokens were drawn from are refused where acceptance would read them") {
    drafter_options const shape{.block_size = w.block_size, .vocabulary = w.vocabulary};
    auto target = target_of(w);
    auto const overlapping = [&]<class Rule>(Rule) {
        auto drafter = parallel{table_backbone{&w}, shape};
        loop<decltype(drafter), decltype(target), Rule> a{drafter, target, some};
        a.draft(a.forward());
        auto const rows = a.score();
        static_cast<void>(drafter.forward(a.memory.requests()));
        return error_text([&] { a.judge(rows); });
    };
    CHECK(overlapping(token_rejection<>{}) ==
          "accept: the rows that tokens were drawn from are of pass 1, and pass 2 of the same model has begun since, "
          "which "
          "overwrites that; accept each round before the drafter's next forward, or give each round_memory a drafter "
          "with a "
          "model of its own");
    CHECK(overlapping(target_match<>{}).empty());  // it reads none
}

TEST_CASE("overlap: passes for other requests are refused, and so are those of an earlier round") {
    auto drafter = semi_of(w);
    auto other_drafter = semi_of(w);
    auto target = target_of(w);
    auto other_target = target_of(w);
    loop a{drafter, target, some};
    loop b{other_drafter, other_target, others, 3};
    auto const first = a.forward();
    auto const second = b.forward();
    char const* const mixed_up =
        "draw: what forward returned is of a pass for other requests than the round's; give each round_memory what was "
        "computed for its own";
    CHECK(error_text([&] { a.draft(second); }) == mixed_up);
    CHECK(error_text([&] { b.draft(first); }) == mixed_up);
    a.draft(first);
    b.draft(second);
    auto const rows = a.score();
    auto const other_rows = b.score();
    CHECK(says(error_text([&] { a.judge(other_rows); }), "accept: the target's rows are of a pass for other requests"));
    b.judge(other_rows);
    a.judge(rows);
    a.end();
    b.end();
    auto const next = a.forward();
    CHECK(error_text([&] { a.draft(first); }).starts_with("draw: what forward returned is of pass 1, and pass 2"));
    a.draft(next);
    a.judge(a.score());
    CHECK(says(error_text([&] { b.draft(next); }), "call begin_round first"));
}

TEST_CASE("overlap: who has two buffers counts the passes of each") {
    struct two_buffers {
        std::array<table_backbone, 2> inner{table_backbone{&w}, table_backbone{&w}};
        std::array<pass_counter, 2> passes{};
        std::size_t turn = 0;
        [[nodiscard]] block_forward<double> forward(std::span<request_view const> requests) {
            turn = 1 - turn;
            auto const pass = passes[turn].begin(fingerprint_of(requests));
            auto lent = inner[turn].forward(requests);
            lent.base_logits.pass = pass;
            return lent;
        }
    };
    auto drafter = semi_autoregressive{two_buffers{}, table_head{&w}, table_confidence{&w},
                                       drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
    auto target = target_of(w);
    loop a{drafter, target, some};
    loop b{drafter, target, others, 3};
    auto const first = a.forward();
    auto const second = b.forward();
    a.draft(first);
    b.draft(second);
    static_cast<void>(drafter.forward(a.memory.requests()));
    a.rest();
    b.rest();
    auto alone = semi_of(w);
    loop reference{alone, target, others, 3};
    reference.round();
    CHECK(b.texts == reference.texts);
}

TEST_CASE("overlap: with_lookup drafts each round from its own pass, whatever was begun since") {
    auto drafter = with_lookup{autoregressive_of(w)};
    auto target = target_of(w);
    loop a{drafter, target, {{0, 1, 2}}};
    loop b{drafter, target, {{0, 1, 2, 0, 1}, {2, 2, 1, 2, 2}, {1, 0}, {1, 2, 0, 1, 2}}, 2};
    auto const run = [](bool small_first, auto& small, auto& large) {
        auto const draw_both = [](auto& x, auto& y) {
            auto const first = x.forward();
            auto const second = y.forward();
            x.draft(first);
            y.draft(second);
        };
        if (small_first) {
            draw_both(small, large);
        } else {
            draw_both(large, small);
        }
        small.rest();
        large.rest();
    };
    auto alone = with_lookup{autoregressive_of(w)};
    loop one{alone, target, a.texts};
    loop four{alone, target, b.texts, 2};
    for (int round = 0; round < 6; ++round) {
        run(round % 2 == 0, a, b);
        one.round();
        four.round();
        CHECK(a.texts == one.texts);
        CHECK(b.texts == four.texts);
    }
    CHECK(drafter.acceptance()(2) == alone.acceptance()(2));
    CHECK(drafter.acceptance()(3) == alone.acceptance()(3));
    CHECK(drafter.acceptance()(2) != decltype(alone){autoregressive_of(w)}.acceptance()(2));

    auto const lent = b.forward();
    auto const text = error_text([&] { b.draft(a.forward()); });
    CHECK(says(text, "draw: what forward returned is of a pass for other requests"));
    b.draft(lent);
    philox_randomness rng;
    auto block = b.memory.block();
    CHECK(error_text([&] { drafter.draw({}, categorical_draft{}, block, {}, rng); }) ==
          "with_lookup: the forward pass was made for other requests than the round's, expected what "
          "forward(memory.requests()) returned in this round");
}

TEST_CASE("overlap: drafters learn from the drafts of the round that is committed") {
    auto target = target_of(w);
    auto const tree_of_world = [] {
        return tree_drafter<decltype(semi_of(w))>{semi_of(w), {.nodes = 5, .children = 3}};
    };
    auto const check = [&](auto const& make, auto const& learned) {
        using drafter_type = decltype(make());
        auto shared = make();
        auto first = make();
        auto second = make();
        using loop_type = loop<drafter_type, decltype(target), recursive_rejection<>>;
        loop_type a{shared, target, some};
        loop_type b{shared, target, others, 1};  // another engine's requests have the same ids
        loop_type alone_a{first, target, some};
        loop_type alone_b{second, target, others, 1};
        a.draft(a.forward());
        b.draft(b.forward());
        alone_a.draft(alone_a.forward());
        alone_b.draft(alone_b.forward());
        auto reference = make();
        for (auto* one : {&alone_a, &alone_b}) {
            one->judge(one->score());
            auto const ended = one->end();
            commit_to(reference, ended.verdicts, one->memory);
        }
        a.rest();
        b.rest();
        CHECK(a.texts == alone_a.texts);
        CHECK(b.texts == alone_b.texts);
        for (std::size_t rank = 0; rank < 3; ++rank) CHECK(learned(shared, rank) == learned(reference, rank));
        CHECK(learned(shared, 0) != learned(make(), 0));
    };
    check(tree_of_world, [](auto const& d, std::size_t rank) { return d.siblings()(rank); });
    check([&] { return with_lookup{tree_of_world()}; },
          [](auto const& d, std::size_t rank) { return d.other().siblings()(rank); });
}

TEST_CASE("overlap: rounds allocate nothing once as many passes overlap as before") {
    auto model = model_of<double>(w.vocabulary, [](auto c, auto l) { w.target(c, l); });
    model.reserve(64, 64);
    auto target = target_of(w);
    target.reserve(64, 64);
    auto drafter =
        with_lookup{autoregressive{std::move(model), {.block_size = w.block_size, .vocabulary = w.vocabulary}}};
    loop a{drafter, target, {{0, 1, 2, 0, 1}}};
    loop b{drafter, target, {{2, 1}}, 2};
    for (auto& text : {&a.texts[0], &b.texts[0]}) text->reserve(100);
    auto const overlapping = [&] {
        auto const first = a.forward();
        auto const second = b.forward();
        a.draft(first);
        b.draft(second);
        a.rest();
        b.rest();
    };
    overlapping();
    std::size_t const before = allocations.load();
    for (int round = 0; round < 5; ++round) overlapping();
    CHECK(allocations.load() == before);
}

TEST_CASE("pass_counter: a copy counts its own passes, and stamps survive a move") {
    pass_counter passes;
    CHECK_FALSE(pass_stamp{}.is_named());
    CHECK(pass_stamp{}.is_current());
    auto const first = passes.begin();
    pass_counter copy{passes};
    CHECK(copy.begin().number() == 1);
    CHECK(first.is_current());
    pass_counter moved{std::move(passes)};
    CHECK(first.is_current());
    auto const second = moved.begin(7);
    CHECK_FALSE(first.is_current());
    CHECK(second.number() == 2);
    CHECK(second.requests() == 7);
    CHECK(first.latest() == 2);
    CHECK(moved.current().is_current());
    moved = copy;  // what the memory held is replaced
    CHECK_FALSE(second.is_current());
}

TEST_CASE("pass_pool: memory comes back when nobody holds it, and a copy has its own") {
    pass_pool<std::vector<int>> pool;
    auto first = pool.take();
    auto second = pool.take();
    CHECK(first != second);
    first->push_back(1);
    auto const* const was = first.get();
    first.reset();
    auto third = pool.take();
    CHECK(third.get() == was);
    pass_pool<std::vector<int>> copy{pool};
    auto const own = copy.take();
    CHECK(own != second);
    CHECK(own != third);
}

TEST_CASE("fingerprint_of: requests, their order, seeds and places tell rounds apart") {
    request_view const a{.id = 1, .position = 4, .seed = 9};
    request_view const b{.id = 2, .position = 4, .seed = 9};
    auto later = a;
    later.position = 5;
    auto reseeded = a;
    reseeded.seed = 8;
    auto limited = a;
    limited.draft_limit = 1;
    auto const of = [](std::vector<request_view> const& views) { return fingerprint_of(views); };
    CHECK(of({a}) == of({limited}));
    for (auto const& different : std::vector<std::vector<request_view>>{{}, {b}, {later}, {reseeded}, {a, b}, {b, a}}) {
        CHECK(of({a}) != of(different));
    }
    CHECK(of({a, b}) != of({b, a}));
    CHECK(of({}) != 0);
}
