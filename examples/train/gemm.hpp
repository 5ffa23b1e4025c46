// SPDX-License-Identifier: MIT
//
// Matrix products of training, through Eigen, and the matrices they work on. With weights as in the files, rows are
// outputs, a linear layer is three products, each of which writes or adds:
//     y  = x w^T        multiply
//     dx = dy w         multiply_back
//     dw += dy^T x      add_outer
//
// The engine has kernels of its own because decoding must give equal bits for every batch; training has no such need
// and large products, so it takes a library that is good at those. One product runs on one thread: a trainer gives
// each thread a batch of its own, which scales better at these sizes than dividing every product.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <Eigen/Core>

#include <sureleap/core/types.hpp>
#include <sureleap/training/rows.hpp>

#include "gemm_bf16.hpp"

namespace train {

using sureleap::matrix_span;
using sureleap::matrix_view;

/// An array that is aligned to vector registers. Not for speed: Eigen takes the first numbers up to an aligned address
/// one by one, and rounds those otherwise than the rest. So the alignment must not depend on what was allocated before.
/// Else a run that goes on after an interruption would end with other weights.
template <class T>
using aligned_vector = std::vector<T, Eigen::aligned_allocator<T>>;

/// Memory of a matrix, kept from batch to batch: shrinking and growing within what it once had allocates nothing.
template <class Real>
class matrix {
public:
    matrix() = default;
    matrix(std::size_t rows, std::size_t cols) { resize(rows, cols); }

    /// Values are left as they are, in no particular order.
    matrix_span<Real> resize(std::size_t rows, std::size_t cols) {
        rows_ = rows;
        cols_ = cols;
        std::size_t const needed = std::max<std::size_t>(rows * cols, 1);  // columns of an empty matrix are taken, too
        if (values_.size() < needed) values_.resize(needed);
        return span();
    }
    matrix_span<Real> resize_zeroed(std::size_t rows, std::size_t cols) {
        auto const all = resize(rows, cols);
        std::fill_n(all.data, rows * cols, Real(0));
        return all;
    }

    [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
    [[nodiscard]] std::size_t cols() const noexcept { return cols_; }
    [[nodiscard]] matrix_span<Real> span() noexcept { return {values_.data(), rows_, cols_}; }
    [[nodiscard]] matrix_view<Real> view() const noexcept { return {values_.data(), rows_, cols_}; }

private:
    aligned_vector<Real> values_;
    std::size_t rows_ = 0;
    std::size_t cols_ = 0;
};

namespace detail {

template <class Real>
using row_major = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Products with a small side are left to Eigen: copying their factors would take as long.
template <class Real>
[[nodiscard]] bool takes_bf16([[maybe_unused]] std::size_t m, [[maybe_unused]] std::size_t n,
                              [[maybe_unused]] std::size_t depth) noexcept {
    if constexpr (std::is_same_v<Real, float> && has_bf16_products) {
        return bf16_products() && m >= 24 && n >= 32 && depth >= 24;
    } else {
        return false;
    }
}

}  // namespace detail

/// The same memory as Eigen sees it.
template <class Real>
[[nodiscard]] auto eigen(matrix_view<Real> m) {
    return Eigen::Map<detail::row_major<Real> const, 0, Eigen::OuterStride<>>(
        m.data, static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.cols),
        Eigen::OuterStride<>(static_cast<Eigen::Index>(m.stride)));
}
template <class Real>
[[nodiscard]] auto eigen(matrix_span<Real> m) {
    return Eigen::Map<detail::row_major<Real>, 0, Eigen::OuterStride<>>(
        m.data, static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.cols),
        Eigen::OuterStride<>(static_cast<Eigen::Index>(m.stride)));
}

/// A row or any other run of numbers, as an array for elementwise work.
template <class Real>
[[nodiscard]] auto eigen_array(std::span<Real> x) {
    using array = Eigen::Array<std::remove_const_t<Real>, Eigen::Dynamic, 1>;
    return Eigen::Map<std::conditional_t<std::is_const_v<Real>, array const, array>>(
        x.data(), static_cast<Eigen::Index>(x.size()));
}

// A batch without rows is legal everywhere below, whatever its width: a layer without context has one.

/// Whether a product replaces what its output holds.
enum class into { fresh, sum };

/// y = x w^T, or y += x w^T.
template <class Real>
void multiply(std::type_identity_t<matrix_view<Real>> x, std::type_identity_t<matrix_view<Real>> w, matrix_span<Real> y,
              into mode = into::fresh) {
    SURELEAP_EXPECTS(y.rows == x.rows && (y.rows == 0 || (x.cols == w.cols && y.cols == w.rows)));
    if (y.rows == 0) return;
#if TRAIN_BF16_PRODUCTS
    if constexpr (std::is_same_v<Real, float>) {
        if (detail::takes_bf16<Real>(x.rows, w.rows, x.cols)) {
            return detail::multiply_bf16({x.data, x.stride, 1}, {w.data, w.stride, 1}, x.rows, w.rows, x.cols, y.data,
                                         y.stride, mode == into::sum);
        }
    }
#endif
    if (mode == into::fresh) {
        eigen(y).noalias() = eigen(x) * eigen(w).transpose();
    } else {
        eigen(y).noalias() += eigen(x) * eigen(w).transpose();
    }
}

/// dx = dy w, or dx += dy w.
template <class Real>
void multiply_back(std::type_identity_t<matrix_view<Real>> dy, std::type_identity_t<matrix_view<Real>> w,
                   matrix_span<Real> dx, into mode = into::fresh) {
    SURELEAP_EXPECTS(dx.rows == dy.rows && (dx.rows == 0 || (dy.cols == w.rows && dx.cols == w.cols)));
    if (dx.rows == 0) return;
#if TRAIN_BF16_PRODUCTS
    if constexpr (std::is_same_v<Real, float>) {
        if (detail::takes_bf16<Real>(dy.rows, w.cols, dy.cols)) {
            return detail::multiply_bf16({dy.data, dy.stride, 1}, {w.data, 1, w.stride}, dy.rows, w.cols, dy.cols,
                                         dx.data, dx.stride, mode == into::sum);
        }
    }
#endif
    if (mode == into::fresh) {
        eigen(dx).noalias() = eigen(dy) * eigen(w);
    } else {
        eigen(dx).noalias() += eigen(dy) * eigen(w);
    }
}

/// dw += dy^T x.
template <class Real>
void add_outer(std::type_identity_t<matrix_view<Real>> dy, std::type_identity_t<matrix_view<Real>> x,
               matrix_span<Real> dw) {
    SURELEAP_EXPECTS(dy.rows == x.rows && (x.rows == 0 || (dw.rows == dy.cols && dw.cols == x.cols)));
#if TRAIN_BF16_PRODUCTS
    if constexpr (std::is_same_v<Real, float>) {
        if (detail::takes_bf16<Real>(dy.cols, x.cols, x.rows)) {
            return detail::multiply_bf16({dy.data, 1, dy.stride}, {x.data, 1, x.stride}, dy.cols, x.cols, x.rows,
                                         dw.data, dw.stride, true);
        }
    }
#endif
    if (x.rows > 0) eigen(dw).noalias() += eigen(dy).transpose() * eigen(x);
}

}  // namespace train
