// SPDX-License-Identifier: MIT
//
// Rounds in bf16, with a calibration that learns from them: the same tokens through the C header as in C++.
#include "support/c_same_tokens.hpp"

TEST_CASE("Rounds in bf16 give the same tokens through the C header") {
    c_rounds::same_tokens<sureleap::bf16>(c_rounds::calibrated::online);
}
