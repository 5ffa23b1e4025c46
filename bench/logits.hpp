// SPDX-License-Identifier: MIT
//
// Logits to measure with, in the shape of a language model's: most tokens N(0, 2), a few dozen peaks N(9, 1.8) that
// hold nearly all the mass. A draft is its target with noise: N(0, 0.45) makes a good one, N(0, 2.0) a poor one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace logits {

inline constexpr int peaks = 40;

/// N(0, 1), fifteen times as fast as std::normal_distribution, since a benchmark needs up to a hundred million of them:
/// 0.6 of one number that it drew and 0.8 of another are as one that it draws, and 2^16 numbers make 2^32 such sums.
/// They are chosen by splitmix64 (Steele, Lea and Flood 2014).
class normals {
public:
    explicit normals(std::uint64_t seed) : state_(seed), pool_(pool().data()) {}

    [[nodiscard]] float operator()() {
        std::uint64_t const word = bits();
        return 0.6f * pool_[word >> 48] + 0.8f * pool_[word >> 32 & 0xffff];
    }
    [[nodiscard]] std::uint64_t bits() {
        std::uint64_t word = state_ += 0x9e3779b97f4a7c15U;
        word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9U;
        word = (word ^ word >> 27) * 0x94d049bb133111ebU;
        return word ^ word >> 31;
    }

private:
    [[nodiscard]] static std::vector<float> const& pool() {
        static std::vector<float> const drawn = [] {
            std::mt19937_64 engine(1);
            std::normal_distribution<float> normal;
            std::vector<float> all(std::size_t{1} << 16);
            for (float& x : all) x = normal(engine);
            return all;
        }();
        return drawn;
    }

    std::uint64_t state_;
    float const* pool_;
};

/// Rows of a target, one after another.
[[nodiscard]] inline std::vector<float> of_target(std::size_t rows, std::size_t vocabulary, std::uint64_t seed) {
    normals normal(seed);
    std::vector<float> all(rows * vocabulary);
    for (float& l : all) l = 2.0f * normal();
    for (std::size_t row = 0; row < rows; ++row) {
        for (int i = 0; i < peaks; ++i) all[row * vocabulary + normal.bits() % vocabulary] = 9.0f + 1.8f * normal();
    }
    return all;
}

/// Blocks of gamma drafted tokens: the target's rows, of which there is one more, and the draft's. Six blocks decide
/// how many argmaxima agree, and six that agree as often as many would are not a matter of course: these seeds give
/// such.
struct recording {
    std::vector<float> p;  ///< [count, gamma + 1, vocabulary]
    std::vector<float> q;  ///< [count, gamma, vocabulary]

    recording(std::size_t count, std::size_t gamma, std::size_t vocabulary, float noise)
        : p(of_target(count * (gamma + 1), vocabulary, 3)), q(count * gamma * vocabulary) {
        normals normal(103);
        std::size_t const size = gamma * vocabulary;
        for (std::size_t b = 0; b < count; ++b) {
            float const* const target = p.data() + b * (gamma + 1) * vocabulary;
            for (std::size_t i = 0; i < size; ++i) q[b * size + i] = target[i] + noise * normal();
        }
    }
};

}  // namespace logits
