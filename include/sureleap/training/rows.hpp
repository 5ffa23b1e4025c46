// SPDX-License-Identifier: MIT
//
// Rows for training: a writable view of a matrix, rows gathered from a table and added back to it (gather, scatter),
// and the backward of a matrix-vector product.
//
// Gradients are accumulated, never assigned. A hidden state gets one from the LM head, one from a head's gate and one
// from the confidence. None of them knows whether it comes first. Whoever owns the memory sets it to zero.
//
// Lookups of W1 are kept apart from what reads the looked-up rows. Everything then reads and differentiates dense rows,
// one a position, so blocks may run in parallel; only scatter_add writes where two positions can meet.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Row-major matrix that somebody else owns and the holder may write; the writable matrix_view.
template <class T>
struct matrix_span {
    T* data = nullptr;
    std::size_t rows = 0;
    std::size_t cols = 0;
    std::size_t stride = 0;

    matrix_span() = default;
    matrix_span(T* first, std::size_t row_count, std::size_t column_count) noexcept
        : matrix_span(first, row_count, column_count, column_count) {}
    matrix_span(T* first, std::size_t row_count, std::size_t column_count, std::size_t row_stride) noexcept
        : data(first), rows(row_count), cols(column_count), stride(row_stride) {}

    [[nodiscard]] std::span<T> row(std::size_t i) const noexcept {
        SURELEAP_EXPECTS(i < rows);
        return {data + i * stride, cols};
    }
    [[nodiscard]] matrix_view<T> view() const noexcept { return {data, rows, cols, stride}; }
    operator matrix_view<T>() const noexcept { return view(); }
};

/// Rows [first, first + count) of a matrix_view or a matrix_span.
template <class Matrix>
[[nodiscard]] inline Matrix row_range(Matrix const& m, std::size_t first, std::size_t count) noexcept {
    SURELEAP_EXPECTS(first + count <= m.rows);
    return {m.data + first * m.stride, count, m.cols, m.stride};
}

/// Columns [first, first + count) of a writable matrix; see the same of a matrix_view in linear.hpp.
template <class T>
[[nodiscard]] inline matrix_span<T> column_range(matrix_span<T> m, std::size_t first, std::size_t count) noexcept {
    SURELEAP_EXPECTS(first + count <= m.cols);
    return {m.data + first, m.rows, count, m.stride};
}

/// out.row(i) = table.row(indices[i]), converted to Real. Precondition: 0 <= indices[i] < table.rows.
template <class Stored, std::integral Index, std::floating_point Real>
inline void gather_rows(matrix_view<Stored> table, std::span<Index const> indices, matrix_span<Real> out) noexcept {
    SURELEAP_EXPECTS(out.rows == indices.size() && out.cols == table.cols);
    for (std::size_t i = 0; i < indices.size(); ++i) {
        SURELEAP_EXPECTS(indices[i] >= Index(0));
        detail::widen(table.row(static_cast<std::size_t>(indices[i])), out.row(i));
    }
}

/// y += a x.
template <std::floating_point Real>
inline void axpy(Real a, std::span<std::type_identity_t<Real> const> x,
                 std::span<std::type_identity_t<Real>> y) noexcept {
    SURELEAP_EXPECTS(x.size() == y.size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += a * x[i];
}

namespace detail {

/// Backward of y = W x for one x, given dy: dW += dy x^T and dx += W^T dy. A row of W and the same row of dW are
/// walked together, so both are read once, in memory order. O(rows cols).
template <std::floating_point Real>
inline void gemv_backward(matrix_view<Real> weights, std::span<std::type_identity_t<Real> const> x,
                          std::span<std::type_identity_t<Real> const> dy, matrix_span<Real> d_weights,
                          std::span<std::type_identity_t<Real>> dx) noexcept {
    SURELEAP_EXPECTS(x.size() == weights.cols && dx.size() == weights.cols && dy.size() == weights.rows);
    SURELEAP_EXPECTS(d_weights.rows == weights.rows && d_weights.cols == weights.cols);
    for (std::size_t i = 0; i < dy.size(); ++i) {
        axpy(dy[i], x, d_weights.row(i));
        axpy(dy[i], weights.row(i), dx);
    }
}

}  // namespace detail

/// table.row(indices[i]) += rows.row(i), in order of i: the transpose of gather_rows, and its backward. Equal indices
/// add up, so one table must not be written by two threads.
template <std::floating_point Real, std::integral Index>
inline void scatter_add(matrix_view<Real> rows, std::span<Index const> indices, matrix_span<Real> table) noexcept {
    SURELEAP_EXPECTS(rows.rows == indices.size() && rows.cols == table.cols);
    for (std::size_t i = 0; i < indices.size(); ++i) {
        SURELEAP_EXPECTS(indices[i] >= Index(0));
        axpy(Real(1), rows.row(i), table.row(static_cast<std::size_t>(indices[i])));
    }
}

SURELEAP_END_NAMESPACE
