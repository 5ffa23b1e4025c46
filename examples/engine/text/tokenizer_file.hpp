// SPDX-License-Identifier: MIT
//
// Reads a tokenizer.json into a pipeline.
//
// The format has dozens of normalisers, pre-tokenizers and options that serve other kinds of models. Whatever takes
// part in turning text into ids or back is either understood or refused; a default for it would be a guess. Ignored are
// `truncation` and `padding`, which lay out batches for training (transformers resets them as well). What only matters
// for offsets is ignored, too (`trim_offsets`, the ByteLevel post-processor). A key that stands twice counts as its
// last value, as in Python.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

#include "../json_field.hpp"
#include "byte_level.hpp"
#include "pipeline.hpp"

namespace engine::text {

using sureleap::fail_with;

/// Far above any vocabulary, and small enough for everyone who makes a table of them.
inline constexpr token_id largest_id = (token_id{1} << 24) - 1;

[[nodiscard]] inline token_id id_of(json_field const& field) {
    return static_cast<token_id>(field.integer(0, largest_id));
}

/// Fills a pipeline from a document, part by part.
class tokenizer_reader {
public:
    tokenizer_reader(nlohmann::json const& document, std::string source)
        : out_(std::make_unique<pipeline>()), root_(document, out_->source) {
        out_->source = std::move(source);
    }

    [[nodiscard]] std::unique_ptr<pipeline const> read() {
        read_normalizer(root_["normalizer"]);
        read_model(root_["model"]);
        if (root_["added_tokens"].present()) root_["added_tokens"].each([&](auto const& t) { read_added_token(t); });
        read_pre_tokenizer(root_["pre_tokenizer"]);
        if (!byte_level_) root_["pre_tokenizer"].wrong("one that ends with ByteLevel: other models are not supported");
        json_field const decoder = root_["decoder"]["type"];
        if (decoder.text() != "ByteLevel") decoder.wrong("\"ByteLevel\"");
        read_post_processor(root_["post_processor"]);
        return std::move(out_);
    }

private:
    // ---- model ---------------------------------------------------------------------------------------------------

    void read_model(json_field const& model) {
        // The oldest files have no type; merges are what only BPE has.
        if (model["type"].present() && model["type"].text() != "BPE") model["type"].wrong("\"BPE\"");
        for (char const* const name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
            if (model[name].present() && !model[name].text().empty()) model[name].wrong("null or \"\"");
        }
        if (model["byte_fallback"].boolean_or(false)) model["byte_fallback"].wrong("false: bytes are tokens here");
        // What a training run dropped would be dropped at random here too. unk_token can be anything: every byte is
        // required to be a token, so nothing is unknown.
        if (model["dropout"].present()) model["dropout"].wrong("null: encoding must not be random");
        out_->whole_words_first = model["ignore_merges"].boolean_or(false);

        read_vocabulary(model["vocab"]);
        for (std::size_t byte = 0; byte < 256; ++byte) {
            std::string const symbol = symbol_of(static_cast<std::uint8_t>(byte));
            auto const found = symbols_.find(symbol);
            if (found == symbols_.end()) {
                fail_with(model["vocab"].where(), " has no token '", symbol, "' for the byte ", byte,
                          ", expected one for every byte");
            }
            out_->model.symbols[byte] = found->second;
        }
        read_merges(model["merges"]);
    }

    void read_vocabulary(json_field const& vocabulary) {
        std::size_t const size = vocabulary.object().size();
        symbols_.reserve(size);
        out_->tokens.reserve(size);
        out_->words.reserve(size);
        for (auto const& [token, value] : vocabulary.object()) {
            bool const fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{largest_id};
            token_id const id = fits ? value.get<token_id>() : id_of(vocabulary[token]);
            std::optional<std::string> const bytes = bytes_of_symbols(token);
            auto const [entry, is_new] = out_->tokens.try_emplace(id, token_entry{bytes.value_or(token), false});
            if (!is_new) {
                fail_with(out_->source, ": tokens '", shortened(token), "' and '",
                          shortened(to_utf8(entry->second.bytes)), "' of model.vocab both have id ", id);
            }
            grow_to(id);
            symbols_.emplace(token, id);
            // Other tokens are in the table for decoding only: no text is ever spelled like them.
            if (bytes) out_->words.emplace(entry->second.bytes, id);
        }
    }

    /// "a b", or ["a", "b"] as newer files have it.
    void read_merges(json_field const& merges) {
        std::size_t index = 0;
        std::string joined;
        for (auto const& entry : merges.list()) {
            auto const where = [&] { return merges.where() + ", index " + std::to_string(index); };
            std::string_view left;
            std::string_view right;
            if (entry.is_string()) {
                std::string_view const both = entry.get_ref<std::string const&>();
                std::size_t const space = both.find(' ');
                if (space != both.npos && both.find(' ', space + 1) == both.npos) {
                    left = both.substr(0, space);
                    right = both.substr(space + 1);
                }
            } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
                left = entry[0].get_ref<std::string const&>();
                right = entry[1].get_ref<std::string const&>();
            }
            if (left.empty() || right.empty()) fail_with(where(), ": expected \"left right\" or [\"left\", \"right\"]");
            joined.assign(left).append(right);
            auto const id = [&](std::string_view token) {
                auto const found = symbols_.find(token);
                if (found == symbols_.end()) {
                    fail_with(where(), ": '", shortened(token), "' of the merge '", shortened(left), "' + '",
                              shortened(right), "' is not in model.vocab");
                }
                return found->second;
            };
            token_id const left_id = id(left);
            token_id const right_id = id(right);
            out_->model.add_merge(left_id, right_id, id(joined));
            ++index;
        }
    }

    // ---- added tokens --------------------------------------------------------------------------------------------

    void read_added_token(json_field const& token) {
        std::string const& content = token["content"].text();
        token_id const id = id_of(token["id"]);
        bool const special = token["special"].boolean();
        bool const normalized_first = token["normalized"].boolean();
        if (content.empty()) token["content"].wrong("some text");
        for (char const* const name : {"lstrip", "rstrip", "single_word"}) {
            if (!token[name].boolean_or(false)) continue;
            token[name].wrong("false: '" + shortened(content) + "' would need support");
        }
        bool const is_first = out_->added.try_emplace(content, id).second;
        if (!is_first) token["content"].wrong("a text that no other added token has");

        // A token may stand in both lists, but then it has to be the same one, and mean the same: content is text, a
        // name in model.vocab is bytes, and the text "é" is not the byte that "é" stands for there.
        if (auto const found = symbols_.find(content); found != symbols_.end() && found->second != id) {
            token["id"].wrong(std::to_string(found->second) + ", the id of '" + shortened(content) +
                              "' in model.vocab");
        }
        auto const [entry, is_new] = out_->tokens.try_emplace(id, token_entry{content, special});
        if (!is_new && entry->second.bytes != content) {
            token["id"].wrong("another: it belongs to the token '" + shortened(to_utf8(entry->second.bytes)) + "'");
        }
        entry->second.special = special;
        grow_to(id);

        if (!normalized_first) return out_->verbatim.add(content, id);
        std::string normal = content;
        for (normal_form const form : out_->normalizer) normal = normalized(normal, form);
        out_->normalized.add(std::move(normal), id);
    }

    // ---- normaliser and pre-tokenizer ----------------------------------------------------------------------------

    void read_normalizer(json_field const& normalizer, int depth = 0) {
        if (!normalizer.present()) return;
        std::string const& type = normalizer["type"].text();
        if (type == "Sequence") {
            check_depth(normalizer, depth);
            normalizer["normalizers"].each([&](auto const& one) { read_normalizer(one, depth + 1); });
        } else if (type == "NFC") {
            out_->normalizer.push_back(normal_form::nfc);
        } else if (type == "NFD") {
            out_->normalizer.push_back(normal_form::nfd);
        } else if (type == "NFKC") {
            out_->normalizer.push_back(normal_form::nfkc);
        } else if (type == "NFKD") {
            out_->normalizer.push_back(normal_form::nfkd);
        } else {
            normalizer["type"].wrong("NFC, NFD, NFKC, NFKD or Sequence");
        }
    }

    void read_pre_tokenizer(json_field const& step, int depth = 0) {
        std::string const& type = step["type"].text();
        if (byte_level_) step["type"].wrong("nothing after ByteLevel: its output is no text");
        if (type == "Sequence") {
            check_depth(step, depth);
            step["pretokenizers"].each([&](auto const& one) { read_pre_tokenizer(one, depth + 1); });
        } else if (type == "Split") {
            json_field const expression = step["pattern"]["Regex"];
            bool const literal = !expression.present();
            json_field const source = literal ? step["pattern"]["String"] : expression;
            auto const kind = literal ? pattern::syntax::literal : pattern::syntax::regular_expression;
            out_->splits.push_back({pattern(source.where(), source.text(), kind), behavior_of(step["behavior"]),
                                    step["invert"].boolean()});
        } else if (type == "Digits") {
            auto const behavior =
                step["individual_digits"].boolean() ? split_behavior::isolated : split_behavior::contiguous;
            out_->splits.push_back(
                {pattern(step.where(), "\\p{N}", pattern::syntax::regular_expression), behavior, false});
        } else if (type == "ByteLevel") {
            byte_level_ = true;
            out_->prefix_space = step["add_prefix_space"].boolean();
            if (!step["use_regex"].boolean_or(true)) return;  // files from before it was an option mean true
            // As published with GPT-2 (encoder.py).
            constexpr std::string_view words =
                R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
            out_->space_words.emplace(split{pattern(step.where(), words, pattern::syntax::regular_expression),
                                            split_behavior::isolated, false});
        } else {
            step["type"].wrong("Split, Digits, ByteLevel or Sequence");
        }
    }

    [[nodiscard]] static split_behavior behavior_of(json_field const& field) {
        std::string const& name = field.text();
        if (name == "Isolated") return split_behavior::isolated;
        if (name == "Removed") return split_behavior::removed;
        if (name == "MergedWithPrevious") return split_behavior::merged_with_previous;
        if (name == "MergedWithNext") return split_behavior::merged_with_next;
        if (name == "Contiguous") return split_behavior::contiguous;
        field.wrong("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
    }

    // ---- post-processor ------------------------------------------------------------------------------------------

    void read_post_processor(json_field const& processor, int depth = 0) {
        if (!processor.present()) return;
        std::string const& type = processor["type"].text();
        if (type == "Sequence") {
            check_depth(processor, depth);
            processor["processors"].each([&](auto const& one) { read_post_processor(one, depth + 1); });
        } else if (type == "TemplateProcessing") {
            if (std::exchange(template_, true)) processor.wrong("only one TemplateProcessing");
            read_template(processor);
        } else if (type != "ByteLevel") {
            processor["type"].wrong("ByteLevel, TemplateProcessing or Sequence");
        }
    }

    /// Its `single` is a list of special tokens around one text, "A"; `pair` is for two.
    void read_template(json_field const& processor) {
        bool text_seen = false;
        processor["single"].each([&](json_field const& piece) {
            if (piece["Sequence"].present()) {
                if (piece["Sequence"]["id"].text() != "A") piece["Sequence"]["id"].wrong("\"A\"");
                if (std::exchange(text_seen, true)) piece.wrong("the text only once");
                return;
            }
            std::string const& name = piece["SpecialToken"]["id"].text();
            processor["special_tokens"][name]["ids"].each([&](json_field const& id) {
                if (!out_->tokens.contains(id_of(id))) id.wrong("the id of a token");
                (text_seen ? out_->after : out_->before).push_back(id_of(id));
            });
            // Every mention repeats the list: a short file could ask for a very long prompt.
            if (out_->before.size() + out_->after.size() > 1000) piece.wrong("at most 1000 tokens around the text");
        });
        if (!text_seen) processor["single"].wrong("a list with the text, {\"Sequence\": {\"id\": \"A\"}}");
    }

    // ---- helpers -------------------------------------------------------------------------------------------------

    // Nobody nests sequences, but reading them is recursive, and a file could hold a million of them.
    static void check_depth(json_field const& sequence, int depth) {
        if (depth == 8) sequence.wrong("at most 8 sequences inside each other");
    }

    void grow_to(token_id id) { out_->vocabulary = std::max(out_->vocabulary, static_cast<std::size_t>(id) + 1); }

    std::unique_ptr<pipeline> out_;
    json_field root_;
    std::unordered_map<std::string_view, token_id> symbols_;  // model.vocab as it is written; names are the document's
    bool byte_level_ = false;
    bool template_ = false;
};

[[nodiscard]] inline std::unique_ptr<pipeline const> read_tokenizer(std::string_view text, std::string source) {
    auto const document = parse_json_object(text, source);
    return tokenizer_reader(document, std::move(source)).read();
}

}  // namespace engine::text
