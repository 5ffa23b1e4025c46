// SPDX-License-Identifier: MIT
//
// What a request may choose for itself, and what a decoder says of it: stop tokens and texts, log probabilities, a
// hook that edits logits, and where it stands.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Forbids a token that was just emitted.
struct no_repeats {
    template <class Real>
    void operator()(hook_context const& at, std::span<Real> logits) const {
        token_id const last = at.drafted.empty() ? at.request.anchor : at.drafted.back();
        logits[static_cast<std::size_t>(last)] -= Real(100);
    }
};
static_assert(logits_hook<no_repeats, float> && logits_hook<no_logits_hook, float>);

char const* name_of(finish_reason why) {
    switch (why) {
        case finish_reason::stop_token: return "a stop token";
        case finish_reason::stop_text: return "its text";
        case finish_reason::max_new_tokens: return "its length";
        default: return "nothing yet";
    }
}

int main() {
    auto const follows = [](std::span<token_id const> context, std::span<float> logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = static_cast<float>((static_cast<std::size_t>(context.back()) + 2 * v) % 5);
        }
    };
    autoregressive drafter{model_of<float>(6, follows), {.block_size = 3, .vocabulary = 6}};
    decoder dec{model_of<float>(6, follows),
                drafter,
                fixed_schedule{},
                target_match<categorical_draft>{},
                decoder_options{.max_requests = 2, .top_log_probabilities = 2},
                no_repeats{}};

    std::vector<token_id> const prompt{1};
    std::vector<token_id> const stop{5};
    auto const twelve = [](request_view const& request, std::span<token_id const> emitted) noexcept {
        return request.emitted() + emitted.size() == 12;  // any function of the text
    };
    dec.submit(prompt, {.temperature = 0.8, .seed = 1, .stop_tokens = stop});
    request_id const second = dec.submit(prompt, {.seed = 2, .text_end = text_end_ref{twelve}});
    request_id const third = dec.submit(
        prompt, {.top_k = 3, .seed = 3, .max_new_tokens = 2, .log_probabilities = true, .top_log_probabilities = 2});
    std::printf("the third %s\n", dec.state(third) == request_state::waiting ? "waits for a place" : "runs");
    while (dec.step()) {
        for (request_event const& event : dec.events()) {
            for (std::size_t i = 0; i < event.log_probabilities.size(); ++i) {
                token_log_probability const likeliest = event.top_log_probabilities[2 * i];
                std::printf("%d: token %d with log p %.2f, likeliest %d with %.2f\n", static_cast<int>(event.request),
                            event.tokens[i], event.log_probabilities[i], likeliest.token, likeliest.log_probability);
            }
            if (event.finished == finish_reason::none) continue;
            std::printf("%d ended by %s\n", static_cast<int>(event.request), name_of(event.finished));
        }
    }
    std::printf("the second said");
    for (token_id const x : dec.generated(second)) std::printf(" %d", x);
    std::printf("\n");
    request_counts const counts = dec.counts();
    std::printf("%d of %d are done\n", static_cast<int>(counts.finished), static_cast<int>(counts.submitted));
}

// Prints:
// the third waits for a place
// 1 ended by a stop token
// 3: token 4 with log p -0.17, likeliest 4 with -0.17
// 3: token 5 with log p -0.86, likeliest 0 with -0.86
// 3 ended by its length
// 2 ended by its text
// the second said 4 5 4 0 2 4 0 2 1 5 2 5
// 3 of 3 are done
