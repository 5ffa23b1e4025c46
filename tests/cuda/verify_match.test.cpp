// SPDX-License-Identifier: MIT
//
// On the device against the host: rules whose target chooses first, and rules over drafts that are an argmax.
#include "cuda/support/verify_round.hpp"

#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

using namespace support;

TEMPLATE_TEST_CASE("cuda verify: matching rules and argmax drafts give the host's tokens", "[cuda]", greedy_match,
                   target_match<>, target_match<categorical_draft>, keyed_coupling, token_rejection<argmax_draft>,
                   block_verification<argmax_draft>) {
    tally sum;
    judge_many<TestType, float>(21, 30, sum);
    judge_many<TestType, bf16>(22, 30, sum);
    judge_many<TestType, half>(23, 15, sum);
    sum.check();
    CHECK(sum.accepted > 0);
    CHECK(sum.refused > 0);
}
