// SPDX-License-Identifier: MIT
//
// Any bytes as a tokenizer.json or a GGUF file, and a text to encode with it: either a readable sureleap::error, or ids
// within the vocabulary that decode to the text again, unless the document says that something gets lost.
//
// A document needs a token for every byte, which is more than a fuzzer finds by itself. So the input is one of
//
//   {...} \0 text     a merge patch (RFC 7386) of a small complete document, then the text
//   =... \0 text      a document as it is
//   \0 text           nothing but a text, for Qwen's pipeline
//   GGUF...           a file with a tokenizer and a chat template, and the same bytes as the text
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Iinclude -Iexamples \
//       tests/fuzz/tokenizer.fuzz.cpp examples/engine/tokenizer.cpp examples/engine/gguf/file.cpp \
//       -lpcre2-8 -lutf8proc -o tokenizer_fuzz
//   ./tokenizer_fuzz -max_len=2048 <new corpus> tests/fuzz/corpus/tokenizer

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>

#include "engine/chat.hpp"
#include "engine/gguf/file.hpp"
#include "engine/text/byte_level.hpp"
#include "engine/tokenizer.hpp"

namespace {

using engine::token_id;
using engine::tokenizer;
using nlohmann::json;

void expect(bool holds) {
    if (!holds) __builtin_trap();
}

json const& base_document() {
    static json const document = [] {
        json base = json::parse(R"({
            "normalizer": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
            "decoder": {"type": "ByteLevel"},
            "added_tokens": [{"id": 300, "content": "<s>", "special": true, "normalized": false},
                             {"id": 301, "content": "a<b", "special": false, "normalized": true}],
            "model": {"type": "BPE", "vocab": {"ab": 256, "Ġa": 257, "aa": 258, "aaaa": 259, "Ã©": 260},
                      "merges": ["a b", ["Ġ", "a"], "a a", "aa aa", "Ã ©"]}})");
        for (unsigned byte = 0; byte < 256; ++byte) {
            base["model"]["vocab"][engine::text::symbol_of(static_cast<std::uint8_t>(byte))] = byte;
        }
        return base;
    }();
    return document;
}

tokenizer const& qwen() {
    static tokenizer const tokens = [] {
        json document = base_document();
        document["pre_tokenizer"] = json::parse(R"JSON({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
             "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})JSON");
        return tokenizer::parse(document.dump(), "qwen");
    }();
    return tokens;
}

void check_text(tokenizer const& tokens, std::string_view text, bool lossless) {
    for (bool const parse : {true, false}) {
        std::vector<token_id> ids;
        try {
            ids = tokens.encode(text, {.parse_special = parse, .add_special = !lossless});
        } catch (sureleap::error const& e) {
            expect(std::string_view(e.what()).find("no answer from the pattern") != std::string_view::npos);
            continue;
        }
        engine::utf8_stream stream;
        std::string printed;
        for (token_id const id : ids) {
            expect(id >= 0 && static_cast<std::size_t>(id) < tokens.vocabulary());
            printed += stream.push(tokens.bytes_of(id));
        }
        printed += stream.finish();
        std::string const decoded = tokens.decode(ids);
        expect(printed == engine::to_utf8(decoded));
        expect(!lossless || decoded == engine::to_utf8(text));
    }
}

/// A reader's refusal, of an input of so many bytes.
void check_message(std::string_view message, std::size_t size) {
    expect(message.starts_with("input: ") && message.size() < size + 1000 && engine::is_utf8(message));
}

void check_gguf(std::string_view input) {
    std::optional<engine::gguf::file> file;
    std::optional<tokenizer> tokens;
    try {
        file.emplace(engine::gguf::file::view(std::as_bytes(std::span(input)), "input"));
        tokens.emplace(tokenizer::from_gguf(*file));
        for (token_id const stop : engine::stop_tokens_of(*file)) {
            expect(stop >= 0 && static_cast<std::size_t>(stop) < tokens->vocabulary());
        }
    } catch (sureleap::error const& e) {
        check_message(e.what(), input.size());
    }
    if (tokens) check_text(*tokens, input, false);
    if (!file) return;
    try {
        expect(engine::chat_template_of(*file).default_system.size() < input.size());
    } catch (sureleap::error const& e) {
        check_message(e.what(), input.size());
    }
}

/// Does every byte of a text reach the model?
bool keeps_everything(json const& document) {
    std::string const pre_tokenizer = document.value("pre_tokenizer", json()).dump();
    return document.value("normalizer", json()).is_null() && pre_tokenizer.find("\"Removed\"") == std::string::npos &&
           pre_tokenizer.find("\"add_prefix_space\":true") == std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const input(reinterpret_cast<char const*>(data), size);
    if (input.starts_with("GGUF")) {
        check_gguf(input);
        return 0;
    }
    std::size_t const end = std::min(input.find('\0'), size);
    std::string_view const text = input.substr(std::min(end + 1, size));
    if (end == 0) {
        check_text(qwen(), text, true);
        return 0;
    }
    std::string document(input.substr(0, end));
    bool lossless = false;
    if (document.front() == '=') {
        document.erase(0, 1);
    } else {
        json const patch = json::parse(document, nullptr, false);
        if (!patch.is_object()) return -1;
        json patched = base_document();
        patched.merge_patch(patch);
        lossless = keeps_everything(patched);
        document = patched.dump();
    }
    std::optional<tokenizer> tokens;
    try {
        tokens.emplace(tokenizer::parse(document, "input"));
    } catch (sureleap::error const& e) {
        check_message(e.what(), size);
        return 0;
    }
    expect(tokens->vocabulary() >= 256 && tokens->vocabulary() <= std::size_t{1} << 24);
    check_text(*tokens, text, lossless);
    return 0;
}
