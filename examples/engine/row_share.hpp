// SPDX-License-Identifier: MIT
//
// Which outputs of a product a rank computes: a share of the weight's rows, in whole blocks of packed weights.
#pragma once

#include <algorithm>
#include <cstddef>

namespace engine {

struct rank_place {
    std::size_t rank = 0;
    std::size_t ranks = 1;

    [[nodiscard]] bool operator==(rank_place const&) const = default;
};

struct row_share {
    std::size_t first = 0;
    std::size_t count = 0;
};

/// Most rows of a rank. All ranks but the last ones have as many.
[[nodiscard]] constexpr std::size_t most_rows(std::size_t rows, std::size_t ranks) noexcept {
    constexpr std::size_t block = 16;  // outputs of one, quantised.hpp
    std::size_t const blocks = (rows + block - 1) / block;
    return (blocks + ranks - 1) / ranks * block;
}

[[nodiscard]] constexpr row_share share_of(std::size_t rows, rank_place const& place) noexcept {
    std::size_t const most = most_rows(rows, place.ranks);
    std::size_t const first = std::min(place.rank * most, rows);
    return {first, std::min(most, rows - first)};
}

}  // namespace engine
