// SPDX-License-Identifier: MIT
//
// Lookup joined with another drafter: who drafts for whom, what the other is given, and what is learned of matches.
// That it is exact is tests/property/exact_drafters.
#include <sureleap/drafter/with_lookup.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/catch.hpp"
#include "support/drafted.hpp"
#include "support/error_text.hpp"
#include "support/small_world.hpp"

using namespace sureleap;
using namespace small_world;
using support::error_text;
using tokens = std::vector<token_id>;

namespace {

constexpr std::size_t V = 5;
constexpr std::size_t block = 3;  // gamma

/// A semi-autoregressive drafter that counts its forward passes and the requests that they drafted for.
struct counted : decltype(semi_of(std::declval<world const&>())) {
    using base = decltype(semi_of(std::declval<world const&>()));
    explicit counted(world const& w) : base(semi_of(w)) {}
    [[nodiscard]] auto forward(std::span<request_view const> requests) {
        ++passes;
        asked.clear();
        for (auto const& r : requests) asked.push_back(r.draft_cap(block));
        return base::forward(requests);
    }
    void commit(std::span<verdict const>) noexcept {
        ++commits;
    }
    std::size_t passes = 0;
    std::size_t commits = 0;
    std::vector<std::size_t> asked;
};

struct requests {
    std::vector<tokens> contexts;
    request_settings settings{};
    std::vector<request_view> views{};

    explicit requests(std::vector<tokens> of, std::size_t remaining = 10) : contexts(std::move(of)) {
        for (std::size_t r = 0; r < contexts.size(); ++r) {
            views.push_back({.id = 7 + r,
                             .slot = r,
                             .anchor = contexts[r].back(),
                             .position = contexts[r].size() - 1,
                             .context = contexts[r],
                             .seed = 3 + r,
                             .remaining = remaining,
                             .settings = &settings});
        }
    }
    [[nodiscard]] verdict outcome(std::size_t r, std::size_t verified, std::size_t accepted,
                                  status how = status::ok) const {
        return {.id = views[r].id,
                .slot = r,
                .outcome = how,
                .drafted = verified,
                .verified = verified,
                .accepted = accepted};
    }
};

tokens drawn(draft_block<double> const& from, std::size_t r) {
    return {from.tokens(r).begin(), from.tokens(r).end()};
}

}  // namespace

TEST_CASE("with_lookup: lookup drafts where it finds something, the other drafter elsewhere as if alone") {
    world const w{1, V, block};
    requests const round({{0, 1, 2, 3, 0, 1}, {4, 2, 3}, {2, 2, 2}});
    with_lookup joined{counted(w), {.longest = 3, .shortest = 2}};
    static_assert(drafter<decltype(joined)>);
    static_assert(joined.has_confidence && joined.plans_at_anchor && !joined.is_deterministic && joined.is_parallel);
    auto const both = support::draft<double>(joined, token_rejection<>{}, round.views);
    CHECK(drawn(both.block, 0) == tokens{2, 3, 0});
    CHECK(drawn(both.block, 2) == tokens{2});  // what followed the match ends with the context
    CHECK(joined.other().asked == std::vector<std::size_t>{0, block, 0});
    for (auto const& q : both.block.laws(0)) CHECK(q.is_one_hot());

    auto alone = semi_of(w);
    auto const other = support::draft<double>(alone, token_rejection<>{}, round.views);
    REQUIRE(drawn(both.block, 1) == drawn(other.block, 1));
    for (std::size_t k = 0; k < block; ++k) {
        for (token_id x = 0; x < static_cast<token_id>(V); ++x) {
            CHECK(both.block.laws(1)[k].probability(x) == other.block.laws(1)[k].probability(x));
        }
    }
    auto const confidence = [](auto const& d, std::size_t r, std::size_t k) {
        auto const table = d.block.table().survivals;
        return table.confidence[r * table.block_size + k];
    };
    for (std::size_t k = 0; k < block; ++k) CHECK(confidence(both, 1, k) == confidence(other, 1, k));
    double const unseen[] = {0.55, 0.8, 0.8};  // of matches of two tokens and more, where three count as the longest
    for (std::size_t k = 0; k < block; ++k) {
        CHECK(std::abs(static_cast<double>(confidence(both, 0, k)) / certain - unseen[k]) < 1e-6);
    }
}

TEST_CASE("with_lookup: the other drafter is not asked if lookup drafts for all") {
    world const w{1, V, block};
    requests const round({{0, 1, 0, 1}, {2, 3, 2, 3}});
    with_lookup joined{counted(w)};
    auto const d = support::draft<double>(joined, token_rejection<>{}, round.views);
    CHECK(joined.other().passes == 0);
    CHECK(d.block.size(0) == 2);
    CHECK(d.block.size(1) == 2);
}

TEST_CASE("with_lookup: caps hold for both, and a found block may be longer than the other drafter's") {
    world const w{1, V, block};
    tokens const long_match{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1};
    with_lookup longer{semi_of(w), {.block_size = 6, .longest = 4, .shortest = 2}};
    CHECK(longer.block_size() == 6);
    requests const wide({long_match, {4, 3}});
    auto const d = support::draft<double>(longer, token_rejection<>{}, wide.views);
    CHECK(drawn(d.block, 0) == tokens{2, 3, 4, 0, 1});
    CHECK(d.block.size(1) == block);
    requests const narrow({long_match, {4, 3}}, 2);
    auto const short_one = support::draft<double>(longer, token_rejection<>{}, narrow.views);
    CHECK(short_one.block.size(0) == 1);
    CHECK(short_one.block.size(1) == 1);
}

TEST_CASE("with_lookup: a limit of the model's drafts is none of what is found, an engine's is one of both") {
    world const w{1, V, block};
    requests round({{0, 1, 2, 3, 0, 1}, {4, 2, 3}});
    with_lookup joined{counted(w)};
    for (request_view& r : round.views) r.model_limit = 0;
    auto const d = support::draft<double>(joined, token_rejection<>{}, round.views);
    CHECK(drawn(d.block, 0) == tokens{2, 3, 0});
    CHECK(d.block.size(1) == 0);
    CHECK(joined.other().passes == 0);
    CHECK(d.block.found()[0]);
    CHECK_FALSE(d.block.found()[1]);
    CHECK(d.block.load().drafting == 0);
    round.views[0].draft_limit = 1;
    CHECK(support::draft<double>(joined, token_rejection<>{}, round.views).block.size(0) == 1);
    round.views[0].draft_limit = 0;
    CHECK(support::draft<double>(joined, token_rejection<>{}, round.views).block.size(0) == 0);
    round.views[0].draft_limit = block;
    round.views[1].model_limit = 2;
    auto const both = support::draft<double>(joined, token_rejection<>{}, round.views);
    CHECK(both.block.size(0) == block);
    CHECK(both.block.size(1) == 2);
    // Lookup alone has no confidences that a schedule could price: what limits a model limits it.
    lookup alone({.block_size = block, .target_vocabulary = V});
    auto const by_lookup = support::draft<float>(alone, token_rejection<>{}, round.views);
    CHECK(by_lookup.block.size(0) == 0);
    CHECK(by_lookup.block.size(1) == 0);
}

TEST_CASE("with_lookup: rounds in which only found tokens may be drafted, and their records") {
    /// Lets the model draft in every third round only.
    struct limiting : fixed_schedule {
        explicit limiting(std::size_t* counter) : rounds(counter) {}
        std::size_t* rounds;
        void limit_drafts(std::span<request_view> requests) {
            for (request_view& r : requests) r.model_limit = *rounds % 3 == 0 ? block : 0;
            ++*rounds;
        }
    };
    world const w{1, V, block};
    auto target = target_of(w);
    std::size_t rounds = 0;
    decoder dec{target, with_lookup{counted(w), {.longest = 3, .shortest = 2}}, limiting(&rounds), target_match<>{},
                decoder_options{.seed = 11}};
    static_cast<void>(dec.submit(tokens{0, 1, 2, 0, 1}, {.max_new_tokens = 60}));
    std::size_t found = 0;
    std::size_t drafted = 0;
    while (dec.step()) {
        auto const& round = dec.round();
        bool const model_may = rounds % 3 == 1;
        bool const any = round.verdicts[0].drafted > 0;
        CHECK(round.tells_of_model(0) == !round.found[0]);
        if (round.found[0]) {
            ++found;
            CHECK(any);
            CHECK(round.load.drafting == 0);
            CHECK(round.load.draft_tokens == 0);
        } else if (any) {
            ++drafted;
            CHECK(model_may);
            CHECK(round.load.drafting == 1);
        }
    }
    CHECK(found > 0);
    CHECK(drafted > 0);
}

TEST_CASE("with_lookup: a round that failed is run again as it was, by the limits of both") {
    /// Limits the model as it is told.
    struct limiting : fixed_schedule {
        explicit limiting(std::size_t const* told) : limit(told) {}
        std::size_t const* limit;
        void limit_drafts(std::span<request_view> requests) const {
            for (request_view& r : requests) r.model_limit = *limit;
        }
    };
    world const w{1, V, block};
    requests round({{0, 1, 2, 3, 0, 1}, {4, 2, 3}});
    with_lookup joined{counted(w)};
    token_rejection<> const rule{};
    philox_randomness rng;
    std::size_t limit = 0;
    limiting schedule(&limit);
    round_memory<float, double> memory(joined, schedule, rule, {.max_requests = 2});
    auto const sizes = [&] {
        REQUIRE(begin_round(schedule, round.views, memory));
        auto const forward = joined.forward(memory.requests());
        draw(joined, forward, rule, rng, memory);
        return std::array{memory.block().size(0), memory.block().size(1)};
    };
    CHECK(sizes() == std::array<std::size_t, 2>{3, 0});
    limit = block;  // before admission limits are repeated, behind it lengths
    CHECK(sizes() == std::array<std::size_t, 2>{3, 0});
    CHECK(admit(schedule, memory).rows() == 2 + 3);
    CHECK(sizes() == std::array<std::size_t, 2>{3, 0});
    CHECK(admit(schedule, memory).rows() == 2 + 3);
    memory.join(0);
    memory.join(1);
    CHECK(sizes() == std::array<std::size_t, 2>{3, block});
}

TEST_CASE("with_lookup: a round counts on the model for no more than its own block") {
    world const w{1, V, block};
    requests const round({{0, 1, 2, 3, 0, 1}, {4, 2, 3}});
    with_lookup longer{counted(w), {.block_size = 6}};
    STATIC_REQUIRE(finds_tokens_v<decltype(longer)>);
    STATIC_REQUIRE_FALSE(finds_tokens_v<counted>);
    fixed_schedule schedule;
    round_memory<float, double> memory(longer, schedule, token_rejection<>{}, {.max_requests = 2});
    REQUIRE(begin_round(schedule, round.views, memory));
    for (request_view const& r : memory.requests()) {
        CHECK(r.found_cap(6) == 6);
        CHECK(r.draft_cap(6) == block);
    }
    CHECK(memory.block().load().draft_tokens == 2 * block);
}

TEST_CASE("with_lookup: learns how matches of a length fare from what was verified and reached") {
    world const w{1, V, block};
    requests const round({{0, 1, 2, 3, 0, 1}, {4, 2, 3}});
    with_lookup joined{
        counted(w),
        {.longest = 4, .shortest = 2, .acceptance = {.assumed = 0.5, .assumed_longest = 0.5, .assumed_weight = 2}}};
    auto const fared = [&](std::size_t length) { return joined.acceptance()(length); };
    auto const run = [&](std::vector<verdict> const& verdicts) {
        auto const d = support::draft<double>(joined, token_rejection<>{}, round.views);
        d.commit(joined, verdicts);
    };
    // A match of 2 tokens: its positions count as matches of 2, 3 and 4.
    run({round.outcome(0, 3, 1), round.outcome(1, 3, 3)});
    CHECK(std::abs(fared(2) - 2.0 / 3) < 1e-12);
    CHECK(std::abs(fared(3) - 1.0 / 3) < 1e-12);
    CHECK(fared(4) == 0.5);  // not reached
    run({round.outcome(0, 1, 1), round.outcome(1, 3, 3)});
    CHECK(std::abs(fared(3) - 1.0 / 3) < 1e-12);  // not verified
    double const before = fared(2);
    run({round.outcome(0, 3, 3, status::invalid_target), round.outcome(1, 0, 0)});  // says nothing
    CHECK(fared(2) == before);
    CHECK(joined.other().commits == 3);
    // A round in which nobody drafted has no forward: what it found the round before must not count again.
    auto d = support::draft<double>(joined, token_rejection<>{}, round.views);
    d.block.begin(round.views);
    d.commit(joined, std::vector{round.outcome(0, 3, 3)});
    CHECK(fared(2) == before);
    // What was learned is what the next block is recorded with, and planned with.
    d = support::draft<double>(joined, token_rejection<>{}, round.views);
    fixed_probability c = 0;
    REQUIRE(quantise(fared(2), c));
    auto const table = d.block.table().survivals;
    CHECK(table.confidence[0] == c);
    auto const forward = joined.forward(round.views);
    d.planning.start(round.views);
    d.plan(joined, forward);
    for (std::size_t k = 0; k < block; ++k) CHECK(d.planning.confidence[k] == table.confidence[k]);
    CHECK(d.planning.sizes[1] == block);
}

TEST_CASE("with_lookup: the first token that was not verified teaches by what the target drew in its place") {
    world const w{1, V, block};
    requests const round({{0, 1, 2, 3, 0, 1}, {4, 2, 3}});  // 2 3 0 1 is found behind a match of 2
    with_lookup joined{
        counted(w),
        {.longest = 4, .shortest = 2, .acceptance = {.assumed = 0.5, .assumed_longest = 0.5, .assumed_weight = 2}}};
    auto const fared = [&](std::size_t length) { return joined.acceptance()(length); };
    auto const run = [&](std::size_t verified, std::size_t accepted, std::vector<token_id> const& emitted) {
        auto const d = support::draft<double>(joined, token_rejection<>{}, round.views);
        verdict mine = round.outcome(0, verified, accepted);
        mine.emitted = emitted;
        d.commit(joined, std::vector{mine, round.outcome(1, 0, 0)});
    };
    run(0, 0, {2});
    CHECK(std::abs(fared(2) - 2.0 / 3) < 1e-3);
    run(0, 0, {4});
    CHECK(std::abs(fared(2) - 2.0 / 4) < 1e-3);
    CHECK(fared(3) == 0.5);
    run(1, 1, {2, 3});  // one was accepted, the next was drawn as it was found
    CHECK(std::abs(fared(2) - 3.0 / 5) < 1e-3);
    CHECK(std::abs(fared(3) - 2.0 / 3) < 1e-3);
    run(2, 1, {2, 4});  // a rejection tells of itself, and of nothing behind it
    CHECK(std::abs(fared(3) - 2.0 / 4) < 1e-3);
    CHECK(fared(4) == 0.5);
    double const before = fared(2);
    run(0, 0, {});                                            // nothing was emitted
    run(1, 1, {2});                                           // a stop token
    CHECK(std::abs(fared(2) - (before * 6 + 1) / 7) < 1e-3);  // older observations have faded a little
    CHECK(std::abs(fared(3) - 2.0 / 4) < 1e-3);
}

TEST_CASE("match_acceptance: old observations fade, and lengths beyond the longest count as it") {
    match_acceptance seen(2, {.assumed = 0.25, .assumed_longest = 0.25, .assumed_weight = 1e-9, .memory = 10});
    CHECK(seen(1) == 0.25);
    for (int i = 0; i < 1000; ++i) seen.observe(9, false);
    CHECK(seen(2) < 1e-9);
    for (int i = 0; i < 10; ++i) seen.observe(2, true);
    CHECK(seen(5) > 0.6);
    CHECK(seen(5) < 0.7);  // 1 - (1 - 1/10)^10
    CHECK(seen(1) == 0.25);

    match_acceptance const unseen(5);
    CHECK(unseen(1) == 0.3);
    CHECK(std::abs(unseen(3) - 0.55) < 1e-12);
    CHECK(unseen(9) == 0.8);
    CHECK(match_acceptance(1)(1) == 0.8);
}

TEST_CASE("with_lookup: a lent calibration neither maps found tokens nor learns from them") {
    world const w{1, V, block};
    auto target = target_of(w);
    online_calibration calibration(block);
    decoder dec{target, with_lookup{semi_of(w), {.longest = 3, .shortest = 1}}, fixed_schedule{}, target_match<>{},
                decoder_options{.seed = 5, .calibration = calibration}};
    static_cast<void>(dec.submit(tokens{0, 1, 0, 1}, {.max_new_tokens = 40}));
    std::size_t found = 0;
    std::size_t mapped = 0;
    while (dec.step()) {
        auto const& round = dec.round();
        for (std::size_t k = 0; k < round.verdicts[0].drafted; ++k) {
            (std::isnan(round.raw_confidence(0, k)) ? found : mapped) += 1;
        }
        calibration.observe(round);
    }
    CHECK(found > 0);
    CHECK(mapped + found > 0);
    CHECK(std::isfinite(calibration.shared()(0, 0.5)));
}

TEST_CASE("with_lookup: settings that make no sense are refused") {
    world const w{1, V, block};
    auto const refused = [&](with_lookup_options const& options) {
        return error_text([&] { static_cast<void>(with_lookup{semi_of(w), options}); });
    };
    CHECK(refused({.longest = 2, .shortest = 3}) == "lookup: shortest is 3, expected 1 .. longest = 2");
    CHECK(refused({.acceptance = {.assumed = 1.0}}) ==
          "match_acceptance_settings: assumed is 1, expected a number in (0, 1)");
    CHECK(refused({.acceptance = {.assumed_longest = 0.0}}) ==
          "match_acceptance_settings: assumed_longest is 0, expected a number in (0, 1)");
    CHECK(refused({.acceptance = {.assumed_weight = 0.0}}) ==
          "match_acceptance_settings: assumed_weight is 0, expected a number above 0");
    CHECK(refused({.acceptance = {.memory = 0.5}}) == "match_acceptance_settings: memory is 0.5, expected at least 1");
    CHECK(error_text([] { static_cast<void>(match_acceptance(0)); }) ==
          "match_acceptance: longest is 0, expected at least 1 token");
}
