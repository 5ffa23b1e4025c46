// SPDX-License-Identifier: MIT
//
// The gated Markov head as a differentiable function (source: the released training code; inference is
// head/gated.hpp, the shared interface and the reason for codes are in markov_code.hpp):
//     a = G [h ; e] + b     z = sigmoid(a) * e
//     de += dz * sigmoid(a)     da = dz * e * sigmoid(a) (1 - sigmoid(a))
//     dG += da [h ; e]^T     db += da     [dh ; de] += G^T da
// Positions do not depend on each other. The tape holds sigmoid(a); backward overwrites it by da.
#pragma once

#include <algorithm>
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
class gated_code {
public:
    using value_type = Real;
    struct gradients {
        matrix_span<Real> gate{};  ///< [r, d + r], columns [h ; e]
        std::span<Real> bias{};    ///< [r]
    };

    /// gate [r, d + r] with its columns in the order [h ; e]; bias [r]. d follows. Throws sureleap::error on a wrong
    /// shape or a value that is not finite.
    gated_code(matrix_view<Real> gate, std::type_identity_t<std::span<Real const>> bias) : bias_(bias) {
        std::size_t const r = bias.size();
        if (gate.cols <= r) {
            fail_with("gated_code: gate has ", gate.cols, " columns, expected hidden size + rank, more than the rank ",
                      r, " of bias");
        }
        detail::check_weights<Real>("gated_code", "gate", gate, r, gate.cols, "rank x (hidden size + rank)");
        detail::check_weights<Real>("gated_code", "bias", bias_, r, "one per row of gate");
        gate_hidden_ = column_range(gate, 0, gate.cols - r);
        gate_embedding_ = column_range(gate, gate.cols - r, r);
    }

    [[nodiscard]] std::size_t rank() const noexcept { return bias_.size(); }
    [[nodiscard]] std::size_t hidden_size() const noexcept { return gate_hidden_.cols; }
    [[nodiscard]] std::size_t tape_size(std::size_t positions) const noexcept { return positions * rank(); }

    /// O(n r (d + r)).
    void forward(code_inputs<Real> const& in, matrix_span<Real> codes, std::span<Real> tape) const noexcept {
        SURELEAP_EXPECTS(codes.cols == rank() && in.embeddings.rows == codes.rows && in.hidden.rows == codes.rows);
        SURELEAP_EXPECTS(tape.size() == tape_size(codes.rows));
        for (std::size_t k = 0; k < codes.rows; ++k) {
            auto const gate = tape.subspan(k * rank(), rank());
            auto const e = in.embeddings.row(k);
            auto const z = codes.row(k);
            std::ranges::copy(bias_, gate.begin());
            scalar_backend::gemv_add(gate_hidden_, in.hidden.row(k), gate);
            scalar_backend::gemv_add(gate_embedding_, e, gate);
            for (std::size_t i = 0; i < z.size(); ++i) {
                gate[i] = sigmoid(gate[i]);
                z[i] = gate[i] * e[i];
            }
        }
    }

    /// O(n r (d + r)).
    void backward(code_inputs<Real> const& in, matrix_view<Real> /*codes*/, matrix_view<Real> d_codes,
                  std::span<Real> tape, gradients const& d, code_input_gradients<Real> const& d_in) const noexcept {
        SURELEAP_EXPECTS(d_codes.cols == rank() && tape.size() == tape_size(d_codes.rows));
        SURELEAP_EXPECTS(d.gate.cols == hidden_size() + rank());
        auto const d_gate_hidden = column_range(d.gate, 0, hidden_size());
        auto const d_gate_embedding = column_range(d.gate, hidden_size(), rank());
        for (std::size_t k = 0; k < d_codes.rows; ++k) {
            auto const gate = tape.subspan(k * rank(), rank());
            auto const e = in.embeddings.row(k);
            auto const dz = d_codes.row(k);
            auto const de = d_in.embeddings.row(k);
            for (std::size_t i = 0; i < gate.size(); ++i) {
                de[i] += dz[i] * gate[i];
                gate[i] = dz[i] * e[i] * gate[i] * (Real(1) - gate[i]);
            }
            axpy(Real(1), gate, d.bias);
            detail::gemv_backward(gate_hidden_, in.hidden.row(k), gate, d_gate_hidden, d_in.hidden.row(k));
            detail::gemv_backward(gate_embedding_, e, gate, d_gate_embedding, de);
        }
    }

private:
    matrix_view<Real> gate_hidden_;
    matrix_view<Real> gate_embedding_;
    std::span<Real const> bias_;
};

SURELEAP_END_NAMESPACE
