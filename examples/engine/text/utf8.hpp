// SPDX-License-Identifier: MIT
//
// Text that may be cut or broken, as UTF-8.
//
// Byte-level tokens may end inside a character. So text that is printed token by token has to wait for the rest of it.
// Bytes that can no longer become a character are replaced by U+FFFD. Every maximal part that began like a character
// gives one (Unicode 15, section 3.9, "Best practices for using U+FFFD"). Python's errors="replace" and Rust's
// from_utf8_lossy do the same, so a stream here prints what the tokenizers library returns for the whole text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace engine {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

/// What a text begins with.
struct utf8_start {
    enum class kind : std::uint8_t {
        character,   ///< one character
        incomplete,  ///< the whole text is the beginning of a character
        broken,      ///< the beginning of one, at most, that does not go on
    };
    kind is;
    std::size_t bytes;
};

/// Of a text that is not empty. Knows Unicode's table 3-7: no overlong forms, no surrogates, nothing over U+10FFFF.
[[nodiscard]] constexpr utf8_start starts_with(std::string_view text) noexcept {
    using kind = utf8_start::kind;
    auto const byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[i])); };
    unsigned const lead = byte(0);
    if (lead < 0x80) return {kind::character, 1};
    if (lead < 0xC2 || lead > 0xF4) return {kind::broken, 1};
    std::size_t const bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // Only the second byte has a range that depends on the first.
    unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (std::size_t i = 1; i < bytes; ++i) {
        if (i == text.size()) return {kind::incomplete, i};
        if (byte(i) < low || byte(i) > high) return {kind::broken, i};
        low = 0x80;
        high = 0xBF;
    }
    return {kind::character, bytes};
}

[[nodiscard]] constexpr bool is_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        utf8_start const next = starts_with(text);
        if (next.is != utf8_start::kind::character) return false;
        text.remove_prefix(next.bytes);
    }
    return true;
}

/// Collects bytes and gives back whole characters.
class utf8_stream {
public:
    /// The characters that are complete now. Holds back at most three bytes.
    [[nodiscard]] std::string push(std::string_view bytes) {
        pending_.append(bytes);
        std::string_view rest = pending_;
        std::string out;
        while (!rest.empty()) {
            utf8_start const next = starts_with(rest);
            if (next.is == utf8_start::kind::incomplete) break;
            out.append(next.is == utf8_start::kind::character ? rest.substr(0, next.bytes) : replacement_character);
            rest.remove_prefix(next.bytes);
        }
        pending_.erase(0, pending_.size() - rest.size());
        return out;
    }

    /// At the end of the text: U+FFFD if a character was left incomplete. The stream is empty afterwards.
    [[nodiscard]] std::string finish() {
        return std::exchange(pending_, {}).empty() ? std::string() : std::string(replacement_character);
    }

private:
    std::string pending_;
};

/// The text with everything that is no UTF-8 replaced.
[[nodiscard]] inline std::string to_utf8(std::string_view text) {
    utf8_stream stream;
    std::string out = stream.push(text);
    return out += stream.finish();
}

}  // namespace engine
