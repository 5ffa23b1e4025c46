// SPDX-License-Identifier: MIT
//
// The gated Markov head: the Markov head with an embedding that the hidden state switches on and off per component,
//     e_k = W1[x_{k-1}]     g_k = sigmoid(G [h_k ; e_k] + b)     B_k = W2 (g_k * e_k)
// Not in the paper; source: the released training code (head type "gated"). Still first order: no state between
// positions. head/markov.hpp documents the interface.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/output.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Parameters as in markov_head. `gated_head head{w1, w2, gate, gate_bias};`
template <class Weight, class Real = compute_t<Weight>, class Backend = native_backend,
          class Output = matrix_view<Weight>>
class gated_head : public detail::embedding_and_output<Weight, Real, Backend, Output> {
    using shared = detail::embedding_and_output<Weight, Real, Backend, Output>;

public:
    using shared::embed;
    using shared::output;
    using shared::rank;

    /// w1 [V_target, r]; w2 [V_draft, r]; gate [r, d + r] with its columns in the order [h ; e]; bias [r].
    /// d follows from the columns of gate. Reads every weight once; throws sureleap::error on a wrong shape or a
    /// value that is not finite.
    gated_head(matrix_view<Weight> w1, Output w2, matrix_view<Weight> gate,
               std::type_identity_t<std::span<Weight const>> bias, Backend = Backend{})
        : shared("gated_head", w1, w2), bias_(bias) {
        if (gate.cols <= w1.cols) {
            fail_with("gated_head: gate has ", gate.cols, " columns, expected hidden size + rank, more than the rank ",
                      w1.cols);
        }
        detail::check_weights<Real>("gated_head", "gate", gate, w1.cols, gate.cols, "rank x (hidden size + rank)");
        detail::check_weights<Real>("gated_head", "bias", bias_, w1.cols, "one per row of gate");
        // Two column blocks instead of a concatenated input: the same sum, and h is never copied.
        gate_hidden_ = column_range(gate, 0, gate.cols - w1.cols);
        gate_embedding_ = column_range(gate, gate.cols - w1.cols, w1.cols);
    }

    /// d, the size of h_k.
    [[nodiscard]] std::size_t hidden_size() const noexcept { return gate_hidden_.cols; }
    /// No recurrent state; scratch for e and g.
    [[nodiscard]] std::size_t state_size() const noexcept { return 2 * rank(); }

    void reset(std::span<Real> state) const noexcept { SURELEAP_EXPECTS(state.size() == state_size()); }

    /// logits[v] += B_k[v]. O(r (d + r) + V_draft r).
    void add_bias(std::span<Real> state, std::span<Real const> hidden, token_id previous,
                  std::span<Real> logits) const noexcept {
        output().add(code(state, hidden, previous), logits);
    }
    /// z = g * e, in `state`. O(r (d + r)).
    [[nodiscard]] std::span<Real const> code(std::span<Real> state, std::span<Real const> hidden,
                                             token_id previous) const noexcept {
        SURELEAP_EXPECTS(state.size() == state_size() && hidden.size() == hidden_size());
        auto const embedding = state.first(rank());
        auto const gate = state.last(rank());
        embed(previous, embedding);
        detail::widen(bias_, gate);
        Backend::gemv_add(gate_hidden_, hidden, gate);
        Backend::gemv_add(gate_embedding_, embedding, gate);
        for (std::size_t i = 0; i < gate.size(); ++i) embedding[i] *= sigmoid(gate[i]);
        return embedding;
    }

private:
    matrix_view<Weight> gate_hidden_;
    matrix_view<Weight> gate_embedding_;
    std::span<Weight const> bias_;
};

SURELEAP_END_NAMESPACE
