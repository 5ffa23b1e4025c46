// SPDX-License-Identifier: MIT
//
// What came of promises: tokens accepted for each that survivals promised, throughput reached for each that was
// forecast.
#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <sureleap/serving/draft_evidence.hpp>

using namespace sureleap;

namespace {

constexpr std::size_t block = 2;  // gamma

/// One request whose drafts survive with 1/2 and 1/4.
struct halves {
    request_settings settings{};
    request_view request{.id = 1, .remaining = 100, .settings = &settings};
    std::array<fixed_probability, block> survival{certain / 2, certain / 4};
    std::array<fixed_probability, block> confidence{certain / 2, certain / 2};
    std::array<token_id, block + 1> emitted{};
    std::uint32_t size = block;
    bool found = false;
    verdict judged{};

    round_record accepted(std::size_t count, std::size_t verified = block) {
        judged = {
            .id = 1, .drafted = block, .verified = verified, .accepted = count, .emitted = {emitted.data(), count + 1}};
        return {.requests = {&request, 1},
                .verdicts = {&judged, 1},
                .survivals = {block, {&size, 1}, confidence, survival},
                .found = {&found, 1}};
    }
};
double const believed = detail::never_lose_tuning::believed;

bool near(double a, double b) {
    return std::abs(a - b) < 1e-12;
}

}  // namespace

TEST_CASE("trust is accepted tokens for promised ones, from a beginning of some that kept their promise") {
    struct {
        std::size_t accepted, verified;
        double first, second;  // tokens accepted beyond `believed`, of which promised ones are 1/2 and 1/4
    } const table[] = {{0, 2, 0.0, 0.0}, {1, 2, 1.0, 0.0}, {2, 2, 1.0, 1.0}, {1, 1, 1.0, -1.0}, {0, 0, -1.0, -1.0}};
    for (auto const& row : table) {
        INFO(row.accepted << " accepted of " << row.verified);
        halves round;
        detail::draft_trust trust(block);
        trust.observe(round.accepted(row.accepted, row.verified), block, 1e12, 1e12);
        // Negative: nothing was judged there, so nothing was learned.
        CHECK(near(trust.ratios()[0], row.first < 0.0 ? 1.0 : (believed + row.first) / (believed + 0.5)));
        CHECK(near(trust.ratios()[1], row.second < 0.0 ? 1.0 : (believed + row.second) / (believed + 0.25)));
    }
}

TEST_CASE("trust forgets by promised tokens, faster beyond the limit; tokens that were found tell nothing") {
    halves round;
    detail::draft_trust trust(block), of_found(block);
    // 1/2 of a token of a memory of 1/2: half of the past stays. 1/4 of one of 1/4 beyond the limit.
    trust.observe(round.accepted(1), 1, 0.5, 0.25);
    CHECK(near(trust.ratios()[0], (0.5 * believed + 1.0) / (0.5 * believed + 0.5)));
    CHECK(near(trust.ratios()[1], 0.5 * believed / (0.5 * believed + 0.25)));
    round.found = true;
    of_found.observe(round.accepted(0), block, 1.0, 1.0);
    CHECK(of_found.ratios()[0] == 1.0);
}

TEST_CASE("what a round was worth, in expectation") {
    halves round;
    detail::draft_trust const trust(block);
    CHECK(near(trust.tokens(round.accepted(0), 1.0), 1.75));
    CHECK(near(trust.tokens(round.accepted(0, 1), 1.0), 1.5));
    CHECK(near(trust.rejections(round.accepted(0)), 0.75));
    CHECK(near(trust.rejections(round.accepted(0, 0)), 0.0));
    round_record const ended = round.accepted(2);
    round.judged.emitted = round.judged.emitted.first(2);  // the text ends at a draft: no correction, no bonus
    CHECK(near(trust.tokens(ended, 1.0), 0.75));
}

TEST_CASE("yield is throughput reached for what was promised, over some ten rounds") {
    detail::schedule_yield yield;
    yield.at_load(16.0);
    CHECK(yield.value() == 1.0);
    yield.observe(2.0, 0.0);  // one poor round is chance
    CHECK(near(yield.value(), 9.0 / 11.0));
    for (int i = 0; i < 200; ++i) yield.observe(2.0, 1.0);
    CHECK(std::abs(yield.value() - 0.5) < 1e-6);
    yield.observe(1.0, 100.0);
    CHECK(yield.value() == 1.0);
}

TEST_CASE("yield at another load is another, and nothing is held against a schedule forever") {
    struct {
        double requests;
        bool same;
    } const table[] = {{16.0, true}, {20.0, true}, {12.0, true}, {21.0, false}, {11.0, false}, {1.0, false}};
    for (auto const& row : table) {
        INFO(row.requests << " requests after 16");
        detail::schedule_yield yield;
        yield.at_load(16.0);
        for (int i = 0; i < 50; ++i) yield.observe(2.0, 1.0);
        double const before = yield.value();
        yield.at_load(row.requests);
        CHECK(yield.value() == (row.same ? before : 1.0));
    }
    detail::schedule_yield yield;
    for (int i = 0; i < 50; ++i) yield.observe(2.0, 1.0);
    double const missing = 1.0 - yield.value();
    for (int i = 0; i < 1400; ++i) yield.forgive();
    CHECK(1.0 - yield.value() < 0.5 * missing);  // half in 1386 rounds
    CHECK(1.0 - yield.value() > 0.49 * missing);
}
