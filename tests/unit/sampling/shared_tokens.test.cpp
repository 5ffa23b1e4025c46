// SPDX-License-Identifier: MIT
//
// Two vocabularies joined by texts: worked examples, random ones against a search through all pairs, and what is
// refused.
#include "support/catch.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/sampling/shared_tokens.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/toy_tokenizers.hpp"

using namespace sureleap;
using support::error_text;
using support::says;
using support::splits;
using support::toy_tokenizer;

namespace {

/// A file's spelling of bytes: <0x0A> is a line end, U+0120 a space.
struct spelled {
    toy_tokenizer read{.how = splits::longest_first};
    explicit spelled(std::vector<std::string> spellings) {
        for (std::string const& s : spellings) {
            if (s.starts_with("<0x")) {
                read.texts.emplace_back(1, static_cast<char>(std::stoi(s.substr(3, 2), nullptr, 16)));
            } else {
                read.texts.push_back(s.starts_with("\u0120") ? " " + s.substr(2) : s);
            }
        }
    }
    [[nodiscard]] std::string_view text_of(token_id x) const { return read.text_of(x); }
    [[nodiscard]] std::vector<token_id> encode(std::string_view text) const { return read.encode(text); }
};

std::vector<token_id> list(std::span<token_id const> ids) {
    return {ids.begin(), ids.end()};
}

}  // namespace

TEST_CASE("shared_tokens: texts that both have, in the order of the draft's ids") {
    toy_tokenizer const draft{{"x", "a", "th", "b", "the"}};
    toy_tokenizer const target{{"the", "b", "a", "t", "ab"}};
    shared_tokens const shared(draft, 5, target, 5);
    CHECK(list(shared.ids()) == std::vector<token_id>{1, 3, 4});
    CHECK(shared.map().draft_size() == 3);
    CHECK(shared.map().target_size() == 5);
    CHECK(shared.map().to_target(0) == 2);
    CHECK(shared.map().to_target(1) == 1);
    CHECK(shared.map().to_target(2) == 0);
    CHECK(shared.map().to_draft(3) == no_token);
    CHECK(shared.map().to_draft(4) == no_token);
    // Rows of logits may be longer than the tokenizer, or shorter.
    CHECK(list(shared_tokens(draft, 9, target, 9).ids()) == std::vector<token_id>{1, 3, 4});
    CHECK(list(shared_tokens(draft, 4, target, 9).ids()) == std::vector<token_id>{1, 3});
}

TEST_CASE("shared_tokens: byte tokens and files that spell spaces differently") {
    spelled const pieces({"<0x0A>", "<0x41>", "A", "\u2581", "B"});
    spelled const bytes({"\n", "\u0120", "A", "B", "\u0120A"});
    shared_tokens const shared(pieces, 5, bytes, 5);
    // Two of the draft's tokens are "A": its encode takes the letter, so the byte token is not shared.
    CHECK(list(shared.ids()) == std::vector<token_id>{0, 2, 4});
    CHECK(shared.map().to_target(0) == 0);
    CHECK(shared.map().to_target(1) == 2);
    // And the other way: the target's letter is what it says itself.
    shared_tokens const back(bytes, 5, pieces, 5);
    CHECK(back.map().to_target(1) == 2);
    // Of tokens that no encode makes, the first.
    toy_tokenizer const never{{"aa", "aa", "b"}};
    CHECK(list(shared_tokens(never, 3, never, 3).ids()) == std::vector<token_id>{0, 2});
}

TEST_CASE("shared_tokens: a token without a text is not shared, and names of control tokens are texts") {
    toy_tokenizer const draft{{"", "<|end|>", "a"}};
    toy_tokenizer const target{{"a", "", "<|end|>"}};
    shared_tokens const shared(draft, 3, target, 3);
    CHECK(list(shared.ids()) == std::vector<token_id>{1, 2});
    CHECK(shared.map().to_target(0) == 2);
}

TEST_CASE("shared_tokens: random vocabularies") {
    support::dice roll(3);
    for (int trial = 0; trial < 200; ++trial) {
        INFO("trial " << trial);
        auto const random_texts = [&] {
            std::vector<std::string> texts{"a"};
            for (std::size_t v = roll.below(12); v-- > 0;) {
                std::string text;
                for (std::size_t i = roll.below(4); i-- > 0;) text += roll.chance(0.5) ? 'a' : 'b';
                texts.push_back(text);
            }
            return texts;
        };
        toy_tokenizer const draft{random_texts(), splits::longest_first};
        toy_tokenizer const target{random_texts(), splits::longest_first};
        shared_tokens const shared(draft, draft.texts.size(), target, target.texts.size());
        auto const ids = shared.ids();
        for (std::size_t v = 0; v < target.texts.size(); ++v) {
            auto const x = static_cast<token_id>(v);
            std::string const& text = target.texts[v];
            bool const is_own = !text.empty() && target.encode(text) == std::vector<token_id>{x};
            bool const in_draft =
                !text.empty() && std::find(draft.texts.begin(), draft.texts.end(), text) != draft.texts.end();
            token_id const place = shared.map().to_draft(x);
            CHECK((place != no_token) == (is_own && in_draft));
            if (place == no_token) continue;
            token_id const d = ids[static_cast<std::size_t>(place)];
            CHECK(draft.text_of(d) == text);
            CHECK(draft.encode(text) == std::vector<token_id>{d});
        }
    }
}

TEST_CASE("shared_tokens: refuses vocabularies that have nothing in common") {
    toy_tokenizer const draft{{"a", ""}};
    toy_tokenizer const target{{"", "b", "c"}};
    CHECK(says(error_text([&] { shared_tokens(draft, 2, target, 3); }),
               {"shared_tokens", "draft's 2", "target's 3", "in common", "text_of"}));
}
