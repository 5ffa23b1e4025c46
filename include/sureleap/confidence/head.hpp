// SPDX-License-Identifier: MIT
//
// The confidence head (paper, eq. 7): the predicted probability that position k is accepted, given that all
// positions before it were,
//     c_k = sigmoid(w . [h_k ; e_k] + b),  e_k = W1[x_{k-1}]      or, without Markov embedding,
//     c_k = sigmoid(w . h_k + b)
// and its training target (eq. 8), the acceptance probability of token rejection, sum_v min(p_k(v), q_k(v)).
//
// c_k is computed before x_k is drawn: no signature of the class contains x_k. So a schedule may decide on position k
// by c_k and stay lossless. at_anchor() goes further and reads no drafted token at all, so a planner may look at a
// whole block of it at once.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Weight: storage, float, double, bf16 or half. Real: type of h, of the arithmetic and of c. Backend: linear.hpp.
/// The weights are views and must outlive the head. Immutable after construction, concurrently callable.
///
/// A c outside [0, 1] cannot come out; a NaN in h comes out as NaN, which the round turns into a status.
template <class Weight, class Real = compute_t<Weight>, class Backend = scalar_backend>
class confidence_head {
    static_assert(is_storage_v<Weight>,
                  "confidence_head: Weight must be float, double, sureleap::bf16 or sureleap::half");
    static_assert(std::floating_point<Real>, "confidence_head: Real must be float or double");

public:
    using value_type = Real;
    using weight_type = Weight;
    using backend_type = Backend;

    /// Without Markov embedding: weight [1, d].
    confidence_head(matrix_view<Weight> weight, std::type_identity_t<Real> bias) : bias_(bias) {
        check(weight);
        hidden_weights_ = weight.row(0);
    }

    /// With Markov embedding: weight [1, d + r] in the order [h ; e], w1 [V_target, r] of the sequential head. e is
    /// the raw row of w1 for every kind of head, gated and RNN too (released code). Reads w1 once (for the check
    /// and for the mean that at_anchor needs).
    confidence_head(matrix_view<Weight> weight, std::type_identity_t<Real> bias, matrix_view<Weight> w1)
        : w1_(w1), bias_(bias) {
        detail::check_weights<Real>("confidence_head", "w1", w1, w1.rows, w1.cols, "target vocabulary x rank");
        if (weight.cols <= w1.cols) {
            fail_with("confidence_head: weight has ", weight.cols,
                      " columns, expected hidden size + rank, more than the rank ", w1.cols);
        }
        check(weight);
        hidden_weights_ = weight.row(0).first(weight.cols - w1.cols);
        embedding_weights_.resize(w1.cols);
        detail::widen(weight.row(0).last(w1.cols), std::span<Real>(embedding_weights_));
        // w . mean(e) = mean(w . e): one number is all that is left of the mean embedding. Summed in double, since
        // the vocabulary is large.
        double sum = 0.0;
        for (std::size_t v = 0; v < w1.rows; ++v) {
            sum += static_cast<double>(embedding_term(v));
        }
        mean_term_ = static_cast<Real>(sum / static_cast<double>(w1.rows));
    }

    /// d, the size of h_k.
    [[nodiscard]] std::size_t hidden_size() const noexcept { return hidden_weights_.size(); }
    [[nodiscard]] bool with_markov() const noexcept { return !w1_.empty(); }
    /// Rows of w1: what a previous token may be; 0 means any, without Markov embedding.
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept { return w1_.rows; }

    /// The argument of the sigmoid. `previous` is x_{k-1}, the anchor at k = 0 (code); ignored without Markov
    /// embedding. Precondition with Markov embedding: 0 <= previous < previous_vocabulary(). O(d + r).
    [[nodiscard]] Real logit(std::span<Real const> hidden, token_id previous) const noexcept {
        SURELEAP_EXPECTS(!with_markov() || previous >= 0);
        Real const base = hidden_term(hidden);
        return with_markov() ? base + embedding_term(static_cast<std::size_t>(previous)) : base;
    }

    /// c_k (eq. 7). The head is the same at every position; k is there for heads that are not.
    [[nodiscard]] Real operator()(std::span<Real const> hidden, token_id previous, std::size_t /*k*/) const noexcept {
        return sigmoid(logit(hidden, previous));
    }

    /// c_k as far as it is known at the anchor, before anything of the block is drawn. At k = 0 it is c_k. From k = 1
    /// on the mean row of w1 stands for the token that does not exist yet. Only an estimate of c_k, but one that may
    /// feed an unconstrained search for the verify budget: it carries no information about the block's tokens.
    [[nodiscard]] Real at_anchor(std::span<Real const> hidden, token_id anchor, std::size_t k) const noexcept {
        return sigmoid(k == 0 ? logit(hidden, anchor) : hidden_term(hidden) + mean_term_);
    }

private:
    void check(matrix_view<Weight> weight) const {
        detail::check_weights<Real>("confidence_head", "weight", weight, 1, weight.cols,
                                    with_markov() ? "1 x (hidden size + rank)" : "1 x hidden size");
        if (!std::isfinite(bias_)) fail_with("confidence_head: bias is not finite: got ", bias_);
    }

    [[nodiscard]] Real hidden_term(std::span<Real const> hidden) const noexcept {
        SURELEAP_EXPECTS(hidden.size() == hidden_size());
        return Backend::dot(hidden_weights_, hidden) + bias_;
    }
    [[nodiscard]] Real embedding_term(std::size_t token) const noexcept {
        return Backend::dot(w1_.row(token), std::span<Real const>(embedding_weights_));
    }

    std::span<Weight const> hidden_weights_;
    matrix_view<Weight> w1_;
    // Owned, so that a backend meets one stored operand (a row of w1) and not two.
    std::vector<Real> embedding_weights_;
    Real bias_{};
    Real mean_term_{};  // w . mean(e)
};

/// c*_k = 1 - 1/2 ||p - q||_1 = sum_v min(p(v), q(v)) (eq. 8): the probability that token rejection accepts a token
/// drawn from q. In [0, 1]; NaN if a row holds one. Both rows over the same vocabulary, each summing to 1. O(V),
/// summed in double.
template <std::floating_point Real>
[[nodiscard]] inline Real acceptance_label(probability_row<Real> p, probability_row<Real> q) noexcept {
    SURELEAP_EXPECTS(p.values.size() == q.values.size());
    double twice = 0.0;
    for (std::size_t v = 0; v < p.values.size(); ++v) {
        double const a = static_cast<double>(p.values[v]);
        double const b = static_cast<double>(q.values[v]);
        // 2 min(a, b), written so that a NaN on either side survives; exactly 0 where the supports are disjoint,
        // which 1 - 1/2 ||p - q||_1 would only be up to the rounding of the rows.
        twice += a + b - std::abs(a - b);
    }
    double const label = 0.5 * twice;
    return static_cast<Real>(label > 1.0 ? 1.0 : label);  // rounded rows may sum to a little more than 1
}

SURELEAP_END_NAMESPACE
