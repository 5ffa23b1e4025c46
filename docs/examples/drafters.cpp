// SPDX-License-Identifier: MIT
//
// The drafters: a small language model, a backbone without and with a sequential head, prompt lookup, and lookup
// with a model where it finds nothing. Each drafts for the same target.
#include <cstddef>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t V = 8;
constexpr std::size_t block_size = 3;

void logits_behind(token_id x,
                   std::span<float> logits) {  // a token is followed by the next one, or by the one after it
    for (float& l : logits) l = 0.0f;
    logits[static_cast<std::size_t>(x + 1) % V] = 4.0f;
    logits[static_cast<std::size_t>(x + 2) % V] = 3.0f;
}

// Knows the anchor and how far a position is from it; what is drafted between, it does not.
struct toy_backbone {
    std::vector<float> rows;

    block_forward<float> forward(std::span<request_view const> requests) {
        rows.resize(requests.size() * block_size * V);
        for (std::size_t i = 0; i < requests.size() * block_size; ++i) {
            logits_behind(requests[i / block_size].anchor + static_cast<token_id>(i % block_size),
                          std::span(rows).subspan(i * V, V));
        }
        return {.hidden = {}, .base_logits = {.values = {rows.data(), requests.size() * block_size, V}}};
    }
};
static_assert(backbone<toy_backbone>);

template <drafter Drafter>
void show(char const* name, Drafter drafts) {
    auto target = model_of<float>(V, [](auto context, auto logits) { logits_behind(context.back(), logits); });
    static_assert(target_model<decltype(target)>);
    decoder dec{target, std::move(drafts), fixed_schedule{}, token_rejection{}};
    dec.submit(std::vector<token_id>{0, 1, 2, 4, 5}, {.temperature = 0.8, .seed = 9, .max_new_tokens = 48});
    while (dec.step()) {
    }
    std::printf("%-20s drafted %3d, accepted %2d\n", name, static_cast<int>(dec.report().drafted()),
                static_cast<int>(dec.report().accepted()));
}

int main() {
    auto small = model_of<float>(V, [](auto context, auto logits) { logits_behind(context.back(), logits); });
    static_assert(autoregressive_model<decltype(small)>);
    drafter_options const options{.block_size = block_size, .vocabulary = V};
    // A Markov head of rank V: W1 is the identity, W2 [v, x] what token x adds to the logit of v.
    std::vector<float> w1(V * V), w2(V * V);
    for (std::size_t x = 0; x < V; ++x) {
        w1[x * V + x] = 1.0f;
        w2[(x + 1) % V * V + x] = w2[(x + 2) % V * V + x] = 3.0f;
    }
    markov_head const head{matrix_view<float>{w1.data(), V, V}, matrix_view<float>{w2.data(), V, V}};

    show("autoregressive", autoregressive{small, options});
    show("parallel", parallel{toy_backbone{}, options});
    show("semi_autoregressive", semi_autoregressive{toy_backbone{}, markov_head{head}, options});
    show("lookup", lookup{lookup_options{.block_size = block_size, .target_vocabulary = V}});
    show("with_lookup", with_lookup{autoregressive{small, options}, with_lookup_options{.shortest = 2}});
}

// Prints:
// autoregressive       drafted  36, accepted 36
// parallel             drafted  41, accepted 34
// semi_autoregressive  drafted  37, accepted 35
// lookup               drafted  72, accepted 17
// with_lookup          drafted  48, accepted 32
