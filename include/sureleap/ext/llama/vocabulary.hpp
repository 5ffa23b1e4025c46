// SPDX-License-Identifier: MIT
//
// Text to tokens of a llama.cpp model and back, and its vocabulary as a text_tokenizer: what joins a draft's vocabulary
// to a target's (shared_tokens.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Text of a token as it appears in output; of control tokens their name.
[[nodiscard]] inline std::string llama_piece(llama_vocab const* vocab, token_id token) {
    std::string text(32, '\0');
    for (;;) {
        std::int32_t const size =
            llama_token_to_piece(vocab, token, text.data(), static_cast<std::int32_t>(text.size()), 0, true);
        text.resize(static_cast<std::size_t>(size < 0 ? -size : size));
        if (size >= 0) return text;
    }
}
/// Tokens of a text. With `add_special` there are those that a model's settings add in front and behind. With
/// `parse_special` names of control tokens are read as such.
[[nodiscard]] inline std::vector<token_id> llama_tokens(llama_vocab const* vocab, std::string_view text,
                                                        bool add_special = false, bool parse_special = true) {
    std::vector<token_id> tokens(text.size() + 8);
    for (;;) {
        std::int32_t const count =
            llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                           static_cast<std::int32_t>(tokens.size()), add_special, parse_special);
        tokens.resize(static_cast<std::size_t>(count < 0 ? -count : count));
        if (count >= 0) return tokens;
    }
}
/// Every token that ends a generation: what request_settings::stop_tokens of a chat usually are.
[[nodiscard]] inline std::vector<token_id> llama_end_tokens(llama_vocab const* vocab) {
    std::vector<token_id> ends;
    for (token_id x = 0; x < llama_vocab_n_tokens(vocab); ++x) {
        if (llama_vocab_is_eog(vocab, x)) ends.push_back(x);
    }
    return ends;
}

/// Models text_tokenizer. Immutable; O(V) memory.
///
/// The text of a control token is its name between two NUL bytes: a token that spells the name has another one. encode
/// leaves out a control token that the vocabulary lacks.
class llama_tokenizer {
public:
    /// The model of the vocabulary must outlive it.
    explicit llama_tokenizer(llama_vocab const* vocab) : vocab_(vocab) {
        for (token_id x = 0; x < llama_vocab_n_tokens(vocab); ++x) {
            texts_.push_back(llama_piece(vocab, x));
            if (llama_vocab_is_control(vocab, x)) name(x, '\0' + texts_.back() + '\0');
        }
    }
    /// Tokens that begin a text, end it and end a turn are named as the other vocabulary names its own, unless a token
    /// there has their name already.
    llama_tokenizer(llama_vocab const* vocab, llama_tokenizer const& other) : llama_tokenizer(vocab) {
        for (auto* const with_role : {llama_vocab_bos, llama_vocab_eos, llama_vocab_eot}) {
            token_id const own = with_role(vocab), theirs = with_role(other.vocab_);
            if (own < 0 || theirs < 0 || other.names(text_of(own)) || names(other.text_of(theirs))) continue;
            name(own, std::string(other.text_of(theirs)));
        }
    }

    [[nodiscard]] std::size_t size() const noexcept { return texts_.size(); }
    [[nodiscard]] std::string_view text_of(token_id x) const noexcept {
        auto const v = static_cast<std::size_t>(x);
        return v < texts_.size() ? std::string_view(texts_[v]) : std::string_view{};
    }
    [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
        std::vector<token_id> tokens;
        while (!text.empty()) {
            std::size_t const at = std::min(text.find('\0'), text.size());
            auto const before = behind_text(text.substr(0, at));
            tokens.insert(tokens.end(), before.begin(), before.end());
            std::size_t const end = text.find('\0', std::min(at + 1, text.size()));
            auto const control = text.substr(at, end == std::string_view::npos ? end : end + 1 - at);
            if (auto const found = controls_.find(control); found != controls_.end()) tokens.push_back(found->second);
            text.remove_prefix(at + control.size());
        }
        return tokens;
    }

    /// Ids and texts agree.
    friend bool operator==(llama_tokenizer const& a, llama_tokenizer const& b) noexcept { return a.texts_ == b.texts_; }

private:
    void name(token_id x, std::string text) {
        controls_.try_emplace(text, x);
        texts_[static_cast<std::size_t>(x)] = std::move(text);
    }
    /// A control token has this text.
    [[nodiscard]] bool names(std::string_view text) const { return controls_.contains(text); }
    [[nodiscard]] std::vector<token_id> plain(std::string_view text) const {
        return llama_tokens(vocab_, text, false, false);
    }
    /// Tokens of a text that goes on behind another one. Tokenizers of these types may put a space in front of every
    /// text. So a line break stands there, which takes it, and both are taken away again.
    [[nodiscard]] std::vector<token_id> behind_text(std::string_view text) const {
        if (text.empty()) return {};
        auto const type = llama_vocab_type(vocab_);
        if (type != LLAMA_VOCAB_TYPE_SPM && type != LLAMA_VOCAB_TYPE_UGM) return plain(text);
        std::vector<token_id> const space = plain("\n");
        std::string behind(1, '\n');
        behind += text;
        std::vector<token_id> tokens = plain(behind);
        if (tokens.size() < space.size() || !std::equal(space.begin(), space.end(), tokens.begin())) {
            return plain(text);
        }
        tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(space.size()));
        return tokens;
    }

    llama_vocab const* vocab_;
    std::vector<std::string> texts_;
    std::map<std::string, token_id, std::less<>> controls_;  // by text, the first that has it
};

SURELEAP_END_NAMESPACE
