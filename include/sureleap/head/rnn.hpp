// SPDX-License-Identifier: MIT
//
// The RNN head (paper, eq. 6): a transition bias that depends on all previous tokens of the block through a state,
//     e_k = W1[x_{k-1}]     z_k = [s_{k-1} ; e_k ; h_k]     (g, c, o) = J z_k + b, split in three
//     s_k = sigmoid(g) * s_{k-1} + (1 - sigmoid(g)) * tanh(c)          B_k = W2 tanh(o)          s_0 = 0
// The output at k reads z_k, that is s_{k-1}; s_k is first seen at k+1, and the last state of a block is never
// used. The bias b is from the released code; the paper's equation has none. head/markov.hpp documents the
// interface.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/output.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Parameters as in markov_head. `rnn_head head{w1, w2, joint, joint_bias};`
template <class Weight, class Real = compute_t<Weight>, class Backend = native_backend,
          class Output = matrix_view<Weight>>
class rnn_head : public detail::embedding_and_output<Weight, Real, Backend, Output> {
    using shared = detail::embedding_and_output<Weight, Real, Backend, Output>;

public:
    using shared::embed;
    using shared::output;
    using shared::rank;

    /// w1 [V_target, r]; w2 [V_draft, r]; joint [3r, 2r + d], rows [gate ; candidate ; output], columns [s ; e ;
    /// h]; bias [3r] in the order of the rows. d follows from the columns of joint. Reads every weight once; throws
    /// sureleap::error on a wrong shape or a value that is not finite.
    rnn_head(matrix_view<Weight> w1, Output w2, matrix_view<Weight> joint,
             std::type_identity_t<std::span<Weight const>> bias, Backend = Backend{})
        : shared("rnn_head", w1, w2), bias_(bias) {
        std::size_t const r = w1.cols;
        if (joint.cols <= 2 * r) {
            fail_with("rnn_head: joint has ", joint.cols,
                      " columns, expected 2 * rank + hidden size, more than twice the rank ", r);
        }
        detail::check_weights<Real>("rnn_head", "joint", joint, 3 * r, joint.cols, "3 rank x (2 rank + hidden size)");
        detail::check_weights<Real>("rnn_head", "bias", bias_, 3 * r, "one per row of joint");
        joint_recurrent_ = column_range(joint, 0, 2 * r);
        joint_hidden_ = column_range(joint, 2 * r, joint.cols - 2 * r);
    }

    /// d, the size of h_k.
    [[nodiscard]] std::size_t hidden_size() const noexcept { return joint_hidden_.cols; }
    /// [s ; e ; (g, c, o)]: the first r reals are s_k after k calls, the rest is scratch.
    [[nodiscard]] std::size_t state_size() const noexcept { return 5 * rank(); }

    /// s_0 = 0.
    void reset(std::span<Real> state) const noexcept {
        SURELEAP_EXPECTS(state.size() == state_size());
        std::fill_n(state.begin(), rank(), Real(0));
    }

    /// logits[v] += B_k[v], and s_{k-1} becomes s_k. O(r (r + d) + V_draft r).
    void add_bias(std::span<Real> state, std::span<Real const> hidden, token_id previous,
                  std::span<Real> logits) const noexcept {
        output().add(code(state, hidden, previous), logits);
    }
    /// z = tanh(o), in `state`; s_{k-1} becomes s_k. O(r (r + d)).
    [[nodiscard]] std::span<Real const> code(std::span<Real> state, std::span<Real const> hidden,
                                             token_id previous) const noexcept {
        SURELEAP_EXPECTS(state.size() == state_size() && hidden.size() == hidden_size());
        std::size_t const r = rank();
        auto const s = state.first(r);
        auto const parts = state.last(3 * r);
        embed(previous, state.subspan(r, r));
        detail::widen(bias_, parts);
        Backend::gemv_add(joint_recurrent_, state.first(2 * r), parts);  // s and e lie side by side for this
        Backend::gemv_add(joint_hidden_, hidden, parts);
        auto const o = parts.last(r);
        for (Real& x : o) x = std::tanh(x);
        for (std::size_t i = 0; i < r; ++i) {
            Real const keep = sigmoid(parts[i]);
            s[i] = keep * s[i] + (Real(1) - keep) * std::tanh(parts[r + i]);
        }
        return o;
    }

private:
    matrix_view<Weight> joint_recurrent_;
    matrix_view<Weight> joint_hidden_;
    std::span<Weight const> bias_;
};

SURELEAP_END_NAMESPACE
