// SPDX-License-Identifier: MIT
//
// The sequential heads as differentiable functions. Every head's transition bias is B_k = W2 z_k with a code z_k of r
// numbers (r = rank); the heads differ in the code alone:
//     Markov  z_k = e_k                      (eq. 5)     markov_code.hpp
//     gated   z_k = sigmoid(g_k) * e_k       (released)  gated_code.hpp
//     RNN     z_k = tanh(o_k)                (eq. 6)     rnn_code.hpp
// with e_k = W1[x_{k-1}]. A code is cheap and sequential. Its product with W2 [V, r] is expensive and not sequential.
// Over all rows of a batch it is B = Z W2^T forward, dZ = dB W2 and dW2 = dB^T Z backward. The trainer makes these
// three products by a GEMM of its own. Everything else of a head is here. Rejected: a backward that mirrors add_bias,
// logits in and out, which would walk the vocabulary position by position and read W2 once for each.
//
// The interface all three share; a call covers the first n positions of one block, row k is position k:
//   tape_size   reals of memory that one block of n positions needs from forward to backward, owned by the caller
//   forward     codes z [n, r] from embeddings e [n, r] (gather_rows of W1 at x_0 .. x_{n-1}, teacher-forced) and
//               hidden states h [n, d]
//   backward    from dz [n, r]: adds to the parameters' gradients, to de and to dh. Consumes the tape
//   gradients   where the parameters' gradients are added
// de goes back into W1 by scatter_add (rows.hpp), once the confidence has added its share. Positions behind the n-th
// are never computed: no code and no loss of the first n depends on them. const members may be called
// concurrently for different blocks, with gradients of their own.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/training/rows.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a code reads of n positions. A Markov code reads no hidden states: they may be empty.
template <std::floating_point Real>
struct code_inputs {
    matrix_view<Real> embeddings{};  ///< [n, r]
    matrix_view<Real> hidden{};      ///< [n, d]
};

/// Where the gradients of that are added.
template <std::floating_point Real>
struct code_input_gradients {
    matrix_span<Real> embeddings{};  ///< [n, r]
    matrix_span<Real> hidden{};      ///< [n, d]; empty for a Markov code
};

/// z = e. Without parameters besides W1 and W2, which are outside; there to be interchangeable with the other two.
template <std::floating_point Real>
class markov_code {
public:
    using value_type = Real;
    struct gradients {};

    explicit markov_code(std::size_t rank) noexcept : rank_(rank) {}

    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
    /// 0: does not read h.
    [[nodiscard]] std::size_t hidden_size() const noexcept { return 0; }
    [[nodiscard]] std::size_t tape_size(std::size_t /*positions*/) const noexcept { return 0; }

    /// O(n r).
    void forward(code_inputs<Real> const& in, matrix_span<Real> codes, std::span<Real> /*tape*/) const noexcept {
        SURELEAP_EXPECTS(codes.cols == rank_ && in.embeddings.cols == rank_ && codes.rows == in.embeddings.rows);
        for (std::size_t k = 0; k < codes.rows; ++k) std::ranges::copy(in.embeddings.row(k), codes.row(k).begin());
    }

    /// O(n r).
    void backward(code_inputs<Real> const&, matrix_view<Real> /*codes*/, matrix_view<Real> d_codes,
                  std::span<Real> /*tape*/, gradients const&, code_input_gradients<Real> const& d_in) const noexcept {
        SURELEAP_EXPECTS(d_codes.cols == rank_ && d_in.embeddings.rows == d_codes.rows);
        for (std::size_t k = 0; k < d_codes.rows; ++k) {
            axpy(Real(1), d_codes.row(k), d_in.embeddings.row(k));
        }
    }

private:
    std::size_t rank_;
};

SURELEAP_END_NAMESPACE
