// SPDX-License-Identifier: MIT
//
// Which tokens may come next, one bit each: how grammar engines (xgrammar, llguidance) say it. A view.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Bit v % 32 of word v / 32 is set if token v may come next. A token beyond the words may not: models have rows that
/// are padded. Without words there is no mask, and every token may come.
struct token_mask {
    static constexpr std::size_t word_bits = 32;
    std::span<std::uint32_t const> words{};

    token_mask() = default;
    explicit token_mask(std::span<std::uint32_t const> bits) noexcept : words(bits) {}
    /// Of engines whose words are signed.
    explicit token_mask(std::span<std::int32_t const> bits) noexcept
        : words(reinterpret_cast<std::uint32_t const*>(bits.data()), bits.size()) {}

    /// There is a mask.
    [[nodiscard]] explicit operator bool() const noexcept { return !words.empty(); }
    [[nodiscard]] bool allows(std::int32_t token) const noexcept {
        if (words.empty()) return true;
        auto const v = static_cast<std::size_t>(token);  // a negative id becomes one beyond the words
        return v / word_bits < words.size() && (words[v / word_bits] >> (v % word_bits) & 1u) != 0;
    }
    /// The one token that a mask allows, or -1 if there is none or are several. O(words), and less if there are
    /// several.
    [[nodiscard]] std::int32_t only() const noexcept {
        std::int32_t found = -1;
        for (std::size_t w = 0; w < words.size(); ++w) {
            if (words[w] == 0) continue;
            if (found >= 0 || !std::has_single_bit(words[w])) return -1;
            found = static_cast<std::int32_t>(w * word_bits) + std::countr_zero(words[w]);
        }
        return found;
    }
};

/// Words of a mask over so many tokens.
[[nodiscard]] constexpr std::size_t mask_words(std::size_t tokens) noexcept {
    return (tokens + token_mask::word_bits - 1) / token_mask::word_bits;
}

SURELEAP_END_NAMESPACE
