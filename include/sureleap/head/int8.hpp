// SPDX-License-Identifier: MIT
//
// Weights in eight bits: a matrix whose rows are integers in [-127, 127] with a scale each. It takes a quarter of
// float's memory, and of the time of a product that waits for memory. Meant for the output matrix W2 of a sequential
// head. What it rounds away changes the draft q a little, and with it acceptance. q is still exactly what is drawn from
// and verified against, so nothing is lost but speed.
//
// The vector is rounded as well, to 16 bits under one scale. Eight would do for instructions that multiply bytes, and
// would cost accuracy where it is scarce: a head's code has a few hundred numbers, its matrix millions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/native.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Row i is scales[i] * values[i]. A view.
struct int8_view {
    std::int8_t const* values = nullptr;  ///< [rows, cols]
    float const* scales = nullptr;        ///< [rows]
    std::size_t rows = 0;
    std::size_t cols = 0;

    /// Beyond it sums of products would not fit 32 bits with any accuracy to speak of.
    static constexpr std::size_t most_columns = 4096;
};

/// Owns what int8_view sees.
class int8_matrix {
public:
    /// Each row's largest magnitude becomes 127. O(rows cols). Throws if a weight is not finite, or rows are longer
    /// than int8_view::most_columns.
    template <class W>
    explicit int8_matrix(matrix_view<W> weights)
        : values_(weights.rows * weights.cols), scales_(weights.rows), cols_(weights.cols) {
        if (cols_ > int8_view::most_columns) {
            fail_with("int8_matrix: rows have ", cols_, " columns, expected at most ", int8_view::most_columns);
        }
        for (std::size_t i = 0; i < weights.rows; ++i) {
            auto const row = weights.row(i);
            double largest = 0.0;
            for (std::size_t j = 0; j < cols_; ++j) {
                auto const w = static_cast<double>(load(row[j]));
                if (!std::isfinite(w)) {
                    fail_with("int8_matrix: weight at row ", i, ", column ", j, " is ", w,
                              ", expected a finite number");
                }
                largest = std::max(largest, std::fabs(w));
            }
            scales_[i] = static_cast<float>(largest / 127.0);
            for (std::size_t j = 0; j < cols_ && scales_[i] > 0.0f; ++j) {
                double const steps = static_cast<double>(load(row[j])) / static_cast<double>(scales_[i]);
                values_[i * cols_ + j] = static_cast<std::int8_t>(std::clamp(std::round(steps), -127.0, 127.0));
            }
        }
    }

    [[nodiscard]] int8_view view() const noexcept { return {values_.data(), scales_.data(), scales_.size(), cols_}; }

private:
    std::vector<std::int8_t> values_;
    std::vector<float> scales_;
    std::size_t cols_;
};

namespace detail {

/// A vector as integers: x is about unit * values. A vector with a NaN or an infinity has a unit of NaN, which its
/// products inherit.
struct int16_vector {
    /// The largest integer for which no sum of `cols` products with eight bits leaves 32: with -128 too, which
    /// int8_matrix does not make but a view made by hand may hold.
    [[nodiscard]] static constexpr double limit(std::size_t cols) noexcept {
        return std::min(32767.0, std::floor(2147483647.0 / (128.0 * static_cast<double>(cols))));
    }
    [[nodiscard]] static float round(float const* x, std::size_t cols, std::int16_t* values) noexcept {
        float largest = 0.0f;
        bool finite = true;
        for (std::size_t j = 0; j < cols; ++j) {
            finite = finite && std::isfinite(x[j]);
            largest = std::max(largest, std::fabs(x[j]));
        }
        if (!finite || !(largest > 0.0f)) {
            std::fill_n(values, cols, std::int16_t{0});
            return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
        }
        double const steps = limit(cols) / static_cast<double>(largest);
        for (std::size_t j = 0; j < cols; ++j) {
            values[j] = static_cast<std::int16_t>(std::lround(static_cast<double>(x[j]) * steps));
        }
        return static_cast<float>(1.0 / steps);
    }
};

/// y[n][i] = base[n][i] + row i . x[n] for the rows that `ids` names, or `count` from the first.
inline void int8_product(head_kernels const& kernels, int8_view const& w, token_id const* ids, std::size_t count,
                         float const* const* x, float const* const* base, float* const* y, std::size_t n) noexcept {
    constexpr std::size_t most = 32;  // vectors at a time
    alignas(64) std::array<std::int16_t, 4 * int8_view::most_columns> values;
    std::array<std::int16_t const*, most> rounded;
    std::array<float, most> units;
    std::size_t const at_once = std::min(most, values.size() / w.cols);
    for (std::size_t first = 0; first < n; first += at_once) {
        std::size_t const here = std::min(at_once, n - first);
        for (std::size_t k = 0; k < here; ++k) {
            rounded[k] = values.data() + k * w.cols;
            units[k] = int16_vector::round(x[first + k], w.cols, values.data() + k * w.cols);
        }
        kernels.for_int8({w.values, w.cols, w.cols, count, ids}, w.scales, rounded.data(), units.data(), base + first,
                         y + first, here);
    }
}

}  // namespace detail

SURELEAP_END_NAMESPACE
