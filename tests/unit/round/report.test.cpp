// SPDX-License-Identifier: MIT
//
// Counts and rates of a report, by hand and against a second count.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/round/report.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

token_id const some_tokens[16] = {};

verdict outcome(std::size_t drafted, std::size_t verified, std::size_t accepted, std::size_t emitted) {
    return {.drafted = drafted, .verified = verified, .accepted = accepted, .emitted = {some_tokens, emitted}};
}

}  // namespace

TEST_CASE("report: a small count by hand") {
    round_report report(3);
    CHECK(report.tau() == 0.0);
    CHECK(report.tokens_per_target_call() == 0.0);
    CHECK(report.conditional_acceptance(0) == 0.0);
    CHECK(report.survival(2) == 0.0);

    std::vector<verdict> const first{outcome(3, 3, 3, 4), outcome(3, 2, 0, 1)};
    std::vector<verdict> const second{outcome(3, 3, 1, 2), outcome(3, 0, 0, 1)};
    verdict broken = outcome(3, 3, 0, 0);
    broken.outcome = status::invalid_target;
    std::vector<verdict> const third{outcome(3, 3, 3, 2), broken};  // a stop token among the accepted: 2 emitted
    report.record(first);
    report.record(second);
    report.record(third);
    CHECK(report.block_size() == 3);
    CHECK(report.target_calls() == 3);
    CHECK(report.rounds() == 5);
    CHECK(report.failures() == 1);
    CHECK(report.drafted() == 15);
    CHECK(report.verified() == 11);
    CHECK(report.accepted() == 7);
    CHECK(report.emitted() == 10);
    CHECK(report.tau() == 2.0);
    CHECK(report.tokens_per_target_call() == 10.0 / 3.0);
    // Position 0: verified in 4 rounds, accepted in 3. Position 1: verified in 4, reached in 3, accepted in 2.
    CHECK(report.conditional_acceptance(0) == 0.75);
    CHECK(report.survival(0) == 0.75);
    CHECK(report.reached(0) == 4);
    CHECK(report.conditional_acceptance(1) == 2.0 / 3.0);
    CHECK(report.survival(1) == 0.5);
    CHECK(report.reached(1) == 3);
    CHECK(report.conditional_acceptance(2) == 1.0);
    CHECK(report.survival(2) == 2.0 / 3.0);
    CHECK(report.reached(2) == 2);
}

TEST_CASE("report: rates are those of the verified rounds, position by position") {
    support::dice roll(71);
    INFO("seed " << roll.seed());
    constexpr std::size_t gamma = 5;
    round_report report(gamma);
    std::vector<verdict> all;
    for (int step = 0; step < 500; ++step) {
        std::vector<verdict> verdicts;
        for (std::size_t r = 0; r < roll.below(4); ++r) {
            std::size_t const drafted = roll.below(gamma + 1), verified = roll.below(drafted + 1);
            std::size_t const accepted = roll.below(verified + 1);
            verdicts.push_back(outcome(drafted, verified, accepted, accepted + 1));
        }
        report.record(verdicts);
        all.insert(all.end(), verdicts.begin(), verdicts.end());
    }
    for (std::size_t k = 0; k < gamma; ++k) {
        auto const count = [&](auto keep) { return static_cast<double>(std::count_if(all.begin(), all.end(), keep)); };
        double const verified = count([&](verdict const& v) { return v.verified > k; });
        double const reached = count([&](verdict const& v) { return v.verified > k && v.accepted >= k; });
        double const accepted = count([&](verdict const& v) { return v.accepted > k; });
        CHECK(report.conditional_acceptance(k) == accepted / reached);
        CHECK(report.survival(k) == accepted / verified);
        CHECK(static_cast<double>(report.reached(k)) == reached);
    }
    // Every emitted token is an accepted one, or the one per round that is the target's own.
    CHECK(report.emitted() == report.accepted() + report.rounds());
    CHECK(std::abs(report.tau() - 1.0 - static_cast<double>(report.accepted()) / static_cast<double>(report.rounds())) <
          1e-12);
}
