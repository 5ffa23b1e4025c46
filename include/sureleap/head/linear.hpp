// SPDX-License-Identifier: MIT
//
// The little linear algebra a draft head needs: matrix-vector products over weights that stay in their storage format,
// behind a backend policy. The scalar backend is the oracle of the others. The native one takes the vector code that
// the machine runs (detail/kernel/heads.hpp) and is the default of every head. ext/eigen.hpp and ext/xsimd.hpp are
// backends by those libraries.
//
// A backend is a stateless type with static members (this is what the concept linear_backend asks for):
//     dot(std::span<W const> weights, std::span<R const> x) -> R          sum_j w_j x_j; 0 for empty spans
//     gemv(matrix_view<W> weights, std::span<R const> x, std::span<R> y)      y  = W x
//     gemv_add(matrix_view<W> weights, std::span<R const> x, std::span<R> y)  y += W x
// and may have, for the products that cost something (without them the library repeats gemv_add and dot):
//     gemm_add(matrix_view<W> weights, R const* const* x, R const* const* base, R* const* y, std::size_t n)
//                                                            y[i] = base[i] + W x[i], i < n; base[i] may be y[i]
//     gather_add(matrix_view<W> weights, std::span<token_id const> rows, R const* x, R* y)    y[i] += W[rows[i]] . x
// for every storage format W (float, double, bf16, half) and every real type R (float, double). A weight is
// converted to R as it is read; products and sums are in R. x and y must not overlap. Preconditions, checked by
// contract: x has weights.cols elements, y has weights.rows. No allocation, no exception; concurrently callable.
//
// Why a policy and not __has_include: two translation units that see different include paths would otherwise
// compile two definitions of one head. Why weights are not converted to R once, at set-up: a released head has 78
// million of them, and what a matrix-vector product costs is reading them; bf16 halves that.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/native.hpp>

SURELEAP_BEGIN_NAMESPACE

/// 1 / (1 + exp(-x)) without overflow: exp is only taken of what is not positive. NaN stays NaN.
template <std::floating_point R>
[[nodiscard]] inline R sigmoid(R x) noexcept {
    if (x >= R(0)) return R(1) / (R(1) + std::exp(-x));
    R const e = std::exp(x);
    return e / (R(1) + e);
}

namespace detail {

/// A stored weight as a Real. Narrows when weights are double and the arithmetic is float, which the caller chose.
template <class Real, class Weight>
[[nodiscard]] inline Real widen(Weight const& stored) noexcept {
    return static_cast<Real>(load(stored));
}

/// Converts a row of weights into Reals.
template <class Real, class Weight>
inline void widen(std::span<Weight const> stored, std::span<Real> out) noexcept {
    SURELEAP_EXPECTS(stored.size() == out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = widen<Real>(stored[i]);
}

/// gemv (or gemv_add) as one dot product per row: all a backend needs beyond `dot`.
template <class Backend, bool add, class Weight, class Real>
inline void gemv_by_rows(matrix_view<Weight> weights, std::span<Real const> x, std::span<Real> y) noexcept {
    SURELEAP_EXPECTS(x.size() == weights.cols && y.size() == weights.rows);
    for (std::size_t i = 0; i < y.size(); ++i) {
        Real const product = Backend::dot(weights.row(i), x);
        y[i] = add ? y[i] + product : product;
    }
}

/// A dot product over weights that `native` cannot read: they are converted in blocks on the stack (1 to 2 KiB) and
/// native(std::span<Real const>, std::span<Real const>) sums each block.
template <class Weight, class Real, class Native>
[[nodiscard]] inline Real dot_by_blocks(std::span<Weight const> weights, std::span<Real const> x,
                                        Native native) noexcept {
    std::array<Real, 256> block;
    Real sum{};
    for (std::size_t first = 0; first < x.size(); first += block.size()) {
        std::size_t const count = std::min(block.size(), x.size() - first);
        widen(weights.subspan(first, count), std::span<Real>(block).first(count));
        sum += native(std::span<Real const>(block).first(count), x.subspan(first, count));
    }
    return sum;
}

}  // namespace detail

/// The reference backend: portable, and the order of every sum is fixed. Lane l of 16 adds the elements l, l + 16, ...
/// in order (bf16 otherwise: detail/kernel/heads.hpp), then the lanes are added pairwise (l with l + 8, + 4, + 2, + 1).
/// One running sum would wait for each addition, and no compiler may vectorise it. 16 lanes have a fixed order too, are
/// more accurate, and fill any SIMD register. (Whether a * b + c rounds once or twice is the compiler's -ffp-contract,
/// not the order.)
struct scalar_backend {
    template <class Weight, std::floating_point Real>
    [[nodiscard]] static Real dot(std::span<Weight const> weights, std::span<Real const> x) noexcept {
        static_assert(is_storage_v<Weight>, "scalar_backend: weights must be float, double, bf16 or half");
        SURELEAP_EXPECTS(weights.size() == x.size());
        return detail::scalar_heads::dot(weights.data(), x.data(), x.size());
    }

    template <class Weight, std::floating_point Real>
    static void gemv(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                     std::span<Real> y) noexcept {
        detail::gemv_by_rows<scalar_backend, false>(weights, x, y);
    }

    template <class Weight, std::floating_point Real>
    static void gemv_add(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                         std::span<Real> y) noexcept {
        detail::gemv_by_rows<scalar_backend, true>(weights, x, y);
    }
};

/// The best vector code of the machine, found when the program runs (detail/kernel/native.hpp): float arithmetic on
/// weights in float, bf16 or half. What involves double is scalar_backend's. A product's rows are summed in
/// scalar_backend's order, whatever the batch; multiplications are fused with additions, so results differ from its by
/// rounding.
struct native_backend {
    template <class Weight, std::floating_point Real>
    [[nodiscard]] static Real dot(std::span<Weight const> weights, std::span<Real const> x) noexcept {
        if constexpr (vectorised<Weight, Real>) {
            SURELEAP_EXPECTS(weights.size() == x.size());
            Real sum = 0;
            Real const* from = x.data();
            Real* to = &sum;
            if (!x.empty()) add<Weight>({weights.data(), x.size(), x.size(), 1, nullptr}, &from, &to, &to, 1);
            return sum;
        } else {
            return scalar_backend::dot(weights, x);
        }
    }

    template <class Weight, std::floating_point Real>
    static void gemv(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                     std::span<Real> y) noexcept {
        std::fill(y.begin(), y.end(), Real(0));
        gemv_add(weights, x, y);
    }

    template <class Weight, std::floating_point Real>
    static void gemv_add(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                         std::span<Real> y) noexcept {
        SURELEAP_EXPECTS(x.size() == weights.cols && y.size() == weights.rows);
        Real const* const from = x.data();
        Real* const to = y.data();
        gemm_add(weights, &from, &to, &to, 1);
    }

    template <class Weight, std::floating_point Real>
    static void gemm_add(matrix_view<Weight> weights, Real const* const* x, Real const* const* base, Real* const* y,
                         std::size_t n) noexcept {
        if constexpr (vectorised<Weight, Real>) {
            add<Weight>({weights.data, weights.stride, weights.cols, weights.rows, nullptr}, x, base, y, n);
        } else {
            for (std::size_t i = 0; i < n; ++i) {
                if (base[i] != y[i]) std::copy_n(base[i], weights.rows, y[i]);
                scalar_backend::gemv_add(weights, {x[i], weights.cols}, std::span<Real>(y[i], weights.rows));
            }
        }
    }

    template <class Weight, std::floating_point Real>
    static void gather_add(matrix_view<Weight> weights, std::span<token_id const> rows, Real const* x,
                           Real* y) noexcept {
        if constexpr (vectorised<Weight, Real>) {
            add<Weight>({weights.data, weights.stride, weights.cols, rows.size(), rows.data()}, &x, &y, &y, 1);
        } else {
            for (std::size_t i = 0; i < rows.size(); ++i) {
                y[i] += scalar_backend::dot(weights.row(static_cast<std::size_t>(rows[i])),
                                            std::span<Real const>(x, weights.cols));
            }
        }
    }

private:
    template <class Weight, class Real>
    static constexpr bool vectorised = std::is_same_v<Real, float> && !std::is_same_v<Weight, double>;

    template <class Weight>
    static void add(row_selection<Weight> const& rows, float const* const* x, float const* const* base, float* const* y,
                    std::size_t n) noexcept {
        native_kernels<head_kernels>().template product<Weight>()(rows, x, base, y, n);
    }
};

// ---- weights at set-up -----------------------------------------------------------------------------------------

namespace detail {

[[nodiscard]] inline std::string shape_text(std::size_t rows, std::size_t cols) {
    return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

/// Set-up check of one weight tensor: shape, then every value finite once it is a Real. Costs one read of the
/// tensor. That read is kept on purpose: a single bad weight otherwise surfaces rounds later, as a request whose
/// logits are NaN, with no trace of the cause. `meaning` names the expected dimensions in the error.
template <class Real, class Weight>
inline void check_weights(char const* object, char const* tensor, matrix_view<Weight> weights, std::size_t rows,
                          std::size_t cols, char const* meaning) {
    if (weights.rows != rows || weights.cols != cols) {
        fail_with(object, ": ", tensor, " is ", shape_text(weights.rows, weights.cols), ", expected ",
                  shape_text(rows, cols), " (", meaning, ")");
    }
    if (weights.empty()) {
        fail_with(object, ": ", tensor, " is ", shape_text(weights.rows, weights.cols),
                  ", expected at least one row and one column (", meaning, ")");
    }
    if (weights.data == nullptr) fail_with(object, ": ", tensor, " points to no data, expected ", meaning);
    if (weights.stride < weights.cols) {
        fail_with(object, ": ", tensor, " has a row stride of ", weights.stride, ", expected at least its ",
                  weights.cols, " columns");
    }
    for (std::size_t i = 0; i < rows; ++i) {
        auto const row = weights.row(i);
        unsigned bad = 0;  // no early exit inside a row: this form vectorises; x - x is 0 for finite x only
        for (Weight const& stored : row) {
            Real const x = widen<Real>(stored);
            bad |= x - x == Real(0) ? 0u : 1u;
        }
        if (bad == 0) continue;
        for (std::size_t j = 0; j < cols; ++j) {
            Real const x = widen<Real>(row[j]);
            if (!std::isfinite(x)) {
                fail_with(object, ": ", tensor, " is not finite at row ", i, ", column ", j, ": got ", x);
            }
        }
    }
}

/// The same, and hands the weights on: for member initialisers, where the order of members is the order of errors.
template <class Real, class Weight>
[[nodiscard]] matrix_view<Weight> checked_weights(char const* object, char const* tensor, matrix_view<Weight> weights,
                                                  std::size_t rows, std::size_t cols, char const* meaning) {
    check_weights<Real>(object, tensor, weights, rows, cols, meaning);
    return weights;
}

/// The same for a vector of `size` elements (a bias), reported as one row.
template <class Real, class Weight>
inline void check_weights(char const* object, char const* tensor, std::span<Weight const> weights, std::size_t size,
                          char const* meaning) {
    check_weights<Real>(object, tensor, matrix_view<Weight>(weights.data(), 1, weights.size()), 1, size, meaning);
}

}  // namespace detail

/// Columns [first, first + count) of a matrix: the part of a projection that reads one part of a concatenated
/// input.
template <class Weight>
[[nodiscard]] inline matrix_view<Weight> column_range(matrix_view<Weight> weights, std::size_t first,
                                                      std::size_t count) noexcept {
    SURELEAP_EXPECTS(first + count <= weights.cols);
    return {weights.data + first, weights.rows, count, weights.stride};
}

SURELEAP_END_NAMESPACE
