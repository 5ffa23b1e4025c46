// SPDX-License-Identifier: MIT
//
// Logits of a model that has no weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/types.hpp>

namespace support {

/// Some number of a place, -1.5 .. 1.5: logits that differ from prefix to prefix.
[[nodiscard]] inline double logit(std::uint64_t seed, std::span<sureleap::token_id const> prefix, std::size_t v) {
    std::uint64_t h = seed * 0x9e3779b97f4a7c15u + v + 1;
    for (sureleap::token_id const x : prefix) h = (h ^ (static_cast<std::uint64_t>(x) + 7)) * 0xff51afd7ed558ccdu;
    h ^= h >> 29;
    h *= 0xc4ceb9fe1a85ec53u;
    return static_cast<double>(h >> 40) / static_cast<double>(1u << 24) * 3.0 - 1.5;
}

}  // namespace support
