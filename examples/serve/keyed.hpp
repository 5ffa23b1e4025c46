// SPDX-License-Identifier: MIT
//
// Random numbers that belong to something: the same key gives the same number, in any order and whoever asks. So every
// policy meets the same texts, token by token, whatever it did before.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace serve {

/// 64 well mixed bits of a key (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: the
/// finaliser of SplitMix). Philox, which the library draws with, would take several times as long and be no better
/// here.
[[nodiscard]] inline std::uint64_t mixed(std::uint64_t key) noexcept {
    key += 0x9e3779b97f4a7c15u;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    return key ^ (key >> 31);
}
[[nodiscard]] inline std::uint64_t mixed(std::uint64_t key, std::uint64_t index) noexcept {
    return mixed(mixed(key) ^ index);
}

/// Standard normal numbers by table: the quantile function in 4,096 straight pieces, scaled to a variance of exactly 1.
/// Its tails end at 3.7 standard deviations.
class normal_table {
public:
    static constexpr std::size_t pieces = 4096;

    normal_table() {
        double square = 0;
        for (std::size_t i = 0; i <= pieces; ++i) {
            knots_[i] = quantile_of((static_cast<double>(i) + 0.5) / (static_cast<double>(pieces) + 1.0));
        }
        for (std::size_t i = 0; i < pieces; ++i) {
            double const a = knots_[i];
            double const b = knots_[i + 1];
            square += (a * a + a * b + b * b) / (3.0 * static_cast<double>(pieces));
        }
        for (double& knot : knots_) knot /= std::sqrt(square);
    }

    /// Of a uniform number in [0, 1).
    [[nodiscard]] double operator()(double u) const noexcept {
        double const at = u * static_cast<double>(pieces);
        auto const i = static_cast<std::size_t>(at);
        return knots_[i] + (at - static_cast<double>(i)) * (knots_[i + 1] - knots_[i]);
    }
    /// Of the n-th 21 bits of `bits`, n = 0 .. 2: independent.
    [[nodiscard]] double operator()(std::uint64_t bits, unsigned n) const noexcept {
        return (*this)(static_cast<double>((bits >> (21 * n)) & 0x1fffffu) * 0x1p-21);
    }

private:
    [[nodiscard]] static double quantile_of(double u) {
        double low = -8;
        double high = 8;
        for (int i = 0; i < 50; ++i) {
            double const middle = 0.5 * (low + high);
            (0.5 * std::erfc(-middle / std::sqrt(2.0)) < u ? low : high) = middle;
        }
        return 0.5 * (low + high);
    }

    std::array<double, pieces + 1> knots_{};
};

[[nodiscard]] inline normal_table const& normals() {
    static normal_table const table;
    return table;
}

/// Point i of a low-discrepancy sequence in three dimensions (the additive recurrence by powers of the root of x^4 = x
/// + 1, Roberts 2018). Any run of consecutive texts is a fair sample of requests. So throughputs of runs of different
/// length differ by policy and not by the texts they reached. Rejected: independent draws, whose noise over a thousand
/// texts is 0.6 % of the throughput, while some comparisons are about 1 %.
[[nodiscard]] inline std::array<double, 3> even_point(std::uint64_t i, std::uint64_t seed) noexcept {
    // 2^64 / g, 2^64 / g^2 and 2^64 / g^3 with g = 1.2207440846057596
    constexpr std::array<std::uint64_t, 3> steps{15111065706836454659u, 12378569675163806722u, 10140184033053478359u};
    std::array<double, 3> point{};
    for (std::size_t d = 0; d < 3; ++d) {
        point[d] = static_cast<double>((i * steps[d] + mixed(seed, d)) >> 11) * 0x1p-53;
    }
    return point;
}

}  // namespace serve
