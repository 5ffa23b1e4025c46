// SPDX-License-Identifier: MIT
//
// A verifier decides what the stages decide about each request by itself, whatever layout its arrays have; what does
// not fit is refused with the numbers; outputs are padded; a call allocates nothing. That its law is the target's is
// tests/property/exact_verifier.test.cpp. Ten seconds.
#include <sureleap/verifier.hpp>

#include <sureleap/verify/any.hpp>

#include "support/allocations.hpp"
#include "support/common.hpp"
#include "support/engine_scene.hpp"
#include "support/error_text.hpp"
#include "support/executors.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::size_t likeliest = 3;

/// What the stages decide about one request, whose rows were edited beforehand, in plain loops.
struct decided {
    verdict v;
    std::vector<token_id> emitted;
    std::vector<double> logs;
    std::vector<std::uint32_t> ranks;
    std::vector<token_log_probability> top;
};
template <class Row>
decided decide_alone(engine_shape const& shape, any_rule const& rule, std::vector<Row> const& rows,
                     std::vector<token_id> const& drafts, auto const& request) {
    bool const greedy_q = !shape.probabilities() && request.draft_temperature == 0.0f;
    bool const found = shape.q == q_kind::found || request.temperature == 0.0f || greedy_q;
    given_drafts<float> drafter{{.block_size = shape.block_size,
                                 .vocabulary = shape.vocabulary,
                                 .keeps_q = !found,
                                 .probabilities = shape.probabilities(),
                                 .listed = shape.listed()}};
    fixed_schedule schedule;
    philox_randomness rng;
    round_memory<Row, float> memory{drafter, schedule, rule, {.max_requests = 1, .top_log_probabilities = likeliest}};
    bool const all = request.top_k < 1 || request.top_k >= static_cast<std::int64_t>(shape.vocabulary);
    std::vector<token_id> const stops(request.stops.begin(), request.stops.end());
    request_settings const settings{.temperature = request.temperature,
                                    .top_k = all ? 0 : static_cast<int>(request.top_k),
                                    .top_p = request.top_p,
                                    .min_p = request.min_p,
                                    .draft = transform{.temperature = request.draft_temperature},
                                    .stop_tokens = stops,
                                    .log_probabilities = true,
                                    .top_log_probabilities = likeliest,
                                    .ranks = true};
    request_view const view{.id = 1,
                            .slot = 0,
                            .anchor = 0,
                            .position = static_cast<std::uint64_t>(request.position),
                            .seed = static_cast<std::uint64_t>(request.seed),
                            .remaining = static_cast<std::size_t>(request.remaining),
                            .settings = &settings,
                            .draft_limit = drafts.size()};
    std::size_t const width = shape.q_width();
    std::vector<token_id> const listed(request.listed.begin(), request.listed.end());
    given_draft<float> const draft{.tokens = drafts,
                                   .q = {request.q.data(), drafts.size(), width},
                                   .listed = {listed.data(), drafts.size(), width}};
    drafter.hand({&draft, 1});
    if (begin_round(schedule, {&view, 1}, memory)) draw(drafter, drafter.forward({&view, 1}), rule, rng, memory);
    std::size_t const count = admit(schedule, memory).rows();
    accept(rule, logits_rows<Row>{{rows.data(), count, shape.vocabulary}, {}, {}}, no_logits_hook{}, rng, memory);
    verdict const& v = end_round(schedule, memory).verdicts[0];
    return {v,
            {v.emitted.begin(), v.emitted.end()},
            {v.log_probabilities.begin(), v.log_probabilities.end()},
            {v.ranks.begin(), v.ranks.end()},
            {v.top_log_probabilities.begin(), v.top_log_probabilities.end()}};
}
/// Drafts up to the first that is none, which stays if it is a mistake.
std::vector<token_id> drafts_of(auto const& request, std::size_t vocabulary) {
    std::vector<token_id> drafts;
    for (std::int64_t const x : request.drafts) {
        if (x == -1) break;
        bool const known = x >= 0 && x < static_cast<std::int64_t>(vocabulary);
        drafts.push_back(known ? static_cast<token_id>(x) : -5);
    }
    return drafts;
}
/// The rows as bias, penalties and masks leave them.
template <class T>
std::vector<float> edited(engine_shape const& shape, plain_request<T> const& request) {
    std::size_t const V = shape.vocabulary;
    std::size_t const words = mask_words(V);
    std::vector<float> rows;
    for (T const& l : request.p) rows.push_back(load(l));
    for (std::size_t k = 0; k <= request.drafts.size(); ++k) {
        float* const row = rows.data() + k * V;
        for (std::size_t i = 0; i < request.bias.size(); ++i) row[request.bias_tokens[i]] += request.bias[i];
        for (std::size_t v = 0; v < V; ++v) {
            auto const before = request.drafts.begin();
            auto const count = request.counts[v] + std::count(before, before + static_cast<std::ptrdiff_t>(k),
                                                              static_cast<std::int64_t>(v));
            bool const prompted = (static_cast<std::uint32_t>(request.prompt[v / 32]) >> v % 32 & 1u) != 0;
            if (count > 0 || prompted)
                row[v] = row[v] > 0.0f ? row[v] / request.repetition : row[v] * request.repetition;
            if (count > 0) row[v] -= request.frequency * static_cast<float>(count) + request.presence;
            auto const word = static_cast<std::uint32_t>(request.masks[k * words + v / 32]);
            if ((word >> v % 32 & 1u) == 0) row[v] = -INFINITY;
        }
    }
    return rows;
}

template <class T, class Edits>
std::size_t check_layout(std::uint64_t seed, any_rule const& rule, engine_shape shape) {
    dice roll(seed);
    INFO("seed " << seed);
    std::size_t const R = 1 + roll.below(5);
    std::vector<plain_request<T>> requests;
    for (std::size_t r = 0; r < R; ++r) requests.push_back(random_request<T>(roll, shape));
    laid_out<T, std::vector> arrays(roll, shape, requests);

    std::size_t const width = shape.block_size + 1;
    std::vector<std::int64_t> tokens(R * width, 7), accepted(R, 7), next(R, 7), top(R * width * likeliest, 7);
    std::vector<std::int32_t> counts(R, 7), ranks(R * width, 7);
    std::vector<double> logs(R * width, 7);
    std::vector<float> top_logs(R * width * likeliest, 7);
    std::vector<std::uint8_t> statuses(R, 77), finished(R, 77);
    arrays.call.out = {.tokens = tokens.data(),
                       .counts = counts.data(),
                       .accepted = accepted.data(),
                       .next_anchors = next.data(),
                       .statuses = statuses.data(),
                       .finished = finished.data(),
                       .log_probabilities = logs.data(),
                       .ranks = ranks.data(),
                       .top_tokens = top.data(),
                       .top_log_probabilities = top_logs.data()};
    test_executor threads(task_order::shuffled, 2);
    verifier<T, any_rule, Edits> verify{rule,
                                        {.drafts = {.block_size = shape.block_size,
                                                    .vocabulary = shape.vocabulary,
                                                    .probabilities = shape.probabilities(),
                                                    .listed = shape.listed()},
                                         .max_requests = R,
                                         .stop_tokens = scene_stops,
                                         .log_probabilities = true,
                                         .ranks = true,
                                         .likeliest = likeliest,
                                         .executor = threads}};
    std::size_t const before = allocations;
    auto const verdicts = verify(arrays.call);
    CHECK(allocations == before);

    std::size_t drafted = 0;
    for (std::size_t r = 0; r < R; ++r) {
        INFO("request " << r << " of " << R);
        auto const drafts = drafts_of(requests[r], shape.vocabulary);
        decided expected;
        if constexpr (std::is_same_v<Edits, array_edits>) {
            expected = decide_alone(shape, rule, edited(shape, requests[r]), drafts, requests[r]);
        } else {
            expected = decide_alone(shape, rule, requests[r].p, drafts, requests[r]);
        }
        std::size_t const count = expected.emitted.size();
        CHECK(verdicts[r].emitted.size() == count);
        REQUIRE(static_cast<std::size_t>(counts[r]) == count);
        CHECK(accepted[r] == static_cast<std::int64_t>(expected.v.accepted));
        CHECK(next[r] == (count == 0 ? -1 : expected.emitted.back()));
        status const what = expected.v.outcome == status::ok ? expected.v.draft_outcome : expected.v.outcome;
        CHECK(statuses[r] == static_cast<std::uint8_t>(what));
        CHECK(finished[r] == static_cast<std::uint8_t>(expected.v.finished));
        drafted += expected.v.accepted;
        for (std::size_t k = 0; k < width; ++k) {
            std::size_t const i = r * width + k;
            CHECK(tokens[i] == (k < count ? expected.emitted[k] : -1));
            CHECK(ranks[i] == (k < count ? static_cast<std::int32_t>(expected.ranks[k]) : 0));
            CHECK((k < count ? logs[i] == expected.logs[k] : std::isnan(logs[i])));
            for (std::size_t j = 0; j < likeliest; ++j) {
                auto const t = k < count ? expected.top[k * likeliest + j] : token_log_probability{};
                CHECK(top[i * likeliest + j] == t.token);
                if (k < count && t.token == expected.emitted[k]) CHECK(expected.ranks[k] >= j + 1);
                float const log = top_logs[i * likeliest + j];
                CHECK((t.token == no_token ? std::isnan(log) : log == static_cast<float>(t.log_probability)));
            }
        }
    }
    return drafted;
}

/// A call of two requests that is right.
struct plain_call {
    static constexpr std::size_t V = 6;
    static constexpr std::size_t gamma = 2;
    std::vector<float> p = std::vector<float>(2 * (gamma + 1) * V, 0.0f);
    std::vector<float> q = std::vector<float>(2 * gamma * V, 0.0f);
    std::vector<std::int32_t> drafts{1, 2, 3, 4};
    std::vector<std::int64_t> seeds{5, 6}, positions{7, 8};
    std::vector<std::int32_t> begin{0, 4, 6};
    std::vector<std::int32_t> beyond{1, 4, 7};
    std::vector<std::int32_t> words{63, 63, 63, 63, 63, 63};
    engine_arrays<float> arrays{.requests = 2,
                                .target = {p.data(), 2 * (gamma + 1), V},
                                .drafts = drafts.data(),
                                .draft_stride = gamma,
                                .q = {.rows = q.data(), .slot_stride = gamma * V, .row_stride = V},
                                .positions = positions.data(),
                                .settings = {.seeds = seeds.data()}};
};
verifier_options const plain{.drafts = {.block_size = plain_call::gamma, .vocabulary = plain_call::V},
                             .max_requests = 2};

}  // namespace

TEST_CASE("a verifier decides in every layout what the stages decide about each request", "[verifier]") {
    any_rule const rules[]{token_rejection<>{}, block_verification<>{}, target_match<>{}, keyed_coupling{},
                           greedy_match{}};
    std::size_t accepted = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        engine_shape shape{.q = static_cast<q_kind>(seed / 5 % 5), .edits = seed % 2 == 1, .greedy = seed % 5 == 4};
        if (seed % 7 == 0) shape.vocabulary = 70;
        any_rule const& rule = rules[seed % 5];
        switch (seed % 3) {
            case 0:
                accepted += shape.edits ? check_layout<float, array_edits>(seed, rule, shape)
                                        : check_layout<float, no_logits_hook>(seed, rule, shape);
                break;
            case 1:
                accepted += shape.edits ? check_layout<bf16, array_edits>(seed, rule, shape)
                                        : check_layout<bf16, no_logits_hook>(seed, rule, shape);
                break;
            default:
                accepted += shape.edits ? check_layout<half, array_edits>(seed, rule, shape)
                                        : check_layout<half, no_logits_hook>(seed, rule, shape);
        }
    }
    CHECK(accepted > 300);
}

TEST_CASE("a call that does not fit is refused, and the next one is as if it had not been", "[verifier]") {
    using change = void (*)(plain_call&);
    struct mistake {
        change make;
        std::string text;
    };
    mistake const mistakes[]{
        {[](plain_call& c) { c.arrays.requests = 3; },
         "verifier: there are 3 requests, expected at most max_requests = 2"},
        {[](plain_call& c) { c.arrays.settings.seeds = {}; }, "verifier: seeds are null"},
        {[](plain_call& c) { c.arrays.positions = {}; }, "verifier: positions are null"},
        {[](plain_call& c) { c.arrays.q.row_stride = 5; }, "verifier: q.row_stride is 5, expected at least 6"},
        {[](plain_call& c) { c.arrays.settings.stop_tokens = c.drafts.data(), c.arrays.settings.stop_stride = 1; },
         "verifier: stop_stride is 1, expected at most options.stop_tokens = 0"},
        {[](plain_call& c) { c.arrays.edits.bitmask = c.words.data(), c.arrays.edits.bitmask_stride = 1; },
         "verifier: the call has edits, expected a verifier<T, Rule, array_edits>"},
        {[](plain_call& c) { c.arrays.edits.bitmask = c.words.data(); },
         "verifier: bitmask_stride is 0, expected at least 1 words, a bit for each of the 6 tokens"},
        {[](plain_call& c) { c.arrays.edits.bias_tokens = c.drafts.data(); }, "verifier: bias is null"},
        {[](plain_call& c) { c.arrays.row_begin = c.begin.data(); },
         "verifier: row_begin[0] is 0 and row_begin[1] 4, expected 1 .. gamma + 1 = 3 rows between"},
        {[](plain_call& c) { c.arrays.row_begin = c.beyond.data(); },
         "verifier: row_begin[2] is 7, expected at most 6, the rows of the target"},
        {[](plain_call& c) { c.arrays.target.rows = 5; }, "accept: the target gave 5 rows"},
        {[](plain_call& c) { c.arrays.target.cols = 5; }, "accept: the target gave 6 rows of 5 logits"},
    };
    plain_call right;
    verifier<float, token_rejection<>> verify{{}, plain};
    std::vector<token_id> first;
    for (verdict const& v : verify(right.arrays)) first.insert(first.end(), v.emitted.begin(), v.emitted.end());
    for (mistake const& m : mistakes) {
        INFO(m.text);
        plain_call wrong;
        m.make(wrong);
        CHECK(says(error_text([&] { static_cast<void>(verify(wrong.arrays)); }), m.text));
        std::vector<token_id> again;
        for (verdict const& v : verify(right.arrays)) again.insert(again.end(), v.emitted.begin(), v.emitted.end());
        CHECK(again == first);
    }
    std::vector<float> const cold{1.0f, -1.0f};
    plain_call wrong;
    wrong.arrays.settings.temperature = cold.data();
    CHECK(says(error_text([&] { static_cast<void>(verify(wrong.arrays)); }),
               "verifier: request 1: request_settings: temperature is -1"));
    std::vector<std::int32_t> const spent{1, 0};
    wrong.arrays.settings.temperature = {};
    wrong.arrays.remaining = spent.data();
    CHECK(says(error_text([&] { static_cast<void>(verify(wrong.arrays)); }),
               "verifier: remaining[1] is 0, expected at least 1 token that it may emit"));
    std::vector<double> const none{1.0, 0.0};
    verifier<float, token_rejection<>, array_edits> edits{{}, plain};
    wrong.arrays.remaining = {};
    wrong.arrays.edits.repetition = none.data();
    CHECK(says(error_text([&] { static_cast<void>(edits(wrong.arrays)); }),
               "verifier: request 1: repetition is 0, expected a finite number above 0"));
}

TEST_CASE("rows without a law are their request's alone", "[verifier]") {
    plain_call call;
    call.p[0] = NAN;
    std::vector<std::uint8_t> statuses(2, 77);
    std::vector<std::int32_t> counts(2, 77);
    call.arrays.out.statuses = statuses.data();
    call.arrays.out.counts = counts.data();
    verifier<float, block_verification<>> verify{{}, plain};
    static_cast<void>(verify(call.arrays));
    CHECK(statuses == std::vector<std::uint8_t>{static_cast<std::uint8_t>(status::invalid_target), 0});
    CHECK(counts[0] == 0);
    CHECK(counts[1] > 0);
}

TEST_CASE("a verifier of trees says which drafts were accepted", "[verifier]") {
    // Three drafts behind the anchor's row, of which the second is the target's, and one behind it.
    constexpr std::size_t V = 6;
    std::vector<float> p(5 * V, 0.0f);
    p[0 * V + 2] = 60.0f;
    p[2 * V + 5] = 60.0f;  // behind the second draft
    p[4 * V + 1] = 60.0f;  // behind the fourth
    std::vector<std::int64_t> const drafts{0, 2, 3, 5}, parents{0, 0, 0, 2}, seeds{5}, positions{7};
    std::vector<std::int32_t> tokens(5, 7), paths(4, 7), accepted(1, 7);
    engine_arrays<float> call{.requests = 1,
                              .target = {p.data(), 5, V},
                              .drafts = drafts.data(),
                              .draft_stride = 4,
                              .parents = parents.data(),
                              .positions = positions.data(),
                              .settings = {.seeds = seeds.data()},
                              .out = {.tokens = tokens.data(), .accepted = accepted.data(), .paths = paths.data()}};
    verifier_options const trees{.drafts = {.block_size = 4, .vocabulary = V, .keeps_q = false, .trees = true}};
    verifier<float, target_match<>, array_edits> verify{{}, trees};
    static_cast<void>(verify(call));
    CHECK(accepted[0] == 2);
    CHECK(tokens == std::vector<std::int32_t>{2, 5, 1, -1, -1});
    CHECK(paths == std::vector<std::int32_t>{2, 4, -1, -1});
    // A mask of the row behind the fourth draft.
    std::vector<std::int32_t> const words{63, 63, 63, 63, 1 << 3};
    call.edits = {.bitmask = words.data(), .bitmask_stride = 1};
    static_cast<void>(verify(call));
    CHECK(tokens == std::vector<std::int32_t>{2, 5, 3, -1, -1});
    std::vector<std::int64_t> const late{0, 0, 4, 2};
    call.parents = late.data();
    CHECK(says(error_text([&] { static_cast<void>(verify(call)); }),
               "verifier: of request 0 draft 2 has the parent 4, expected 0 .. 2"));
    call.parents = {};
    CHECK(says(error_text([&] { static_cast<void>(verify(call)); }), "verifier: parents are null"));
}
