// SPDX-License-Identifier: MIT
//
// The confidence head as a differentiable function (paper, eq. 7): logit = w . [h ; e] + b, or w . h + b without Markov
// embedding. Inference is confidence/head.hpp; the loss on the logit is confidence_loss (losses.hpp).
//
// Its gradient flows on, into h_k and into the row of W1, as in the released code: only the label c* is a constant.
// Detaching h_k instead would leave the backbone free to forget what tells a good draft from a bad one.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/training/rows.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The parameters are views: an optimizer may change what they point to between two calls. const members may be called
/// concurrently, with gradients of their own.
template <std::floating_point Real>
class confidence_logit {
public:
    using value_type = Real;
    struct gradients {
        std::span<Real> weight{};  ///< [d + r] or [d]
        std::span<Real> bias{};    ///< [1]
    };

    /// weight [1, d + r] in the order [h ; e], bias [1]; rank is r, or 0 without Markov embedding. Throws
    /// sureleap::error on a wrong shape or a value that is not finite.
    confidence_logit(matrix_view<Real> weight, std::type_identity_t<std::span<Real const>> bias, std::size_t rank)
        : bias_(bias) {
        if (weight.cols <= rank) {
            fail_with("confidence_logit: weight has ", weight.cols,
                      " columns, expected hidden size + rank, more than the rank ", rank);
        }
        detail::check_weights<Real>("confidence_logit", "weight", weight, 1, weight.cols, "1 x (hidden size + rank)");
        detail::check_weights<Real>("confidence_logit", "bias", bias_, 1, "1");
        hidden_weights_ = weight.row(0).first(weight.cols - rank);
        embedding_weights_ = weight.row(0).last(rank);
    }

    [[nodiscard]] std::size_t hidden_size() const noexcept { return hidden_weights_.size(); }
    /// r; 0 without Markov embedding, and `embedding` is then empty everywhere.
    [[nodiscard]] std::size_t rank() const noexcept { return embedding_weights_.size(); }

    /// The logit of one position from h_k and e_k = W1[x_{k-1}], the raw row for every kind of head. O(d + r).
    [[nodiscard]] Real operator()(std::span<Real const> hidden, std::span<Real const> embedding) const noexcept {
        return scalar_backend::dot(hidden_weights_, hidden) + scalar_backend::dot(embedding_weights_, embedding) +
               bias_[0];
    }

    /// From the gradient of the logit: adds to the parameters' gradients, to dh and to de. O(d + r).
    void backward(std::span<Real const> hidden, std::span<Real const> embedding, Real d_logit, gradients const& d,
                  std::span<Real> d_hidden, std::span<Real> d_embedding) const noexcept {
        SURELEAP_EXPECTS(d.weight.size() == hidden_size() + rank() && d.bias.size() == 1);
        d.bias[0] += d_logit;
        axpy(d_logit, hidden, d.weight.first(hidden_size()));
        axpy(d_logit, embedding, d.weight.last(rank()));
        axpy(d_logit, hidden_weights_, d_hidden);
        axpy(d_logit, embedding_weights_, d_embedding);
    }

private:
    std::span<Real const> hidden_weights_;
    std::span<Real const> embedding_weights_;
    std::span<Real const> bias_;
};

SURELEAP_END_NAMESPACE
