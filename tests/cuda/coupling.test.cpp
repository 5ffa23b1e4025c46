// SPDX-License-Identifier: MIT
//
// Races and truncation inside the verification: rows of many tiles, whose winner is put together from those of many warps,
// and laws whose cutoff is found by the block that completes the row.
#include "cuda/support/verify_round.hpp"

#include <sureleap/acceptance/coupled.hpp>
#include <sureleap/acceptance/match.hpp>
#include <sureleap/acceptance/rejection.hpp>

using namespace support;

namespace {

template <class Rule, class T>
void judge_long_rows(std::uint64_t seed, std::optional<transform> const& target, tally& sum) {
    dice roll{seed};
    for (std::size_t const vocabulary : {33000u, 66001u}) {
        for (double const distance : {0.0, 0.3}) {
            round_wishes const wishes{.vocabulary = vocabulary,
                                      .requests = 2,
                                      .block_size = 2,
                                      .target = target,
                                      .distance = distance,
                                      .twice = true};
            INFO("seed " << seed << ", V " << vocabulary << ", distance " << distance);
            judge_twice<Rule, T>(roll, wishes, sum);
        }
    }
}

}  // namespace

TEST_CASE("cuda coupling: rows of many tiles", "[cuda]") {
    tally sum;
    judge_long_rows<keyed_coupling, float>(51, transform{.temperature = 1.0}, sum);
    judge_long_rows<keyed_coupling, bf16>(52, transform{.temperature = 0.7}, sum);
    judge_long_rows<keyed_coupling, half>(53, std::nullopt, sum);
    sum.check();
    CHECK(sum.accepted > 0);
}

TEST_CASE("cuda coupling: equal laws choose equal tokens, so every draft is accepted", "[cuda]") {
    dice roll{54};
    INFO("seed " << roll.seed());
    tally sum;
    for (std::size_t const vocabulary : {1000u, 3000u, 9000u}) {
        for (row_shape const shape : {row_shape::bell, row_shape::few_values, row_shape::masked}) {
            round_wishes const wishes{.vocabulary = vocabulary,
                                      .target = transform{.temperature = 1.0},
                                      .bad_rows = false,
                                      .distance = 0.0,
                                      .level = 0.0,
                                      .shape = shape};
            judge_twice<keyed_coupling, bf16>(roll, wishes, sum);
        }
    }
    sum.check();
    // Nothing but a length that is shorter than the block, a stop token or the end of the request ends one early.
    CHECK(sum.accepted >= sum.tokens / 2);
}

TEMPLATE_TEST_CASE("cuda verify: truncated laws of long rows", "[cuda]", keyed_coupling, target_match<>,
                   token_rejection<>) {
    tally sum;
    judge_long_rows<TestType, bf16>(61, transform{.temperature = 0.9, .top_k = 50, .top_p = 0.95}, sum);
    judge_long_rows<TestType, float>(62, transform{.temperature = 1.0, .top_p = 0.8}, sum);
    judge_long_rows<TestType, half>(63, transform{.temperature = 1.2, .top_k = 2000, .min_p = 0.01}, sum);
    sum.check();
}
