// SPDX-License-Identifier: MIT
//
// Rounds in which no rank has a whole row, neither of the draft nor of the target: what decoders emit, what ranks
// exchange, what is refused, and what becomes of a round in which one rank fails.
//
// Meant for the thread sanitizer too.
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/sharded_drafter.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/any.hpp>

#include "support/common.hpp"
#include "support/counted_ranks.hpp"
#include "support/error_text.hpp"
#include "support/on_ranks.hpp"
#include "support/sliced_calls.hpp"
#include "support/sliced_world.hpp"

using namespace sureleap;
using namespace support;

namespace {

/// What decoders whose target and drafter lie in slices make of some requests.
using texts = std::map<request_id, std::vector<token_id>>;
template <class Decoder>
texts decode(Decoder& dec) {
    texts all;
    for (std::uint64_t r = 0; r < 6; ++r) {
        dec.submit(
            std::vector<token_id>{static_cast<token_id>(r)},
            {.temperature = r % 3 == 2 ? 0.0 : 0.9, .top_k = r == 4 ? 20 : 0, .seed = 100 + r, .max_new_tokens = 40});
    }
    while (dec.step()) {
        for (auto const& event : dec.events()) {
            if (event.outcome != status::ok) all[999].push_back(0);
            all[event.request].insert(all[event.request].end(), event.tokens.begin(), event.tokens.end());
        }
    }
    return all;
}
constexpr std::size_t places = 3;
auto target_of(std::size_t vocabulary) {
    return model_of<float>(vocabulary, [](std::span<token_id const> context, std::span<float> row) {
        auto const last = context.last(std::min<std::size_t>(context.size(), 2));
        for (std::size_t v = 0; v < row.size(); ++v) row[v] = static_cast<float>(logit(9, last, v) * 3.0);
    });
}

}  // namespace

TEST_CASE("sharded drafts: a decoder without a whole row emits the same on any ranks", "[ranks]") {
    constexpr std::size_t V = 61, block = 3;
    sliced_world<bf16> const w(3, V, block);
    dice roll(12);
    auto const parts = [&](vocabulary_view own) {
        return semi_autoregressive{
            sliced_backbone<bf16>{&w, own}, w.markov(own), hidden_confidence{},
            drafter_options{.block_size = block, .vocabulary = V, .hidden_size = 3, .slice = own}};
    };
    any_rule const rules[]{token_rejection<>{}, block_verification<>{}, target_match<>{}, keyed_coupling{},
                           target_match<categorical_draft>{}};
    for (any_rule const& rule : rules) {
        INFO("rule " << static_cast<int>(traits_of(rule).guarantee));
        texts alone;
        for (std::size_t const P : {1u, 2u, 3u, 4u, 8u}) {
            INFO("ranks " << P);
            auto const slices = P % 2 == 0 ? vocabulary_slices::even(V, P, 8) : uneven_slices(roll, V, P, 8);
            std::vector<texts> all(P);
            thread_ranks threads{P, {.seconds = 30.0}};
            on_ranks(P, [&](std::size_t rank) {
                auto ranks = threads.of(rank);
                row_shards<float, decltype(ranks)> shards{ranks, slices, {.max_requests = places, .block_size = block}};
                auto whole = target_of(V);
                decoder dec{sliced_target<float, decltype(whole), decltype(ranks)>{whole, &shards},
                            sharded_drafter{parts(slices.tokens(rank)), ranks, slices},
                            threshold_schedule{0.1},
                            rule,
                            {.max_requests = places}};
                all[rank] = decode(dec);
            });
            if (P == 1) alone = all[0];
            for (texts const& one : all) CHECK((one == alone));
        }
        std::size_t count = 0;
        for (auto const& [id, text] : alone) count += text.size();
        CHECK(count == 6 * 40);
        if (traits_of(rule).guarantee != fidelity::pathwise) continue;
        decoder dec{target_of(V),
                    semi_autoregressive{sliced_backbone<bf16>{&w, vocabulary_view::slice(0, V, V)},
                                        w.markov(vocabulary_view::slice(0, V, V)), hidden_confidence{},
                                        drafter_options{.block_size = block, .vocabulary = V, .hidden_size = 3}},
                    threshold_schedule{0.1},
                    rule,
                    {.max_requests = places}};
        CHECK((decode(dec) == alone));
    }
}

namespace {

constexpr std::size_t small_V = 24, small_block = 3;
sliced_world<float> const a_world(5, small_V, small_block);
vocabulary_slices const three_slices = vocabulary_slices::even(small_V, 3, 8);

/// Two requests with drafts on three ranks, one of which may go wrong.
struct small_round {
    sliced_backbone<float> backbone;
    std::array<request_settings, 2> settings{};
    std::vector<request_view> views;
    bool spoils = false;    ///< a base logit of request 0 is no number
    bool is_short = false;  ///< rows are missing

    explicit small_round(vocabulary_view own) : backbone{&a_world, own} {
        for (std::size_t r = 0; r < 2; ++r) {
            views.push_back(
                {.id = r, .slot = r, .anchor = 2, .position = 9, .seed = r, .remaining = 99, .settings = &settings[r]});
        }
    }
    small_round(small_round const&) = delete;
    block_forward<float> forward(std::span<request_view const> requests) {
        auto pass = backbone.forward(requests);
        if (spoils) backbone.logits[1] = std::numeric_limits<float>::quiet_NaN();
        if (is_short) --pass.base_logits.values.rows;
        return pass;
    }
};
/// The statuses of a round's verdicts on all ranks. change(rank, round) before it; a rank for which it is false stays
/// away.
template <class Rule, class Change>
std::vector<std::vector<status>> outcomes_of(Rule const& rule, Change const& change, bool of_drafts = false) {
    std::vector<std::vector<status>> all(3);
    thread_ranks threads{3, {.seconds = 20.0}};
    on_ranks(3, [&](std::size_t rank) {
        auto ranks = threads.of(rank);
        auto const own = three_slices.tokens(rank);
        small_round round(own);
        if (!change(rank, round)) return threads.leave();
        auto backbone = [&](std::span<request_view const> requests) { return round.forward(requests); };
        drafter_options const options{.block_size = small_block, .vocabulary = small_V, .hidden_size = 3, .slice = own};
        sharded_drafter drafter{semi_autoregressive{backbone, a_world.markov(own), hidden_confidence{}, options}, ranks,
                                three_slices};
        row_shards<float, decltype(ranks)> shards{ranks, three_slices, {.max_requests = 2, .block_size = small_block}};
        fixed_schedule schedule;
        philox_randomness rng;
        round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 2}};
        if (begin_round(schedule, round.views, memory)) {
            draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
        }
        verify_batch const& batch = admit(schedule, memory);
        std::vector<float> const rows(batch.rows() * own.draft_size(), 0.5f);
        logits_rows<float> const target{.values = {rows.data(), batch.rows(), own.draft_size()}};
        accept(rule, shards.of(target), no_logits_hook{}, rng, memory);
        for (verdict const& v : end_round(schedule, memory).verdicts) {
            all[rank].push_back(of_drafts ? v.draft_outcome : v.outcome);
            if (v.emitted.empty() != (v.outcome != status::ok)) all[rank].push_back(v.outcome);
        }
    });
    return all;
}
std::vector<std::vector<status>> on_all(status first, status second) {
    return std::vector<std::vector<status>>(3, {first, second});
}

}  // namespace

TEMPLATE_TEST_CASE("sharded drafts: what fails on one rank fails alike on all", "[ranks]", token_rejection<>,
                   target_match<>, keyed_coupling) {
    auto const rule = TestType{};
    auto const drafts = [&](auto const& change) { return outcomes_of(rule, change, true); };
    CHECK(drafts([](std::size_t, small_round&) { return true; }) == on_all(status::ok, status::ok));
    CHECK(drafts([](std::size_t rank, small_round& round) {
              round.spoils = rank == 1;
              return true;
          }) == on_all(status::invalid_draft, status::ok));
    CHECK(drafts([](std::size_t rank, small_round& round) {
              round.is_short = rank == 2;
              return true;
          }) == on_all(status::invalid_draft, status::invalid_draft));
    using change = void (*)(small_round&);
    change const changes[]{[](small_round& round) { round.views[1].seed = 77; },
                           [](small_round& round) { round.views[0].draft_limit = 1; },
                           [](small_round& round) { round.settings[0].draft = transform{.temperature = 0.5}; }};
    for (change const of_one : changes) {
        auto const ends = outcomes_of(rule, [&](std::size_t rank, small_round& round) {
            if (rank == 1) of_one(round);
            return true;
        });
        CHECK(ends == on_all(status::ranks_differ, status::ranks_differ));
    }
    auto const ends = outcomes_of(rule, [](std::size_t rank, small_round&) { return rank != 1; });
    CHECK(ends[0] == std::vector<status>(2, status::ranks_lost));
    CHECK(ends[2] == std::vector<status>(2, status::ranks_lost));
}

TEST_CASE("sharded drafts: an exchange a position, of a thousandth of the rows", "[ranks]") {
    constexpr std::size_t V = 151936, P = 8, R = 32, block = 7;
    auto const slices = vocabulary_slices::even(V, P);
    dice roll(5);
    auto const row = random_values<float>(roll, V, 2.0);
    request_settings const settings{};
    auto const measure = [&](std::size_t limit) {
        std::vector<counted_ranks<thread_ranks::rank_type>> all;
        thread_ranks threads{P, {.seconds = 30.0}};
        for (std::size_t rank = 0; rank < P; ++rank) all.push_back({threads.of(rank)});
        on_ranks(P, [&](std::size_t rank) {
            auto const own = slices.tokens(rank);
            std::vector<request_view> requests;
            for (std::size_t r = 0; r < R; ++r) {
                requests.push_back({.id = r,
                                    .slot = r,
                                    .anchor = 1,
                                    .position = 3,
                                    .seed = r,
                                    .remaining = 99,
                                    .settings = &settings,
                                    .draft_limit = std::min(r, limit)});
            }
            // Every row is the same one.
            auto backbone = [&](std::span<request_view const> some) -> block_forward<float> {
                return {{}, {{row.data() + slices.first(rank), some.size() * block, own.draft_size(), 0}, {}}};
            };
            drafter_options const options{.block_size = block, .vocabulary = V, .slice = own};
            sharded_drafter drafter{parallel{backbone, options}, all[rank], slices};
            if (drafter.most_bytes(slices, R) > 1 << 16) all[rank].exchanges = 99;
            fixed_schedule schedule;
            philox_randomness rng;
            round_memory<float, float> memory{drafter, schedule, token_rejection<>{}, {.max_requests = R}};
            if (!begin_round(schedule, requests, memory)) return;
            draw(drafter, drafter.forward(memory.requests()), token_rejection<>{}, rng, memory);
            if (memory.block().size(R - 1) != std::min(limit, block)) all[rank].exchanges = 99;
        });
        return all[P - 1];
    };
    auto const full = measure(99);
    CHECK(full.exchanges == block);
    CHECK(full.bytes == block * P * (16 + R * 5 * 16));  // each rank has 4 or 5 parts
    CHECK(full.bytes * 900 < R * block * V * sizeof(float));
    CHECK(measure(3).exchanges == 3);
    CHECK(measure(0).exchanges == 0);
}

TEST_CASE("sharded drafts: what does not fit is refused", "[ranks]") {
    one_rank ranks;
    auto const all = vocabulary_slices::even(small_V, 1, 8);
    auto const make = [&](vocabulary_slices const& slices, vocabulary_view own, std::size_t vocabulary = small_V) {
        return error_text([&] {
            sharded_drafter{parallel{sliced_backbone<float>{&a_world, own},
                                     drafter_options{.block_size = 2, .vocabulary = vocabulary, .slice = own}},
                            ranks, slices};
        });
    };
    auto const whole = all.tokens(0);
    CHECK(make(all, whole).empty());
    CHECK(says(make(three_slices, whole), {"there are 3 slices", "each of the 1 ranks"}));
    CHECK(says(make(vocabulary_slices::even(25, 1, 8), whole), {"speaks 24 tokens", "the 25 of the slices"}));
    CHECK(says(make(all, vocabulary_view::slice(1, 23, small_V)),
               {"rank 0", "has 23 tokens", "slices.tokens(rank)", "the 24 from token 0"}));
    CHECK(says(make(all, {}), {"drafter_options::slice"}));
    CHECK(says(make(all, whole, 30), {"slice is of 24 tokens", "the 30 of the vocabulary"}));
    token_id const list[]{3, 30};
    CHECK(says(make(vocabulary_slices::even(48, 1, 8), vocabulary_view(list, 48), 24), {"slice is of 48 tokens"}));
    vocabulary_map const map(std::vector<token_id>{1, 2}, small_V);
    CHECK(says(error_text([&] {
                   parallel{sliced_backbone<float>{&a_world, whole},
                            drafter_options{.block_size = 2, .vocabulary = 2, .map = &map, .slice = whole}};
               }),
               {"a vocabulary map and a slice"}));
    CHECK(says(error_text([&] {
                   semi_autoregressive{sliced_backbone<float>{&a_world, whole}, a_world.markov(three_slices.tokens(1)),
                                       drafter_options{.block_size = 2, .vocabulary = small_V}};
               }),
               {"the head has 8 output tokens", "24"}));
    CHECK(says(error_text([&] {
                   semi_autoregressive{sliced_backbone<float>{&a_world, whole},
                                       a_world.markov(vocabulary_view::slice(0, 0, small_V)),
                                       drafter_options{.block_size = 2, .vocabulary = small_V}};
               }),
               {"the head has 0 output tokens", "24"}));
    // One request that truncates its drafts.
    small_round round(whole);
    round.settings[1].draft = transform{.temperature = 0.5, .top_k = 3};
    sharded_drafter drafter{parallel{sliced_backbone<float>{&a_world, whole},
                                     drafter_options{.block_size = 3, .vocabulary = small_V, .slice = whole}},
                            ranks, all};
    fixed_schedule schedule;
    philox_randomness rng;
    round_memory<float, float> memory{drafter, schedule, token_rejection<>{}, {.max_requests = 2}};
    REQUIRE(begin_round(schedule, round.views, memory));
    CHECK(says(error_text([&] { draw(drafter, drafter.forward(round.views), token_rejection<>{}, rng, memory); }),
               {"request 1 truncates its drafts", "top_k 3", "request_settings::draft"}));
}

TEMPLATE_TEST_CASE("sharded drafts: whole rows of p are refused where a rule reads q, which is a slice", "[ranks]",
                   token_rejection<>, block_verification<>, keyed_coupling) {
    thread_ranks threads{3, {.seconds = 30.0}};
    std::vector<std::string> errors(3);
    on_ranks(3, [&](std::size_t rank) {
        auto ranks = threads.of(rank);
        auto const own = three_slices.tokens(rank);
        decoder dec{target_of(small_V),
                    sharded_drafter{parallel{sliced_backbone<float>{&a_world, own},
                                             drafter_options{.block_size = 3, .vocabulary = small_V, .slice = own}},
                                    ranks, three_slices},
                    fixed_schedule{},
                    TestType{},
                    {.max_requests = places}};
        errors[rank] = error_text([&] { static_cast<void>(decode(dec)); });
    });
    bool const reads_q = !std::is_same_v<TestType, keyed_coupling>;
    for (std::string const& text : errors) {
        CHECK(text.empty() == !reads_q);
        if (!reads_q) continue;
        CHECK(says(text, {"accept: the q of draft 0 of request", "is a slice of 8 tokens", "rows of p have all 24",
                          "row_shards::of"}));
    }
}
