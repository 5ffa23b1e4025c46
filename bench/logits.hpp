// SPDX-License-Identifier: MIT
//
// Logits to measure with, in the shape of a language model's: most tokens N(0, 2), a few dozen peaks that hold nearly all
// the mass. A draft is its target with noise: 0.45 makes a good one, 2.0 a poor one.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace logits {

inline constexpr int peaks = 40;

/// Rows of a target, one after another.
[[nodiscard]] inline std::vector<float> of_target(std::size_t rows, std::size_t vocabulary, std::uint64_t seed) {
    std::mt19937_64 bits(seed);
    std::normal_distribution<float> normal;
    std::vector<float> all(rows * vocabulary);
    for (float& l : all) l = 2.0f * normal(bits);
    for (std::size_t row = 0; row < rows; ++row) {
        for (int i = 0; i < peaks; ++i) all[row * vocabulary + bits() % vocabulary] = 9.0f + 1.8f * normal(bits);
    }
    return all;
}

/// A draft's rows for these.
inline void add_draft_of(std::span<float const> target, float noise, std::mt19937_64& bits, std::vector<float>& draft) {
    std::normal_distribution<float> normal;
    for (float const l : target) draft.push_back(l + noise * normal(bits));
}

}  // namespace logits
