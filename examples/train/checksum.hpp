// SPDX-License-Identifier: MIT
//
// A number that tells different data apart: FNV-1a (Fowler, Noll, Vo) of 64 bits. Against mistakes, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace train {

[[nodiscard]] inline std::uint64_t checksum(std::span<std::byte const> bytes,
                                            std::uint64_t sum = 14695981039346656037u) noexcept {
    for (std::byte const b : bytes) sum = (sum ^ static_cast<std::uint64_t>(b)) * 1099511628211u;
    return sum;
}

}  // namespace train
