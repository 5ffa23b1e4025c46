// SPDX-License-Identifier: MIT
//
// Tokens on stdout as they come, as text or as ids.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

#include <engine/tokenizer.hpp>
#include <sureleap/core/types.hpp>

namespace generate {

/// One output. A character that is spread over tokens is shown when it is complete. Not shown are special tokens, such
/// as the one that ends a turn, and control characters but tabs and line ends: a terminal would obey them. Ids are broken
/// into lines.
class text_stream {
public:
    /// Without a tokenizer: ids. It must outlive the stream.
    explicit text_stream(std::optional<engine::tokenizer> const& tokenizer) : tokenizer_(tokenizer) {}

    void push(std::span<sureleap::token_id const> tokens) {
        for (auto const token : tokens) {
            if (!tokenizer_)
                put_id(token);
            else if (!tokenizer_->is_special(token))
                put(harmless(characters_.push(tokenizer_->bytes_of(token))));
        }
        std::fflush(stdout);
    }
    /// The rest, and a new line.
    void finish() {
        put(characters_.finish());
        std::fputc('\n', stdout);
        std::fflush(stdout);
        column_ = 0;
    }

private:
    [[nodiscard]] static std::string harmless(std::string const& characters) {
        std::string shown;
        auto const at = [&](std::size_t i) { return static_cast<unsigned char>(characters[i]); };
        for (std::size_t i = 0; i < characters.size(); ++i) {
            if (at(i) == 0xC2 && at(i + 1) < 0xA0)
                ++i;  // U+0080 to U+009F
            else if (at(i) == '\n' || at(i) == '\t' || (at(i) >= ' ' && at(i) != 0x7F))
                shown.push_back(characters[i]);
        }
        return shown;
    }
    void put(std::string const& text) const { std::fwrite(text.data(), 1, text.size(), stdout); }
    void put_id(sureleap::token_id token) {
        std::string id = std::to_string(token);
        if (column_ > 0) id.insert(0, column_ + 1 + id.size() > 100 ? "\n" : " ");
        column_ = id.front() == '\n' ? id.size() - 1 : column_ + id.size();
        put(id);
    }

    std::optional<engine::tokenizer> const& tokenizer_;
    engine::utf8_stream characters_;
    std::size_t column_ = 0;
};

}  // namespace generate
