// SPDX-License-Identifier: MIT
//
// A confidence that reads the row of q, of which a rank has a slice.
// expect-error: sharded_drafter: this confidence reads whole rows of q, which no rank has
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/sharded_drafter.hpp>

#include "parts.hpp"

using namespace parts;

struct of_token_0 {
    double operator()(distribution<float> const& q, std::size_t) const { return q.probability(0); }
};

#ifdef SURELEAP_EXPECT_FAILURE
using confidence = of_token_0;
#else
using confidence = top1_confidence;
#endif

int main() {
    one_rank ranks;
    auto const slices = vocabulary_slices::even(4, 1);
    auto backbone = [](std::span<request_view const>) { return block_forward<float>{}; };
    sharded_drafter drafter{
        parallel{backbone, confidence{}, {.block_size = 2, .vocabulary = 4, .slice = slices.tokens(0)}}, ranks, slices};
    return static_cast<int>(drafter.block_size());
}
