// SPDX-License-Identifier: MIT
//
// The losses of one drafted position and their gradients (paper, eq. 9 to 12). With q = softmax(draft logits U + B),
// p = softmax(target logits), both at temperature 1, and y the token the text has at that position:
//     CE   = -log q(y)
//     L1   = ||q - p||_1                          twice the total variation distance; the released code keeps the 2
//     c*   = 1 - 1/2 ||q - p||_1                  the acceptance probability (eq. 8), a label: nothing flows through it
//     BCE  = -c* log c - (1 - c*) log(1 - c)      c = sigmoid(confidence logit)
//     loss = sum over positions of w_k (a CE + b L1 + c BCE) / (sum over positions of w_k + 1e-6)
// The denominator runs over the whole batch, all blocks, devices and accumulated steps. Dividing per block instead
// would give a position near the end of a text more weight than one in its middle.
//
// Gradient of w (a CE + b L1) with respect to draft logit v, with s_v = sign(q_v - p_v), sign(0) = 0:
//     w q_v (a + b (s_v - sum_u s_u q_u)) - w a [v = y]
//
// Both rows are overwritten: logits become probabilities, and the draft's then its gradient. After the loss nobody
// needs logits. A row is as long as the vocabulary, so a separate gradient would double what dominates memory. One
// exponential per logit remains, and it dominates the time. So the softmax is a policy (row_softmax), and a trainer can
// bring a vectorised one.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/head/linear.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Weights of the losses. The defaults are the released DSpark recipe; DFlash is trained with 1, 0, 0.
struct loss_settings {
    double cross_entropy = 0.1;    ///< a, >= 0
    double total_variation = 0.9;  ///< b, >= 0; weighs the whole L1 norm
    double confidence = 1.0;       ///< c, >= 0
    /// w_k = exp(-k / decay), k from 0; <= 0: every w_k is 1. The paper divides by gamma; the released recipe uses 4 at
    /// block size 7.
    double decay = 4.0;
};

/// Throws sureleap::error unless the coefficients are finite and not negative, and decay is a number.
inline void check_losses(loss_settings const& settings) {
    auto const check = [](char const* name, double value) {
        if (!(value >= 0.0 && std::isfinite(value))) {
            fail_with("loss_settings: ", name, " is ", value, ", expected a finite number >= 0");
        }
    };
    check("cross_entropy", settings.cross_entropy);
    check("total_variation", settings.total_variation);
    check("confidence", settings.confidence);
    if (std::isnan(settings.decay)) fail_with("loss_settings: decay is nan, expected a number");
}

/// w_k of position k, from 0.
[[nodiscard]] inline double position_weight(loss_settings const& settings, std::size_t k) noexcept {
    return settings.decay > 0.0 ? std::exp(-static_cast<double>(k) / settings.decay) : 1.0;
}

/// Sum of w_k over the first `positions` positions of a block. Known before anything is computed: add it up over all
/// blocks of the batch, add loss_epsilon, and every position's gradient can be scaled as it is made.
[[nodiscard]] inline double weight_sum(loss_settings const& settings, std::size_t positions) noexcept {
    double sum = 0.0;
    for (std::size_t k = 0; k < positions; ++k) sum += position_weight(settings, k);
    return sum;
}

/// Keeps a batch without a single supervised position from dividing by 0; the value is the released code's.
inline constexpr double loss_epsilon = 1e-6;

/// The unweighted losses of one position, and what a report wants to know of it.
struct position_loss {
    double cross_entropy = 0.0;    ///< -log q(label); +inf where the draft masks the label
    double distance = 0.0;         ///< ||q - p||_1, in [0, 2] up to rounding
    double acceptance = 0.0;       ///< c*, in [0, 1]
    double confidence = 0.0;       ///< c, if there is one
    double confidence_loss = 0.0;  ///< BCE of c against c*; 0 without confidence
    bool has_confidence = false;
};

/// a CE + b L1 + c BCE. A coefficient of 0 leaves its loss out even where that is infinite.
[[nodiscard]] inline double total_loss(loss_settings const& settings, position_loss const& loss) noexcept {
    auto const term = [](double coefficient, double value) { return coefficient > 0.0 ? coefficient * value : 0.0; };
    return term(settings.cross_entropy, loss.cross_entropy) + term(settings.total_variation, loss.distance) +
           term(settings.confidence, loss.confidence_loss);
}

/// The default softmax: probabilities[v] = exp(logits[v]) / sum, returning log(sum). The spans may be the same. A -inf
/// logit gets exactly 0. A NaN, a +inf or no finite logit at all makes every value NaN. O(V). A replacement models the
/// same call.
struct row_softmax {
    template <std::floating_point Real>
    Real operator()(std::span<Real const> logits, std::span<Real> probabilities) const noexcept {
        SURELEAP_EXPECTS(logits.size() == probabilities.size());
        Real top = -std::numeric_limits<Real>::infinity();
        for (Real const l : logits) top = l > top ? l : top;
        double total = 0.0;
        for (std::size_t v = 0; v < logits.size(); ++v) {
            Real const weight = std::exp(logits[v] - top);  // NaN if top is infinite: no law is never hidden
            probabilities[v] = weight;
            total += static_cast<double>(weight);
        }
        auto const scale = static_cast<Real>(1.0 / total);
        for (Real& p : probabilities) p *= scale;
        return top + static_cast<Real>(std::log(total));
    }
};

namespace detail {

struct row_comparison {
    double distance = 0.0;      ///< sum_v |q_v - p_v|
    double signed_draft = 0.0;  ///< sum_v sign(q_v - p_v) q_v
};

/// Sums in fixed lanes, so that the compiler may vectorise them. A float sum has at most 1024 elements, and these
/// partial sums are added in double. So a sum over a vocabulary of 150,000 loses nothing.
template <std::floating_point Real>
[[nodiscard]] inline row_comparison compare_rows(std::span<Real const> q, std::span<Real const> p) noexcept {
    constexpr std::size_t lanes = 16;
    constexpr std::size_t segment = 1024;
    row_comparison out;
    for (std::size_t first = 0; first < q.size(); first += segment) {
        auto const count = std::min(segment, q.size() - first);
        std::array<Real, lanes> distance{};
        std::array<Real, lanes> signed_draft{};
        auto const add = [&](std::size_t v, std::size_t l) {
            Real const difference = q[first + v] - p[first + v];
            distance[l] += std::abs(difference);
            signed_draft[l] += difference > Real(0) ? q[first + v] : difference < Real(0) ? -q[first + v] : Real(0);
        };
        std::size_t const whole = count - count % lanes;
        for (std::size_t v = 0; v < whole; v += lanes) {
            for (std::size_t l = 0; l < lanes; ++l) add(v + l, l);
        }
        for (std::size_t v = whole; v < count; ++v) add(v, v - whole);
        for (std::size_t l = 0; l < lanes; ++l) {
            out.distance += static_cast<double>(distance[l]);
            out.signed_draft += static_cast<double>(signed_draft[l]);
        }
    }
    return out;
}

}  // namespace detail

/// CE, L1 and c* of one position, and the gradient of weight * (a CE + b L1) with respect to the draft logits.
///
/// draft:  in, the logits U_k + B_k, [V], at least one finite; out, the gradient.
/// target: p_k. Get it by softmax(logits, logits), once for all positions that share it.
/// weight: position_weight(k) / (weight sum of the batch + loss_epsilon).
/// label:  the text's next token, 0 <= label < V.
/// Masked tokens (-inf) are legal in either row and get a gradient of exactly 0. O(V), no allocation.
template <std::floating_point Real, class Softmax = row_softmax>
[[nodiscard]] inline position_loss draft_loss(loss_settings const& settings, double weight, std::span<Real> draft,
                                              probability_row<Real> target, token_id label,
                                              Softmax const& softmax = {}) noexcept {
    SURELEAP_EXPECTS(target.values.size() == draft.size());
    SURELEAP_EXPECTS(label >= 0 && static_cast<std::size_t>(label) < draft.size());
    auto const y = static_cast<std::size_t>(label);
    std::span<Real const> const p = target.values;
    std::span<Real> const q = draft;

    Real const logit = draft[y];
    Real const log_normaliser = softmax(std::span<Real const>(draft), q);
    auto const compared = detail::compare_rows(std::span<Real const>(q), p);

    double const a = weight * settings.cross_entropy;
    double const b = weight * settings.total_variation;
    // A comparison with NaN is false: a target without a law would leave no trace in the signs. Its distance has one.
    double const trace = 0.0 * compared.distance;
    auto const base = static_cast<Real>(a - b * compared.signed_draft + trace);
    auto const slope = static_cast<Real>(b);
    for (std::size_t v = 0; v < q.size(); ++v) {
        Real const sign = static_cast<Real>(q[v] > p[v]) - static_cast<Real>(q[v] < p[v]);
        q[v] *= base + slope * sign;
    }
    q[y] -= static_cast<Real>(a);

    position_loss loss;
    loss.cross_entropy = static_cast<double>(log_normaliser) - static_cast<double>(logit);
    loss.distance = compared.distance;
    loss.acceptance = std::clamp(1.0 - 0.5 * compared.distance, 0.0, 1.0);  // NaN stays NaN
    return loss;
}

/// BCE of a confidence logit against the c* in `loss`, which keeps it; returns the gradient of weight * c * BCE with
/// respect to the logit. A call of its own: c* is a constant here, so all the two losses share is that number.
template <std::floating_point Real>
[[nodiscard]] inline Real confidence_loss(loss_settings const& settings, double weight, Real logit,
                                          position_loss& loss) noexcept {
    auto const x = static_cast<double>(logit);
    loss.has_confidence = true;
    loss.confidence = sigmoid(x);
    // log(1 + e^x) - c* x, with the exponential only of what is not positive.
    loss.confidence_loss = std::max(x, 0.0) - x * loss.acceptance + std::log1p(std::exp(-std::abs(x)));
    return static_cast<Real>(weight * settings.confidence * (loss.confidence - loss.acceptance));
}

SURELEAP_END_NAMESPACE
