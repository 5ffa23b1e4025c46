// SPDX-License-Identifier: MIT
//
// Regular expressions as constraints: the automaton against std::regex, and masks of tokens against it. A second.
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/tokenizer_data.hpp"

#include <cstddef>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/serving/constraint.hpp>

#include "engine/text/byte_automaton.hpp"
#include "engine/token_regex.hpp"

using engine::token_id;
using engine::token_regex;
using engine::text::byte_automaton;
using support::error_text;
using support::says;

static_assert(sureleap::token_matcher<token_regex::matcher>);

namespace {

[[nodiscard]] bool matches(byte_automaton& automaton, std::string_view text) {
    return automaton.accepts(automaton.next(byte_automaton::start, text));
}

}  // namespace

TEST_CASE("byte_automaton: matches what std::regex matches, and goes on where it can") {
    char const* const patterns[] = {
        "ab*c",  "(ab|cd)+",  "a{2,4}b{2}", "[a-c]{2,}x?", "(a|b)*abb",       "a(b(c|d){1,2})*", "\\d\\d-\\w",
        "[^a]b", "x(a?){3}y", "(a|)b",      "a{3}{2}",     "[]a-]+|[b\\]x]y", "(a|b|ab)*c.?",    "((a*)*b)*"};
    constexpr std::string_view letters = "abcdxy1-_]";
    std::uint64_t const seed = 20261127;
    support::dice roll(seed);
    for (char const* const pattern : patterns) {
        INFO(pattern << ", seed " << seed);
        byte_automaton automaton(pattern);
        std::regex const reference(std::string(pattern) == "[]a-]+|[b\\]x]y" ? "[\\]a-]+|[b\\]x]y" : pattern);
        std::size_t both = 0;
        for (std::size_t i = 0; i < 3000; ++i) {
            std::string text;
            byte_automaton::state walked = byte_automaton::start;
            for (std::size_t n = roll.below(9), tries = 0; n > 0 && tries < 50; ++tries) {
                char const c = letters[roll.below(letters.size())];
                byte_automaton::state const to = automaton.next(walked, static_cast<unsigned char>(c));
                if (i % 2 == 0 && to == byte_automaton::dead) continue;  // half of them stay alive
                walked = to;
                text += c;
                --n;
            }
            bool const matched = std::regex_match(text, reference);
            REQUIRE(matches(automaton, text) == matched);
            both += matched ? 1 : 0;
            // Every prefix of a text that matches is alive.
            byte_automaton::state at = byte_automaton::start;
            for (char const c : text) {
                at = automaton.next(at, static_cast<unsigned char>(c));
                if (matched) REQUIRE(at != byte_automaton::dead);
            }
        }
        CHECK(both > 0);
        CHECK(automaton.size() < 20);
    }
    byte_automaton any("[^\\n\\t]*\\\\\\.");
    CHECK(matches(any, "\xe4\xb8\xad\\."));
    CHECK_FALSE(matches(any, "\n\\."));
}

TEST_CASE("byte_automaton: what is no expression is refused, with the place") {
    struct wrong {
        char const* pattern;
        char const* what;
        char const* where;
    };
    for (auto const& [pattern, what, where] :
         {wrong{"a)", "a ) without a (", "byte 1"}, wrong{"(a", "a ( without a )", "byte 2"},
          wrong{"[a", "a [ without a ]", "byte 2"}, wrong{"a{", "no number", "byte 2"},
          wrong{"a{0}", "a repeat that is none of", "byte 2"}, wrong{"a{3,2}", "a repeat that is none of", "byte 2"},
          wrong{"a{2000}", "a repeat that is none of", "byte 2"}, wrong{"*a", "nothing to match", "byte 0"},
          wrong{"\\q", "an unknown escape", "byte 1"}, wrong{"[b-a]", "a range that is none", "byte 4"},
          wrong{"ab\\", "a \\ at the end", "byte 3"}, wrong{"(((a{999}){999}){999})", "too large", "byte"}}) {
        INFO(pattern);
        CHECK(says(error_text([&] { byte_automaton made(pattern); }), {"regular expression: ", what, where}));
    }
    CHECK(says(error_text([] { byte_automaton made(std::string(500, '(')); }), {"too many groups"}));
}

TEST_CASE("token_regex: masks allow what keeps the text alive, and stop tokens where it matches") {
    auto const tokens = support::changed_tokenizer(nullptr);
    std::size_t const vocabulary = tokens.vocabulary() + 5;  // a model pads its rows
    token_id const stop = *tokens.id_of("<|im_end|>");
    std::string const pattern = "(the |an? )*[a-z]{2,4}\\.";
    token_regex const grammar(pattern, tokens, vocabulary, std::vector<token_id>{stop});
    byte_automaton automaton(pattern);
    support::dice roll(7);
    std::size_t ended = 0;
    for (std::size_t text = 0; text < 20; ++text) {
        auto matcher = grammar.begin();
        std::string bytes;
        for (;;) {
            auto const mask = matcher.mask();
            byte_automaton::state const here = automaton.next(byte_automaton::start, bytes);
            std::vector<token_id> allowed;
            for (std::size_t v = 0; v < vocabulary; ++v) {
                auto const x = static_cast<token_id>(v);
                std::string_view const piece = tokens.is_special(x) ? std::string_view{} : tokens.bytes_of(x);
                bool const alive = !piece.empty() && automaton.next(here, piece) != byte_automaton::dead;
                REQUIRE(mask.allows(x) == (x == stop ? automaton.accepts(here) : alive));
                if (alive) allowed.push_back(x);
            }
            CHECK_FALSE(mask.allows(static_cast<token_id>(vocabulary) + 40));
            REQUIRE(matcher.may_end() == automaton.accepts(here));
            if (allowed.empty()) break;
            token_id const x = allowed[roll.below(allowed.size())];
            token_id const y = allowed[roll.below(allowed.size())];
            REQUIRE(matcher.accept(y));  // and back again
            matcher.rollback(1);
            REQUIRE(matcher.accept(x));
            bytes += tokens.bytes_of(x);
            if (bytes.size() > 60) break;
        }
        if (matches(automaton, bytes)) ++ended;
        CHECK_FALSE(matcher.accept(stop));
        CHECK_FALSE(matcher.accept(-1));
    }
    CHECK(ended > 0);
    CHECK(says(error_text([&] { token_regex made("a", tokens, vocabulary, std::vector<token_id>{}); }),
               {"there are no stop tokens"}));
}
