// SPDX-License-Identifier: MIT
//
// The value of a child is asked for by the token that was drawn for it: whether it exists would depend on it.
// expect-error: tree_growth: the source needs law.tree, node. -> distribution<Q> and acceptance.tree, node, j. -> double
#include "parts.hpp"

using namespace parts;

struct source {
    [[nodiscard]] distribution<float> law(draft_tree const&, node_id) const {
        return distribution<float>::one_hot(4, 1);
    }
#ifdef SURELEAP_EXPECT_FAILURE
    struct drawn {
        token_id token;
    };
    [[nodiscard]] double acceptance(draft_tree const&, node_id, drawn) const { return 0.5; }
#else
    [[nodiscard]] double acceptance(draft_tree const&, node_id, std::size_t) const { return 0.5; }
#endif
};

int main() {
    workspace counting;
    draft_tree tree(counting, 1);
    tree_growth<float> growth(counting, 1);
    auto const grow = [&](request_view const& request) {
        source knows;
        philox_randomness rng;
        growth(tree, request, {.nodes = 1}, knows, rng, categorical_draft{});
    };
    static_cast<void>(grow);
    return 0;
}
