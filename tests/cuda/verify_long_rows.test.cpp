// SPDX-License-Identifier: MIT
//
// Verification over rows of many tiles, which many blocks read: distributions and winners that are put together from
// theirs, and distributions whose cutoff is found by the block that completes the row.
#include "cuda/support/verify_round.hpp"

#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

using namespace support;

namespace {

template <class Rule, class T>
void judge_long_rows(std::uint64_t seed, std::optional<transform> const& target, tally& sum) {
    dice roll{seed};
    for (std::size_t const vocabulary : {33000u, 66001u}) {
        for (double const distance : {0.0, 0.05, 0.3}) {
            round_wishes const wishes{.vocabulary = vocabulary,
                                      .requests = 3,
                                      .block_size = 3,
                                      .target = target,
                                      .distance = distance,
                                      .twice = true};
            INFO("seed " << seed << ", V " << vocabulary << ", distance " << distance);
            judge_twice<Rule, T>(roll, wishes, sum);
        }
    }
}

}  // namespace

TEMPLATE_TEST_CASE("cuda verify: rows of many tiles", "[cuda]", token_rejection<>, block_verification<>, greedy_match,
                   target_match<>, keyed_coupling) {
    tally sum;
    judge_long_rows<TestType, float>(51, transform{.temperature = 1.0}, sum);
    judge_long_rows<TestType, bf16>(52, transform{.temperature = 0.7}, sum);
    judge_long_rows<TestType, half>(53, std::nullopt, sum);
    sum.check();
    CHECK(sum.accepted > 0);
}

TEMPLATE_TEST_CASE("cuda verify: truncated distributions of long rows", "[cuda]", keyed_coupling, target_match<>,
                   token_rejection<>) {
    tally sum;
    judge_long_rows<TestType, bf16>(61, transform{.temperature = 0.9, .top_k = 50, .top_p = 0.95}, sum);
    // Not 0.8: of a row of 33,000 equal logits that is 26,400 tokens or one more, which is up to rounding.
    judge_long_rows<TestType, float>(62, transform{.temperature = 1.0, .top_p = 0.7999}, sum);
    judge_long_rows<TestType, half>(63, transform{.temperature = 1.2, .top_k = 2000, .min_p = 0.01}, sum);
    sum.check();
}
