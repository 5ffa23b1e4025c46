// SPDX-License-Identifier: MIT
//
// Block verification on the device against the host.
#include "cuda/support/verify_round.hpp"

#include <sureleap/verify/block.hpp>

using namespace support;

TEST_CASE("cuda verify: block verification gives the host's tokens", "[cuda]") {
    tally sum;
    judge_many<block_verification<>, float>(11, 60, sum);
    judge_many<block_verification<>, bf16>(12, 60, sum);
    judge_many<block_verification<>, half>(13, 60, sum);
    sum.check();
    CHECK(sum.accepted > sum.requests / 4);
    CHECK(sum.refused > 0);
}
