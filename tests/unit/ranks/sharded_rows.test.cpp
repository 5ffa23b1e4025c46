// SPDX-License-Identifier: MIT
//
// Verification over slices of the vocabulary: the tokens are the same for any number of ranks and any slices, for all
// rules, storage types, kinds of q and edits. Where a rule follows the target's own token they are those of whole rows.
// That the law is the target's is tests/property/exact_ranks.test.cpp.
//
// Meant for the thread sanitizer too. Ten seconds.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/verify/any.hpp>

#include "support/common.hpp"
#include "support/counted_ranks.hpp"
#include "support/engine_scene.hpp"
#include "support/error_text.hpp"
#include "support/executors.hpp"
#include "support/on_ranks.hpp"
#include "support/sliced_calls.hpp"

using namespace sureleap;
using namespace support;

namespace {

/// What all ranks emit, which must be the same on each, and the exchanges that it took.
struct sharded_run {
    sliced_outputs out;
    std::size_t exchanges = 0;
    std::size_t differing = 0;
};
template <class T, class Edits, class Laid>
sharded_run run(Laid const& whole, engine_shape const& shape, any_rule const& rule, vocabulary_slices const& slices) {
    std::size_t const P = slices.ranks();
    std::size_t const R = whole.call.requests;
    std::vector<sliced_outputs> outputs(P, sliced_outputs(R, shape.block_size));
    std::vector<std::size_t> exchanges(P);
    thread_ranks threads{P, {.most_bytes = 1 << 18, .seconds = 30.0}};
    on_ranks(P, [&](std::size_t rank) {
        counted_ranks<thread_ranks::rank_type> ranks{threads.of(rank)};
        test_executor workers(task_order::at_once, rank % 2 + 1);
        row_shards<T, decltype(ranks), float, Edits> shards{
            ranks, slices, {.max_requests = R, .block_size = shape.block_size, .executor = workers}};
        auto options = sliced_options(shape, R, slices, rank);
        options.drafts.trees = static_cast<bool>(whole.call.parents);
        verifier<T, any_rule, Edits> verify{rule, options};
        sliced_call<T> own{whole, shape, slices, rank};
        own.call.out = outputs[rank].arrays();
        static_cast<void>(verify(own.call, shards));
        exchanges[rank] = ranks.exchanges;
    });
    auto const differs = [&](sliced_outputs const& o) { return !(o == outputs[0]); };
    auto const differing = static_cast<std::size_t>(std::ranges::count_if(outputs, differs));
    return {outputs[0], *std::ranges::max_element(exchanges), differing};
}
template <class T, class Edits, class Laid>
sliced_outputs run_whole(Laid const& whole, engine_shape const& shape, any_rule const& rule) {
    std::size_t const R = whole.call.requests;
    sliced_outputs out(R, shape.block_size);
    auto options = sliced_options(shape, R, vocabulary_slices::even(shape.vocabulary, 1), 0);
    options.drafts.slice = {};
    options.drafts.trees = static_cast<bool>(whole.call.parents);
    verifier<T, any_rule, Edits> verify{rule, options};
    auto call = whole.call;
    call.out = out.arrays();
    static_cast<void>(verify(call));
    return out;
}

/// Trees, as an engine hands them over: siblings are distinct tokens, each node has the row of q behind its parent.
struct tree_call {
    std::vector<float> p, q;
    std::vector<std::int32_t> drafts, parents;
    std::vector<std::int64_t> seeds, positions;
    std::vector<float> temperatures;
    engine_arrays<float> call;

    /// A star has all tokens behind the anchor, where the target has little of them.
    tree_call(dice& roll, engine_shape const& shape, std::size_t requests, bool is_star) {
        std::size_t const V = shape.vocabulary;
        std::size_t const gamma = shape.block_size;
        p = random_values<float>(roll, requests * (gamma + 1) * V, 1.5);
        q.resize(requests * gamma * V);
        for (std::size_t r = 0; r < requests; ++r) {
            auto const behind = random_values<float>(roll, (gamma + 1) * V, 1.0);
            for (std::size_t i = 0; i < gamma; ++i) {
                auto const n = is_star || roll.chance(0.4) ? 0 : roll.below(i + 1);
                std::size_t x = 0;
                auto const is_taken = [&](std::size_t v) {
                    for (std::size_t k = 0; k < i; ++k) {
                        std::size_t const at = r * gamma + k;
                        if (parents[at] == static_cast<std::int32_t>(n) && drafts[at] == static_cast<std::int32_t>(v))
                            return true;
                    }
                    return false;
                };
                do x = roll.below(V);
                while (is_taken(x));
                parents.push_back(static_cast<std::int32_t>(n));
                drafts.push_back(static_cast<std::int32_t>(x));
                p[(r * (gamma + 1) + n) * V + x] += is_star ? -3.0f : 3.0f;
                for (std::size_t v = 0; v < V; ++v) {
                    bool const child = v == x || is_taken(v);
                    q[(r * gamma + i) * V + v] = behind[n * V + v] + (child ? 2.0f : 0.0f);
                }
            }
            // Of one parent all rows of q are the eldest's.
            for (std::size_t i = 0; i < gamma; ++i) {
                for (std::size_t k = i + 1; k < gamma; ++k) {
                    if (parents[r * gamma + k] != parents[r * gamma + i]) continue;
                    std::copy_n(q.begin() + static_cast<std::ptrdiff_t>((r * gamma + i) * V), V,
                                q.begin() + static_cast<std::ptrdiff_t>((r * gamma + k) * V));
                }
            }
            seeds.push_back(static_cast<std::int64_t>(roll.bits() >> 2));
            positions.push_back(static_cast<std::int64_t>(roll.below(1000)));
            temperatures.push_back(shape.greedy || roll.chance(0.2) ? 0.0f : 0.875f);
        }
        call = {.requests = requests,
                .target = {p.data(), requests * (gamma + 1), V},
                .drafts = drafts.data(),
                .draft_stride = gamma,
                .parents = parents.data(),
                .q = {.rows = q.data(), .slot_stride = gamma * V, .row_stride = V},
                .positions = positions.data(),
                .settings = {.temperature = temperatures.data(), .seeds = seeds.data()}};
    }
};

struct totals_of_test {
    std::size_t accepted = 0;
    std::size_t emitted = 0;
};
template <class T, class Edits>
void check_slices(std::uint64_t seed, any_rule const& rule, engine_shape const& shape, bool pathwise,
                  totals_of_test& totals) {
    dice roll(seed);
    INFO("seed " << seed);
    std::size_t const R = 1 + roll.below(4);
    std::vector<plain_request<T>> requests;
    for (std::size_t r = 0; r < R; ++r) requests.push_back(random_request<T>(roll, shape));
    laid_out<T, std::vector> const whole(roll, shape, requests);
    std::size_t const part = 8;
    auto const alone = run<T, Edits>(whole, shape, rule, vocabulary_slices::even(shape.vocabulary, 1, part));
    for (std::size_t const P : {2u, 3u, 4u, 8u}) {
        INFO("ranks " << P);
        bool const even = roll.chance(0.5);
        auto const slices =
            even ? vocabulary_slices::even(shape.vocabulary, P, part) : uneven_slices(roll, shape.vocabulary, P, part);
        auto const together = run<T, Edits>(whole, shape, rule, slices);
        CHECK(together.differing == 0);
        CHECK((together.out == alone.out));
        // Lists of several ranks' best tokens hold more cuts than one list.
        if (!shape.truncates) CHECK(together.exchanges == alone.exchanges);
        CHECK(together.exchanges <= 11);
    }
    if (pathwise) CHECK((run_whole<T, Edits>(whole, shape, rule) == alone.out));
    for (std::size_t r = 0; r < R; ++r) {
        totals.accepted += static_cast<std::size_t>(alone.out.accepted[r]);
        totals.emitted += static_cast<std::size_t>(alone.out.counts[r]);
    }
}
template <class T>
void check_slices(std::uint64_t seed, any_rule const& rule, engine_shape const& shape, bool pathwise,
                  totals_of_test& totals) {
    if (shape.edits) return check_slices<T, array_edits>(seed, rule, shape, pathwise, totals);
    check_slices<T, no_logits_hook>(seed, rule, shape, pathwise, totals);
}

}  // namespace

TEST_CASE("slices: any ranks emit the same tokens, by all rules, from all kinds of rows", "[ranks]") {
    any_rule const rules[]{token_rejection<>{}, block_verification<>{}, target_match<>{}, keyed_coupling{},
                           greedy_match{}};
    totals_of_test totals;
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        engine_shape shape{.q = static_cast<q_kind>(seed / 5 % 5),
                           .edits = seed % 2 == 1,
                           .greedy = seed % 5 == 4,
                           .truncates = seed % 4 != 0};
        shape.vocabulary = seed % 7 == 0 ? 300 : 61;
        bool const pathwise = seed % 5 >= 2;
        any_rule const& rule = rules[seed % 5];
        if (seed % 3 == 0) check_slices<float>(seed, rule, shape, pathwise, totals);
        if (seed % 3 == 1) check_slices<bf16>(seed, rule, shape, pathwise, totals);
        if (seed % 3 == 2) check_slices<half>(seed, rule, shape, pathwise, totals);
    }
    CHECK(totals.accepted > 100);
    CHECK(totals.emitted > totals.accepted);
}

TEST_CASE("slices: rows are cut where whole ones are, also among equal logits", "[ranks]") {
    struct truncation {
        std::int64_t top_k;
        float top_p;
        float min_p;
        std::size_t exchanges;  // at most: of a float row, and with whatever matching takes
    };
    truncation const truncations[]{{1, 1.0f, 0.0f, 2},    {20, 0.9f, 0.0f, 2},    {256, 0.5f, 0.25f, 2},
                                   {257, 1.0f, 0.0f, 7},  {400, 0.75f, 0.0f, 11}, {300, 0.99f, 0.001f, 11},
                                   {0, 0.6f, 0.0f, 7},    {0, 0.99999f, 0.0f, 7}, {0, 1.0f, 0.05f, 3},
                                   {0, 0.95f, 0.125f, 7}, {0, 0.01f, 0.0f, 7}};
    auto const check = [&]<class T>(T, std::uint64_t seed) {
        dice roll(seed);
        engine_shape const shape{.vocabulary = 700, .block_size = 2, .q = q_kind::found};
        truncation const& how = truncations[seed % std::size(truncations)];
        std::vector<plain_request<T>> requests;
        for (std::size_t r = 0; r < 3; ++r) {
            requests.push_back(random_request<T>(roll, shape));
            for (T& l : requests.back().p) l = T(std::round(load(l) * 2.0f) / 2.0f - (r == 1 ? 8.0f : 0.0f));
            if (r == 2) std::ranges::fill(requests.back().p, T(1.5f));
            requests.back().top_k = how.top_k;
            requests.back().top_p = how.top_p;
            requests.back().min_p = how.min_p;
            requests.back().temperature = 0.875f;
        }
        laid_out<T, std::vector> const whole(roll, shape, requests);
        any_rule const rules[]{target_match<>{}, keyed_coupling{}};
        for (std::size_t const i : {0u, 1u}) {
            auto const expected = run_whole<T, no_logits_hook>(whole, shape, rules[i]);
            for (std::size_t const P : {1u, 2u, 5u}) {
                INFO("seed " << seed << ", rule " << i << ", ranks " << P);
                auto const together =
                    run<T, no_logits_hook>(whole, shape, rules[i], uneven_slices(roll, shape.vocabulary, P, 64));
                CHECK(together.differing == 0);
                CHECK((together.out == expected));
                CHECK(together.exchanges <= how.exchanges);
            }
        }
    };
    for (std::uint64_t seed = 0; seed < 66; ++seed) {
        if (seed % 3 == 0) check(float{}, seed);
        if (seed % 3 == 1) check(bf16{}, seed);
        if (seed % 3 == 2) check(half{}, seed);
    }
}

TEMPLATE_TEST_CASE("slices: lists hold the cut of a row, and the next one is searched", "[ranks]", target_match<>,
                   keyed_coupling) {
    constexpr std::size_t V = 700;
    engine_shape const shape{.vocabulary = V, .block_size = 1, .q = q_kind::found};
    dice roll(4);
    std::size_t emitted = 0;
    for (std::int64_t seed = 0; seed < 40; ++seed) {
        INFO("seed " << seed);
        // Row 0 has one token, which was drafted; row 1 is nearly level.
        auto p = random_values<float>(roll, 2 * V, 0.25);
        auto const likely = static_cast<std::int32_t>(roll.below(V));
        p[static_cast<std::size_t>(likely)] = 30.0f;
        std::int64_t const position = 7;
        float const top_p = 0.6f;
        struct {
            engine_arrays<float> call;
            std::vector<float> q;
        } const whole{{.requests = 1,
                       .target = {p.data(), 2, V},
                       .drafts = &likely,
                       .draft_stride = 1,
                       .positions = &position,
                       .settings = {.top_p = &top_p, .seeds = &seed}},
                      {}};
        any_rule const rule = TestType{};
        auto const expected = run_whole<float, no_logits_hook>(whole, shape, rule);
        for (std::size_t const P : {1u, 2u, 4u}) {
            auto const together = run<float, no_logits_hook>(whole, shape, rule, vocabulary_slices::even(V, P, 64));
            CHECK((together.out == expected));
            CHECK(together.differing == 0);
        }
        emitted += static_cast<std::size_t>(expected.counts[0]);
    }
    CHECK(emitted == 80);
}

TEMPLATE_TEST_CASE("slices: near temperature 0 a row is what it is as a whole", "[ranks]", keyed_coupling,
                   target_match<>, token_rejection<>) {
    // Weights relative to some token of a part are then beyond any format: the drafted token's beside the first ones.
    constexpr std::size_t V = 700;
    engine_shape const shape{.vocabulary = V, .block_size = 1, .q = q_kind::found};
    dice roll(6);
    std::size_t accepted = 0;
    for (std::int64_t seed = 0; seed < 60; ++seed) {
        auto p = random_values<float>(roll, 2 * V, 8.0);
        std::size_t const likely = 70 + roll.below(V - 70);
        p[likely] = 40.0f;
        p[roll.below(V)] = 40.0f + static_cast<float>(roll.below(3)) - 1.0f;
        auto const drafted = static_cast<std::int32_t>(likely);
        std::int64_t const position = 7;
        float const temperatures[]{0.1f, 0.01f, 0.001f};
        float const temperature = temperatures[seed % 3];
        INFO("seed " << seed << ", temperature " << temperature);
        struct {
            engine_arrays<float> call;
            std::vector<float> q;
        } const whole{{.requests = 1,
                       .target = {p.data(), 2, V},
                       .drafts = &drafted,
                       .draft_stride = 1,
                       .positions = &position,
                       .settings = {.temperature = &temperature, .seeds = &seed}},
                      {}};
        any_rule const rule = TestType{};
        auto const expected = run_whole<float, no_logits_hook>(whole, shape, rule);
        CHECK(expected.statuses[0] == 0);
        for (std::size_t const P : {1u, 2u, 5u}) {
            auto const together = run<float, no_logits_hook>(whole, shape, rule, vocabulary_slices::even(V, P, 128));
            CHECK((together.out == expected));
        }
        accepted += static_cast<std::size_t>(expected.accepted[0]);
    }
    CHECK(accepted > 10);
}

TEST_CASE("slices: any ranks emit the same tokens of trees", "[ranks]") {
    any_rule const rules[]{recursive_rejection<>{},
                           traversal_verification<>{},
                           recursive_rejection<argmax_draft>{},
                           traversal_verification<argmax_draft>{},
                           target_match<>{},
                           keyed_coupling{},
                           greedy_match{}};
    std::size_t accepted = 0;
    for (std::uint64_t seed = 0; seed < 140; ++seed) {
        dice roll(seed);
        any_rule const& rule = rules[seed % 7];
        INFO("seed " << seed << ", rule " << seed % 7);
        engine_shape const shape{.vocabulary = 47, .block_size = 7, .greedy = seed % 7 == 6};
        tree_call const whole(roll, shape, 1 + roll.below(3), seed % 5 == 4);
        auto const alone = run<float, no_logits_hook>(whole, shape, rule, vocabulary_slices::even(47, 1, 8));
        for (std::size_t const P : {2u, 3u, 8u}) {
            INFO("ranks " << P);
            auto const together = run<float, no_logits_hook>(whole, shape, rule, uneven_slices(roll, 47, P, 8));
            CHECK(together.differing == 0);
            CHECK((together.out == alone.out));
            CHECK(together.exchanges == alone.exchanges);
        }
        if (seed % 7 >= 4) {
            CHECK((run_whole<float, no_logits_hook>(whole, shape, rule) == alone.out));
            CHECK(alone.exchanges <= 3);
        }
        for (std::int64_t const a : alone.out.accepted) accepted += static_cast<std::size_t>(a);
    }
    CHECK(accepted > 140);
}

namespace {

/// Two requests with two drafts each, of which everything is right.
struct small_call {
    static constexpr std::size_t V = 12;
    static constexpr std::size_t gamma = 2;
    std::vector<float> p = std::vector<float>(2 * (gamma + 1) * V, 0.0f);
    std::vector<float> q = std::vector<float>(2 * gamma * V, 0.0f);
    std::vector<std::int32_t> drafts{1, 2, 3, 9};
    std::vector<std::int64_t> seeds{5, 6}, positions{7, 8};
    std::vector<std::int32_t> words = std::vector<std::int32_t>(6, -1);
    engine_arrays<float> call{.requests = 2,
                              .target = {p.data(), 2 * (gamma + 1), V},
                              .drafts = drafts.data(),
                              .draft_stride = gamma,
                              .q = {.rows = q.data(), .slot_stride = gamma * V, .row_stride = V},
                              .positions = positions.data(),
                              .settings = {.seeds = seeds.data()}};
};
engine_shape const small_shape{.vocabulary = small_call::V, .block_size = small_call::gamma};
vocabulary_slices const small_slices = vocabulary_slices::even(small_call::V, 3, 4);
constexpr auto lost = static_cast<std::uint8_t>(status::ranks_lost);
constexpr auto differ = static_cast<std::uint8_t>(status::ranks_differ);
constexpr auto good = static_cast<std::uint8_t>(status::ok);

/// What each of three ranks ends with. change(rank, call) makes one's own call another one's; between(rank) comes
/// before the second of two calls, whose outcome counts.
template <class Rule, class Change, class Between>
std::vector<std::vector<std::uint8_t>> statuses_of(Rule const& rule, Change const& change, Between const& between) {
    std::vector<std::vector<std::uint8_t>> all(3);
    thread_ranks threads{3, {.seconds = 5.0}};
    on_ranks(3, [&](std::size_t rank) {
        small_call own;
        std::vector<float> const zero(2, 0.0f);
        if (std::is_same_v<Rule, greedy_match>) own.call.settings.temperature = zero.data();
        auto ranks = threads.of(rank);
        row_shards<float, decltype(ranks)> shards{
            ranks, small_slices, {.max_requests = 2, .block_size = small_call::gamma}};
        verifier<float, Rule> verify{rule, sliced_options(small_shape, 2, small_slices, rank)};
        for (bool const second : {false, true}) {
            if (second && !between(rank, threads)) return;
            if (second) change(rank, own);
            sliced_call<float> sliced{own, small_shape, small_slices, rank};
            sliced_outputs out(2, small_call::gamma);
            sliced.call.out = out.arrays();
            static_cast<void>(verify(sliced.call, shards));
            all[rank] = out.statuses;
        }
    });
    return all;
}
template <class Rule, class Change>
std::vector<std::vector<std::uint8_t>> statuses_of(Rule const& rule, Change const& change) {
    return statuses_of(rule, change, [](std::size_t, thread_ranks&) { return true; });
}
std::vector<std::vector<std::uint8_t>> on_all(std::uint8_t first, std::uint8_t second) {
    return std::vector<std::vector<std::uint8_t>>(3, {first, second});
}

}  // namespace

TEMPLATE_TEST_CASE("slices: a row without a law on one rank has none on all", "[ranks]", token_rejection<>,
                   block_verification<>, target_match<>, keyed_coupling, recursive_rejection<>) {
    constexpr auto invalid = static_cast<std::uint8_t>(status::invalid_target);
    float const nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(statuses_of(TestType{}, [](std::size_t, small_call&) {}) == on_all(good, good));
    CHECK(statuses_of(TestType{}, [&](std::size_t rank, small_call& c) {
              if (rank == 1) c.p[5] = nan;
          }) == on_all(invalid, good));
    CHECK(statuses_of(TestType{}, [&](std::size_t rank, small_call& c) {
              if (rank == 2) c.p[3 * small_call::V + 8] = std::numeric_limits<float>::infinity();
          }) == on_all(good, invalid));
    CHECK(statuses_of(TestType{}, [&](std::size_t, small_call& c) {
              std::fill_n(c.p.begin(), small_call::V, -std::numeric_limits<float>::infinity());
          }) == on_all(invalid, good));
}

TEMPLATE_TEST_CASE("slices: drafts end where q has not got the token, on all ranks", "[ranks]", token_rejection<>,
                   block_verification<>) {
    constexpr auto invalid = static_cast<std::uint8_t>(status::invalid_draft);
    CHECK(statuses_of(TestType{}, [](std::size_t rank, small_call& c) {
              if (rank == 0) c.q[1] = -std::numeric_limits<float>::infinity();
          }) == on_all(invalid, good));
    CHECK(statuses_of(TestType{}, [](std::size_t rank, small_call& c) {
              if (rank == 2) c.q[3 * small_call::V + 10] = std::numeric_limits<float>::quiet_NaN();
          }) == on_all(good, invalid));
    // What follows is not judged, though the target would have it.
    one_rank ranks;
    auto const all = vocabulary_slices::even(small_call::V, 1, 4);
    row_shards<float, one_rank> shards{ranks, all, {.max_requests = 2, .block_size = small_call::gamma}};
    verifier<float, TestType> verify{{}, sliced_options(small_shape, 2, all, 0)};
    small_call own;
    own.p[1] = own.p[small_call::V + 2] = own.p[3 * small_call::V + 3] = own.p[4 * small_call::V + 9] = 20.0f;
    own.q[1] = own.q[3 * small_call::V + 9] = -std::numeric_limits<float>::infinity();
    auto const verdicts = verify(own.call, shards);
    CHECK(verdicts[0].accepted == 0);
    CHECK(verdicts[0].emitted.size() == 1);
    CHECK(verdicts[0].verified == 0);
    CHECK(verdicts[1].accepted == 1);
}

TEMPLATE_TEST_CASE("slices: ranks that do not decide the same end the round with nothing emitted", "[ranks]",
                   token_rejection<>, target_match<>, keyed_coupling, greedy_match) {
    using change = void (*)(small_call&);
    change const changes[]{[](small_call& c) { c.seeds[1] = 77; }, [](small_call& c) { c.positions[0] = 70; },
                           [](small_call& c) { c.drafts[2] = 4; }};
    for (change const of_one : changes) {
        auto const ends = statuses_of(TestType{}, [&](std::size_t rank, small_call& c) {
            if (rank == 1) of_one(c);
        });
        CHECK(ends == on_all(differ, differ));
    }
    CHECK(statuses_of(
              TestType{}, [](std::size_t, small_call&) {},
              [](std::size_t rank, thread_ranks& ranks) {
                  if (rank == 1) ranks.leave();
                  return rank != 1;
              })[0] == std::vector<std::uint8_t>{lost, lost});
}

namespace {
struct fault_of_rank {
    static constexpr bool takes_slices = true;
    bool throws = false;
    template <class Real>
    void operator()(hook_context const& at, std::span<Real> row) const {
        if (throws && at.request.id == 1) throw std::runtime_error("no penalties here");
        if (at.first_token == 4) row[1] += Real{2};
    }
};
}  // namespace

TEST_CASE("slices: a hook that throws on one rank ends the round on the others, and they go on together", "[ranks]") {
    constexpr std::size_t V = small_call::V;
    std::vector<std::vector<status>> seen(3);
    std::vector<int> caught(3);
    thread_ranks threads{3, {.seconds = 20.0}};
    on_ranks(3, [&](std::size_t rank) {
        small_call own;
        auto ranks = threads.of(rank);
        row_shards<float, decltype(ranks), float, fault_of_rank> shards{
            ranks, small_slices, {.max_requests = 2, .block_size = 2}};
        given_drafts<float> drafter{sliced_options(small_shape, 2, small_slices, rank).drafts};
        fixed_schedule schedule;
        token_rejection<> const rule;
        philox_randomness rng;
        round_memory<float, float, fault_of_rank> memory{drafter, schedule, rule, {.max_requests = 2}};
        std::size_t const first = small_slices.first(rank);
        request_settings const settings{};
        std::vector<request_view> requests;
        std::vector<token_id> const tokens(own.drafts.begin(), own.drafts.end());
        std::vector<given_draft<float>> drafts;
        for (std::size_t r = 0; r < 2; ++r) {
            requests.push_back(
                {.id = r, .slot = r, .anchor = 0, .position = 3, .seed = r, .remaining = 9, .settings = &settings});
            drafts.push_back(
                {.tokens = std::span(tokens).subspan(2 * r, 2), .q = {own.q.data() + 2 * r * V + first, 2, 4, V}});
        }
        for (bool const fails : {true, false}) {
            drafter.hand(drafts);
            if (!begin_round(schedule, requests, memory)) return;
            draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
            static_cast<void>(admit(schedule, memory));
            logits_rows<float> const rows{.values = {own.p.data() + first, 6, 4, V}};
            fault_of_rank const hook{.throws = fails && rank == 2};
            try {
                accept(rule, shards.of(rows), hook, rng, memory);
            } catch (std::runtime_error const&) {
                ++caught[rank];
                continue;
            }
            for (verdict const& v : end_round(schedule, memory).verdicts) seen[rank].push_back(v.outcome);
        }
    });
    CHECK(caught == std::vector<int>{0, 0, 1});
    status const ends[]{status::ranks_lost, status::ranks_lost, status::ok, status::ok};
    CHECK(std::ranges::equal(seen[0], ends));
    CHECK(std::ranges::equal(seen[1], ends));
    CHECK(seen[2] == std::vector<status>{status::ok, status::ok});
}

TEST_CASE("slices: a round exchanges a thousandth of the rows, and as often whatever there is in it", "[ranks]") {
    constexpr std::size_t V = 151936;
    constexpr std::size_t P = 8;
    constexpr std::size_t gamma = 7;
    engine_shape const shape{.vocabulary = V, .block_size = gamma};
    auto const slices = vocabulary_slices::even(V, P);
    dice roll(5);
    auto const row = random_values<float>(roll, V, 2.0);
    auto const q_rows = random_values<float>(roll, V, 2.0);
    struct traffic {
        std::size_t exchanges = 0;
        std::size_t bytes = 0;
    };
    // Every row of p is the same one, and so is every row of q.
    auto const measure = [&]<class Rule>(Rule, std::size_t R) {
        std::vector<std::int32_t> drafts;
        std::vector<std::int64_t> seeds, positions(R, 3);
        for (std::size_t i = 0; i < R * gamma; ++i) drafts.push_back(static_cast<std::int32_t>(roll.below(V)));
        for (std::size_t r = 0; r < R; ++r) seeds.push_back(static_cast<std::int64_t>(r));
        std::vector<traffic> all(P);
        thread_ranks threads{P, {.most_bytes = 1 << 22, .seconds = 30.0}};
        on_ranks(P, [&](std::size_t rank) {
            std::size_t const first = slices.first(rank);
            counted_ranks<thread_ranks::rank_type> ranks{threads.of(rank)};
            row_shards<float, decltype(ranks)> shards{ranks, slices, {.max_requests = R, .block_size = gamma}};
            verifier<float, Rule> verify{{}, sliced_options(shape, R, slices, rank)};
            std::vector<float> q;
            for (std::size_t k = 0; k < gamma; ++k) {
                q.insert(q.end(), q_rows.begin() + static_cast<std::ptrdiff_t>(first),
                         q_rows.begin() + static_cast<std::ptrdiff_t>(first + slices.size(rank)));
            }
            engine_arrays<float> const call{.requests = R,
                                            .target = {row.data() + first, R * (gamma + 1), slices.size(rank), 0},
                                            .drafts = drafts.data(),
                                            .draft_stride = gamma,
                                            .q = {.rows = q.data(), .slot_stride = 0, .row_stride = slices.size(rank)},
                                            .positions = positions.data(),
                                            .settings = {.seeds = seeds.data()}};
            for (verdict const& v : verify(call, shards)) {
                if (v.outcome == status::ok) continue;
                ranks.exchanges = 99;
            }
            all[rank] = {ranks.exchanges, ranks.bytes};
        });
        return all[0];
    };
    auto const check = [&](auto rule, std::size_t exchanges, std::size_t rows) {
        auto const many = measure(rule, 32);
        CHECK(many.exchanges == exchanges);
        CHECK(many.bytes * 1000 <= rows * V * sizeof(float));
        CHECK(measure(rule, 2).exchanges == exchanges);
    };
    std::size_t const of_p = 32 * (gamma + 1), of_q = 32 * gamma;
    check(token_rejection<>{}, 3, of_p + of_q);
    check(block_verification<>{}, 3, of_p + of_q);
    check(target_match<>{}, 2, of_p);
    check(keyed_coupling{}, 2, of_p);
}

TEMPLATE_TEST_CASE("slices: log p of emitted tokens is that of whole rows", "[ranks]", token_rejection<>,
                   target_match<>, keyed_coupling) {
    small_call own;
    dice roll(8);
    for (float& l : own.p) l = static_cast<float>(roll.bell());
    std::size_t compared = 0;
    for (std::int64_t seed = 0; seed < 40; ++seed) {
        own.seeds = {seed, seed + 100};
        std::vector<std::vector<double>> logs(3);
        std::vector<std::vector<token_id>> tokens(3);
        thread_ranks threads{3, {.seconds = 20.0}};
        on_ranks(3, [&](std::size_t rank) {
            auto ranks = threads.of(rank);
            row_shards<float, decltype(ranks)> shards{
                ranks, small_slices, {.max_requests = 2, .block_size = small_call::gamma}};
            auto options = sliced_options(small_shape, 2, small_slices, rank);
            options.log_probabilities = true;
            verifier<float, TestType> verify{{}, options};
            sliced_call<float> const sliced{own, small_shape, small_slices, rank};
            for (verdict const& v : verify(sliced.call, shards)) {
                tokens[rank].insert(tokens[rank].end(), v.emitted.begin(), v.emitted.end());
                logs[rank].insert(logs[rank].end(), v.log_probabilities.begin(), v.log_probabilities.end());
                for (std::size_t k = 0; k < v.emitted.size(); ++k) {
                    std::size_t const row = v.id * (small_call::gamma + 1) + k;
                    distribution<float> const p{
                        {std::span(own.p).subspan(row * small_call::V, small_call::V), {}, {}}, transform{}, {}};
                    if (rank != 0) continue;
                    CHECK(std::abs(v.log_probabilities[k] - p.log_probability(v.emitted[k])) < 1e-5);
                    ++compared;
                }
            }
        });
        CHECK(logs[1] == logs[0]);
        CHECK(logs[2] == logs[0]);
        CHECK(tokens[1] == tokens[0]);
    }
    CHECK(compared >= 80);
}

TEST_CASE("slices: parts that were summed beside other logits are alike near temperature 0", "[ranks]") {
    small_call own;
    std::vector<float> const temperatures(2, 0.01f);
    own.call.settings.temperature = temperatures.data();
    dice roll(9);
    one_rank ranks;
    auto const all = vocabulary_slices::even(small_call::V, 1, 4);
    row_shards<float, one_rank> shards{ranks, all, {.max_requests = 2, .block_size = small_call::gamma}};
    auto options = sliced_options(small_shape, 2, all, 0);
    options.log_probabilities = true;
    verifier<float, target_match<>> verify{{}, options};
    double worst = 0.0;
    for (std::int64_t seed = 0; seed < 200; ++seed) {
        own.seeds = {seed, seed + 1000};
        for (float& l : own.p) l = 40.0f + static_cast<float>(roll.between(0.0, 0.03));
        for (verdict const& v : verify(own.call, shards)) {
            auto const row = std::span(own.p).subspan(v.id * (small_call::gamma + 1) * small_call::V, small_call::V);
            double sum = 0.0;  // T as a float's inverse has it
            auto const exponent = [&](float l) {
                return static_cast<double>(l - 40.0f) * static_cast<double>(1.0f / 0.01f);
            };
            for (float const l : row) sum += std::exp(exponent(l));
            double const expected = exponent(row[static_cast<std::size_t>(v.emitted[0])]) - std::log(sum);
            worst = std::max(worst, std::abs(v.log_probabilities[0] - expected));
        }
    }
    CHECK(worst < 2e-6);
}

TEST_CASE("slices: what does not fit is refused", "[ranks]") {
    using support::error_text;
    using support::says;
    one_rank ranks;
    CHECK(says(error_text([] { vocabulary_slices(std::vector<std::size_t>{}); }), {"there are no ends"}));
    CHECK(says(error_text([] { vocabulary_slices(std::vector<std::size_t>{5, 4}); }), {"ends[1] is 4", "at least 5"}));
    CHECK(says(error_text([] { vocabulary_slices(std::vector<std::size_t>{5}, 0); }), {"part_size is 0"}));
    CHECK(says(error_text([] { vocabulary_slices(std::vector<std::size_t>{0, 0}); }), {"all slices are empty"}));
    auto const make = [&](std::size_t of, row_shards_options const& options) {
        return error_text([&] { row_shards<float, one_rank>(ranks, vocabulary_slices::even(12, of, 4), options); });
    };
    CHECK(says(make(3, {.block_size = 2}), {"there are 3 slices", "each of the 1 ranks"}));
    CHECK(says(make(1, {.max_requests = 0, .block_size = 2}), {"max_requests is 0"}));
    small_call own;
    auto const call = [&](row_shards_options const& options, verifier_options const& of) {
        row_shards<float, one_rank> shards{ranks, vocabulary_slices::even(12, 1, 4), options};
        return error_text([&] { static_cast<void>(verifier<float, token_rejection<>>{{}, of}(own.call, shards)); });
    };
    auto of = sliced_options(small_shape, 2, vocabulary_slices::even(12, 1, 4), 0);
    CHECK(call({.max_requests = 2, .block_size = 2}, of).empty());
    CHECK(says(call({.max_requests = 1, .block_size = 2}, of),
               {"made for 1 requests with 2 drafts", "at least 2 and 2"}));
    of.ranks = true;
    CHECK(says(call({.max_requests = 2, .block_size = 2}, of), {"request 0 asks for", "no rank has a whole row"}));
}
