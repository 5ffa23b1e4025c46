// SPDX-License-Identifier: MIT
//
// What sequential heads compute over whole matrices, as a table of functions (tables.hpp). These are products with the
// output matrix W2, which is nearly all a head costs, and the choice of a shortlist. The functions here are the
// reference.
//
// A row of a product is summed in one order whatever else is computed beside it. Lane l of 16 adds elements l, l + 16,
// ... Of bf16, which vectors widen two by two, it adds elements 2l, 2l + 1, 2l + 32, ... Then lanes are added pairwise
// (l with l + 8, + 4, + 2, + 1). So a request's logits do not depend on who shares its batch. Products with int8
// weights are sums of integers, which are exact and the same on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/tables.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Rows of a matrix: rows 0 .. count - 1, or those that `ids` names.
template <class W>
struct row_selection {
    W const* data = nullptr;
    std::size_t stride = 0;  ///< from row to row, in elements
    std::size_t cols = 0;
    std::size_t count = 0;
    token_id const* ids = nullptr;  ///< [count], or null

    [[nodiscard]] std::size_t index(std::size_t i) const noexcept {
        return ids == nullptr ? i : static_cast<std::size_t>(ids[i]);
    }
    [[nodiscard]] W const* row(std::size_t i) const noexcept { return data + index(i) * stride; }
};

/// For any number of vectors x: y[n][i] = base[n][i] + row i . x[n]. base[n] may be y[n].
template <class W>
using product_function = void (*)(row_selection<W> const& rows, float const* const* x, float const* const* base,
                                  float* const* y, std::size_t n);

/// The same for rows of int8 with a scale each and integers of 16 bits:
/// y[n][i] = base[n][i] + scales[index(i)] unit[n] (row i . x[n]).
using int8_product_function = void (*)(row_selection<std::int8_t> const& rows, float const* scales,
                                       std::int16_t const* const* x, float const* unit, float const* const* base,
                                       float* const* y, std::size_t n);

struct head_kernels {
    char const* name;
    product_function<float> for_float;
    product_function<bf16> for_bf16;
    product_function<half> for_half;
    int8_product_function for_int8;
    /// The indices of numbers that are at least `threshold`, ascending, into out [size]; returns how many. What is
    /// behind them in `out` is lost.
    std::size_t (*at_least)(float const* row, std::size_t size, float threshold, token_id* out);

    template <class Heads>
    [[nodiscard]] static constexpr head_kernels of(char const* name) noexcept {
        return {name,
                Heads::template product<float>,
                Heads::template product<bf16>,
                Heads::template product<half>,
                Heads::int8_product,
                Heads::at_least};
    }

    template <class W>
    [[nodiscard]] product_function<W> product() const noexcept {
        static_assert(std::is_same_v<W, float> || std::is_same_v<W, bf16> || std::is_same_v<W, half>,
                      "head_kernels: W must be float, sureleap::bf16 or sureleap::half");
        if constexpr (std::is_same_v<W, float>) {
            return for_float;
        } else if constexpr (std::is_same_v<W, bf16>) {
            return for_bf16;
        } else {
            return for_half;
        }
    }
};

// ---- the reference ---------------------------------------------------------------------------------------------

namespace detail {

struct scalar_heads {
    static constexpr std::size_t lanes = 16;
    /// Neighbours that go to one lane.
    template <class W>
    static constexpr std::size_t pairs = std::is_same_v<W, bf16> ? 2 : 1;

    template <class W, class Real>
    [[nodiscard]] static Real dot(W const* row, Real const* x, std::size_t size) noexcept {
        std::array<Real, lanes> sum{};
        constexpr std::size_t step = lanes * pairs<W>;
        std::size_t const whole = size - size % step;
        for (std::size_t i = 0; i < whole; i += step) {
            for (std::size_t j = 0; j < step; ++j) sum[j / pairs<W>] += static_cast<Real>(load(row[i + j])) * x[i + j];
        }
        for (std::size_t i = whole; i < size; ++i)
            sum[(i - whole) / pairs<W>] += static_cast<Real>(load(row[i])) * x[i];
        for (std::size_t width = lanes / 2; width > 0; width /= 2) {
            for (std::size_t l = 0; l < width; ++l) sum[l] += sum[l + width];
        }
        return sum[0];
    }

    template <class W>
    static void product(row_selection<W> const& rows, float const* const* x, float const* const* base, float* const* y,
                        std::size_t n) {
        for (std::size_t i = 0; i < rows.count; ++i) {
            for (std::size_t k = 0; k < n; ++k) y[k][i] = base[k][i] + dot(rows.row(i), x[k], rows.cols);
        }
    }

    static void int8_product(row_selection<std::int8_t> const& rows, float const* scales, std::int16_t const* const* x,
                             float const* unit, float const* const* base, float* const* y, std::size_t n) {
        for (std::size_t i = 0; i < rows.count; ++i) {
            std::int8_t const* const row = rows.row(i);
            for (std::size_t k = 0; k < n; ++k) {
                std::int32_t sum = 0;
                for (std::size_t j = 0; j < rows.cols; ++j) sum += std::int32_t{row[j]} * x[k][j];
                // Rounded once, as vectors do, so that all tables agree bit for bit.
                y[k][i] = std::fma(static_cast<float>(sum), scales[rows.index(i)] * unit[k], base[k][i]);
            }
        }
    }

    static std::size_t at_least(float const* row, std::size_t size, float threshold, token_id* out) {
        std::size_t count = 0;
        for (std::size_t i = 0; i < size; ++i) {
            if (row[i] >= threshold) out[count++] = static_cast<token_id>(i);
        }
        return count;
    }
};

}  // namespace detail

template <std::same_as<head_kernels> Table>
inline constexpr Table scalar_kernels<Table> = Table::template of<detail::scalar_heads>("scalar");

SURELEAP_END_NAMESPACE
