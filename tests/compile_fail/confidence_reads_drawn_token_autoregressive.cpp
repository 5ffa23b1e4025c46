// SPDX-License-Identifier: MIT
//
// q_k(x_k), the draft's probability of the very token that was drawn, is no confidence.
// expect-error: autoregressive: the confidence must be callable as c.q, k. before x_k is drawn
// expect-error: like sureleap::top1_confidence
#include "parts.hpp"

using namespace parts;

struct own_probability {
    double operator()(distribution<float> const& q, token_id x_k, std::size_t) const { return q.probability(x_k); }
};

int main() {
    drafter_options const shape{.block_size = 2, .vocabulary = 4};
#ifdef SURELEAP_EXPECT_FAILURE
    autoregressive drafts{make_target(), own_probability{}, shape};
#else
    autoregressive drafts{make_target(), top1_confidence{}, shape};
#endif
    return static_cast<int>(drafts.block_size());
}
