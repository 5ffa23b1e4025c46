// SPDX-License-Identifier: MIT
//
// What a tokenizer.json must not be: every refusal with its text, and neighbours of them that must pass.
#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/tokenizer_data.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/tokenizer.hpp"

using engine::tokenizer;
using nlohmann::json;
using support::changed_document;
using support::changed_tokenizer;
using support::error_text;
using support::says;

namespace {

std::string refusal_of_text(std::string const& text) {
    return error_text([&] { (void)tokenizer::parse(text, "t.json"); });
}

/// Of the usual document with a patch applied.
std::string refusal(json const& patch) {
    return refusal_of_text(changed_document(patch).dump());
}
std::string refusal(char const* patch) {
    return refusal(json::parse(patch));
}

/// Of the usual document with this as its pre-tokenizer's only pattern.
std::string refusal_of_pattern(std::string const& regex) {
    json split = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
    json const byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    return refusal({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}}});
}

/// `inner` in `depth` sequences.
json nested(json inner, std::size_t depth, char const* list) {
    for (std::size_t i = 0; i < depth; ++i) inner = {{"type", "Sequence"}, {list, json::array({inner})}};
    return inner;
}

}  // namespace

TEST_CASE("the usual document is not refused", "[tokenizer]") {
    CHECK(refusal(json::object()).empty());
    CHECK(tokenizer::load(std::string(SURELEAP_TESTS_DIR) + "/engine/data/tokenizer.json").vocabulary() == 643);
}

TEST_CASE("no file, no JSON", "[tokenizer]") {
    CHECK(error_text([] { (void)tokenizer::load("no/such/tokenizer.json"); }) ==
          "no/such/tokenizer.json: cannot be opened");
    CHECK(says(refusal_of_text(""), {"t.json: no valid JSON in 0 bytes: ", "unexpected end of input"}));
    CHECK(says(refusal_of_text("{\"a\": \"\xFF\"}"), {"t.json: no valid JSON", "ill-formed UTF-8"}));
    CHECK(engine::is_utf8(refusal_of_text("{\"a\": \"\xFF\"}")));  // though it quotes what it could not read
    CHECK(says(refusal_of_text("{\"a\": \"\\ud800\"}"), {"t.json: no valid JSON", "surrogate"}));
    CHECK(refusal_of_text("[1]") == "t.json: expected a JSON object, found array");
    CHECK(says(refusal_of_text(std::string(1'000'000, '[')), "t.json: no valid JSON in 1000000 bytes: "));
    CHECK(refusal_of_text("{}") == "t.json: field 'model' is missing, expected an object");
}

TEST_CASE("other models are refused", "[tokenizer]") {
    CHECK(refusal(R"({"model": {"type": "WordPiece"}})") ==
          "t.json: field 'model.type' is \"WordPiece\", expected \"BPE\"");
    CHECK(refusal(R"({"model": {"type": 3}})") == "t.json: field 'model.type' is 3, expected a string");
    CHECK(refusal(R"({"model": {"byte_fallback": true}})") ==
          "t.json: field 'model.byte_fallback' is true, expected false: bytes are tokens here");
    CHECK(refusal(R"({"model": {"byte_fallback": null, "unk_token": "<unk>", "end_of_word_suffix": null}})").empty());
    CHECK(refusal(R"({"model": {"end_of_word_suffix": "</w>"}})") ==
          "t.json: field 'model.end_of_word_suffix' is \"</w>\", expected null or \"\"");
    CHECK(says(refusal(R"({"model": {"continuing_subword_prefix": "##"}})"),
               "'model.continuing_subword_prefix' is \"##\""));
    CHECK(refusal(R"({"model": {"dropout": 0.1}})") ==
          "t.json: field 'model.dropout' is 0.1, expected null: encoding must not be random");
    CHECK(refusal(R"({"model": {"ignore_merges": 1}})") ==
          "t.json: field 'model.ignore_merges' is 1, expected true or false");
}

TEST_CASE("a vocabulary that cannot be", "[tokenizer]") {
    CHECK(refusal(R"({"model": {"vocab": null}})") == "t.json: field 'model.vocab' is missing, expected an object");
    CHECK(refusal(R"({"model": {"vocab": []}})") == "t.json: field 'model.vocab' is a list of 0, expected an object");
    CHECK(refusal(R"({"model": {"vocab": {"A": null}}})") ==
          "t.json: field 'model.vocab' has no token 'A' for the byte 65, expected one for every byte");
    std::string const expected = ", expected an integer in 0 .. 16777215";
    for (char const* const id :
         {"-1", "16777216", "2147483648", "1e3", "1.5", "99999999999999999999", "\"7\"", "null"}) {
        std::string const document = changed_document({}).dump();
        std::string const place = "\"xyzzy\":";
        std::string text = changed_document({{"model", {{"vocab", {{"xyzzy", 700}}}}}}).dump();
        text.replace(text.find(place), place.size() + 3, place + id);
        INFO(id);
        CHECK(says(refusal_of_text(text), {"t.json: field 'model.vocab.xyzzy' is ", expected.c_str()}));
    }
    CHECK(refusal(R"({"model": {"vocab": {"xyzzy": 16777215}}})").empty());  // and takes no memory for what is between
    CHECK(refusal(R"({"model": {"vocab": {"xyzzy": 3}}})") ==
          "t.json: tokens 'xyzzy' and '$' of model.vocab both have id 3");
}

TEST_CASE("merges that cannot be", "[tokenizer]") {
    CHECK(refusal(R"({"model": {"merges": null}})") == "t.json: field 'model.merges' is missing, expected a list");
    CHECK(refusal(R"({"model": {"merges": {}}})") == "t.json: field 'model.merges' is an object of 0, expected a list");
    std::string const shape = "t.json: field 'model.merges', index 1: expected \"left right\" or [\"left\", \"right\"]";
    for (char const* const merge : {R"("th")", R"("t h e")", R"(" h")", R"("t ")", R"("")", R"(["t"])",
                                    R"(["t", "h", "e"])", R"(["t", 1])", R"(["", "t"])", "7", "null", "{}"}) {
        INFO(merge);
        CHECK(refusal({{"model", {{"merges", {"h e", json::parse(merge)}}}}}) == shape);
    }
    CHECK(refusal(R"({"model": {"merges": ["h e", ["Ġ", "日"]]}})") ==
          "t.json: field 'model.merges', index 1: '日' of the merge 'Ġ' + '日' is not in model.vocab");
    CHECK(refusal(R"({"model": {"merges": ["h e", "q q"]}})") ==
          "t.json: field 'model.merges', index 1: 'qq' of the merge 'q' + 'q' is not in model.vocab");
    CHECK(refusal(R"({"model": {"merges": ["h e", "i n", "h e"]}})").empty());
    CHECK(refusal(R"({"model": {"merges": []}})").empty());
}

TEST_CASE("added tokens that cannot be", "[tokenizer]") {
    auto const with = [](char const* fields) {
        json token = {{"id", 700}, {"content", "<x>"}, {"special", true}, {"normalized", false}};
        token.merge_patch(json::parse(fields));
        json const first = {{"id", 650}, {"content", "<w>"}, {"special", true}, {"normalized", false}};
        return refusal({{"added_tokens", {first, token}}});
    };
    CHECK(with("{}").empty());
    CHECK(with(R"({"lstrip": false, "rstrip": false, "single_word": false})").empty());
    for (char const* const field : {"lstrip", "rstrip", "single_word"}) {
        CHECK(with(json{{field, true}}.dump().c_str()) == "t.json: field 'added_tokens[1]." + std::string(field) +
                                                              "' is true, expected false: '<x>' would need support");
    }
    for (char const* const field : {"id", "content", "special", "normalized"}) {
        CHECK(says(with(json{{field, nullptr}}.dump().c_str()),
                   "t.json: field 'added_tokens[1]." + std::string(field) + "' is missing, expected "));
    }
    CHECK(with(R"({"content": ""})") == "t.json: field 'added_tokens[1].content' is \"\", expected some text");
    CHECK(with(R"({"content": "<w>"})") ==
          "t.json: field 'added_tokens[1].content' is \"<w>\", expected a text that no other added token has");
    CHECK(with(R"({"id": 650})") ==
          "t.json: field 'added_tokens[1].id' is 650, expected another: it belongs to the token '<w>'");
    CHECK(with(R"({"id": 3})") ==
          "t.json: field 'added_tokens[1].id' is 3, expected another: it belongs to the token '$'");
    CHECK(with(R"({"id": -3})") == "t.json: field 'added_tokens[1].id' is -3, expected an integer in 0 .. 16777215");

    // In both lists: the same token, or none.
    CHECK(with(R"({"id": 3, "content": "$"})").empty());
    CHECK(with(R"({"content": "$"})") ==
          "t.json: field 'added_tokens[1].id' is 700, expected 3, the id of '$' in model.vocab");
    std::size_t const e9 = changed_document({})["model"]["vocab"]["é"];
    CHECK(says(with(json{{"id", e9}, {"content", "é"}}.dump().c_str()), "it belongs to the token '\uFFFD'"));
    CHECK(with(R"({"content": "日"})").empty());
    CHECK(refusal(R"({"added_tokens": {}})") == "t.json: field 'added_tokens' is an object of 0, expected a list");
    CHECK(refusal(R"({"added_tokens": null})").empty());
}

TEST_CASE("normalisers that are not supported", "[tokenizer]") {
    CHECK(refusal(R"({"normalizer": {"type": "Lowercase"}})") ==
          "t.json: field 'normalizer.type' is \"Lowercase\", expected NFC, NFD, NFKC, NFKD or Sequence");
    CHECK(says(refusal(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}})"),
               "t.json: field 'normalizer.normalizers[1].type' is \"Strip\""));
    CHECK(says(refusal(R"({"normalizer": "NFC"})"), "t.json: field 'normalizer' is \"NFC\", expected an object"));
    CHECK(refusal({{"normalizer", nested({{"type", "NFC"}}, 8, "normalizers")}}).empty());
    CHECK(says(refusal({{"normalizer", nested({{"type", "NFC"}}, 9, "normalizers")}}),
               "expected at most 8 sequences inside each other"));

    // Deeper than a recursive reader gets. So is nlohmann's own writer, so this one is put together as text.
    std::string text = changed_document({{"normalizer", "here"}}).dump();
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
    deep += R"({"type":"NFC"})";
    for (int i = 0; i < 100'000; ++i) deep += "]}";
    text.replace(text.find("\"here\""), 6, deep);
    CHECK(says(refusal_of_text(text), "expected at most 8 sequences inside each other"));
}

TEST_CASE("pre-tokenizers that are not supported", "[tokenizer]") {
    json const byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    auto const sequence = [](json const& steps) {
        return refusal({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}}});
    };
    CHECK(refusal(R"({"pre_tokenizer": null})") == "t.json: field 'pre_tokenizer' is missing, expected an object");
    CHECK(sequence(json::array({byte_level})).empty());
    CHECK(sequence({{{"type", "Metaspace"}}, byte_level}) ==
          "t.json: field 'pre_tokenizer.pretokenizers[0].type' is \"Metaspace\", expected Split, Digits, ByteLevel or "
          "Sequence");
    CHECK(sequence(json::array()) ==
          "t.json: field 'pre_tokenizer' is an object of 2, expected one that ends with "
          "ByteLevel: other models are not supported");
    CHECK(sequence({byte_level, {{"type", "Digits"}, {"individual_digits", true}}}) ==
          "t.json: field 'pre_tokenizer.pretokenizers[1].type' is \"Digits\", expected nothing after ByteLevel: its "
          "output is no text");
    CHECK(says(sequence(json::array({nested(byte_level, 8, "pretokenizers")})),
               "expected at most 8 sequences inside each other"));
    CHECK(sequence(json::array({nested(byte_level, 7, "pretokenizers")})).empty());

    json split = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}, {"invert", false}};
    CHECK(sequence({split, byte_level}).empty());
    split["behavior"] = "Deleted";
    CHECK(sequence({split, byte_level}) ==
          "t.json: field 'pre_tokenizer.pretokenizers[0].behavior' is \"Deleted\", expected Isolated, Removed, "
          "MergedWithPrevious, MergedWithNext or Contiguous");
    split["behavior"] = "Removed";
    split.erase("invert");
    CHECK(sequence({split, byte_level}) ==
          "t.json: field 'pre_tokenizer.pretokenizers[0].invert' is missing, expected true or false");
    split["invert"] = false;
    split["pattern"] = json::object();
    CHECK(sequence({split, byte_level}) ==
          "t.json: field 'pre_tokenizer.pretokenizers[0].pattern.String' is missing, expected a string");
}

TEST_CASE("patterns that mean something else to another engine are refused", "[tokenizer]") {
    std::string const where = "t.json: field 'pre_tokenizer.pretokenizers[0].pattern.Regex': ";
    auto const refused = [&](std::string const& regex, std::string const& construct) {
        INFO(regex);
        CHECK(refusal_of_pattern(regex) ==
              where + "the pattern has '" + construct +
                  "', which Oniguruma and PCRE2 do not read alike or which is not supported");
    };
    refused("a^b", "^");
    refused("a$", "$");
    refused("\\w+", "\\w");
    refused("\\h", "\\h");
    refused("\\bfoo", "\\b");
    refused("a\\1", "\\1");
    refused("\\u3042", "\\u");
    refused("\\x4", "\\x");
    refused("\\xe9", "\\x");
    refused("\\x{1234567}", "\\x{");
    refused("\\pL", "\\p");
    refused("\\", "\\");
    refused("[a[b]]", "[b");
    refused("[[:alpha:]]", "[:");
    refused("[a&&b]", "&&");
    refused("[]a]", "]");
    refused("[\\S]", "\\S");
    refused("(?m:a)", "(?m");
    refused("(?i)a", "(?i");
    refused("(?<name>a)", "(?<");
    refused("(*UCP)a", "(*U");
    refused("(?i:\\p{Lu})", "(?i:\\");
    refused("(?i:[^a])", "(?i:[^");
    refused("(?i:ss)", "(?i:ss");
    refused("(?i:Fi)", "(?i:Fi");
    refused("a{,2}", "{,2}");
    refused("a{1,2}+", "{1,2}+");
    refused("a{2}?", "{2}?");
    refused("a{x", "{x");
    refused("(a|b*){2}", "{2}");
    CHECK(says(refusal_of_pattern("a("), {where.c_str(), "PCRE2 does not take the pattern, at byte 2 of 'a(': "}));
    CHECK(says(refusal_of_pattern("[a"), {where.c_str(), "PCRE2 does not take the pattern"}));
    CHECK(says(refusal_of_pattern("\\p{Nonsense}"), {where.c_str(), "PCRE2 does not take the pattern"}));
    for (char const* const regex :
         {"", "a|b", "(?:a|b)*+c?", "(?=a)(?!b)(?<=a)(?<!b)", "(?>a+)", "[^\\s\\p{L}\\-\\]\\[]", "\\P{^L}\\D\\r\\n\\t",
          "a{2}b{2,}c{2,3}", "\\x41\\x{3042}[\\x{4E00}-\\x{9FA5}]", "'(?i:[sdmt]|ll|ve|re)", "\\S+\\.\\{\\(",
          "[$^.{]"}) {
        INFO(regex);
        CHECK(refusal_of_pattern(regex).empty());
    }
}

TEST_CASE("a pattern that never ends is given up", "[tokenizer]") {
    json const split = {
        {"type", "Split"}, {"pattern", {{"Regex", "(?:a+)+[bc]"}}}, {"behavior", "Isolated"}, {"invert", false}};
    json const byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    tokenizer const tokens =
        changed_tokenizer({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}}});
    CHECK_FALSE(tokens.encode("aaaab").empty());
    CHECK(error_text([&] { (void)tokens.encode(std::string(40, 'a')); }) ==
          "tokenizer.json: field 'pre_tokenizer.pretokenizers[0].pattern.Regex': no answer from the pattern for a text "
          "of "
          "40 bytes: match limit exceeded");
}

TEST_CASE("decoders and post-processors that are not supported", "[tokenizer]") {
    CHECK(refusal(R"({"decoder": null})") == "t.json: field 'decoder' is missing, expected an object");
    CHECK(refusal(R"({"decoder": {"type": "WordPiece"}})") ==
          "t.json: field 'decoder.type' is \"WordPiece\", expected \"ByteLevel\"");
    CHECK(refusal(R"({"post_processor": {"type": "RobertaProcessing"}})") ==
          "t.json: field 'post_processor.type' is \"RobertaProcessing\", expected ByteLevel, TemplateProcessing or "
          "Sequence");
    CHECK(refusal(R"({"post_processor": null})").empty());

    auto const with = [](char const* single, char const* special_tokens = R"({"first": {"ids": [636]}})") {
        return refusal({{"post_processor",
                         {{"type", "TemplateProcessing"},
                          {"single", json::parse(single)},
                          {"special_tokens", json::parse(special_tokens)}}}});
    };
    CHECK(with(R"([{"SpecialToken": {"id": "first"}}, {"Sequence": {"id": "A"}}])").empty());
    CHECK(with(R"([{"Sequence": {"id": "B"}}])") ==
          "t.json: field 'post_processor.single[0].Sequence.id' is \"B\", expected \"A\"");
    CHECK(with(R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])") ==
          "t.json: field 'post_processor.single[1]' is an object of 1, expected the text only once");
    CHECK(
        with(R"([{"SpecialToken": {"id": "first"}}])") ==
        "t.json: field 'post_processor.single' is a list of 1, expected a list with the text, {\"Sequence\": {\"id\": "
        "\"A\"}}");
    CHECK(with(R"([{"SpecialToken": {"id": "second"}}, {"Sequence": {"id": "A"}}])") ==
          "t.json: field 'post_processor.special_tokens.second' is missing, expected an object");
    CHECK(with(R"([{"SpecialToken": {"id": "first"}}, {"Sequence": {"id": "A"}}])", R"({"first": {"ids": [9999]}})") ==
          "t.json: field 'post_processor.special_tokens.first.ids[0]' is 9999, expected the id of a token");
    std::string many = R"([{"Sequence": {"id": "A"}})";
    for (int i = 0; i < 1000; ++i) many += R"(, {"SpecialToken": {"id": "first"}})";
    CHECK(with((many + "]").c_str()).empty());
    CHECK(
        with((many + R"(, {"SpecialToken": {"id": "first"}}])").c_str()) ==
        "t.json: field 'post_processor.single[1001]' is an object of 1, expected at most 1000 tokens around the text");
    json const one =
        json::parse(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "special_tokens": {}})");
    CHECK(refusal({{"post_processor", {{"type", "Sequence"}, {"processors", json::array({one})}}}}).empty());
    CHECK(says(refusal({{"post_processor", {{"type", "Sequence"}, {"processors", {one, one}}}}}),
               {"'post_processor.processors[1]'", "expected only one TemplateProcessing"}));
    CHECK(says(refusal({{"post_processor", nested(one, 9, "processors")}}), "expected at most 8 sequences"));
}
