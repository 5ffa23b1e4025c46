// SPDX-License-Identifier: MIT
//
// Tokens that are found in a text before anything else looks at it: "<|im_start|>" and its kind. At every place the
// longest one counts, and what it covers is out of reach for others (leftmost-longest, as in the tokenizers library).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/types.hpp>

namespace engine::text {

using sureleap::token_id;

class added_tokens {
public:
    /// `content` is not empty.
    void add(std::string content, token_id id) {
        std::vector<entry>& alike = by_first_byte_[static_cast<unsigned char>(content.front())];
        auto const longer = [](entry const& a, entry const& b) { return a.content.size() > b.content.size(); };
        entry added{std::move(content), id};
        alike.insert(std::upper_bound(alike.begin(), alike.end(), added, longer), std::move(added));
    }

    /// Goes through a text in order: on_text(piece) for what lies between tokens, on_token(id) for a token.
    template <class OnText, class OnToken>
    void cut(std::string_view text, OnText const& on_text, OnToken const& on_token) const {
        std::size_t begin = 0;
        for (std::size_t i = 0; i < text.size();) {
            entry const* const found = longest_at(text.substr(i));
            if (found == nullptr) {
                ++i;
                continue;
            }
            if (begin < i) on_text(text.substr(begin, i - begin));
            on_token(found->id);
            begin = i += found->content.size();
        }
        if (begin < text.size()) on_text(text.substr(begin));
    }

private:
    struct entry {
        std::string content;
        token_id id;
    };

    [[nodiscard]] entry const* longest_at(std::string_view text) const {
        for (entry const& candidate : by_first_byte_[static_cast<unsigned char>(text.front())]) {
            if (text.starts_with(candidate.content)) return &candidate;
        }
        return nullptr;
    }

    std::array<std::vector<entry>, 256> by_first_byte_;  // longest first
};

}  // namespace engine::text
