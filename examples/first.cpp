// SPDX-License-Identifier: MIT
#include <cstdio>
#include <string_view>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz ";

// A toy language: vowels and consonants take turns, and each pair of letters has a taste of its own.
float follows(token_id a, std::size_t b) {
    auto const vowel = [](char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; };
    auto const i = static_cast<std::size_t>(a);
    float const taste = 0.5f * static_cast<float>((5 * i + 11 * b) % 8);
    return taste + (vowel(letters[i]) != vowel(letters[b]) ? 3.0f : 0.0f);
}

int main() {
    // A model fills the logits of the next token. The draft sees one letter, the target two.
    auto draft = model_of<float>(letters.size(), [](auto context, auto logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = follows(context.back(), v);
    });
    auto target = model_of<float>(letters.size(), [](auto context, auto logits) {
        token_id const before = context[context.size() - 2];
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = follows(context.back(), v) - 0.5f * follows(before, v);
        }
    });

    autoregressive drafter{draft, {.block_size = 4, .vocabulary = letters.size()}};
    decoder dec{target, drafter, fixed_schedule{}, token_rejection{}};
    dec.submit(std::vector<token_id>{11, 4}, {.temperature = 0.7, .seed = 42, .max_new_tokens = 64});
    while (dec.step()) {  // one call of the target each; what it yields is printed between bars
        request_event const& event = dec.events()[0];
        if (event.outcome != status::ok) std::printf("stands still: %s", to_string(event.outcome));
        for (token_id const x : event.tokens) std::putchar(letters[static_cast<std::size_t>(x)]);
        std::putchar('|');
    }
    std::printf("\n%.2f letters per call of the target\n", dec.report().tau());
}
