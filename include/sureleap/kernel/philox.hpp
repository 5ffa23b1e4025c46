// SPDX-License-Identifier: MIT
//
// The bits behind every draw.
#pragma once

#include <array>
#include <cstdint>

#include <sureleap/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Philox4x32-10: 128 random bits for a 128-bit counter and a 64-bit key (Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011). A pure function, hence the same on every platform.
[[nodiscard]] SURELEAP_HOST_DEVICE inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                                  std::uint64_t key) noexcept {
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        std::uint64_t const product0 = std::uint64_t{0xD2511F53u} * counter[0];
        std::uint64_t const product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
                   static_cast<std::uint32_t>(product0)};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

SURELEAP_END_NAMESPACE
