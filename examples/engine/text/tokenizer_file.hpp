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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

#include "../json_field.hpp"
#include "byte_level.hpp"
#include "pipeline.hpp"
#include "published_patterns.hpp"
#include "spelled_vocabulary.hpp"

namespace engine::text {

using sureleap::fail_with;

[[nodiscard]] inline token_id id_of(json_field const& field) {
    return static_cast<token_id>(field.integer(0, largest_id));
}

/// Fills a pipeline from a document, part by part.
class tokenizer_reader {
public:
    tokenizer_reader(nlohmann::json const& document, std::string source)
        : out_(std::make_unique<pipeline>()), root_(document, out_->source), names_(*out_) {
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
        if (auto const missing = names_.set_bytes(); !missing.empty()) {
            fail_with(model["vocab"].where(), " has no token '", symbol_of(missing[0]), "' for the byte ",
                      unsigned{missing[0]}, ", expected one for every byte");
        }
        read_merges(model["merges"]);
    }

    void read_vocabulary(json_field const& vocabulary) {
        names_.reserve(vocabulary.object().size());
        for (auto const& [token, value] : vocabulary.object()) {
            bool const fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{largest_id};
            token_id const id = fits ? value.get<token_id>() : id_of(vocabulary[token]);
            if (auto const other = names_.add(token, id)) {
                fail_with(out_->source, ": tokens '", shortened(token), "' and '", shortened(to_utf8(other->bytes)),
                          "' of model.vocab both have id ", id);
            }
        }
    }

    /// "a b", or ["a", "b"] as newer files have it.
    void read_merges(json_field const& merges) {
        std::size_t index = 0;
        out_->model.reserve(merges.list_size());
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
            if (auto const unknown = names_.add_merge(left, right); !unknown.empty()) {
                fail_with(where(), ": '", shortened(unknown), "' of the merge '", shortened(left), "' + '",
                          shortened(right), "' is not in model.vocab");
            }
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
        if (auto const found = names_.find(content); found && *found != id) {
            token["id"].wrong(std::to_string(*found) + ", the id of '" + shortened(content) + "' in model.vocab");
        }
        auto const [entry, is_new] = out_->tokens.try_emplace(id, token_entry{content, special});
        if (!is_new && entry->second.bytes != content) {
            token["id"].wrong("another: it belongs to the token '" + shortened(to_utf8(entry->second.bytes)) + "'");
        }
        entry->second.special = special;
        names_.grow_to(id);

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
                {pattern(step.where(), digits, pattern::syntax::regular_expression), behavior, false});
        } else if (type == "ByteLevel") {
            byte_level_ = true;
            out_->prefix_space = step["add_prefix_space"].boolean();
            if (!step["use_regex"].boolean_or(true)) return;  // files from before it was an option mean true
            out_->space_words.emplace(split{pattern(step.where(), gpt2_words, pattern::syntax::regular_expression),
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

    std::unique_ptr<pipeline> out_;
    json_field root_;
    spelled_vocabulary names_;  // of model.vocab; they are the document's
    bool byte_level_ = false;
    bool template_ = false;
};

[[nodiscard]] inline std::unique_ptr<pipeline const> read_tokenizer(std::string_view text, std::string source) {
    auto const document = parse_json_object(text, source);
    return tokenizer_reader(document, std::move(source)).read();
}

}  // namespace engine::text
