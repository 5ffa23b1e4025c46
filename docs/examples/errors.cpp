// SPDX-License-Identifier: MIT
//
// How the library fails. What cannot be used is refused at set-up by an exception that names it; what goes wrong
// with one request in a round is a status of that request, and the others go on.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Parts of your own fail in the same way.
void expect_even(std::size_t block_size) {
    if (block_size % 2 != 0) fail_with("my_drafter: block_size is ", block_size, ", expected an even number");
}

template <class Try>
void show(Try const& attempt) {
    try {
        attempt();
    } catch (error const& refused) {
        std::printf("%s\n", refused.what());
    }
}

int main() {
    show([] { check_settings({.top_p = 1.5}); });
    show([] { check_settings({.temperature = 1.0}, traits_of<greedy_match>()); });
    show([] { additive_cost{{.fixed = -1.0}}; });
    show([] { expect_even(7); });
    std::printf("a number in a text: %s\n", error_text(1e-9).c_str());

    // The target's rows of request 2 hold no law. It stands still, as it was, until it is resumed or cancelled.
    auto target = model_of<float>(4, [](auto context, auto logits) {
        for (float& l : logits) l = context[0] == 3 ? std::nanf("") : 0.0f;
    });
    decoder dec{target, lookup{{.target_vocabulary = 4}}, fixed_schedule{}, token_rejection{}, {.max_requests = 2}};
    dec.submit(std::vector<token_id>{0}, {.seed = 1, .max_new_tokens = 4});
    request_id const second = dec.submit(std::vector<token_id>{3}, {.seed = 1, .max_new_tokens = 4});
    dec.step();
    for (request_event const& event : dec.events()) {
        std::printf("request %d: %.21s, %zu tokens\n", static_cast<int>(event.request), to_string(event.outcome),
                    event.tokens.size());
        if (event.outcome == status::invalid_target) dec.cancel(event.request);
    }
    while (dec.step()) {
    }
    std::printf("the second is forgotten: %s\n", dec.knows(second) ? "no" : "yes");
}

// Prints:
// request_settings: top_p is 1.5, expected a number in (0, 1]
// request_settings: temperature is 1, expected 0: this acceptance rule decodes greedily; use another for sampling
// additive_cost: fixed is -1 seconds, expected a number in [0, 1e9]
// my_drafter: block_size is 7, expected an even number
// a number in a text: 1e-09
// request 1: ok, 1 tokens
// request 2: invalid target logits, 0 tokens
// the second is forgotten: yes
