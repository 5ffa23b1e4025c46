// SPDX-License-Identifier: MIT
//
// What calls of the C header refuse, and with which text. A step allocates nothing, and a round that was given up comes
// again. Then parts that the rounds of same_tokens do not have: q as probabilities, confidences from rows, what rows
// bring.
#define SURELEAP_C_IMPLEMENTATION
#include <sureleap/sureleap.h>

#include "support/allocations.hpp"
#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sureleap/traits.hpp>

using sureleap::misfit;

namespace {

constexpr std::size_t V = 6;
constexpr std::size_t block_size = 3;

sureleap_round_options plain() {
    sureleap_round_options o;
    sureleap_round_options_init(&o);
    o.vocabulary = V;
    o.block_size = block_size;
    return o;
}

struct made_round {
    explicit made_round(sureleap_round_options const& o) {
        sureleap_error error{};
        std::size_t bytes = 0;
        result = sureleap_round_bytes(&o, &bytes, &error);
        if (result == SURELEAP_OK) {
            memory.resize(bytes);
            result = sureleap_round_create(&o, memory.data(), bytes, &round, &error);
        }
        text = error.text;
    }
    ~made_round() {
        if (round != nullptr) static_cast<void>(sureleap_round_destroy(round));
    }
    made_round(made_round const&) = delete;
    made_round& operator=(made_round const&) = delete;

    std::vector<std::byte> memory{};
    sureleap_round* round = nullptr;
    sureleap_result result = SURELEAP_OK;
    std::string text{};
};

std::string refusal(sureleap_round_options const& o, sureleap_result expected) {
    made_round const made(o);
    CHECK(made.result == expected);
    CHECK(made.round == nullptr);
    return made.text;
}

sureleap_request request_at(std::uint64_t position) {
    sureleap_request q;
    sureleap_request_init(&q);
    q.anchor = 1;
    q.position = position;
    q.seed = 9;
    return q;
}

/// Rows of so many, of numbers that depend on `kind`.
struct made_rows {
    made_rows(std::size_t rows, int kind) : numbers(rows * V) {
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            numbers[i] = std::sin(static_cast<float>(i) * 1.3f + static_cast<float>(kind));
        }
    }
    [[nodiscard]] sureleap_rows view() const {
        return {numbers.data(), numbers.size() / V, V, V, nullptr, nullptr, 0, 0};
    }
    std::vector<float> numbers;
};

/// One round of one request; what was emitted.
std::vector<std::int32_t> step(sureleap_round* round, std::uint64_t position, sureleap_drafts drafts,
                               sureleap_rows const& target) {
    sureleap_request const q = request_at(position);
    REQUIRE(sureleap_round_begin(round, &q, 1, nullptr) == SURELEAP_OK);
    REQUIRE(sureleap_round_draft(round, &drafts) == SURELEAP_OK);
    sureleap_batch batch{};
    REQUIRE(sureleap_round_admit(round, &batch) == SURELEAP_OK);
    REQUIRE(sureleap_round_accept(round, &target) == SURELEAP_OK);
    sureleap_verdict verdict{};
    REQUIRE(sureleap_round_end(round, &verdict, 1) == SURELEAP_OK);
    REQUIRE(verdict.outcome == SURELEAP_REQUEST_OK);
    return {verdict.emitted, verdict.emitted + verdict.emitted_count};
}

sureleap_drafts drafts_of(made_rows const& rows) {
    sureleap_drafts d{};
    d.positions = block_size;
    d.rows = rows.view();
    return d;
}

}  // namespace

TEST_CASE("Combinations that would not keep the law are refused in the compiler's words") {
    sureleap_round_options o = plain();
    o.confidence = SURELEAP_CONFIDENCE_GIVEN;
    o.schedule = SURELEAP_RETROSPECTIVE;
    CHECK(refusal(o, SURELEAP_NOT_LOSSLESS) == to_string(misfit::looks_ahead));
    o.rule = SURELEAP_BLOCK_VERIFICATION;
    CHECK(refusal(o, SURELEAP_NOT_LOSSLESS) == to_string(misfit::looks_ahead));
    // The positive twins lack a cost alone.
    o.draft_rule = SURELEAP_DRAFT_ARGMAX;
    CHECK(refusal(o, SURELEAP_INVALID_ARGUMENT).find("cost is null") != std::string::npos);
    o = plain();
    o.draft_rule = SURELEAP_DRAFT_COUPLED;
    CHECK(refusal(o, SURELEAP_NOT_LOSSLESS) == to_string(misfit::noise_returns));
    o.q = SURELEAP_Q_ONE_HOT;  // nothing is drawn
    CHECK(made_round(o).result == SURELEAP_OK);
    o = plain();
    o.schedule = SURELEAP_THRESHOLD;
    CHECK(refusal(o, SURELEAP_NOT_LOSSLESS) == to_string(misfit::no_confidence));
    o.confidence = SURELEAP_CONFIDENCE_TOP1;
    CHECK(made_round(o).result == SURELEAP_OK);
    o.schedule = SURELEAP_PLANNED;
    CHECK(refusal(o, SURELEAP_NOT_LOSSLESS) == to_string(misfit::no_anchor));
}

TEST_CASE("Options are refused by name, value and expectation") {
    auto const with = [](auto change) {
        sureleap_round_options o = plain();
        change(o);
        return refusal(o, SURELEAP_INVALID_ARGUMENT);
    };
    CHECK(with([](auto& o) { o.struct_size = 8; }).find("sureleap_round: struct_size is 8, expected") == 0);
    CHECK(with([](auto& o) { o.rule = 5; }) == "sureleap_round: rule is 5, expected 0 .. 4");
    CHECK(with([](auto& o) { o.vocabulary = 0; }) == "sureleap_round: vocabulary is 0, expected 1 .. 1073741824");
    CHECK(with([](auto& o) { o.block_size = 1025; }) == "sureleap_round: block_size is 1025, expected 1 .. 1024");
    CHECK(with([](auto& o) { o.schedule = SURELEAP_THRESHOLD, o.confidence = 1, o.threshold = 2.0; }) ==
          "threshold_schedule: threshold is 2, expected a number in [0, 1]");
    CHECK(with([](auto& o) {
              o.rule = SURELEAP_GREEDY_MATCH, o.draft_rule = SURELEAP_DRAFT_COUPLED;
          }).find("greedy_match takes no other") != std::string::npos);

    sureleap_round_options const o = plain();
    std::size_t bytes = 0;
    sureleap_error error{};
    REQUIRE(sureleap_round_bytes(&o, &bytes, nullptr) == SURELEAP_OK);
    std::vector<std::byte> memory(bytes);
    sureleap_round* round = nullptr;
    CHECK(sureleap_round_create(&o, memory.data(), bytes / 2, &round, &error) == SURELEAP_NO_MEMORY);
    CHECK(std::string(error.text) == "sureleap_round_create: memory has " + std::to_string(bytes / 2) +
                                         " bytes, expected " + std::to_string(bytes));
    CHECK(sureleap_round_create(&o, nullptr, bytes, &round, &error) == SURELEAP_INVALID_ARGUMENT);
    CHECK(sureleap_round_create(nullptr, memory.data(), bytes, &round, nullptr) == SURELEAP_INVALID_ARGUMENT);
}

TEST_CASE("Calls out of order and handles that are gone are refused") {
    made_round made(plain());
    sureleap_round* const round = made.round;
    made_rows const rows(block_size + 1, 1);
    sureleap_rows const target = rows.view();
    sureleap_drafts const drafts = drafts_of(rows);
    sureleap_batch batch{};
    sureleap_verdict verdict{};
    CHECK(std::string(sureleap_round_error(round)).empty());
    CHECK(sureleap_round_draft(round, &drafts) == SURELEAP_WRONG_ORDER);
    CHECK(std::string(sureleap_round_error(round)) ==
          "sureleap_round_draft: called out of order, expected a round that has begun and is not admitted");
    CHECK(sureleap_round_admit(round, &batch) == SURELEAP_WRONG_ORDER);
    CHECK(sureleap_round_accept(round, &target) == SURELEAP_WRONG_ORDER);
    CHECK(sureleap_round_end(round, &verdict, 1) == SURELEAP_WRONG_ORDER);
    sureleap_request q = request_at(0);
    REQUIRE(sureleap_round_begin(round, &q, 1, nullptr) == SURELEAP_OK);
    REQUIRE(sureleap_round_admit(round, &batch) == SURELEAP_OK);
    CHECK(sureleap_round_draft(round, &drafts) == SURELEAP_WRONG_ORDER);
    CHECK(sureleap_round_end(round, &verdict, 1) == SURELEAP_WRONG_ORDER);
    q.anchor = 77;
    CHECK(sureleap_round_begin(round, &q, 1, nullptr) == SURELEAP_INVALID_ARGUMENT);
    CHECK(sureleap_round_accept(round, &target) == SURELEAP_WRONG_ORDER);  // the round before was given up

    CHECK(sureleap_round_begin(nullptr, &q, 1, nullptr) == SURELEAP_INVALID_HANDLE);
    CHECK(sureleap_cost_destroy(reinterpret_cast<sureleap_cost*>(round)) == SURELEAP_INVALID_HANDLE);
    CHECK(sureleap_round_destroy(round) == SURELEAP_OK);
    CHECK(sureleap_round_destroy(round) == SURELEAP_INVALID_HANDLE);
    CHECK(sureleap_round_begin(round, &q, 1, nullptr) == SURELEAP_INVALID_HANDLE);
    CHECK(std::string(sureleap_round_error(round)).find("was destroyed") != std::string::npos);
    made.round = nullptr;
}

TEST_CASE("A round that is given up draws the same tokens again, and a step allocates nothing") {
    made_round const made(plain());
    made_rows const draft(block_size, 1);
    made_rows const target(block_size + 1, 2);
    sureleap_request const q = request_at(3);
    std::array<std::int32_t, block_size> first{};
    std::array<std::int32_t, block_size> again{};
    std::size_t const before = allocations.load();
    sureleap_drafts drafts = drafts_of(draft);
    drafts.drawn = first.data();
    bool good = sureleap_round_begin(made.round, &q, 1, nullptr) == SURELEAP_OK;
    good = good && sureleap_round_draft(made.round, &drafts) == SURELEAP_OK;
    good = good && sureleap_round_rollback(made.round) == SURELEAP_OK;
    drafts.drawn = again.data();
    good = good && sureleap_round_begin(made.round, &q, 1, nullptr) == SURELEAP_OK;
    good = good && sureleap_round_draft(made.round, &drafts) == SURELEAP_OK;
    sureleap_batch batch{};
    good = good && sureleap_round_admit(made.round, &batch) == SURELEAP_OK;
    sureleap_rows const rows = target.view();
    good = good && sureleap_round_accept(made.round, &rows) == SURELEAP_OK;
    sureleap_verdict verdict{};
    good = good && sureleap_round_end(made.round, &verdict, 1) == SURELEAP_OK;
    std::size_t const after = allocations.load();
    CHECK(good);
    CHECK(after == before);
    CHECK(first == again);
    CHECK(verdict.rows_kept + verdict.rows_rolled_back == batch.rows);
}

TEST_CASE("A round that is run again is the same round") {
    sureleap_round_options options = plain();
    options.max_requests = 2;
    made_round const made(options);
    made_rows const draft(2 * block_size, 1);
    made_rows const target(2 * (block_size + 1), 2);
    sureleap_rows const rows = target.view();
    std::array<sureleap_request, 2> both{request_at(3), request_at(3)};
    both[1].id = 7;
    both[1].slot = 1;
    both[1].seed = 10;
    std::array<std::int32_t, 2 * block_size> mine{};  // drawn outside, in some way
    sureleap_drafts drafts = drafts_of(draft);
    drafts.tokens = mine.data();
    auto const begin = [&](std::size_t first, std::size_t count) {
        return sureleap_round_begin(made.round, both.data() + first, count, nullptr);
    };
    auto const says = [&](char const* what) {
        return std::string(sureleap_round_error(made.round)).find(what) != std::string::npos;
    };
    sureleap_batch batch{};
    std::array<sureleap_verdict, 2> verdicts{};
    auto const finish = [&](std::size_t count) {
        REQUIRE(sureleap_round_admit(made.round, &batch) == SURELEAP_OK);
        REQUIRE(sureleap_round_accept(made.round, &rows) == SURELEAP_OK);
        REQUIRE(sureleap_round_end(made.round, verdicts.data(), count) == SURELEAP_OK);
        return verdicts[0].outcome;
    };

    // It failed after something was drafted, and is run again by both.
    REQUIRE(begin(0, 2) == SURELEAP_OK);
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    CHECK(sureleap_round_rollback(made.round) == SURELEAP_OK);
    CHECK(begin(0, 1) == SURELEAP_INVALID_ARGUMENT);
    CHECK(says("there are 1 of the 2 requests of the round that failed"));
    REQUIRE(begin(0, 2) == SURELEAP_OK);
    mine[0] = 1;
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    CHECK(sureleap_round_admit(made.round, &batch) == SURELEAP_INVALID_ARGUMENT);
    CHECK(says("request 0 (id 0) has another draft than in the attempt that failed"));
    REQUIRE(begin(0, 2) == SURELEAP_OK);
    mine[0] = 0;
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    REQUIRE(sureleap_round_admit(made.round, &batch) == SURELEAP_OK);

    // It failed again, and lengths are decided: each may be run alone, with its tokens, in its slot.
    both[0].slot = 1;
    CHECK(begin(0, 1) == SURELEAP_INVALID_ARGUMENT);
    CHECK(says("has slot 1, expected slot 0"));
    both[0].slot = 0;
    REQUIRE(begin(0, 1) == SURELEAP_OK);
    mine[0] = 1;
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    CHECK(finish(1) == SURELEAP_REQUEST_OTHER_DRAFT);
    CHECK(verdicts[0].emitted_count == 0);
    REQUIRE(begin(0, 1) == SURELEAP_OK);
    mine[0] = 0;
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    CHECK(finish(1) == SURELEAP_REQUEST_OK);
    CHECK(static_cast<int>(sureleap::status::other_draft) == SURELEAP_REQUEST_OTHER_DRAFT);
    CHECK(static_cast<int>(sureleap::status::invalid_target) == SURELEAP_REQUEST_INVALID_TARGET);
}

TEST_CASE("Probabilities are q as they stand, and lists are taken in any order") {
    made_rows const logits(block_size, 1);
    made_rows const target(block_size + 1, 2);
    std::vector<float> probabilities(logits.numbers);
    for (float& x : probabilities) x = 0.25f * std::exp(x);  // up to a factor
    sureleap_round_options o = plain();
    made_round const of_logits(o);
    o.q_values = SURELEAP_Q_PROBABILITIES;
    made_round const of_probabilities(o);
    o.q = SURELEAP_Q_SPARSE;
    o.list_size = V;
    made_round const of_lists(o);

    std::vector<std::int32_t> list(block_size * V);
    std::vector<float> beside(block_size * V);
    for (std::size_t i = 0; i < list.size(); ++i) {
        std::size_t const j = V - 1 - i % V;  // backwards
        list[i] = static_cast<std::int32_t>(j);
        beside[i] = probabilities[i / V * V + j];
    }
    sureleap_drafts dense = drafts_of(logits);
    sureleap_drafts given = dense;
    given.rows.data = probabilities.data();
    sureleap_drafts lists = given;
    lists.rows.data = beside.data();
    lists.list_tokens = list.data();
    lists.list_stride = V;
    std::array<std::int32_t, block_size> drawn{};
    for (std::uint64_t position = 0; position < 400; position += 8) {
        auto const expected = step(of_logits.round, position, dense, target.view());
        CHECK(step(of_probabilities.round, position, given, target.view()) == expected);
        lists.drawn = drawn.data();
        CHECK(step(of_lists.round, position, lists, target.view()) == expected);
    }
    // A token that is named twice: no law.
    list[0] = list[1];
    sureleap_request const q = request_at(400);
    sureleap_batch batch{};
    sureleap_verdict verdict{};
    sureleap_rows const rows = target.view();
    REQUIRE(sureleap_round_begin(of_lists.round, &q, 1, nullptr) == SURELEAP_OK);
    REQUIRE(sureleap_round_draft(of_lists.round, &lists) == SURELEAP_OK);
    CHECK(drawn[0] == -1);
    REQUIRE(sureleap_round_admit(of_lists.round, &batch) == SURELEAP_OK);
    REQUIRE(sureleap_round_accept(of_lists.round, &rows) == SURELEAP_OK);
    REQUIRE(sureleap_round_end(of_lists.round, &verdict, 1) == SURELEAP_OK);
    CHECK(verdict.outcome == SURELEAP_REQUEST_OK);
    CHECK(verdict.draft_outcome == SURELEAP_REQUEST_INVALID_DRAFT);
    CHECK(verdict.drafted == 0);
    CHECK(verdict.emitted_count == 1);
}

TEST_CASE("What rows bring along changes no token, and tokens that q excludes are no drafts") {
    made_round const made(plain());
    made_round const bare(plain());
    made_rows const draft(block_size, 1);
    made_rows const target(block_size + 1, 2);
    std::vector<float> normalisers;
    for (std::size_t row = 0; row <= block_size; ++row) {
        double sum = 0.0;
        for (std::size_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(target.numbers[row * V + v]));
        normalisers.push_back(static_cast<float>(std::log(sum)));
    }
    sureleap_rows with = target.view();
    with.log_normalisers = normalisers.data();
    std::vector<float> const ones(block_size + 1, 1.0f);
    sureleap_rows with_sums = with;
    with_sums.block_sums = ones.data();
    with_sums.block_sums_stride = 1;
    for (std::uint64_t position = 0; position < 400; position += 8) {
        auto const expected = step(bare.round, position, drafts_of(draft), target.view());
        CHECK(step(made.round, position, drafts_of(draft), position % 16 == 0 ? with : with_sums) == expected);
    }

    std::vector<float> masked(draft.numbers);
    masked[2] = -INFINITY;
    std::array<std::int32_t, block_size> const tokens{2, 1, 1};
    sureleap_drafts drafts = drafts_of(draft);
    drafts.rows.data = masked.data();
    drafts.tokens = tokens.data();
    sureleap_request const q = request_at(400);
    std::array<std::int32_t, block_size> chain{};
    drafts.drawn = chain.data();
    REQUIRE(sureleap_round_begin(made.round, &q, 1, nullptr) == SURELEAP_OK);
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    CHECK(chain[0] == -1);
}

TEST_CASE("Costs and calibrations are those of their options") {
    std::vector<std::byte> memory(sureleap_cost_bytes());
    sureleap_cost_options o;
    sureleap_cost_options_init(&o);
    o.prices.fixed = 2.0;
    o.prices.batch_token = 0.5;
    sureleap_cost* cost = nullptr;
    sureleap_error error{};
    REQUIRE(sureleap_cost_create(&o, memory.data(), memory.size(), &cost, &error) == SURELEAP_OK);
    sureleap_load const load{1, 4, 0, 0, 10, 0, 0};
    double seconds = 0.0;
    CHECK(sureleap_cost_seconds(cost, &load, &seconds) == SURELEAP_OK);
    CHECK(seconds == 4.0);
    o.prices.unread_token = 0.25;
    o.prices.replay = 3.0;
    std::vector<std::byte> other_memory(sureleap_cost_bytes());
    sureleap_cost* behind = nullptr;
    REQUIRE(sureleap_cost_create(&o, other_memory.data(), other_memory.size(), &behind, &error) == SURELEAP_OK);
    sureleap_load const owing{1, 4, 1, 3, 10, 8, 1};
    CHECK(sureleap_cost_seconds(behind, &owing, &seconds) == SURELEAP_OK);
    CHECK(seconds == 4.0 + 2.0 + 3.0);

    // A cost that is gone is noticed by the round that it was lent to.
    sureleap_round_options round_options = plain();
    round_options.schedule = SURELEAP_GREEDY;
    round_options.confidence = SURELEAP_CONFIDENCE_TOP1;
    round_options.cost = cost;
    made_round const made(round_options);
    REQUIRE(made.result == SURELEAP_OK);
    CHECK(sureleap_cost_destroy(cost) == SURELEAP_OK);
    CHECK(sureleap_cost_seconds(cost, &load, &seconds) == SURELEAP_INVALID_HANDLE);
    sureleap_request const q = request_at(0);
    CHECK(sureleap_round_begin(made.round, &q, 1, nullptr) == SURELEAP_INVALID_HANDLE);
    o.prices.fixed = -1.0;
    CHECK(sureleap_cost_create(&o, memory.data(), memory.size(), &cost, &error) == SURELEAP_INVALID_ARGUMENT);
    CHECK(std::string(error.text) == "additive_cost: fixed is -1 seconds, expected a number in [0, 1e9]");

    std::vector<std::byte> maps(sureleap_calibration_bytes());
    double const temperatures[] = {2.0, 1.0, 1.0};
    sureleap_calibration_options c;
    sureleap_calibration_options_init(&c);
    c.block_size = block_size;
    sureleap_calibration* calibration = nullptr;
    CHECK(sureleap_calibration_create(&c, maps.data(), maps.size(), &calibration, &error) == SURELEAP_INVALID_ARGUMENT);
    c.temperatures = temperatures;
    REQUIRE(sureleap_calibration_create(&c, maps.data(), maps.size(), &calibration, &error) == SURELEAP_OK);
    double calibrated = 0.0;
    CHECK(sureleap_calibration_apply(calibration, nullptr, 0, 0.9, &calibrated) == SURELEAP_OK);
    CHECK(std::abs(calibrated - 0.75) < 1e-12);  // odds of 9 become odds of 3
    CHECK(sureleap_calibration_apply(calibration, nullptr, block_size, 0.9, &calibrated) == SURELEAP_INVALID_ARGUMENT);
    CHECK(std::string(sureleap_calibration_error(calibration)) ==
          "sureleap_calibration_apply: k is 3, expected 0 .. 2");
    CHECK(sureleap_calibration_observe(calibration, made.round) == SURELEAP_WRONG_ORDER);
    CHECK(sureleap_calibration_destroy(calibration) == SURELEAP_OK);
    round_options = plain();
    round_options.calibration = calibration;
    CHECK(refusal(round_options, SURELEAP_INVALID_HANDLE).find("calibration was destroyed") != std::string::npos);
}

TEST_CASE("Requests without a seed do not share a stream") {
    std::vector<float> const flat(2 * V, 0.0f);
    auto const texts_of = [&](std::uint64_t base) {
        sureleap_round_options options = plain();
        options.max_requests = 2;
        options.seed = base;
        made_round const made(options);
        std::array<std::vector<std::int32_t>, 2> texts;
        for (std::uint64_t position = 0; position < 40; ++position) {
            std::array<sureleap_request, 2> both{};
            for (std::size_t r = 0; r < 2; ++r) {
                sureleap_request_init(&both[r]);
                both[r].id = 5 + r;
                both[r].slot = r;
                both[r].anchor = 1;
                both[r].position = position;
                both[r].draft_limit = 0;
            }
            sureleap_batch batch{};
            std::array<sureleap_verdict, 2> verdicts{};
            sureleap_rows const rows{flat.data(), 2, V, V, nullptr, nullptr, 0, 0};
            REQUIRE(sureleap_round_begin(made.round, both.data(), 2, nullptr) == SURELEAP_OK);
            REQUIRE(sureleap_round_admit(made.round, &batch) == SURELEAP_OK);
            REQUIRE(sureleap_round_accept(made.round, &rows) == SURELEAP_OK);
            REQUIRE(sureleap_round_end(made.round, verdicts.data(), 2) == SURELEAP_OK);
            for (std::size_t r = 0; r < 2; ++r) texts[r].push_back(verdicts[r].emitted[0]);
        }
        return texts;
    };
    auto const texts = texts_of(3);
    CHECK(texts[0] != texts[1]);
    CHECK(texts_of(3) == texts);        // the same base, the same texts
    CHECK(texts_of(4) != texts);        // another base
    CHECK(texts_of(0) != texts_of(0));  // the system's
}

TEST_CASE("Outcomes have texts, and rows of a target that pads are checked") {
    CHECK(std::string(sureleap_outcome_text(SURELEAP_REQUEST_OK)) == "ok");
    CHECK(std::string(sureleap_outcome_text(SURELEAP_REQUEST_INVALID_DRAFT)) == "invalid draft logits");
    CHECK(std::string(sureleap_outcome_text(SURELEAP_REQUEST_INVALID_CONFIDENCE)) == "invalid confidence");
    CHECK(std::string(sureleap_outcome_text(SURELEAP_REQUEST_INVALID_TARGET)) ==
          "invalid target logits, or a normaliser or block sums that are not theirs");
    CHECK(std::string(sureleap_outcome_text(SURELEAP_REQUEST_OTHER_DRAFT)).find("another draft") == 0);
    for (std::int32_t const none : {-1, 99, 255, 256, 1 << 30}) {
        CHECK(std::string(sureleap_outcome_text(none)) == "unknown status");
    }
    made_round made(plain());
    made_rows const drafted(block_size, 2);
    made_rows const scored(block_size + 1, 1);
    sureleap_request const q = request_at(0);
    sureleap_drafts const drafts = drafts_of(drafted);
    sureleap_batch batch{};
    REQUIRE(sureleap_round_begin(made.round, &q, 1, nullptr) == SURELEAP_OK);
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    REQUIRE(sureleap_round_admit(made.round, &batch) == SURELEAP_OK);
    sureleap_rows rows = scored.view();
    rows.per_request = block_size;  // one less than it verifies
    CHECK(sureleap_round_accept(made.round, &rows) == SURELEAP_INVALID_ARGUMENT);
    CHECK(std::string(sureleap_round_error(made.round)).find("(per_request), expected at least the") !=
          std::string::npos);
    rows.per_request = block_size + 5;
    CHECK(sureleap_round_accept(made.round, &rows) == SURELEAP_OK);
}

TEST_CASE("Rows for each request are refused where the places of later requests overflow") {
    constexpr std::size_t requests = 3;
    sureleap_round_options o = plain();
    o.max_requests = requests;
    made_round made(o);
    made_rows const drafted(requests * block_size, 2);
    made_rows const scored(requests * (block_size + 1), 1);
    std::vector<sureleap_request> queue;
    for (std::uint64_t id = 1; id <= requests; ++id) {
        queue.push_back(request_at(0));
        queue.back().id = id;
        queue.back().slot = id - 1;
    }
    sureleap_drafts const drafts = drafts_of(drafted);
    sureleap_batch batch{};
    REQUIRE(sureleap_round_begin(made.round, queue.data(), requests, nullptr) == SURELEAP_OK);
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    REQUIRE(sureleap_round_admit(made.round, &batch) == SURELEAP_OK);
    sureleap_rows rows = scored.view();
    rows.per_request = SIZE_MAX / 2 + 1;  // the place of request 2 is 0 again
    CHECK(sureleap_round_accept(made.round, &rows) == SURELEAP_INVALID_ARGUMENT);
    CHECK(std::string(sureleap_round_error(made.round)).find("expected enough for the") != std::string::npos);
    rows.per_request = block_size + 1;
    CHECK(sureleap_round_accept(made.round, &rows) == SURELEAP_OK);
}

TEST_CASE("The likeliest tokens beside each one that is emitted") {
    sureleap_round_options o = plain();
    o.top_log_probabilities = 3;
    made_round made(o);
    made_rows const drafted(block_size, 2);
    made_rows const scored(block_size + 1, 1);
    sureleap_request q = request_at(0);
    q.log_probabilities = 1;
    q.raw_log_probabilities = 1;
    q.top_log_probabilities = 4;
    CHECK(sureleap_round_begin(made.round, &q, 1, nullptr) == SURELEAP_INVALID_ARGUMENT);
    CHECK(std::string(sureleap_round_error(made.round)).find("asks for 4 top_log_probabilities") != std::string::npos);
    q.top_log_probabilities = 2;
    sureleap_drafts const drafts = drafts_of(drafted);
    sureleap_batch batch{};
    sureleap_verdict v{};
    REQUIRE(sureleap_round_begin(made.round, &q, 1, nullptr) == SURELEAP_OK);
    REQUIRE(sureleap_round_draft(made.round, &drafts) == SURELEAP_OK);
    REQUIRE(sureleap_round_admit(made.round, &batch) == SURELEAP_OK);
    sureleap_rows const rows = scored.view();
    REQUIRE(sureleap_round_accept(made.round, &rows) == SURELEAP_OK);
    REQUIRE(sureleap_round_end(made.round, &v, 1) == SURELEAP_OK);
    REQUIRE(v.emitted_count > 0);
    REQUIRE(v.top_log_probabilities != nullptr);
    for (std::size_t i = 0; i < v.emitted_count; ++i) {
        auto const* const top = v.top_log_probabilities + 2 * i;
        CHECK(top[0].log_probability >= top[1].log_probability);
        CHECK(v.log_probabilities[i] <= top[0].log_probability);
        if (v.emitted[i] == top[0].token) CHECK(v.log_probabilities[i] == top[0].log_probability);
    }
}
