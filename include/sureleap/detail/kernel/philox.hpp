// SPDX-License-Identifier: MIT
//
// The random number generator behind every draw.
#pragma once

#include <array>
#include <cstdint>

#include <sureleap/core/config.hpp>

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

SURELEAP_END_NAMESPACE
