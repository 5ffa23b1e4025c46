// SPDX-License-Identifier: MIT
//
// SentencePiece's tokenizers in GGUF files: ids beside those of the definition, what stands around a text, and what is
// refused.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <engine/gguf/file.hpp>
#include <engine/tokenizer.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/gguf_writer.hpp"

namespace {

using engine::token_id;
using engine::tokenizer;
using support::error_text;
using support::gguf_writer;
using support::says;

using ids = std::vector<token_id>;

constexpr char const* space = "\xe2\x96\x81";

/// The vocabulary of a file: <unk>, <s>, </s>, 256 bytes, and then pieces.
struct vocabulary {
    std::vector<std::string> names{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types{2, 3, 3};
    std::vector<float> scores{0, 0, 0};
    gguf_writer more;

    vocabulary() {
        for (int byte = 0; byte < 256; ++byte) {
            char name[8];
            std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
            add(name, 0, 6);
        }
    }
    token_id add(std::string const& name, float score, std::int32_t type = 1) {
        names.push_back(name);
        scores.push_back(score);
        types.push_back(type);
        return static_cast<token_id>(names.size() - 1);
    }
    [[nodiscard]] tokenizer made() const {
        gguf_writer w;
        w.set("tokenizer.ggml.model", "llama");
        w.set("tokenizer.ggml.tokens", names).set("tokenizer.ggml.token_type", types);
        w.set("tokenizer.ggml.scores", scores);
        w.set("tokenizer.ggml.bos_token_id", std::uint32_t{1}).set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
        for (auto const& e : more.entries) w.erase(e.key).add(e.key, e.type, e.value);
        auto const bytes = w.bytes();
        return tokenizer::from_gguf(engine::gguf::file::view(bytes, "f.gguf"));
    }
    [[nodiscard]] static token_id byte(unsigned char b) { return 3 + b; }
};

/// The definition: in every step the two neighbours of the best piece, the leftmost of equals.
ids by_definition(vocabulary const& v, std::string const& text) {
    std::map<std::string, token_id> pieces;
    for (std::size_t i = 0; i < v.names.size(); ++i) {
        if (v.types[i] == 1) pieces[v.names[i]] = static_cast<token_id>(i);
    }
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t size = 1;
        while (i + size < text.size() && (static_cast<unsigned char>(text[i + size]) & 0xC0) == 0x80) ++size;
        parts.push_back(text.substr(i, size));
        i += size;
    }
    for (;;) {
        std::size_t best = parts.size();
        float score = -std::numeric_limits<float>::infinity();
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            auto const found = pieces.find(parts[i] + parts[i + 1]);
            if (found == pieces.end()) continue;
            float const own = v.scores[static_cast<std::size_t>(found->second)];
            if (best == parts.size() || own > score) {
                best = i;
                score = own;
            }
        }
        if (best == parts.size()) break;
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    ids out;
    for (std::string const& part : parts) {
        if (auto const found = pieces.find(part); found != pieces.end()) {
            out.push_back(found->second);
        } else {
            for (char const b : part) out.push_back(vocabulary::byte(static_cast<unsigned char>(b)));
        }
    }
    return out;
}

}  // namespace

TEST_CASE("gguf: pieces are joined by score, as the definition says", "[gguf]") {
    support::dice roll(53);
    INFO("seed " << roll.seed());
    char const* const letters[] = {"a", "b", "\xc3\xa9", space};
    for (int trial = 0; trial < 40; ++trial) {
        vocabulary v;
        std::vector<std::string> known;
        for (std::size_t const i : {0u, 1u, 3u}) known.push_back(letters[i]);  // one character is its bytes alone
        std::size_t const count = 5 + roll.below(60);
        for (std::size_t i = 0; i < count; ++i) {
            std::string const longer =
                known[roll.below(known.size())] +
                (roll.chance(0.3) ? std::string(letters[roll.below(4)]) : known[roll.below(known.size())]);
            if (longer.size() < 24) known.push_back(longer);
        }
        std::map<std::string, int> seen;
        for (std::string const& piece : known) {
            if (seen[piece]++ == 0) v.add(piece, -static_cast<float>(roll.below(20)));  // scores that tie at times
        }
        v.more.set("tokenizer.ggml.add_space_prefix", false);
        tokenizer const tokens = v.made();
        for (int i = 0; i < 30; ++i) {
            std::string spelled, text;
            for (std::size_t n = roll.below(60); n > 0; --n) {
                std::size_t const letter = roll.below(4);
                spelled += letters[letter];
                text += letter == 3 ? " " : letters[letter];
            }
            INFO("'" << text << "'");
            ids const found = tokens.encode(text, {.add_special = false});
            REQUIRE(found == by_definition(v, spelled));
            CHECK(tokens.decode(found) == text);
        }
    }
}

TEST_CASE("gguf: what stands around a text of pieces", "[gguf]") {
    vocabulary v;
    token_id const the = v.add(std::string(space) + "the", -1);
    token_id const t = v.add("t", -9);
    token_id const h = v.add("h", -9);
    token_id const e = v.add("e", -9);
    token_id const th = v.add("th", -2);
    token_id const space_t = v.add(std::string(space) + "t", -3);
    token_id const space_th = v.add(std::string(space) + "th", -2.5f);
    token_id const turn = v.add("<turn>", 0, 4);
    static_cast<void>(e);
    static_cast<void>(space_t);
    tokenizer const tokens = v.made();
    CHECK(tokens.vocabulary() == v.names.size());
    // "th" first, then with the space, then the whole: every step is a piece.
    CHECK(tokens.encode("the") == ids{1, the});
    CHECK(tokens.encode("th", {.add_special = false}) == ids{space_th});
    CHECK(tokens.encode("", {}) == ids{1});
    // After a token that was cut out a text begins anew.
    CHECK(tokens.encode("the<turn>the</s>", {.add_special = false}) == ids{the, turn, the, 2});
    CHECK(tokens.encode("t<turn>", {.parse_special = false, .add_special = false}).back() == vocabulary::byte('>'));
    // A character that is no piece: its bytes.
    CHECK(tokens.encode("th\xc3\xa9", {.add_special = false}) ==
          ids{space_th, vocabulary::byte(0xC3), vocabulary::byte(0xA9)});
    CHECK(tokens.bytes_of(the) == " the");
    CHECK(tokens.bytes_of(vocabulary::byte('A')) == "A");
    CHECK(tokens.id_of(" the") == the);
    CHECK(tokens.id_of("A") == vocabulary::byte('A'));
    CHECK(tokens.is_special(1));
    CHECK_FALSE(tokens.is_special(turn));
    CHECK(tokens.decode(tokens.encode("the th"), true) == " the th");

    v.more.set("tokenizer.ggml.add_space_prefix", false).set("tokenizer.ggml.add_bos_token", false);
    v.more.set("tokenizer.ggml.add_eos_token", true);
    CHECK(v.made().encode("th") == ids{th, 2});
    CHECK(v.made().encode("ht") == ids{h, t, 2});
}

TEST_CASE("gguf: pieces that are none are refused by name", "[gguf]") {
    auto const refused = [](auto const& change) {
        vocabulary v;
        v.add("a", -1);
        change(v);
        return error_text([&] { static_cast<void>(v.made()); });
    };
    CHECK(refused([](auto&) {}).empty());
    CHECK(says(refused([](auto& v) { v.add("a", -2); }), "entry 260 is 'a', as an entry before is, expected it once"));
    CHECK(says(refused([](auto& v) { v.add("", -2); }), "entry 260 is '', expected some UTF-8"));
    CHECK(says(refused([](auto& v) { v.scores[259] = std::numeric_limits<float>::quiet_NaN(); }),
               "entry 259 is 'a', whose score is no number"));
    CHECK(
        says(refused([](auto& v) { v.scores.pop_back(); }), {"'tokenizer.ggml.scores'", "expected 260, one a token"}));
    CHECK(says(refused([](auto& v) { v.names[3 + 65] = "<0xG1>"; }), "expected the name of a byte, <0x00> .. <0xFF>"));
    CHECK(says(refused([](auto& v) { v.types[3 + 65] = 5; }), "has no token of the byte 65"));
    CHECK(says(refused([](auto& v) { v.more.set("tokenizer.ggml.remove_extra_whitespaces", true); }),
               "'tokenizer.ggml.remove_extra_whitespaces' is true"));
}
