// SPDX-License-Identifier: MIT
//
// The alphabet in which byte-level vocabularies are written. GPT-2 gave every byte a printable character, so that
// tokens of arbitrary bytes could stand in a JSON file: a byte that is a printable character of Latin-1 stands for
// itself, the other 68 are U+0100, U+0101, ... in order (the space is "Ġ", U+0120). It matters for reading the file
// only; tokens are kept as the bytes they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace engine::text {

/// Code point of every byte; all are below U+0144, at most two bytes of UTF-8.
[[nodiscard]] constexpr std::array<std::uint16_t, 256> make_byte_alphabet() noexcept {
    std::array<std::uint16_t, 256> symbols{};
    std::uint16_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        bool const printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        symbols[byte] = printable ? static_cast<std::uint16_t>(byte) : next++;
    }
    return symbols;
}

inline constexpr std::array<std::uint16_t, 256> byte_alphabet = make_byte_alphabet();

/// The symbol of a byte, as UTF-8.
[[nodiscard]] inline std::string symbol_of(std::uint8_t byte) {
    unsigned const code = byte_alphabet[byte];
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xC0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3FU))};
}

/// The bytes that a token of valid UTF-8 stands for; nothing if it has a character outside the alphabet.
[[nodiscard]] inline std::optional<std::string> bytes_of_symbols(std::string_view token) {
    static constexpr auto bytes_by_code = [] {
        std::array<std::int16_t, 0x144> bytes{};
        bytes.fill(-1);
        for (std::size_t byte = 0; byte < 256; ++byte) bytes[byte_alphabet[byte]] = static_cast<std::int16_t>(byte);
        return bytes;
    }();
    std::string bytes;
    for (std::size_t i = 0; i < token.size(); ++i) {
        unsigned code = static_cast<unsigned char>(token[i]);
        if (code >= 0x80) {
            if (code >= 0xE0 || i + 1 == token.size()) return std::nullopt;
            code = (code & 0x1FU) << 6U | (static_cast<unsigned char>(token[++i]) & 0x3FU);
        }
        if (code >= bytes_by_code.size() || bytes_by_code[code] < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(bytes_by_code[code]));
    }
    return bytes;
}

}  // namespace engine::text
