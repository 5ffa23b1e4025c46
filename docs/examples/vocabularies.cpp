// SPDX-License-Identifier: MIT
//
// A draft with a vocabulary of its own: the frequent part of the target's. The map is named in the drafter's
// options, and all outside of the drafter speak target ids.
#include <array>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

int main() {
    constexpr std::array<token_id, 3> frequent{2, 5, 6};  // of eight target tokens
    vocabulary_map const map{frequent, 8};
    std::printf("draft token 1 is %d; target token 6 is draft token %d\n", map.to_target(1), map.to_draft(6));
    std::printf("the draft cannot say 3: %s\n", map.to_draft(3) == no_token ? "yes" : "no");

    // What a row runs over: the map, or an ascending list that was made for one position.
    vocabulary_view const all = &map;
    vocabulary_view const listed{std::span(frequent).first(2), 8};
    std::printf("%zu tokens by the map, %zu by the list\n", all.draft_size(), listed.draft_size());

    auto draft = model_of<float>(3, [](auto context, auto logits) {  // rows of three logits, contexts of target ids
        logits[0] = context.back() == 5 ? 2.0f : 0.0f;
        logits[1] = context.back() == 6 ? 2.0f : 0.0f;
        logits[2] = context.back() == 2 ? 2.0f : 0.0f;
    });
    auto target = model_of<float>(8, [](auto context, auto logits) {
        for (float& l : logits) l = 0.0f;
        logits[context.back() == 5 ? 2 : context.back() == 6 ? 5 : 6] = 4.0f;
    });
    autoregressive drafter{draft, {.block_size = 3, .vocabulary = 3, .map = &map}};
    decoder dec{target, drafter, fixed_schedule{}, token_rejection{}};
    request_id const id = dec.submit(std::vector<token_id>{5}, {.seed = 2, .max_new_tokens = 16});
    while (dec.step()) {
    }
    std::printf("5");
    for (token_id const x : dec.generated(id)) std::printf(" %d", x);
    std::printf("\n%d of %d drafts accepted\n", static_cast<int>(dec.report().accepted()),
                static_cast<int>(dec.report().drafted()));
}

// Prints:
// draft token 1 is 5; target token 6 is draft token 2
// the draft cannot say 3: yes
// 3 tokens by the map, 2 by the list
// 5 2 6 5 2 6 7 6 5 2 6 7 6 5 2 6 5
// 9 of 18 drafts accepted
