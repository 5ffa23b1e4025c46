// SPDX-License-Identifier: MIT
//
// Random test cases that are the same on every platform: std::mt19937_64 is specified bit by bit, the distributions of
// <random> are not, so they are not used. A property test prints the seed: INFO("seed " << roll.seed()).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

namespace support {

class dice {
public:
    explicit dice(std::uint64_t seed) : seed_(seed), bits_(seed) {}

    [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
    [[nodiscard]] std::uint64_t bits() { return bits_(); }
    /// Uniform on [0, 1).
    [[nodiscard]] double real() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
    [[nodiscard]] double between(double low, double high) { return low + (high - low) * real(); }
    /// 0 .. n-1.
    [[nodiscard]] std::size_t below(std::size_t n) { return static_cast<std::size_t>(real() * static_cast<double>(n)); }
    [[nodiscard]] bool chance(double p) { return real() < p; }
    /// Roughly normal, enough for logits.
    [[nodiscard]] double bell() {
        double sum = -2.0;  // not one sum of four calls: their order would be the compiler's choice
        for (int i = 0; i < 4; ++i) sum += real();
        return sum;
    }

private:
    std::uint64_t seed_;
    std::mt19937_64 bits_;
};

/// Roughly N(0, scale): doubles, or what narrower types make of floats.
template <class T>
[[nodiscard]] std::vector<T> random_values(dice& roll, std::size_t count, double scale = 1.0) {
    using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    std::vector<T> out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(T(static_cast<wide>(scale * roll.bell())));
    return out;
}

}  // namespace support
