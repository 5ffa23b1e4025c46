// SPDX-License-Identifier: MIT
//
// Reads the tokenizer of a GGUF file into a pipeline.
//
// Read are byte-level BPE, which the format calls "gpt2", and SentencePiece's BPE, which it calls "llama". The keys,
// each with tokenizer.ggml. before it:
//
//   tokens, token_type    a name and a type for every id; names of texts in the alphabet of byte_level.hpp, or with
//                         U+2581 for a space
//   merges                of gpt2: "left right", by rank
//   pre                   of gpt2: the name of the patterns that cut a text into words
//   scores                of llama: which pieces are joined first
//   bos_token_id, ...     with add_bos_token and add_eos_token: what stands around every text
//
// Of llama the ids are those that llama.cpp gives. A space goes before a text, and before what follows an added token.
// Decoding gives that space back.
//
// A tokenizer.json has its patterns and its normaliser written out, here a name stands for them. So a name is known,
// or it is refused: another pattern would give other ids, and no error. A normaliser comes with the names of families
// that publish one, NFC with Qwen's and Cohere's. llama.cpp applies none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

#include "../gguf/file.hpp"
#include "../json_field.hpp"
#include "byte_level.hpp"
#include "pipeline.hpp"
#include "published_patterns.hpp"
#include "spelled_vocabulary.hpp"
#include "utf8.hpp"

namespace engine::text {

using sureleap::fail_with;

/// What one name of tokenizer.ggml.pre stands for.
struct pre_tokenizer_rules {
    std::string_view name;
    std::string_view words;          ///< a pattern of published_patterns.hpp
    bool digits_first = false;       ///< every digit alone, before the pattern
    bool nfc = false;                ///< the normaliser
    bool whole_words_first = false;  ///< a word that is a token needs no merges
    bool add_bos = false;            ///< where the file does not say
};

inline constexpr std::array known_pre_tokenizers{
    pre_tokenizer_rules{.name = "codeshell", .words = gpt2_words, .digits_first = true},
    pre_tokenizer_rules{.name = "command-r", .words = gpt2_words, .digits_first = true, .nfc = true},
    pre_tokenizer_rules{.name = "exaone", .words = gpt2_words, .digits_first = true},
    pre_tokenizer_rules{.name = "gpt-2", .words = gpt2_words},
    pre_tokenizer_rules{.name = "llama-bpe", .words = llama3_words, .whole_words_first = true, .add_bos = true},
    pre_tokenizer_rules{.name = "llama-v3", .words = llama3_words, .whole_words_first = true, .add_bos = true},
    pre_tokenizer_rules{.name = "llama3", .words = llama3_words, .whole_words_first = true, .add_bos = true},
    pre_tokenizer_rules{.name = "mellum2", .words = gpt2_words, .digits_first = true},
    pre_tokenizer_rules{.name = "minerva-7b", .words = gpt2_words, .digits_first = true},
    pre_tokenizer_rules{.name = "phi-2", .words = gpt2_words},
    pre_tokenizer_rules{.name = "qwen2", .words = qwen2_words, .nfc = true},
    pre_tokenizer_rules{.name = "refact", .words = gpt2_words, .digits_first = true},
    pre_tokenizer_rules{.name = "smollm", .words = gpt2_words, .digits_first = true},
    pre_tokenizer_rules{.name = "starcoder", .words = gpt2_words, .digits_first = true},
};

/// As numbered in tokenizer.ggml.token_type.
enum class gguf_token_type : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

/// The tokens of a file and what each is: both lists, checked to belong together.
struct gguf_tokens {
    std::vector<std::string_view> names;  ///< point into the file
    std::vector<std::int64_t> types;

    explicit gguf_tokens(gguf::file const& from) {
        gguf::field const all = from["tokenizer.ggml.tokens"];
        gguf::field const all_types = from["tokenizer.ggml.token_type"];
        names = all.texts();
        types = all_types.integers(1, 6);
        if (names.empty() || names.size() > std::size_t{largest_id} + 1) {
            all.wrong("1 .. " + std::to_string(std::size_t{largest_id} + 1) + " tokens");
        }
        if (types.size() != names.size()) all_types.wrong(std::to_string(names.size()) + ", one for every token");
    }

    [[nodiscard]] gguf_token_type type(std::size_t id) const { return static_cast<gguf_token_type>(types[id]); }
    /// Is it cut out of a text before anything else looks at it?
    [[nodiscard]] bool is_added(std::size_t id) const {
        return type(id) == gguf_token_type::control || type(id) == gguf_token_type::user_defined;
    }
    /// The field as the id of a token.
    [[nodiscard]] token_id id_in(gguf::field const& field) const {
        return static_cast<token_id>(field.size(0, names.size() - 1));
    }
};

/// Fills a pipeline from a file, part by part.
class gguf_tokenizer_reader {
public:
    explicit gguf_tokenizer_reader(gguf::file const& from)
        : file_(from), out_(std::make_unique<pipeline>()), spelled_(*out_) {
        out_->source = from.name();
    }

    [[nodiscard]] std::unique_ptr<pipeline const> read() {
        gguf::field const model = key("model");
        bool const is_pieces = model.text() == "llama";
        if (!is_pieces && model.text() != "gpt2") {
            model.wrong("\"gpt2\", which is byte-level BPE, or \"llama\", which is SentencePiece's");
        }
        gguf_tokens const tokens(file_);
        if (is_pieces) {
            read_pieces(tokens);
            read_surroundings(tokens, true);
            return std::move(out_);
        }
        read_tokens(tokens);
        read_merges();
        pre_tokenizer_rules const& rules = read_pre_tokenizer();
        if (gguf::field const prefix = key("add_space_prefix"); prefix.boolean_or(false)) {
            prefix.wrong("false: no byte-level model that is known here has it");
        }
        read_surroundings(tokens, rules.add_bos);
        return std::move(out_);
    }

private:
    [[nodiscard]] gguf::field key(std::string const& name) const { return file_["tokenizer.ggml." + name]; }

    // ---- model ---------------------------------------------------------------------------------------------------

    void read_tokens(gguf_tokens const& tokens) {
        std::string const where = key("tokens").where();
        spelled_.reserve(tokens.names.size());
        for (std::size_t i = 0; i < tokens.names.size(); ++i) {
            std::string_view const name = tokens.names[i];
            if (name.empty()) fail_with(where, ", entry ", i, " is \"\", expected some text");
            if (!is_utf8(name)) {
                fail_with(where, ", entry ", i, " is '", shortened(to_utf8(name)), "', which is not UTF-8");
            }
            if (auto const twin = spelled_.find(name)) {
                fail_with(where, ", entry ", i, " is '", shortened(name), "', as entry ", *twin,
                          " is, expected every token once");
            }
            read_token(name, static_cast<token_id>(i), tokens);
        }
        // Vocabularies lack bytes that training never met: those that no UTF-8 has, and rare control characters. What
        // every text has must be there.
        for (std::uint8_t const byte : spelled_.set_bytes()) {
            if (byte < 0x20 || byte > 0x7E) continue;
            fail_with(where, " has no token '", symbol_of(byte), "' for the byte ", unsigned{byte},
                      ", expected one for every printable character of ASCII");
        }
    }

    void read_token(std::string_view name, token_id id, gguf_tokens const& tokens) {
        auto const index = static_cast<std::size_t>(id);
        if (tokens.is_added(index)) {
            bool const special = tokens.type(index) == gguf_token_type::control;
            out_->tokens.emplace(id, token_entry{std::string(name), special});
            out_->added.emplace(name, id);
            out_->verbatim.add(std::string(name), id);
            spelled_.name(name, id);
        } else if (tokens.type(index) == gguf_token_type::unused) {
            spelled_.name(name, id);  // fills the table up to the size of the model's; stands for no text
        } else {
            static_cast<void>(spelled_.add(name, id));  // no id comes twice: it is the place in the list
        }
    }

    void read_merges() {
        gguf::field const merges = key("merges");
        std::vector<std::string_view> const all = merges.texts();
        out_->model.reserve(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            // A space that is the first character belongs to the left part.
            std::size_t const space = all[i].find(' ', 1);
            if (space == all[i].npos || space + 1 == all[i].size()) {
                fail_with(merges.where(), ", entry ", i, " is '", shortened(to_utf8(all[i])),
                          "', expected \"left right\"");
            }
            std::string_view const unknown = spelled_.add_merge(all[i].substr(0, space), all[i].substr(space + 1));
            if (unknown.empty()) continue;
            fail_with(merges.where(), ", entry ", i, " is '", shortened(to_utf8(all[i])), "', but '",
                      shortened(to_utf8(unknown)), "' is no token");
        }
    }

    // ---- SentencePiece -------------------------------------------------------------------------------------------

    void read_pieces(gguf_tokens const& tokens) {
        if (gguf::field const removes = key("remove_extra_whitespaces"); removes.boolean_or(false)) {
            removes.wrong("false: nothing else is supported");
        }
        gguf::field const scores = key("scores");
        std::vector<float> const all = scores.reals();
        if (all.size() != tokens.names.size()) scores.wrong(std::to_string(tokens.names.size()) + ", one a token");
        sentence_piece& pieces = out_->pieces.emplace();
        pieces.prefix_space = key("add_space_prefix").boolean_or(true);
        pieces.bytes.fill(sureleap::no_token);
        pieces.reserve(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            std::string_view const name = tokens.names[i];
            auto const id = static_cast<token_id>(i);
            auto const refuse = [&](char const* what) {
                fail_with(key("tokens").where(), ", entry ", i, " is '", shortened(to_utf8(name)), "', ", what);
            };
            spelled_.grow_to(id);
            if (name.empty() || !is_utf8(name)) refuse("expected some UTF-8");
            if (!(all[i] == all[i])) refuse("whose score is no number");
            switch (tokens.type(i)) {
                case gguf_token_type::normal:
                    if (!pieces.add(std::string(name), id, all[i])) refuse("as an entry before is, expected it once");
                    add_bytes(id, replaced_all(name, piece_space, " "));
                    break;
                case gguf_token_type::byte:
                    if (auto const byte = byte_named(name)) {
                        pieces.bytes[*byte] = id;
                        add_bytes(id, std::string(1, static_cast<char>(*byte)));
                    } else {
                        refuse("expected the name of a byte, <0x00> .. <0xFF>");
                    }
                    break;
                case gguf_token_type::control:
                case gguf_token_type::user_defined: read_token(name, id, tokens); break;
                default: break;  // stand for no text
            }
        }
        for (std::size_t byte = 0; byte < pieces.bytes.size(); ++byte) {
            if (pieces.bytes[byte] != sureleap::no_token) continue;
            fail_with(key("tokens").where(), " has no token of the byte ", byte,
                      ", expected one of type byte for each");
        }
    }
    void add_bytes(token_id id, std::string bytes) {
        auto const entry = out_->tokens.emplace(id, token_entry{std::move(bytes)}).first;
        out_->words.emplace(entry->second.bytes, id);
    }
    /// Of "<0x41>".
    [[nodiscard]] static std::optional<std::uint8_t> byte_named(std::string_view name) {
        auto const digit = [](char c) {
            return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        };
        if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
        int const high = digit(name[3]);
        int const low = digit(name[4]);
        if (high < 0 || low < 0) return std::nullopt;
        return static_cast<std::uint8_t>(16 * high + low);
    }

    // ---- pre-tokenizer and what stands around a text -------------------------------------------------------------

    pre_tokenizer_rules const& read_pre_tokenizer() {
        gguf::field const pre = key("pre");
        std::string names;
        for (auto const& known : known_pre_tokenizers) names.append(names.empty() ? "" : ", ").append(known.name);
        if (!pre.present()) pre.wrong("one of " + names);
        auto const rules = std::ranges::find(known_pre_tokenizers, pre.text(), &pre_tokenizer_rules::name);
        if (rules == known_pre_tokenizers.end()) pre.wrong("one of " + names);

        auto const cut = [&](std::string_view expression) {
            out_->splits.push_back({pattern(pre.where(), expression, pattern::syntax::regular_expression),
                                    split_behavior::isolated, false});
        };
        if (rules->digits_first) cut(digits);
        cut(rules->words);
        if (rules->nfc) out_->normalizer.push_back(normal_form::nfc);
        out_->whole_words_first = rules->whole_words_first;
        return *rules;
    }

    void read_surroundings(gguf_tokens const& tokens, bool add_bos) {
        auto const surround = [&](std::string const& name, bool unless_told, std::vector<token_id>& side) {
            bool const add = key("add_" + name + "_token").boolean_or(unless_told);
            gguf::field const id = key(name + "_token_id");
            if (!add && !id.present()) return;
            token_id const token = tokens.id_in(id);
            if (add) side.push_back(token);
        };
        surround("bos", add_bos, out_->before);
        surround("eos", false, out_->after);
    }

    gguf::file const& file_;
    std::unique_ptr<pipeline> out_;
    spelled_vocabulary spelled_;  // names are the file's
};

[[nodiscard]] inline std::unique_ptr<pipeline const> read_gguf_tokenizer(gguf::file const& from) {
    return gguf_tokenizer_reader(from).read();
}

/// Texts of tokens that end an answer in some family of models: llama.cpp's list, as far as models of bytes have them.
/// They end a text, a turn, what fills a gap in code, or a file.
inline constexpr auto end_texts = std::to_array<std::string_view>(
    {"<|endoftext|>", "<|end_of_text|>", "</s>",         "<eos>",         "[EOS]",         "<｜end▁of▁sentence｜>",
     "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",   "<|end|>",       "<end_of_turn>", "<end_of_utterance>",
     "<EOT>",         "_<EOT>",          "[EOT]",        "<|fim_pad|>",   "<fim-pad>",     "<fim_pad>",
     "<PAD>",         "[PAD]",           "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",    "<REPO>",
     "<reponame>",    "<|file_sep|>"});

/// See stop_tokens_of in tokenizer.hpp.
[[nodiscard]] inline std::vector<token_id> read_gguf_stop_tokens(gguf::file const& from) {
    gguf_tokens const tokens(from);
    std::vector<token_id> stops;
    for (char const* const name : {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
        gguf::field const id = from["tokenizer.ggml." + std::string(name) + "_token_id"];
        if (id.present()) stops.push_back(tokens.id_in(id));
    }
    for (std::size_t i = 0; i < tokens.names.size(); ++i) {
        bool const ends = tokens.is_added(i) && std::ranges::find(end_texts, tokens.names[i]) != end_texts.end();
        if (ends) stops.push_back(static_cast<token_id>(i));
    }
    std::ranges::sort(stops);
    stops.erase(std::ranges::unique(stops).begin(), stops.end());
    return stops;
}

}  // namespace engine::text
