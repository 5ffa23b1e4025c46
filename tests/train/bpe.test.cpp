// SPDX-License-Identifier: MIT
//
// Learning a vocabulary, against the definition written out: all words, all pairs counted anew for every merge. What is
// learned must load in engine::tokenizer, encode texts as the learner left them, and give every text back.
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text/split.hpp"
#include "engine/text/utf8.hpp"
#include "engine/tokenizer.hpp"
#include "train/bpe.hpp"

using engine::token_id;
using engine::tokenizer;
using nlohmann::json;
using support::dice;
using support::error_text;
using support::says;
using train::train_bpe;

namespace {

using ids = std::vector<token_id>;
using pair = std::pair<token_id, token_id>;
using texts = std::vector<std::string>;

std::string byte(unsigned value) {
    return {static_cast<char>(static_cast<unsigned char>(value))};
}

// GPT-2's order: the printable characters of Latin-1, then the rest.
texts all_bytes() {
    texts printable;
    texts others;
    for (unsigned value = 0; value < 256; ++value) {
        bool const shows = (value >= '!' && value <= '~') || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
        (shows ? printable : others).push_back(byte(value));
    }
    printable.insert(printable.end(), others.begin(), others.end());
    return printable;
}

struct plain_learner {
    texts tokens = all_bytes();     // bytes of every token
    std::vector<ids> words;         // of all texts, in order, each as often as it occurs
    std::vector<std::size_t> ends;  // in words, of every text
    std::vector<pair> merges;

    explicit plain_learner(texts const& corpus) {
        using engine::text::pattern;
        engine::text::split const cut{{"test", train::qwen2_words, pattern::syntax::regular_expression}};
        for (std::string const& text : corpus) {
            std::vector<std::string_view> pieces;
            cut(text, pieces);
            for (std::string_view const piece : pieces) {
                ids& word = words.emplace_back();
                for (char const c : piece) word.push_back(id_of({c}));
            }
            ends.push_back(words.size());
        }
    }

    token_id id_of(std::string const& bytes) const {
        return static_cast<token_id>(std::ranges::find(tokens, bytes) - tokens.begin());
    }

    void learn(std::size_t vocabulary) {
        while (tokens.size() < vocabulary) {
            std::map<pair, std::size_t> counts;  // in the order of ids: the first of equals is the one
            for (ids const& word : words) {
                for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
            }
            auto const best = std::ranges::max_element(counts, {}, [](auto const& entry) { return entry.second; });
            if (best == counts.end() || best->second < 2) return;
            auto const [left, right] = best->first;
            std::string const bytes = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
            if (std::ranges::find(tokens, bytes) != tokens.end()) FAIL("'" << bytes << "' is learned again");
            auto const joined = static_cast<token_id>(tokens.size());
            tokens.push_back(bytes);
            merges.push_back(best->first);
            for (ids& word : words) {
                for (std::size_t i = 0; i + 1 < word.size(); ++i) {
                    if (pair{word[i], word[i + 1]} != best->first) continue;
                    word[i] = joined;
                    word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                }
            }
        }
    }

    ids text(std::size_t index) const {
        ids out;
        for (std::size_t i = index == 0 ? 0 : ends[index - 1]; i < ends[index]; ++i) {
            out.insert(out.end(), words[i].begin(), words[i].end());
        }
        return out;
    }
};

// Few letters in long words make many ties and overlaps; the others are like texts.
std::string random_text(dice& roll, bool few_letters) {
    static constexpr std::string_view common[] = {"the",  " the", " a", "n",  "Ship", "'ll", " 1", "42",
                                                  "\n\n", "    ", "é",  "日", "🙂",   "--",  ".",  "\u0301"};
    std::string text;
    std::size_t const pieces = roll.below(60);
    for (std::size_t i = 0; i < pieces; ++i) {
        if (few_letters) {
            text += "aaaaabbbb "[roll.below(10)];
        } else {
            text += common[roll.below(std::size(common))];
        }
    }
    return text;
}

texts random_corpus(dice& roll, bool few_letters) {
    texts corpus(1 + roll.below(20));
    for (std::string& text : corpus) text = random_text(roll, few_letters);
    return corpus;
}

std::vector<std::string> merges_of(texts const& corpus) {
    return json::parse(train_bpe(corpus).json)["model"]["merges"].get<std::vector<std::string>>();
}

}  // namespace

TEST_CASE("merges are those of counting everything anew", "[bpe]") {
    std::size_t full = 0;
    for (std::uint64_t seed = 1; seed <= 120; ++seed) {
        dice roll(seed);
        INFO("seed " << roll.seed());
        texts const corpus = random_corpus(roll, roll.chance(0.6));
        std::size_t const words = 256 + roll.below(80);
        plain_learner expected(corpus);
        expected.learn(words);
        auto const learned = train_bpe(corpus, {.vocabulary = words + 2});
        REQUIRE(learned.merges == expected.merges);
        REQUIRE(learned.vocabulary == expected.tokens.size() + 2);
        full += learned.vocabulary == words + 2 ? 1U : 0U;

        // The file means the same: every token's bytes, and every text as the learner left it.
        tokenizer const tokens = tokenizer::parse(learned.json, "tokenizer.json");
        CHECK(tokens.vocabulary() == learned.vocabulary);
        for (std::size_t id = 0; id < expected.tokens.size(); ++id) {
            REQUIRE(tokens.bytes_of(static_cast<token_id>(id)) == expected.tokens[id]);
        }
        for (std::size_t i = 0; i < corpus.size(); ++i) CHECK(tokens.encode(corpus[i]) == expected.text(i));
    }
    CHECK(full > 20);  // both ways of ending came up
    CHECK(full < 120);
}

TEST_CASE("of equally common pairs the smaller ids win", "[bpe]") {
    using strings = std::vector<std::string>;
    CHECK(merges_of({"ac", "ab", "ac", "ab"}) == strings{"a b", "a c"});
    CHECK(merges_of({"ab ab cd cd"}) == strings{"a b", "c d", "Ġ cd"});  // the blank's id is larger than any letter's
    // Overlapping pairs count, as everywhere: (a, a) four times in a word of five. Then two ties in one.
    CHECK(merges_of({"aaaaa", "aaaaa"}) == strings{"a a", "aa a", "aa aaa"});
}

TEST_CASE("neither the order of the texts nor chance decides", "[bpe]") {
    dice roll(7);
    texts corpus = random_corpus(roll, false);
    std::string const first = train_bpe(corpus, {.vocabulary = 320}).json;
    CHECK(train_bpe(corpus, {.vocabulary = 320}).json == first);
    for (std::size_t i = corpus.size(); i > 1; --i) std::swap(corpus[i - 1], corpus[roll.below(i)]);
    CHECK(train_bpe(corpus, {.vocabulary = 320}).json == first);
}

TEST_CASE("every text comes back", "[bpe]") {
    dice roll(11);
    texts const corpus = random_corpus(roll, false);
    tokenizer const tokens = tokenizer::parse(train_bpe(corpus, {.vocabulary = 300}).json, "tokenizer.json");
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        dice any(seed);
        INFO("seed " << any.seed());
        std::string text;
        for (std::size_t i = any.below(80); i > 0; --i) {
            text += any.chance(0.5) ? random_text(any, false) : byte(static_cast<unsigned>(any.below(256)));
        }
        std::string const valid = engine::to_utf8(text);
        CHECK(tokens.decode(tokens.encode(valid)) == valid);  // in any Unicode form: there is no normaliser
        CHECK(tokens.encode(text) == tokens.encode(valid));
    }
    for (unsigned value = 0; value < 256; ++value) CHECK(tokens.id_of(byte(value)) < token_id{256});
}

TEST_CASE("special tokens come last and are found in texts", "[bpe]") {
    auto const learned = train_bpe(texts{"one two one two", "<|mask|> is text here"}, {.vocabulary = 262});
    tokenizer const tokens = tokenizer::parse(learned.json, "tokenizer.json");
    CHECK(learned.vocabulary == 262);
    CHECK(tokens.id_of("<|endoftext|>") == token_id{260});
    CHECK(tokens.id_of("<|mask|>") == token_id{261});
    CHECK(tokens.is_special(260));
    CHECK(tokens.is_special(261));
    CHECK(!tokens.is_special(259));
    ids const found = tokens.encode("one<|endoftext|>");
    CHECK(found.back() == 260);
    CHECK(tokens.decode(found, true) == "one");

    auto const other = train_bpe(texts{}, {.vocabulary = 257, .special = {"<end>"}});
    CHECK(tokenizer::parse(other.json, "tokenizer.json").id_of("<end>") == token_id{256});
    auto const none = train_bpe(texts{}, {.vocabulary = 256, .special = {}});
    CHECK(tokenizer::parse(none.json, "tokenizer.json").vocabulary() == 256);
}

TEST_CASE("too little text ends learning early", "[bpe]") {
    auto const learned = train_bpe(texts{"abcabc", "xyz"});
    CHECK(learned.merges.size() == 2);  // ab, abc; what occurs once is no pair
    CHECK(learned.vocabulary == 256 + 2 + 2);
    tokenizer const tokens = tokenizer::parse(learned.json, "tokenizer.json");
    CHECK(tokens.vocabulary() == learned.vocabulary);
    CHECK(tokens.encode("abcabc").size() == 2);
    CHECK(train_bpe(texts{}).vocabulary == 258);
    CHECK(train_bpe(texts{"", "a"}).vocabulary == 258);
}

TEST_CASE("what is no UTF-8 counts as it is encoded", "[bpe]") {
    CHECK(train_bpe(texts{"ab\xFFz", "ab\xFFz"}).json == train_bpe(texts{"ab\uFFFDz", "ab\uFFFDz"}).json);
}

TEST_CASE("settings that cannot be met are refused", "[bpe]") {
    texts const corpus{"word word word"};
    auto const refusal = [&](train::bpe_settings const& settings) {
        return error_text([&] { static_cast<void>(train_bpe(corpus, settings)); });
    };
    CHECK(refusal({.vocabulary = 257}) ==
          "train_bpe: a vocabulary of 257 tokens, expected at least 258 (256 bytes and 2 special tokens)");
    CHECK(refusal({.vocabulary = 258}).empty());
    CHECK(says(refusal({.special = {"<a>", ""}}), {"special token 1 is ''", "expected some UTF-8 text"}));
    CHECK(says(refusal({.special = {"<a>", "<b>", "<a>"}}), {"special token 2 is '<a>'", "no other special token"}));
    CHECK(says(refusal({.special = {"\xC3"}}), "special token 0 is '\uFFFD'"));
    CHECK(says(refusal({.special = {"word"}}), {"special token 'word' is token 25", "no word of the texts"}));
}
