// SPDX-License-Identifier: MIT
//
// Small tokenizers that split texts differently, as the library wants them (text_tokenizer).
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/core/types.hpp>

namespace support {

using sureleap::token_id;

/// How a text is split. Bytes that no token has are lost.
enum class splits {
    by_merges,     ///< the pair of least rank is merged, the first of equals; its rank is the id of what it makes
    longest_first  ///< the longest token that comes next, the last of equals
};

/// Token x stands for texts[x].
struct toy_tokenizer {
    std::vector<std::string> texts{};
    splits how = splits::by_merges;

    [[nodiscard]] std::string_view text_of(token_id x) const {
        auto const v = static_cast<std::size_t>(x);
        return v < texts.size() ? std::string_view(texts[v]) : std::string_view{};
    }
    [[nodiscard]] std::string text_of_all(auto const& tokens) const {
        std::string text;
        for (token_id const x : tokens) text += text_of(x);
        return text;
    }
    [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
        return how == splits::by_merges ? merged(text) : longest(text);
    }

private:
    [[nodiscard]] std::vector<token_id> merged(std::string_view text) const {
        constexpr token_id none = std::numeric_limits<token_id>::max();
        auto const id_of = [&](std::string_view piece) {
            std::size_t v = 0;
            while (v < texts.size() && texts[v] != piece) ++v;
            return v < texts.size() ? static_cast<token_id>(v) : none;
        };
        std::vector<token_id> tokens;
        for (char const& c : text) {
            if (token_id const x = id_of({&c, 1}); x != none) tokens.push_back(x);
        }
        for (;;) {
            token_id best = none;
            std::size_t at = 0;
            for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
                token_id const x = id_of(std::string(text_of(tokens[i])) += text_of(tokens[i + 1]));
                if (x >= best) continue;
                best = x;
                at = i;
            }
            if (best == none) return tokens;
            tokens[at] = best;
            tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
    }
    [[nodiscard]] std::vector<token_id> longest(std::string_view text) const {
        std::vector<token_id> tokens;
        while (!text.empty()) {
            token_id best = sureleap::no_token;
            std::size_t length = 1;
            for (std::size_t v = 0; v < texts.size(); ++v) {
                if (texts[v].size() < length || !text.starts_with(texts[v])) continue;
                best = static_cast<token_id>(v);
                length = texts[v].size();
            }
            if (best != sureleap::no_token) tokens.push_back(best);
            text.remove_prefix(length);
        }
        return tokens;
    }
};

}  // namespace support
