// SPDX-License-Identifier: MIT
//
// A linear-algebra backend for the heads (see linear.hpp) by Eigen (3.4 or newer).
//
//     markov_head head{w1, w2, eigen_backend{}};
//
// Float and double weights are mapped where they lie. bf16 and half rows are converted in small blocks on the stack:
// Eigen has types of its own for both. Mapping ours onto them would put Eigen's conversions, and its version, into the
// result. Sums run in Eigen's order, so a result agrees with scalar_backend up to rounding, not bit for bit.
//
// Eigen picks its instructions by the flags of the translation unit, in inline functions of the same name: compile
// all units that use it with the same -march. (xsimd_backend has its architecture in its type and needs no such
// care.)
#pragma once

#if !__has_include(<Eigen/Core>)
#error "sureleap/ext/eigen.hpp needs Eigen >= 3.4: install it (Debian: libeigen3-dev) and link sureleap::eigen"
#endif

#include <concepts>
#include <span>
#include <type_traits>

#include <Eigen/Core>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Models linear_backend through Eigen::Map. Nothing is allocated: the operands are contiguous, so that Eigen's
/// product reads them in place.
struct eigen_backend {
    template <class Weight, std::floating_point Real>
    [[nodiscard]] static Real dot(std::span<Weight const> weights, std::span<Real const> x) noexcept {
        static_assert(is_storage_v<Weight>, "eigen_backend: weights must be float, double, bf16 or half");
        SURELEAP_EXPECTS(weights.size() == x.size());
        if constexpr (std::is_same_v<Weight, Real>) {
            return in(weights).dot(in(x));
        } else {
            return detail::dot_by_blocks(weights, x, [](auto block, auto part) { return in(block).dot(in(part)); });
        }
    }

    template <class Weight, std::floating_point Real>
    static void gemv(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                     std::span<Real> y) noexcept {
        SURELEAP_EXPECTS(x.size() == weights.cols && y.size() == weights.rows);
        if constexpr (std::is_same_v<Weight, Real>) {
            out(y).noalias() = matrix(weights) * in(x);
        } else {
            detail::gemv_by_rows<eigen_backend, false>(weights, x, y);
        }
    }

    template <class Weight, std::floating_point Real>
    static void gemv_add(matrix_view<Weight> weights, std::type_identity_t<std::span<Real const>> x,
                         std::span<Real> y) noexcept {
        SURELEAP_EXPECTS(x.size() == weights.cols && y.size() == weights.rows);
        if constexpr (std::is_same_v<Weight, Real>) {
            out(y).noalias() += matrix(weights) * in(x);
        } else {
            detail::gemv_by_rows<eigen_backend, true>(weights, x, y);
        }
    }

private:
    template <class Real>
    using vector = Eigen::Matrix<Real, Eigen::Dynamic, 1>;
    template <class Real>
    using row_major = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

    template <class T>
    static Eigen::Index index(T size) noexcept {
        return static_cast<Eigen::Index>(size);
    }
    template <class Real>
    static Eigen::Map<vector<Real> const> in(std::span<Real const> x) noexcept {
        return {x.data(), index(x.size())};
    }
    template <class Real>
    static Eigen::Map<vector<Real>> out(std::span<Real> y) noexcept {
        return {y.data(), index(y.size())};
    }
    template <class Real>
    static Eigen::Map<row_major<Real> const, Eigen::Unaligned, Eigen::OuterStride<>> matrix(
        matrix_view<Real> w) noexcept {
        return {w.data, index(w.rows), index(w.cols), Eigen::OuterStride<>(index(w.stride))};
    }
};

SURELEAP_END_NAMESPACE
