// SPDX-License-Identifier: MIT
//
// Two vocabularies of llama.cpp, a draft's and a target's, joined by the texts of their tokens. Where ids and texts are
// the same there is nothing to do. Otherwise a draft can say the tokens that the target has as well, and is told a
// target's token as the tokens that its own tokenizer makes of the text.
//
// What a draft is told has no influence on the law. It decides how good drafts are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

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
/// Tokens of a text, without those that a model's settings add in front and behind; names of control tokens are read as
/// such.
[[nodiscard]] inline std::vector<token_id> llama_tokens(llama_vocab const* vocab, std::string_view text,
                                                        bool add_special = false) {
    std::vector<token_id> tokens(text.size() + 8);
    for (;;) {
        std::int32_t const count =
            llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                           static_cast<std::int32_t>(tokens.size()), add_special, true);
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

/// Immutable. O(V) memory, and O(V) tokens are tokenized at set-up if the vocabularies differ.
class llama_vocabulary_match {
public:
    /// Throws if the two have no token in common.
    llama_vocabulary_match(llama_vocab const* draft, llama_vocab const* target)
        : target_size_(static_cast<std::size_t>(llama_vocab_n_tokens(target))) {
        auto const draft_size = static_cast<std::size_t>(llama_vocab_n_tokens(draft));
        std::vector<std::string> texts;
        for (std::size_t v = 0; v < target_size_; ++v) texts.push_back(text_of(target, static_cast<token_id>(v)));
        if (draft_size == target_size_) {
            std::size_t same = 0;
            while (same < target_size_ && text_of(draft, static_cast<token_id>(same)) == texts[same]) ++same;
            if (same == target_size_) return;
        }
        std::unordered_map<std::string_view, token_id> ids;
        for (std::size_t v = target_size_; v-- > 0;) ids[texts[v]] = static_cast<token_id>(v);  // the first of a text
        std::vector<token_id> to_target;
        std::vector<token_id> to_draft(target_size_, no_token);
        for (std::size_t d = 0; d < draft_size; ++d) {
            std::string const text = text_of(draft, static_cast<token_id>(d));
            auto const at = ids.find(text);
            if (text.empty() || at == ids.end() || to_draft[static_cast<std::size_t>(at->second)] != no_token) continue;
            drawn_.push_back(static_cast<token_id>(d));
            to_target.push_back(at->second);
            to_draft[static_cast<std::size_t>(at->second)] = static_cast<token_id>(d);
        }
        if (drawn_.empty()) {
            fail_with("llama_vocabulary_match: no token of the draft's ", draft_size,
                      " has the text of one of the target's ", target_size_, ", expected some in common");
        }
        map_.emplace(to_target, target_size_);
        offsets_.push_back(0);
        for (std::size_t v = 0; v < target_size_; ++v) {
            if (to_draft[v] != no_token) {
                told_.push_back(to_draft[v]);
            } else {
                auto tokens = llama_tokens(draft, llama_piece(target, static_cast<token_id>(v)));
                // Something has to stand for a token without a text.
                if (tokens.empty()) tokens.push_back(std::max(llama_vocab_bos(draft), token_id{0}));
                told_.insert(told_.end(), tokens.begin(), tokens.end());
            }
            offsets_.push_back(static_cast<std::uint32_t>(told_.size()));
        }
    }

    /// Ids and texts agree.
    [[nodiscard]] bool same() const noexcept { return !map_; }
    [[nodiscard]] std::size_t target_size() const noexcept { return target_size_; }
    /// The draft's tokens that the target has too, ascending; empty if same().
    [[nodiscard]] std::span<token_id const> drawn() const noexcept { return drawn_; }
    /// From places in drawn() to target ids; null if same().
    [[nodiscard]] vocabulary_map const* map() const noexcept { return map_ ? &*map_ : nullptr; }
    /// The draft's tokens for a target's. Precondition: !same(), and the token is one.
    [[nodiscard]] std::span<token_id const> told(token_id target) const noexcept {
        auto const v = static_cast<std::size_t>(target);
        return std::span<token_id const>(told_).subspan(offsets_[v], offsets_[v + 1] - offsets_[v]);
    }

private:
    // Tokens that begin and end texts are compared by what they do, other control tokens by their names. Neither is a
    // token that spells such a name.
    [[nodiscard]] static std::string text_of(llama_vocab const* vocab, token_id token) {
        if (token == llama_vocab_bos(vocab)) return std::string("\0begin", 6);
        if (token == llama_vocab_eos(vocab)) return std::string("\0end", 4);
        if (token == llama_vocab_eot(vocab)) return std::string("\0turn", 5);
        std::string text = llama_piece(vocab, token);
        return llama_vocab_is_control(vocab, token) ? '\0' + text : text;
    }

    std::size_t target_size_;
    std::vector<token_id> drawn_;
    std::optional<vocabulary_map> map_;
    std::vector<token_id> told_;
    std::vector<std::uint32_t> offsets_;
};

SURELEAP_END_NAMESPACE
