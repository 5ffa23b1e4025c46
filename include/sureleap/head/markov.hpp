// SPDX-License-Identifier: MIT
//
// The Markov head (paper, eq. 5): a transition bias that depends on the previous token only, factorised to rank r,
//     e_k = W1[x_{k-1}]          B_k = W2 e_k          q_k = softmax(U_k + B_k)   (eq. 4)
// It is applied at every position of the block: at k = 1 the previous token x_0 is the anchor.
//
// The interface that all heads share (concept sequential_head) is documented here once:
//   state     what the caller keeps per request for one block, state_size() reals; its content is the head's own
//   reset     before the first position of every block; s_0 = 0 also after a block that was fully accepted
//   add_bias  logits[v] += B_k[v] and the state moves from k-1 to k; call it once per position, in order
//   embed     e = W1[previous] as reals, the input of a confidence head with Markov embedding
// The heads here are factored (concept factored_head): B_k = W2 z_k. The code z_k [r] costs next to nothing, the
// product nearly everything. code() makes z_k and moves the state. output() multiplies: a batch of requests at once, or
// the rows of a shortlist alone. add_bias is the two together. A head is immutable after construction: const members
// may be called concurrently with different states.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/output.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Weight: storage of the weights, float, double, bf16 or half. Real: type of hidden states, logits and arithmetic.
/// Backend: who multiplies (linear.hpp). The weights are views: what they point to must outlive the head.
///
/// Output: what w2 is, a matrix_view or an int8_view (int8.hpp).
///
/// `markov_head head{w1, w2};` deduces Weight and Output; `markov_head head{w1, w2, eigen_backend{}};` chooses the
/// backend too.
template <class Weight, class Real = compute_t<Weight>, class Backend = native_backend,
          class Output = matrix_view<Weight>>
class markov_head : public detail::embedding_and_output<Weight, Real, Backend, Output> {
    using shared = detail::embedding_and_output<Weight, Real, Backend, Output>;

public:
    using shared::embed;
    using shared::output;
    using shared::rank;

    /// w1 [V_target, r], a row per previous token; w2 [V_draft, r], a row per drafted token (the layout of both
    /// files and embedding tables; the paper's W2 is its transpose). The two vocabularies differ if the draft has
    /// its own. Reads every weight once; throws sureleap::error naming tensor, row, column and value if one is not
    /// finite.
    markov_head(matrix_view<Weight> w1, Output w2, Backend = Backend{}) : shared("markov_head", w1, w2) {}

    /// 0: this head does not read h_k.
    [[nodiscard]] std::size_t hidden_size() const noexcept { return 0; }
    /// No recurrent state; r reals of scratch for the converted embedding.
    [[nodiscard]] std::size_t state_size() const noexcept { return rank(); }

    void reset(std::span<Real> state) const noexcept { SURELEAP_EXPECTS(state.size() == state_size()); }

    /// logits[v] += (W2 W1[previous])[v]. O(V_draft r); reads w2 once. `hidden` is ignored and may be empty.
    void add_bias(std::span<Real> state, std::span<Real const> hidden, token_id previous,
                  std::span<Real> logits) const noexcept {
        output().add(code(state, hidden, previous), logits);
    }
    /// z = W1[previous], in `state`.
    [[nodiscard]] std::span<Real const> code(std::span<Real> state, std::span<Real const> /*hidden*/,
                                             token_id previous) const noexcept {
        SURELEAP_EXPECTS(state.size() == state_size());
        embed(previous, state);
        return state;
    }
};

SURELEAP_END_NAMESPACE
