// SPDX-License-Identifier: MIT
//
// The RNN head as a differentiable function (paper, eq. 6, with the bias of the released code). Inference is in
// head/rnn.hpp. The shared interface and the reason for codes are in markov_code.hpp.
//     (a, c, o) = J [s ; e ; h] + b, split in three      s is s_{k-1}, s_0 = 0
//     z = tanh(o)     f = sigmoid(a)     t = tanh(c)     s_k = f s + (1 - f) t
// Backward walks the block from its last position with ds, the gradient of s_k, which starts at 0: nothing reads the
// last state.
//     do = dz (1 - z^2)     da = ds (s - t) f (1 - f)     dc = ds (1 - f) (1 - t^2)
//     dJ += (da, dc, do) [s ; e ; h]^T     db += (da, dc, do)
//     (ds of k-1, de, dh) = (f ds, 0, 0) + J^T (da, dc, do)
// The gradient runs through the whole block: at seven positions there is nothing to gain by cutting it off.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/training/markov_code.hpp>
#include <sureleap/training/rows.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The parameters are views: an optimizer may change what they point to between two calls.
template <std::floating_point Real>
class rnn_code {
public:
    using value_type = Real;
    struct gradients {
        matrix_span<Real> joint{};  ///< [3r, 2r + d], rows [gate ; candidate ; output], columns [s ; e ; h]
        std::span<Real> bias{};     ///< [3r]
    };

    /// joint [3r, 2r + d], rows [gate ; candidate ; output], columns [s ; e ; h]; bias [3r] in the order of the rows. r
    /// and d follow. Throws sureleap::error on a wrong shape or a value that is not finite.
    rnn_code(matrix_view<Real> joint, std::type_identity_t<std::span<Real const>> bias) : bias_(bias) {
        std::size_t const r = bias.size() / 3;
        if (bias.size() % 3 != 0) {
            fail_with("rnn_code: bias has ", bias.size(), " elements, expected a multiple of 3 (3 rank)");
        }
        if (joint.cols <= 2 * r) {
            fail_with("rnn_code: joint has ", joint.cols,
                      " columns, expected 2 * rank + hidden size, more than twice the rank ", r, " of bias");
        }
        detail::check_weights<Real>("rnn_code", "joint", joint, 3 * r, joint.cols, "3 rank x (2 rank + hidden size)");
        detail::check_weights<Real>("rnn_code", "bias", bias_, 3 * r, "one per row of joint");
        joint_state_ = column_range(joint, 0, r);
        joint_embedding_ = column_range(joint, r, r);
        joint_hidden_ = column_range(joint, 2 * r, joint.cols - 2 * r);
    }

    [[nodiscard]] std::size_t rank() const noexcept { return bias_.size() / 3; }
    [[nodiscard]] std::size_t hidden_size() const noexcept { return joint_hidden_.cols; }
    /// (f, t, o) and s_{k-1} of every position, and ds.
    [[nodiscard]] std::size_t tape_size(std::size_t positions) const noexcept { return (4 * positions + 1) * rank(); }

    /// O(n r (d + r)).
    void forward(code_inputs<Real> const& in, matrix_span<Real> codes, std::span<Real> tape) const noexcept {
        std::size_t const r = rank();
        SURELEAP_EXPECTS(codes.cols == r && in.embeddings.rows == codes.rows && in.hidden.rows == codes.rows);
        SURELEAP_EXPECTS(tape.size() == tape_size(codes.rows));
        std::ranges::fill(tape.first(r), Real(0));  // s_0; the entry behind the last position's parts is never read
        for (std::size_t k = 0; k < codes.rows; ++k) {
            auto const s = tape.subspan(4 * k * r, r);
            auto const parts = tape.subspan((4 * k + 1) * r, 3 * r);
            auto const next = tape.subspan(4 * (k + 1) * r, r);
            std::ranges::copy(bias_, parts.begin());
            scalar_backend::gemv_add(joint_state_, s, parts);
            scalar_backend::gemv_add(joint_embedding_, in.embeddings.row(k), parts);
            scalar_backend::gemv_add(joint_hidden_, in.hidden.row(k), parts);
            auto const z = codes.row(k);
            for (std::size_t i = 0; i < r; ++i) {
                Real const f = parts[i] = sigmoid(parts[i]);
                Real const t = parts[r + i] = std::tanh(parts[r + i]);
                z[i] = std::tanh(parts[2 * r + i]);
                next[i] = f * s[i] + (Real(1) - f) * t;
            }
        }
    }

    /// `codes` as forward left them. O(n r (d + r)).
    void backward(code_inputs<Real> const& in, matrix_view<Real> codes, matrix_view<Real> d_codes, std::span<Real> tape,
                  gradients const& d, code_input_gradients<Real> const& d_in) const noexcept {
        std::size_t const r = rank();
        SURELEAP_EXPECTS(d_codes.cols == r && codes.rows == d_codes.rows && tape.size() == tape_size(d_codes.rows));
        SURELEAP_EXPECTS(d.joint.cols == 2 * r + hidden_size());
        auto const d_joint_state = column_range(d.joint, 0, r);
        auto const d_joint_embedding = column_range(d.joint, r, r);
        auto const d_joint_hidden = column_range(d.joint, 2 * r, hidden_size());
        auto const ds = tape.last(r);
        std::ranges::fill(ds, Real(0));
        for (std::size_t k = d_codes.rows; k-- > 0;) {
            auto const s = tape.subspan(4 * k * r, r);
            auto const parts = tape.subspan((4 * k + 1) * r, 3 * r);
            auto const z = codes.row(k);
            auto const dz = d_codes.row(k);
            for (std::size_t i = 0; i < r; ++i) {
                Real const f = parts[i];
                Real const t = parts[r + i];
                parts[i] = ds[i] * (s[i] - t) * f * (Real(1) - f);
                parts[r + i] = ds[i] * (Real(1) - f) * (Real(1) - t * t);
                parts[2 * r + i] = dz[i] * (Real(1) - z[i] * z[i]);
                ds[i] *= f;
            }
            axpy(Real(1), parts, d.bias);
            detail::gemv_backward(joint_state_, s, parts, d_joint_state, ds);
            detail::gemv_backward(joint_embedding_, in.embeddings.row(k), parts, d_joint_embedding,
                                  d_in.embeddings.row(k));
            detail::gemv_backward(joint_hidden_, in.hidden.row(k), parts, d_joint_hidden, d_in.hidden.row(k));
        }
    }

private:
    matrix_view<Real> joint_state_;
    matrix_view<Real> joint_embedding_;
    matrix_view<Real> joint_hidden_;
    std::span<Real const> bias_;
};

SURELEAP_END_NAMESPACE
