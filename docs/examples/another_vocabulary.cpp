// SPDX-License-Identifier: MIT
//
// A draft that speaks another vocabulary than the target: by the tokens that both have, or by texts. The two classes
// stand for an engine's tokenizers and models.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

/// The longest token that comes next.
struct tokenizer {
    std::vector<std::string> texts;

    [[nodiscard]] std::string_view text_of(token_id x) const {
        auto const v = static_cast<std::size_t>(x);
        return v < texts.size() ? std::string_view(texts[v]) : std::string_view{};
    }
    [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
        std::vector<token_id> tokens;
        while (!text.empty()) {
            std::size_t best = 0, length = 0;
            for (std::size_t v = 0; v < texts.size(); ++v) {
                if (!text.starts_with(texts[v]) || texts[v].size() <= length) continue;
                best = v;
                length = texts[v].size();
            }
            tokens.push_back(static_cast<token_id>(best));
            text.remove_prefix(length);
        }
        return tokens;
    }
};
static_assert(text_tokenizer<tokenizer>);

/// Writes the rhyme on, in the tokens of its tokenizer.
auto model_with(tokenizer const& mine) {
    return model_of<float>(mine.texts.size(), [&mine](std::span<token_id const> context, std::span<float> logits) {
        constexpr std::string_view rhyme = "one two three four one two three four ";
        std::string text;
        for (token_id const x : context) text += mine.text_of(x);
        std::size_t const end = std::min<std::size_t>(text.size(), 4);
        std::size_t const at = rhyme.find(text.substr(text.size() - end)) + end;
        for (float& l : logits) l = 0.0f;
        logits[static_cast<std::size_t>(mine.encode(rhyme.substr(at)).front())] = 6.0f;
    });
}

template <class Drafter>
void write(char const* name, Drafter& drafter, tokenizer const& words) {
    decoder dec{model_with(words), drafter, fixed_schedule{}, target_match{}};
    request_id const id = dec.submit(words.encode("one "), {.temperature = 0.0, .max_new_tokens = 9});
    while (dec.step()) {
    }
    std::printf("%s: one |", name);
    for (token_id const x : dec.generated(id))
        std::printf("%.*s|", static_cast<int>(words.text_of(x).size()), words.text_of(x).data());
    std::printf(" %.2f tokens a round\n", dec.report().tau());
}

int main() {
    tokenizer const words{{"e", "f", "h", "n", "o", "r", "t", "u", "w", " ", "one ", "two ", "three ", "four "}};
    tokenizer const pieces{{"e", "f", "h", "n", "o", "r", "t", "u", "w", " ", "one ", "two", " th", "ree ", "four "}};

    shared_token_model draft{model_with(pieces), pieces, pieces.texts.size(), words, words.texts.size()};
    shared_tokens const& shared = draft.shared();
    std::printf("%zu of the draft's %zu tokens are shared\n", shared.ids().size(), pieces.texts.size());
    autoregressive by_tokens{draft, top1_confidence{}, draft.options(4)};
    write("by tokens", by_tokens, words);

    retokenised_drafts by_texts{
        model_with(pieces), pieces, words,
        retokenised_options{
            .block_size = 4, .draft_vocabulary = pieces.texts.size(), .target_vocabulary = words.texts.size()}};
    write("by texts", by_texts, words);
}

// Prints:
// 12 of the draft's 15 tokens are shared
// by tokens: one |two |three |four |one |two |three |four |one |two | 1.80 tokens a round
// by texts: one |two |three |four |one |two |three |four |one |two | 3.00 tokens a round
