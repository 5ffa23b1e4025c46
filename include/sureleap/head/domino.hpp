// SPDX-License-Identifier: MIT
//
// The Domino head (arXiv:2605.29707). Its bias depends on all previous tokens of the block through a GRU:
//     e_k = E[x_{k-1}]     (r, u, n) = I e_k, split in three     (r', u', n') = J s_{k-1}, split in three
//     s_k = sigmoid(u + u') * s_{k-1} + (1 - sigmoid(u + u')) * tanh(n + sigmoid(r + r') * n')          s_0 = 0
//     B_k = W2 silu(A [h_k ; s_k]), or 0 at the first positions
// E is the target's embedding. Unlike the RNN head, the output at k reads s_k, which has seen x_{k-1}. At the first
// `uncorrected` positions base logits stay as they are, and the GRU reads the tokens all the same. Source: the paper,
// and the authors' code for released drafters (jianuo-huang/Domino, code/dflash.py), which has no biases and leaves one
// position uncorrected. head/markov.hpp documents the interface, of which this head has no embed(): its embeddings are
// no codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/output.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Parameters as in markov_head. `domino_head head{embedding, input, recurrent, projection, w2, 1};`
template <class Weight, class Real = compute_t<Weight>, class Backend = native_backend,
          class Output = matrix_view<Weight>>
class domino_head {
    static_assert(is_storage_v<Weight>, "a head's Weight must be float, double, sureleap::bf16 or sureleap::half");
    static_assert(std::floating_point<Real>, "a head's Real must be float or double; bf16 and half only store");

public:
    using value_type = Real;
    using weight_type = Weight;
    using backend_type = Backend;
    using output_type = output_layer<Output, Real, Backend>;

    /// embedding [V_target, d]; of the GRU of g units: input I [3g, d] and recurrent J [3g, g], rows [reset ; update ;
    /// candidate]; projection A [r, d + g], columns [h ; s]; w2 [V_draft, r]. In files: prefix_gru.weight_ih_l0,
    /// prefix_gru.weight_hh_l0, embed_proj.0.weight, embed_proj.2.weight, and `uncorrected` is pure_draft_prefix_len.
    /// Reads every weight once; throws sureleap::error on a wrong shape or a value that is not finite.
    domino_head(matrix_view<Weight> embedding, matrix_view<Weight> input, matrix_view<Weight> recurrent,
                matrix_view<Weight> projection, Output w2, std::size_t uncorrected, Backend = Backend{})
        : embedding_(detail::checked_weights<Real>("domino_head", "embedding", embedding, embedding.rows,
                                                   embedding.cols, "target vocabulary x hidden size")),
          input_(detail::checked_weights<Real>("domino_head", "input", input, 3 * recurrent.cols, embedding.cols,
                                               "3 units x hidden size")),
          output_("domino_head", w2, projection.rows),
          uncorrected_(uncorrected) {
        std::size_t const g = recurrent.cols;
        detail::check_weights<Real>("domino_head", "recurrent", recurrent, 3 * g, g, "3 units x units");
        detail::check_weights<Real>("domino_head", "projection", projection, projection.rows, embedding.cols + g,
                                    "rank x (hidden size + units)");
        recurrent_gates_ = {recurrent.data, 2 * g, g, recurrent.stride};
        recurrent_candidate_ = {recurrent.data + 2 * g * recurrent.stride, g, g, recurrent.stride};
        projection_hidden_ = column_range(projection, 0, embedding.cols);
        projection_state_ = column_range(projection, embedding.cols, g);
    }

    [[nodiscard]] std::size_t rank() const noexcept { return output_.rank(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return output_.vocabulary(); }
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept { return embedding_.rows; }
    [[nodiscard]] output_type const& output() const noexcept { return output_; }
    /// d, the size of h_k and of an embedding.
    [[nodiscard]] std::size_t hidden_size() const noexcept { return embedding_.cols; }
    /// [s ; k ; e ; (r, u, n) ; n' ; z]: the first g reals are s_k after k calls, then comes k; the rest is scratch.
    [[nodiscard]] std::size_t state_size() const noexcept { return 5 * units() + 1 + hidden_size() + rank(); }

    /// s_0 = 0.
    void reset(std::span<Real> state) const noexcept {
        SURELEAP_EXPECTS(state.size() == state_size());
        std::fill_n(state.begin(), units() + 1, Real(0));
    }

    /// logits[v] += B_k[v], and s_{k-1} becomes s_k. O((g + r) (d + g) + V_draft r).
    void add_bias(std::span<Real> state, std::span<Real const> hidden, token_id previous,
                  std::span<Real> logits) const noexcept {
        output().add(code(state, hidden, previous), logits);
    }
    /// z = silu(A [h_k ; s_k]), or 0, in `state`; s_{k-1} becomes s_k. O((g + r) (d + g)).
    [[nodiscard]] std::span<Real const> code(std::span<Real> state, std::span<Real const> hidden,
                                             token_id previous) const noexcept {
        SURELEAP_EXPECTS(state.size() == state_size() && hidden.size() == hidden_size() && previous >= 0);
        std::size_t const g = units();
        auto const s = state.first(g);
        auto const e = state.subspan(g + 1, hidden_size());
        auto const gates = state.subspan(g + 1 + hidden_size(), 3 * g);
        auto const candidate = state.subspan(g + 1 + hidden_size() + 3 * g, g);
        auto const z = state.last(rank());
        detail::widen(embedding_.row(static_cast<std::size_t>(previous)), e);
        Backend::gemv(input_, e, gates);
        Backend::gemv_add(recurrent_gates_, s, gates.first(2 * g));
        Backend::gemv(recurrent_candidate_, s, candidate);
        for (std::size_t i = 0; i < g; ++i) {
            Real const keep = sigmoid(gates[g + i]);
            Real const next = std::tanh(gates[2 * g + i] + sigmoid(gates[i]) * candidate[i]);
            s[i] = keep * s[i] + (Real(1) - keep) * next;
        }
        Real& k = state[g];
        k += Real(1);
        if (k <= static_cast<Real>(uncorrected_)) {
            std::fill(z.begin(), z.end(), Real(0));
            return z;
        }
        Backend::gemv(projection_hidden_, hidden, z);
        Backend::gemv_add(projection_state_, s, z);
        for (Real& x : z) x *= sigmoid(x);
        return z;
    }

private:
    [[nodiscard]] std::size_t units() const noexcept { return recurrent_candidate_.rows; }

    matrix_view<Weight> embedding_;
    matrix_view<Weight> input_;
    matrix_view<Weight> recurrent_gates_;
    matrix_view<Weight> recurrent_candidate_;
    matrix_view<Weight> projection_hidden_;
    matrix_view<Weight> projection_state_;
    output_type output_;
    std::size_t uncorrected_;
};

SURELEAP_END_NAMESPACE
