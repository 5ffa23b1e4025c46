// SPDX-License-Identifier: MIT
//
// The bits behind every draw, and how a race over a row of tokens shares them out. Here and not in random.hpp, because
// the passes over rows need them in vectors.
#pragma once

#include <array>
#include <cstddef>
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

/// The noise of one race: 16 bits for every token, eight tokens to a call of Philox whose counter begins with a lane.
struct race_noise {
    std::uint64_t seed = 0;
    std::array<std::uint32_t, 3> counter{};  ///< behind the lane
};

/// Tokens that share 16 lanes. Token 128 g + 16 j + l has half j % 2 of word j / 2 of lane 16 g + l: sixteen tokens in a
/// row have the same half of the same word of sixteen lanes, which vectors make side by side.
inline constexpr std::size_t race_group = 128;

/// The bits of token v.
[[nodiscard]] inline std::uint16_t race_bits(race_noise const& noise, std::uint32_t v) noexcept {
    std::uint32_t const lane = v / 128 * 16 + v % 16;
    std::uint32_t const j = v / 16 % 8;
    auto const words = philox4x32({lane, noise.counter[0], noise.counter[1], noise.counter[2]}, noise.seed);
    return static_cast<std::uint16_t>(words[j / 2] >> (j % 2 * 16));
}

/// The bits of tokens 128 group .. 128 group + 127.
inline void race_bits(race_noise const& noise, std::uint32_t group,
                      std::array<std::uint16_t, race_group>& bits) noexcept {
    for (std::uint32_t l = 0; l < 16; ++l) {
        auto const words =
            philox4x32({16 * group + l, noise.counter[0], noise.counter[1], noise.counter[2]}, noise.seed);
        for (std::size_t w = 0; w < 4; ++w) {
            bits[32 * w + l] = static_cast<std::uint16_t>(words[w]);
            bits[32 * w + 16 + l] = static_cast<std::uint16_t>(words[w] >> 16);
        }
    }
}

SURELEAP_END_NAMESPACE
