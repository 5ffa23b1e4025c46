// SPDX-License-Identifier: MIT
//
// Without a cost table nothing is drafted beyond the length the user fixed. That holds in a decoder and in an engine's
// own loop, for every kind of schedule. With a cost table the schedule is used as it is.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/confidence/estimate.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/fit/cost_table.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/schedule/when_priced.hpp>
#include <sureleap/verify/coupled.hpp>

#include "support/dice.hpp"
#include "support/hash_models.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;

namespace {

using tokens = std::vector<token_id>;

constexpr std::size_t vocabulary = 8;
constexpr std::size_t block = 4;
additive_cost const nearly_free({.fixed = 1.0, .batch_token = 1e-9});

using greedy = greedy_schedule<additive_cost>;
using planned = planned_schedule<additive_cost>;
using lagged = top_k_schedule<additive_cost, 1>;
using hindsight = retrospective_schedule<additive_cost>;

static_assert(frontier_scheduler<when_priced<greedy>> && !planner<when_priced<greedy>>);
static_assert(planner<when_priced<planned>> && !frontier_scheduler<when_priced<planned>>);
static_assert(planner<when_priced<lagged>> && std::is_same_v<when_priced<lagged>::origin, from_rounds<1>>);
static_assert(table_scheduler<when_priced<hindsight>> && !table_scheduler<when_priced<greedy>>);
static_assert(draft_limiter<when_priced<greedy>> && !draft_stopper<when_priced<greedy>>);
static_assert(!round_observer<when_priced<greedy>>);
static_assert(causality_of_v<when_priced<greedy>> == causality::non_anticipating);
static_assert(causality_of_v<when_priced<planned>> == causality::non_anticipating);
static_assert(causality_of_v<when_priced<hindsight>> == causality::anticipating);
static_assert(needs_confidence_v<when_priced<greedy>> && !needs_confidence_v<when_priced<fixed_schedule>>);

/// Everything a schedule may be asked to do besides admitting.
struct talkative : fixed_schedule {
    std::size_t* rounds = nullptr;
    void limit_drafts(std::span<request_view> requests) const noexcept {
        for (request_view& r : requests) r.draft_limit = 3;
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept { return 7; }
    void observe(round_record const&) const noexcept { ++*rounds; }
};
static_assert(draft_stopper<when_priced<talkative>> && round_observer<when_priced<talkative>>);

/// A backbone whose rows depend on the context, and that counts its calls.
struct counting_backbone {
    std::size_t* calls;
    std::vector<float> logits{};

    block_forward<float> forward(std::span<request_view const> requests) {
        ++*calls;
        logits.resize(requests.size() * block * vocabulary);
        for (std::size_t i = 0; i < requests.size() * block; ++i) {
            auto const anchor = static_cast<std::uint32_t>(requests[i / block].anchor);
            for (std::size_t v = 0; v < vocabulary; ++v) {
                logits[i * vocabulary + v] =
                    static_cast<float>(2.0 * support::hashed(4, anchor, static_cast<std::uint32_t>(i % block), 0,
                                                             static_cast<std::uint32_t>(v)));
            }
        }
        return {{}, {{logits.data(), requests.size() * block, vocabulary}, {}}};
    }
};

struct served {
    std::size_t calls = 0;  ///< of the drafter
    std::size_t rounds = 0;
    std::size_t drafted = 0;   ///< most of a request in a round
    std::size_t verified = 0;  ///< likewise
    tokens output{};
};

/// Three requests to their ends.
template <class Schedule>
served serve(Schedule schedule) {
    served s;
    auto target = support::hash_model<float>(vocabulary, {});
    decoder dec{
        target,
        parallel{counting_backbone{&s.calls}, top1_confidence{}, {.block_size = block, .vocabulary = vocabulary}},
        std::move(schedule),
        keyed_coupling{},
        {.max_requests = 3, .seed = 1}};
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
        dec.submit(tokens{1, static_cast<token_id>(seed)}, {.seed = seed, .max_new_tokens = 30});
    }
    while (dec.step()) {
        ++s.rounds;
        for (verdict const& v : dec.round().verdicts) {
            s.drafted = std::max(s.drafted, v.drafted);
            s.verified = std::max(s.verified, v.verified);
        }
        for (request_event const& e : dec.events()) s.output.insert(s.output.end(), e.tokens.begin(), e.tokens.end());
    }
    return s;
}

template <class Schedule>
void check_fallback() {
    served const without = serve(when_priced<Schedule>(std::nullopt));
    CHECK(without.calls == 0);  // the drafter was never run
    CHECK(without.rounds == 30);
    CHECK(without.verified == 0);
    served const two = serve(when_priced<Schedule>(std::nullopt, 2));
    CHECK(two.calls > 0);
    CHECK(two.drafted == 2);
    CHECK(two.verified == 2);
    served const priced = serve(when_priced<Schedule>(Schedule(nearly_free), 2));
    CHECK(priced.drafted == block);
    CHECK(priced.verified > 2);
    CHECK(priced.output.size() == two.output.size());
    served const itself = serve(Schedule(nearly_free));
    CHECK(priced.output == itself.output);
    CHECK(priced.rounds == itself.rounds);
}

}  // namespace

TEST_CASE("when priced: without a table nothing beyond the fixed length is drafted or verified") {
    SECTION("greedy") {
        check_fallback<greedy>();
    }
    SECTION("planned") {
        check_fallback<planned>();
    }
    SECTION("lagged") {
        check_fallback<lagged>();
    }
    SECTION("retrospective") {
        check_fallback<hindsight>();
    }
}

TEST_CASE("when priced: the fallback limits batches as well, of an engine that drafts as it likes") {
    support::dice roll(41);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 100; ++trial) {
        std::size_t const requests = 1 + roll.below(20);
        std::size_t const gamma = 1 + roll.below(6);
        std::size_t const length = roll.below(4);
        auto const owned = support::random_table(roll, requests, gamma, 5);
        std::vector<std::uint32_t> expected;
        std::size_t sum = 0;
        for (std::uint32_t const size : owned.sizes) {
            expected.push_back(static_cast<std::uint32_t>(std::min<std::size_t>(size, length)));
            sum += expected.back();
        }
        support::admission_memory memory(requests);
        causal_frontier frontier{owned.view(), memory.view()};
        when_priced<greedy>(std::nullopt, length).admit(frontier);
        CHECK(memory.lengths == expected);
        when_priced<hindsight>(std::nullopt, length).admit(draft_table{owned.view(), {}, {}}, memory.view());
        CHECK(memory.lengths == expected);
        auto const table = detail::planning_access::make<from_anchor>(owned.view(), memory.view());
        CHECK(when_priced<planned>(std::nullopt, length).budget(table) == sum);
    }
}

TEST_CASE("when priced: says why nothing is") {
    when_priced const priced{std::optional(greedy(nearly_free)), 3, "unused"};
    CHECK(priced.priced());
    CHECK(priced.reason().empty());
    CHECK(priced.schedule()->capacity().prices() == nearly_free.prices());
    when_priced<greedy> const refused(std::nullopt, 3, "cost.json: foreign");
    CHECK_FALSE(refused.priced());
    CHECK(refused.reason() == "cost.json: foreign");
    CHECK(refused.fixed_length() == 3);
    CHECK(when_priced<greedy>(std::nullopt).reason() == "no cost table was given");
    CHECK(when_priced<lagged>(lagged(nearly_free, 0.25)).prior() == 0.25);
    CHECK(when_priced<lagged>(std::nullopt).prior() == 1.0);
}

TEST_CASE("when priced: passes on what the schedule does before and after a round") {
    std::size_t rounds = 0;
    served const s = serve(when_priced<talkative>(talkative{fixed_schedule{}, &rounds}));
    CHECK(s.drafted == 3);
    CHECK(rounds == s.rounds);
    CHECK(when_priced<talkative>(talkative{fixed_schedule{}, &rounds}).draft_floor() == 7);
    CHECK(when_priced<talkative>(std::nullopt).draft_floor() == 0);
    rounds = 0;
    CHECK(serve(when_priced<talkative>(std::nullopt)).calls == 0);
    CHECK(rounds == 0);
}

TEST_CASE("when priced: a request's own smaller limit stays") {
    request_settings const settings{};
    std::vector<request_view> views{{.remaining = 9, .settings = &settings, .draft_limit = 1},
                                    {.remaining = 9, .settings = &settings}};
    when_priced<greedy>(std::nullopt, 2).limit_drafts(views);
    CHECK(views[0].draft_limit == 1);
    CHECK(views[1].draft_limit == 2);
    views[1].draft_limit = 5;
    when_priced<greedy>(greedy(nearly_free), 2).limit_drafts(views);
    CHECK(views[1].draft_limit == 5);
}
