// SPDX-License-Identifier: MIT
//
// Rounds in float: the same tokens through the C header as in C++.
#include "support/c_same_tokens.hpp"

TEST_CASE("Rounds in float give the same tokens through the C header") {
    c_rounds::same_tokens<float>(c_rounds::calibrated::no);
}
