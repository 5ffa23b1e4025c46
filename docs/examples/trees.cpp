// SPDX-License-Identifier: MIT
//
// Trees of drafts: several tokens compete for a position. A tree drafter grows them around a semi-autoregressive
// drafter, and a rule that judges trees decides which path is kept.
#include <cstddef>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t V = 8;
constexpr std::size_t depth = 4;

struct toy_backbone {  // thinks that every token is followed by the next one or the one after it
    std::vector<float> rows;

    block_forward<float> forward(std::span<request_view const> requests) {
        rows.assign(requests.size() * depth * V, 0.0f);
        for (std::size_t i = 0; i < requests.size() * depth; ++i) {
            auto const x = static_cast<std::size_t>(requests[i / depth].anchor) + i % depth;
            rows[i * V + (x + 1) % V] = 3.0f;
            rows[i * V + (x + 2) % V] = 2.5f;
        }
        return {.hidden = {}, .base_logits = {.values = {rows.data(), requests.size() * depth, V}}};
    }
};

// A tree grows by confidences that are known before a position's q is made.
struct level_confidence {
    double operator()(std::span<float const>, token_id, std::size_t k) const { return k == 0 ? 0.6 : 0.5; }
};
static_assert(pre_token_confidence<level_confidence, float>);

template <class Drafter, class Rule>
void show(char const* name, Drafter drafter, Rule rule) {
    auto target = model_of<float>(V, [](auto context, auto logits) {
        for (float& l : logits) l = 0.0f;
        logits[static_cast<std::size_t>(context.back() + 1) % V] = 2.0f;
        logits[static_cast<std::size_t>(context.back() + 2) % V] = 3.0f;
    });
    decoder dec{target, std::move(drafter), fixed_schedule{}, rule};
    dec.submit(std::vector<token_id>{0}, {.seed = 3, .max_new_tokens = 60});
    while (dec.step()) {
    }
    std::printf("%-22s %.2f tokens a round\n", name, dec.report().tau());
}

int main() {
    auto const chains = [] {
        return parallel{toy_backbone{}, level_confidence{}, {.block_size = depth, .vocabulary = V}};
    };
    auto const trees = [&] { return tree_drafter{chains(), tree_options{.nodes = 8, .children = 2}}; };
    show("chains", chains(), token_rejection{});
    show("recursive_rejection", trees(), recursive_rejection{});
    show("traversal_verification", trees(), traversal_verification{});
    std::printf("a second child is at first worth %.2f of its confidence\n", sibling_worth{}(1));
}

// Prints:
// chains                 2.07 tokens a round
// recursive_rejection    2.50 tokens a round
// traversal_verification 2.61 tokens a round
// a second child is at first worth 0.50 of its confidence
