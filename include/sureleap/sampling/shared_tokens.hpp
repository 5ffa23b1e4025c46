// SPDX-License-Identifier: MIT
//
// Two vocabularies that were made apart, a draft's and a target's, joined by the texts of their tokens. A draft can say
// the tokens that both have. All of its q lies on those, and every other token of the target has q = 0 (the token-level
// intersection of Timor et al. 2025). What a rule accepts does not depend on how vocabularies are joined.
#pragma once

#include <concepts>
#include <cstddef>
#include <map>
#include <ranges>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Text to tokens and back. `text_of(x)` are the bytes that token x stands for: "\n" of a byte token that a file spells
/// <0x0A>, the space of one that it spells with U+2581 or U+0120, the name of a control token, or nothing where the
/// token is not to be shared or told. They stay valid as long as the tokenizer. `encode(text)` are the tokens of a text
/// without any in front or behind that are not in it. It may throw.
///
/// Promise: what text_of says of encode(text), one after another, is the text. A tokenizer that changes texts
/// (normalises them, or what is no UTF-8) may be given: it costs time and drafts, never exactness.
template <class T>
concept text_tokenizer = requires(T const& t, std::string_view text, token_id x) {
    { t.text_of(x) } -> std::same_as<std::string_view>;
    { t.encode(text) } -> std::same_as<std::vector<token_id>>;
};

namespace detail {
template <class T>
constexpr void expect_text_tokenizer() {
    static_assert(
        text_tokenizer<T>,
        "text_tokenizer: a tokenizer lacks std::string_view text_of(token_id) const, of bytes that stay valid, "
        "or std::vector<token_id> encode(std::string_view) const; wrap your own in a class with these two");
}
}  // namespace detail

/// The tokens of a draft whose texts are tokens of the target too. Immutable.
///
/// Several tokens of a vocabulary may have one text (a byte token and a letter, say). Then encode says which of them
/// it belongs to, or else the first has it. Tokens without a text are not shared. O(tokens of both) at set-up.
class shared_tokens {
public:
    /// Throws if nothing is shared.
    template <class Draft, class Target>
    shared_tokens(Draft const& draft, std::size_t draft_vocabulary, Target const& target, std::size_t target_vocabulary)
        : shared_tokens(pairs(by_text(draft, draft_vocabulary), by_text(target, target_vocabulary)), draft_vocabulary,
                        target_vocabulary) {}

    /// The draft's ids, ascending: place i of a row of shared tokens is token ids()[i] of the draft.
    [[nodiscard]] std::span<token_id const> ids() const noexcept { return ids_; }
    /// From such places to the target's ids.
    [[nodiscard]] vocabulary_map const& map() const noexcept { return map_; }

private:
    using texts = std::unordered_map<std::string_view, token_id>;

    template <class Tokenizer>
    [[nodiscard]] static texts by_text(Tokenizer const& tokenizer, std::size_t vocabulary) {
        detail::expect_text_tokenizer<Tokenizer>();
        texts ids;
        for (std::size_t v = 0; v < vocabulary; ++v) {
            auto const x = static_cast<token_id>(v);
            std::string_view const text = tokenizer.text_of(x);
            if (text.empty() || ids.try_emplace(text, x).second) continue;
            if (tokenizer.encode(text) == std::vector<token_id>{x}) ids[text] = x;
        }
        return ids;
    }
    /// Of the draft's and the target's ids, by the former.
    [[nodiscard]] static std::map<token_id, token_id> pairs(texts const& draft, texts const& target) {
        std::map<token_id, token_id> both;
        for (auto const& [text, x] : draft) {
            if (auto const at = target.find(text); at != target.end()) both[x] = at->second;
        }
        return both;
    }
    shared_tokens(std::map<token_id, token_id> const& both, std::size_t draft_vocabulary, std::size_t target_vocabulary)
        : ids_(std::views::keys(both).begin(), std::views::keys(both).end()),
          map_(targets(both, draft_vocabulary, target_vocabulary), target_vocabulary) {}
    [[nodiscard]] static std::vector<token_id> targets(std::map<token_id, token_id> const& both,
                                                       std::size_t draft_vocabulary, std::size_t target_vocabulary) {
        if (both.empty()) {
            fail_with("shared_tokens: no token of the draft's ", draft_vocabulary,
                      " has the text of one of the target's ", target_vocabulary,
                      ", expected some in common; does text_of give the bytes of a token?");
        }
        return {std::views::values(both).begin(), std::views::values(both).end()};
    }

    std::vector<token_id> ids_;
    vocabulary_map map_;
};

SURELEAP_END_NAMESPACE
