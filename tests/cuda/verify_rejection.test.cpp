// SPDX-License-Identifier: MIT
//
// Token rejection on the device against the host.
#include "cuda/support/verify_round.hpp"

#include "cuda/support/seeds.hpp"

#include <sureleap/verify/rejection.hpp>

using namespace support;

TEST_CASE("cuda verify: token rejection gives the host's tokens", "[cuda]") {
    tally sum;
    judge_many<token_rejection<>, float>(1, 60, sum);
    judge_many<token_rejection<>, bf16>(2, 60, sum);
    judge_many<token_rejection<>, half>(3, 60, sum);
    sum.check();
    CHECK(sum.accepted > sum.requests / 4);
    CHECK(sum.refused > 0);
}
