// SPDX-License-Identifier: MIT
//
// Growing a tree without a drafter, for a simulation or a test: best node first, each token drawn from a law that a
// source gives, at places whose worth is known before the draw.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Every node has the same law. Eldest children are accepted in six of ten cases, and each younger one half as often.
struct level_source {
    std::array<float, 4> logits{2.0f, 1.5f, 1.0f, 0.0f};

    [[nodiscard]] distribution<float> law(draft_tree const&, node_id) const {
        return {{.values = logits}, transform{}, {}};
    }
    [[nodiscard]] double acceptance(draft_tree const&, node_id, std::size_t j) const {
        return j == 0 ? 0.6 : 0.6 / static_cast<double>(2 * j);
    }
};

int main() {
    constexpr std::size_t most = 6;
    workspace counted;
    (void)draft_tree{counted, most};
    (void)tree_growth<float>{counted, most};
    std::vector<std::byte> bytes(counted.used());
    workspace ws{bytes};
    draft_tree tree{ws, most};
    tree_growth<float> growth{ws, most};

    request_settings const settings;
    request_view const request{.id = 1, .anchor = 0, .position = 5, .seed = 3, .remaining = 20, .settings = &settings};
    level_source source;
    philox_randomness rng;
    growth(tree, request, {.nodes = most, .depth = 3, .children = 2}, source, rng, categorical_draft{});
    // Nodes are rows of the target's batch, the anchor's first. A row attends to its ancestors and to itself.
    std::array<std::uint64_t, most + 1> masks{};
    tree.ancestors(masks);
    for (std::size_t n = 0; n < tree.size(); ++n) {
        std::printf("row %zu: token %d behind row %d, attends to %02x, accepted with %.3f\n", n, tree.tokens()[n],
                    tree.parents()[n], static_cast<unsigned>(masks[n]), growth.reach()[n]);
    }

    // What siblings are worth is learned: second children that are accepted as often as their confidence says.
    sibling_worth worth;
    for (int i = 0; i < 1000; ++i) worth.observe(1, 0.5, i % 2 == 0);
    std::printf("a second child is worth %.1f of its confidence\n", worth(1));
}

// Prints:
// row 0: token 0 behind row -1, attends to 01, accepted with 1.000
// row 1: token 0 behind row 0, attends to 03, accepted with 0.600
// row 2: token 1 behind row 1, attends to 07, accepted with 0.360
// row 3: token 0 behind row 2, attends to 0f, accepted with 0.216
// row 4: token 2 behind row 0, attends to 11, accepted with 0.120
// row 5: token 2 behind row 1, attends to 23, accepted with 0.072
// row 6: token 0 behind row 4, attends to 51, accepted with 0.072
// a second child is worth 1.0 of its confidence
