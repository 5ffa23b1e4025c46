// SPDX-License-Identifier: MIT
//
// Keyed coupling on the device: what it promises of equal distributions.
#include "cuda/support/verify_round.hpp"

#include <sureleap/verify/coupled.hpp>

using namespace support;

TEST_CASE("cuda coupling: equal distributions choose equal tokens, so every draft is accepted", "[cuda]") {
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
