// SPDX-License-Identifier: MIT
//
// Rounds in half, with a calibration that was fitted before: the same tokens through the C header as in C++.
#include "support/c_same_tokens.hpp"

TEST_CASE("Rounds in half give the same tokens through the C header") {
    c_rounds::same_tokens<sureleap::half>(c_rounds::calibrated::before);
}
