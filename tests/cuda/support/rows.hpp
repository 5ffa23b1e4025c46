// SPDX-License-Identifier: MIT
//
// Rows of logits of the shapes that tell mistakes from rounding: peaked and flat, tied, masked, far from zero.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "support/dice.hpp"

#include <sureleap/core/types.hpp>

namespace support {

enum class row_shape { bell, heavy_tail, peaked, flat, few_values, masked, one_left, wide, ascending };
inline constexpr row_shape row_shapes[] = {row_shape::bell,     row_shape::heavy_tail, row_shape::peaked,
                                           row_shape::flat,     row_shape::few_values, row_shape::masked,
                                           row_shape::one_left, row_shape::wide,       row_shape::ascending};

/// `size` logits in storage T, rounded through bf16 if `coarse`, so that ties are common in every format.
template <class T>
[[nodiscard]] std::vector<T> random_row(dice& roll, std::size_t size, row_shape shape, bool coarse = false) {
    constexpr float none = -std::numeric_limits<float>::infinity();
    std::size_t const chosen = roll.below(size);
    std::vector<T> row;
    for (std::size_t i = 0; i < size; ++i) {
        double l = 0.0;
        switch (shape) {
            case row_shape::bell: l = 4.0 * roll.bell(); break;
            case row_shape::heavy_tail: l = roll.chance(0.02) ? 5.0 + 8.0 * roll.real() : 3.0 * roll.bell(); break;
            case row_shape::peaked: l = i == chosen ? 12.0 : 2.0 * roll.bell(); break;
            case row_shape::flat: l = -1.25; break;
            case row_shape::few_values:
                l = (static_cast<double>(roll.below(3)) - 1.0) * (roll.chance(0.5) ? 1.0 : -1.0);
                break;  // -0 among them
            case row_shape::masked: l = roll.chance(0.9) && i != chosen ? -1e300 : 3.0 * roll.bell(); break;
            case row_shape::one_left: l = i == chosen ? -7.5 : -1e300; break;
            case row_shape::wide: l = 2000.0 * roll.bell(); break;
            case row_shape::ascending: l = -8.0 + 16.0 * static_cast<double>(i) / static_cast<double>(size); break;
        }
        auto value = l < -1e299 ? none : static_cast<float>(l);
        if (coarse) value = static_cast<float>(sureleap::bf16(value));
        row.push_back(T(value));
    }
    return row;
}

}  // namespace support
