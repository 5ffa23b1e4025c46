// SPDX-License-Identifier: MIT
//
// The random number generator behind every draw, for one counter and for several at once. A Gumbel-max draw over a row
// asks for six hundred blocks of bits. One by one they took a third of its time. The bits are the same in all versions.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/tables.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
/// In place and on a plain array: device code may not call members of std::array without a flag of its compiler.
SURELEAP_HOST_DEVICE inline void philox_rounds(std::uint32_t (&words)[4], std::uint64_t key) noexcept {
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        std::uint64_t const product0 = std::uint64_t{0xD2511F53u} * words[0];
        std::uint64_t const product1 = std::uint64_t{0xCD9E8D57u} * words[2];
        words[0] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1] ^ key0;
        words[1] = static_cast<std::uint32_t>(product1);
        words[2] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3] ^ key1;
        words[3] = static_cast<std::uint32_t>(product0);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}
}  // namespace detail

/// Philox4x32-10: 128 random bits for a 128-bit counter and a 64-bit key (Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011). A pure function, hence the same on every platform.
[[nodiscard]] inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> const& counter,
                                                             std::uint64_t key) noexcept {
    std::uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
    detail::philox_rounds(words, key);
    return {words[0], words[1], words[2], words[3]};
}

/// Counters that are taken together.
inline constexpr std::size_t philox_lanes = 8;
using philox_bits = std::array<std::array<std::uint32_t, 4>, philox_lanes>;
using philox_words = std::array<std::uint32_t, philox_lanes>;

struct philox_kernels {
    char const* name;
    /// out[i] = philox4x32({first[i], counter[1], counter[2], counter[3]}, key)
    void (*words)(philox_words const& first, std::array<std::uint32_t, 4> const& counter, std::uint64_t key,
                  philox_bits& out);
};

namespace detail {
/// first, first + 1, ...; the sum wraps.
[[nodiscard]] inline philox_words philox_words_from(std::uint32_t first) noexcept {
    philox_words words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = first + static_cast<std::uint32_t>(i);
    return words;
}
inline void philox_one_by_one(philox_words const& first, std::array<std::uint32_t, 4> const& counter, std::uint64_t key,
                              philox_bits& out) {
    for (std::size_t i = 0; i < philox_lanes; ++i) {
        out[i] = philox4x32({first[i], counter[1], counter[2], counter[3]}, key);
    }
}
}  // namespace detail

template <std::same_as<philox_kernels> Table>
inline constexpr Table scalar_kernels<Table>{"scalar", detail::philox_one_by_one};

SURELEAP_END_NAMESPACE
