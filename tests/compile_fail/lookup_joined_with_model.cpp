// SPDX-License-Identifier: MIT
//
// A model gives logits and draws nothing: lookup is joined with a drafter around it.
// expect-error: with_lookup, with_forced: the argument is no drafter
// expect-error: autoregressive\{model, options\}
#include <sureleap/drafter/with_lookup.hpp>

#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    with_lookup joined{make_target()};
#else
    with_lookup joined{make_drafter()};
#endif
    return static_cast<int>(joined.block_size());
}
