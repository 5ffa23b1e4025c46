// SPDX-License-Identifier: MIT
//
// Confidences for drafters without a learned confidence head.
#pragma once

#include <cstddef>

#include <sureleap/core/config.hpp>
#include <sureleap/sampling/distribution.hpp>

SURELEAP_BEGIN_NAMESPACE

/// No confidence: every position counts as certain. For fixed_schedule.
struct no_confidence {};

/// c_k = max_v q_k(v), the draft's top-1 probability (for one-hot drafts at temperature 0: that of the softmax behind
/// them). A function of the row, which is known before x_k is drawn; the probability of the token that was drawn,
/// q_k(x_k), is not, and would bias a schedule. An estimate, often far from the rate of acceptance: where a cost
/// decides, lend the rounds a calibration, or one that learns (serving/online_calibration.hpp).
struct top1_confidence {
    /// q: a distribution, or what ranks know together of one (ranks/sharded_drafter.hpp).
    template <class Law>
        requires requires(Law const& q) { q.peak(); }
    [[nodiscard]] double operator()(Law const& q, std::size_t) const noexcept {
        return q.peak();
    }
    /// From base logits alone: softmax(U_k) has seen no drafted token.
    template <class Real>
    [[nodiscard]] double at_anchor(distribution<Real> const& base, std::size_t k) const noexcept {
        return (*this)(base, k);
    }
};

SURELEAP_END_NAMESPACE
