// SPDX-License-Identifier: MIT
//
// The small functions between the products, forward and backward: RMSNorm, the norm and rotation of queries and keys,
// SwiGLU, softmax. Each is one pass over its rows. At the sizes trained here their memory traffic costs as much as the
// products. So functions are fused, and backward recomputes a row's 1/rms from the row that it reads anyway.
//
//     RMSNorm   y = s * x / rms      dx = (s dy - x (s dy . x) / (n rms^2)) / rms      ds += dy * x / rms
//     rotation  (a, b) -> (a cos - b sin, b cos + a sin)        backward: the same with -sin
//     SwiGLU    y = silu(g) * u      du = dy silu(g)      dg = dy u (sig(g) + silu(g) (1 - sig(g)))
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/head/linear.hpp>

#include "gemm.hpp"

namespace train {

namespace detail {

template <class Real>
[[nodiscard]] Real inverse_rms(std::span<Real const> x, Real epsilon) {
    Real const square = sureleap::scalar_backend::dot(x, x);
    return Real(1) / std::sqrt(square / static_cast<Real>(x.size()) + epsilon);
}

}  // namespace detail

/// y = RMSNorm(x) * scale, rows at a time.
template <class Real>
void rms_norm(std::type_identity_t<matrix_view<Real>> x, std::type_identity_t<std::span<Real const>> scale,
              double epsilon, matrix_span<Real> y) {
    for (std::size_t i = 0; i < x.rows; ++i) {
        auto const row = x.row(i);
        auto const out = y.row(i);
        Real const inverse = detail::inverse_rms(row, static_cast<Real>(epsilon));
        for (std::size_t j = 0; j < row.size(); ++j) out[j] = row[j] * inverse * scale[j];
    }
}

/// Adds to the gradients of x and scale.
template <class Real>
void rms_norm_backward(std::type_identity_t<matrix_view<Real>> x, std::type_identity_t<std::span<Real const>> scale,
                       double epsilon, std::type_identity_t<matrix_view<Real>> dy, std::span<Real> d_scale,
                       matrix_span<Real> dx) {
    aligned_vector<Real> scaled(x.cols);
    for (std::size_t i = 0; i < x.rows; ++i) {
        auto const row = x.row(i);
        auto const dy_row = dy.row(i);
        auto const dx_row = dx.row(i);
        Real const inverse = detail::inverse_rms(row, static_cast<Real>(epsilon));
        for (std::size_t j = 0; j < row.size(); ++j) {
            scaled[j] = dy_row[j] * scale[j];
            d_scale[j] += dy_row[j] * row[j] * inverse;
        }
        Real const along = sureleap::scalar_backend::dot(std::span<Real const>(scaled), row);
        Real const shrink = along * inverse * inverse / static_cast<Real>(row.size());
        for (std::size_t j = 0; j < row.size(); ++j) dx_row[j] += inverse * (scaled[j] - row[j] * shrink);
    }
}

/// Cosines and sines of every position, in double before they become Real: a float product of position and frequency
/// is off by 1e-3 at position 40,000.
template <class Real>
class rotary {
public:
    rotary(std::size_t head_dim, double theta, std::size_t positions)
        : half_(head_dim / 2), angles_(positions * head_dim) {
        for (std::size_t i = 0; i < half_; ++i) {
            double const frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
            for (std::size_t t = 0; t < positions; ++t) {
                double const angle = static_cast<double>(t) * frequency;
                angles_[2 * half_ * t + i] = static_cast<Real>(std::cos(angle));
                angles_[2 * half_ * t + half_ + i] = static_cast<Real>(std::sin(angle));
            }
        }
    }

    /// Positions 0 .. size()-1 have angles.
    [[nodiscard]] std::size_t size() const noexcept { return angles_.size() / (2 * half_); }
    [[nodiscard]] Real const* cosines(std::size_t position) const noexcept {
        return angles_.data() + 2 * half_ * position;
    }
    [[nodiscard]] Real const* sines(std::size_t position) const noexcept { return cosines(position) + half_; }

private:
    std::size_t half_;
    std::vector<Real> angles_;  // [positions, cosines | sines]
};

/// Queries or keys: every head of a row, `scale.size()` columns each, is normed, scaled and rotated to the row's
/// position.
template <class Real>
void norm_and_rotate(std::type_identity_t<matrix_view<Real>> x, std::type_identity_t<std::span<Real const>> scale,
                     double epsilon, rotary<Real> const& angles, std::span<std::uint32_t const> positions,
                     matrix_span<Real> y) {
    std::size_t const size = scale.size();
    std::size_t const half = size / 2;
    for (std::size_t i = 0; i < x.rows; ++i) {
        Real const* const cos = angles.cosines(positions[i]);
        Real const* const sin = angles.sines(positions[i]);
        for (std::size_t first = 0; first < x.cols; first += size) {
            auto const in = x.row(i).subspan(first, size);
            auto const out = y.row(i).subspan(first, size);
            Real const inverse = detail::inverse_rms(in, static_cast<Real>(epsilon));
            for (std::size_t j = 0; j < half; ++j) {
                Real const a = in[j] * inverse * scale[j];
                Real const b = in[j + half] * inverse * scale[j + half];
                out[j] = a * cos[j] - b * sin[j];
                out[j + half] = b * cos[j] + a * sin[j];
            }
        }
    }
}

/// d: in, the gradient of y; out, the gradient of x. Adds to the gradient of scale.
template <class Real>
void norm_and_rotate_backward(std::type_identity_t<matrix_view<Real>> x,
                              std::type_identity_t<std::span<Real const>> scale, double epsilon,
                              rotary<Real> const& angles, std::span<std::uint32_t const> positions,
                              std::span<Real> d_scale, matrix_span<Real> d) {
    std::size_t const size = scale.size();
    std::size_t const half = size / 2;
    for (std::size_t i = 0; i < x.rows; ++i) {
        Real const* const cos = angles.cosines(positions[i]);
        Real const* const sin = angles.sines(positions[i]);
        for (std::size_t first = 0; first < x.cols; first += size) {
            auto const in = x.row(i).subspan(first, size);
            auto const dy = d.row(i).subspan(first, size);
            Real const inverse = detail::inverse_rms(in, static_cast<Real>(epsilon));
            for (std::size_t j = 0; j < half; ++j) {
                Real const a = dy[j] * cos[j] + dy[j + half] * sin[j];
                Real const b = dy[j + half] * cos[j] - dy[j] * sin[j];
                d_scale[j] += a * in[j] * inverse;
                d_scale[j + half] += b * in[j + half] * inverse;
                dy[j] = a * scale[j];
                dy[j + half] = b * scale[j + half];
            }
            Real const along = sureleap::scalar_backend::dot(std::span<Real const>(dy), in);
            Real const shrink = along * inverse * inverse / static_cast<Real>(size);
            for (std::size_t j = 0; j < size; ++j) dy[j] = inverse * (dy[j] - in[j] * shrink);
        }
    }
}

/// y [n, w] = silu(gate) * up from rows [gate | up] of 2 w columns.
template <class Real>
void swiglu(std::type_identity_t<matrix_view<Real>> gate_up, matrix_span<Real> y) {
    for (std::size_t i = 0; i < y.rows; ++i) {
        auto const gate = eigen_array(gate_up.row(i).first(y.cols));
        auto const up = eigen_array(gate_up.row(i).last(y.cols));
        eigen_array(y.row(i)) = gate * up / (Real(1) + (-gate).exp());
    }
}

/// gate_up: in, what swiglu read; out, its gradient.
template <class Real>
void swiglu_backward(std::type_identity_t<matrix_view<Real>> dy, matrix_span<Real> gate_up) {
    aligned_vector<Real> sigmoids(dy.cols);
    for (std::size_t i = 0; i < dy.rows; ++i) {
        auto const gate = eigen_array(gate_up.row(i).first(dy.cols));
        auto const up = gate_up.row(i).last(dy.cols);
        eigen_array(std::span(sigmoids)) = Real(1) / (Real(1) + (-gate).exp());
        auto const d = dy.row(i);
        auto const g = gate_up.row(i).first(dy.cols);
        for (std::size_t j = 0; j < g.size(); ++j) {
            Real const s = sigmoids[j];
            Real const silu = g[j] * s;
            g[j] = d[j] * up[j] * (s + silu * (Real(1) - s));
            up[j] = d[j] * silu;
        }
    }
}

/// sureleap::row_softmax with vectorised exponentials, which are what a row costs. For finite logits: of -inf Eigen may
/// make the smallest number instead of 0.
struct fast_softmax {
    template <class Real>
    Real operator()(std::span<Real const> logits, std::span<Real> probabilities) const {
        Real const top = eigen_array(logits).maxCoeff();
        auto out = eigen_array(probabilities);
        out = (eigen_array(logits) - top).exp();
        double const total = out.template cast<double>().sum();
        out *= static_cast<Real>(1.0 / total);
        return top + static_cast<Real>(std::log(total));
    }
};

}  // namespace train
