// SPDX-License-Identifier: MIT
//
// Tokens as they come, as text or as ids for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <engine/tokenizer.hpp>
#include <sureleap/core/types.hpp>
#include <terminal.hpp>

#include "round_seen.hpp"

namespace generate {

/// Where a token comes from: drafted and then accepted, or the target's own, which corrects a draft or follows the
/// last.
enum class origin : std::uint8_t { draft, target };

/// In colours only where drafts and the target are to be told apart.
[[nodiscard]] constexpr terminal::colour colour_of(origin from, bool coloured) noexcept {
    if (!coloured) return terminal::colour::none;
    return from == origin::draft ? terminal::colour::green : terminal::colour::magenta;
}

/// What the colours say, as a heading.
[[nodiscard]] inline std::string text_heading(bool coloured) {
    if (!coloured) return "text";
    return "text: " + terminal::in_colour(colour_of(origin::draft, true), "accepted drafts") + ", " +
           terminal::in_colour(colour_of(origin::target, true), "the target's own tokens");
}

/// One output. A character that is spread over tokens is shown when it is complete, in the colour of its last token.
/// Not shown are special tokens, such as the one that ends a turn, and control characters but tabs and line ends: a
/// terminal would obey them. Ids are broken into lines.
class text_stream {
public:
    /// Without a tokenizer: ids. It must outlive the stream.
    text_stream(std::optional<engine::tokenizer> const& tokenizer, bool coloured)
        : tokenizer_(tokenizer), coloured_(coloured) {}

    /// What these tokens add.
    [[nodiscard]] std::string push(std::span<sureleap::token_id const> tokens, origin from) {
        std::string news;
        for (auto const token : tokens) {
            if (!tokenizer_)
                news += id_of(token);
            else if (!tokenizer_->is_special(token))
                news += harmless(characters_.push(tokenizer_->bytes_of(token)));
        }
        return terminal::in_colour(colour_of(from, coloured_), news);
    }
    [[nodiscard]] std::string push(round_seen const& round) {
        std::string news = push(round.from_draft(), origin::draft);
        return news += push(round.from_target(), origin::target);
    }
    /// The rest, and a new line.
    [[nodiscard]] std::string finish() {
        column_ = 0;
        return characters_.finish() + "\n";
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
    [[nodiscard]] std::string id_of(sureleap::token_id token) {
        std::string id = std::to_string(token);
        if (column_ > 0) id.insert(0, column_ + 1 + id.size() > 100 ? "\n" : " ");
        column_ = id.front() == '\n' ? id.size() - 1 : column_ + id.size();
        return id;
    }

    std::optional<engine::tokenizer> const& tokenizer_;
    bool coloured_;
    engine::utf8_stream characters_;
    std::size_t column_ = 0;
};

}  // namespace generate
