// SPDX-License-Identifier: MIT
//
// Confidences without a learned head, and confidences put through a calibration.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/sampling/distribution.hpp>

SURELEAP_BEGIN_NAMESPACE

/// No confidence: every position counts as certain. For fixed_schedule.
struct no_confidence {};

/// c_k = max_v q_k(v), the draft's top-1 probability (for one-hot drafts at temperature 0: that of the softmax behind
/// them). A function of the row, which is known before x_k is drawn; the probability of the token that was drawn,
/// q_k(x_k), is not, and would bias a schedule.
struct top1_confidence {
    template <class Real>
    [[nodiscard]] double operator()(distribution<Real> const& q, std::size_t) const noexcept {
        return q.peak();
    }
    /// From base logits alone: softmax(U_k) has seen no drafted token.
    template <class Real>
    [[nodiscard]] double at_anchor(distribution<Real> const& base, std::size_t k) const noexcept {
        return (*this)(base, k);
    }
};

/// A confidence followed by a calibrator, live and at the anchor alike.
template <class Confidence, calibrator Calibrator>
class calibrated {
public:
    calibrated(Confidence confidence, Calibrator calibration)
        : confidence_(std::move(confidence)), calibration_(std::move(calibration)) {}

    template <class Real>
        requires pre_token_confidence<Confidence, Real>
    [[nodiscard]] double operator()(std::span<Real const> hidden, token_id previous, std::size_t k) const noexcept {
        return calibration_(k, static_cast<double>(confidence_(hidden, previous, k)));
    }
    template <class Real>
        requires confidence_estimate<Confidence, Real>
    [[nodiscard]] double operator()(distribution<Real> const& q, std::size_t k) const noexcept {
        return calibration_(k, static_cast<double>(confidence_(q, k)));
    }
    template <class Real>
        requires requires(Confidence const& c, std::span<Real const> h) { c.at_anchor(h, token_id{}, std::size_t{}); }
    [[nodiscard]] double at_anchor(std::span<Real const> hidden, token_id anchor, std::size_t k) const noexcept {
        return calibration_(k, static_cast<double>(confidence_.at_anchor(hidden, anchor, k)));
    }
    template <class Real>
        requires requires(Confidence const& c, distribution<Real> const& q) { c.at_anchor(q, std::size_t{}); }
    [[nodiscard]] double at_anchor(distribution<Real> const& base, std::size_t k) const noexcept {
        return calibration_(k, static_cast<double>(confidence_.at_anchor(base, k)));
    }

    // What the parts need, for the set-up checks of a drafter.
    [[nodiscard]] std::size_t block_size() const noexcept
        requires requires(Calibrator const& c) { c.block_size(); }
    {
        return calibration_.block_size();
    }
    [[nodiscard]] std::size_t hidden_size() const noexcept
        requires requires(Confidence const& c) { c.hidden_size(); }
    {
        return confidence_.hidden_size();
    }
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept
        requires requires(Confidence const& c) { c.previous_vocabulary(); }
    {
        return confidence_.previous_vocabulary();
    }

private:
    Confidence confidence_;
    Calibrator calibration_;
};

SURELEAP_END_NAMESPACE
