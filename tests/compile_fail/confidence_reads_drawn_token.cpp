// SPDX-License-Identifier: MIT
//
// A confidence that was computed after x_k was drawn biases the output even on the causal frontier.
// expect-error: semi_autoregressive: the confidence must be callable as c.hidden, previous, k. or c.q, k. before
// expect-error: a confidence that reads x_k would make every schedule anticipating
#include "parts.hpp"

using namespace parts;

struct after_the_draw {
    double operator()(std::span<float const>, token_id, token_id x_k, std::size_t) const { return 1.0 / (1 + x_k); }
};
struct before_the_draw {
    double operator()(std::span<float const>, token_id previous, std::size_t) const { return 1.0 / (1 + previous); }
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    auto drafts = make_parallel(after_the_draw{});
#else
    auto drafts = make_parallel(before_the_draw{});
#endif
    return static_cast<int>(drafts.block_size());
}
