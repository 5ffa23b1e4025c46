// SPDX-License-Identifier: MIT
//
// A parallel draft whose confidence can only be asked token by token.
// expect-error: planned_schedule asks for confidences at the anchor, before any token is drawn
// expect-error: and a confidence with at_anchor
// expect-error: use top_k_schedule otherwise
#include "parts.hpp"

using namespace parts;

struct live_only {
    double operator()(std::span<float const>, token_id previous, std::size_t) const { return 1.0 / (1 + previous); }
};
struct also_at_anchor : live_only {
    double at_anchor(std::span<float const>, token_id, std::size_t) const { return 0.6; }
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_parallel(live_only{}), planned_schedule{curve{}}, token_rejection{}};
#else
    decoder dec{make_target(), make_parallel(live_only{}), top_k_schedule{curve{}}, token_rejection{}};
    decoder planned{make_target(), make_parallel(also_at_anchor{}), planned_schedule{curve{}}, token_rejection{}};
#endif
    return dec.step() ? 1 : 0;
}
