// SPDX-License-Identifier: MIT
//
// A confidence for drafters that have no head, learned while serving. It stands where top1_confidence stands:
//
//     learned_confidence confidence{7, {.max_requests = 64}};
//     autoregressive drafter{model, confidence, options};   // or parallel, or semi_autoregressive with any head
//
// For each position it is a logistic regression on what is known before the token is drawn: the logit of the top-1
// probability of q_k, the log ratio of the two likeliest tokens, the collision entropy of q_k (by Shannon's Agrawal et
// al., "AdaEDL", 2024, bound acceptance; this one takes one pass), and how well the request was drafted of late. A
// schedule may decide by it under any rule.
//
// The drafter notes these terms while it draws, and teaches them in commit. Labels are censored: of a round that
// verified l tokens and accepted a < l, the first a are labelled 1, the next 0, and nothing is known behind it. What is
// learned acts from the next round on. So the same rounds teach the same, with any threads.
//
// It is fitted and guarded as calibrations are (online_maps.hpp): by recursive iteratively reweighted least squares
// (online_fit.hpp; kin to the online Newton step of Hazan, Agarwal and Kale, 2007), with an alarm when predictions
// drift, upon which it learns anew. It begins as top-1 under `maps.prior`. Without one top-1 is capped by the
// acceptance rate until the maps have seen enough to be trusted. No calibration has to be lent beside it. One that is
// lent sees what it says, and may learn by tenant.
//
// token_confidence also knows the token: how much less likely x_k was than the likeliest. It says more where tokens are
// sampled. Whether x_k is verified then depends on x_k, which biases every rule whose output depends on the draft: they
// do not compile with it. target_match and keyed_coupling do.
//
// A token costs two passes over its row of q beside those of top-1; learning is O(1) for each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/serving/drift.hpp>
#include <sureleap/serving/online_fit.hpp>
#include <sureleap/serving/online_maps.hpp>
#include <sureleap/serving/recent_acceptance.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What learned_confidence and token_confidence are told at set-up.
struct learned_confidence_settings {
    online_settings maps{};  ///< all terms are fitted, whatever `terms` says
    /// Slots whose requests have a history. Others are predicted without one.
    std::size_t max_requests = 0;
};

/// What learned_confidence and token_confidence share. All memory is taken at construction. Asking is const,
/// concurrently callable and constant during a round; learning is neither.
template <bool ReadsToken>
class basic_learned_confidence {
public:
    using terms_type = logit_terms;
    static constexpr bool reads_token = ReadsToken;

    /// block_size: at least the drafter's.
    explicit basic_learned_confidence(std::size_t block_size, learned_confidence_settings const& settings = {})
        : maps_(block_size, with_all_terms(settings.maps)), recent_(settings.max_requests), drifts_(2 * block_size) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return maps_.block_size(); }

    // ---- for drafters ------------------------------------------------------------------------------------------

    /// What a position of the request is predicted from; q is a law. O(V).
    template <class Real>
    [[nodiscard]] logit_terms terms(request_view const& request, distribution<Real> const& q) const noexcept
        requires(!ReadsToken)
    {
        return terms_of(request, q.profile());
    }
    template <class Real>
    [[nodiscard]] logit_terms terms(request_view const& request, distribution<Real> const& q, token_id x) const noexcept
        requires ReadsToken
    {
        law_profile const of = q.profile();
        logit_terms known = terms_of(request, of);
        // Of a greedy law the token is the likeliest, and there is no surprise.
        known.surprise = q.is_one_hot() ? 0.0 : ratio(of.peak, q.probability(x));
        return known;
    }
    /// c_k. O(1).
    [[nodiscard]] double operator()(logit_terms const& known, std::size_t k) const noexcept { return maps_(k, known); }

    /// Position k of the request was verified and reached, and accepted or not. O(1).
    void observe(request_view const& request, std::size_t k, logit_terms const& known, bool accepted) noexcept {
        SURELEAP_EXPECTS(k < block_size());
        maps_.observe(k, known, accepted);
        recent_.add(request, accepted);
    }
    /// A round of so many requests is over: from now on it knows what the round taught. O(gamma).
    void close_round(std::size_t requests) noexcept {
        auto const found = maps_.close_round(requests);
        drift_count_ = found.size();
        std::copy(found.begin(), found.end(), drifts_.begin());
    }

    // ---- what was learned --------------------------------------------------------------------------------------

    /// By position; what save_evidence keeps.
    [[nodiscard]] online_maps const& maps() const noexcept { return maps_; }
    /// Drifts that the last round brought to light, valid until the next.
    [[nodiscard]] std::span<drift_report const> drifts() const noexcept { return {drifts_.data(), drift_count_}; }
    /// Goes on from evidence that was saved.
    void restore(std::span<logit_evidence const> evidence) { maps_.restore(evidence); }

private:
    [[nodiscard]] static online_settings with_all_terms(online_settings settings) {
        settings.terms = online_terms::all;
        return settings;
    }
    [[nodiscard]] logit_terms terms_of(request_view const& request, law_profile const& q) const noexcept {
        // Rounding may bring the only token's share above 1.
        logit_terms known = logit_terms::of_confidence(std::min(q.peak, 1.0));
        known.history = recent_.history(request, maps_.mean_acceptance());
        known.entropy = q.entropy;
        known.margin = ratio(q.peak, q.runner_up);
        return known;
    }
    /// Logarithm of the quotient, within what a confidence's logit may be.
    [[nodiscard]] static double ratio(double a, double b) noexcept {
        return std::clamp(std::log(a) - std::log(b), 0.0, logit_terms::certain_logit);
    }

    online_maps maps_;
    recent_acceptance recent_;
    std::vector<drift_report> drifts_;
    std::size_t drift_count_ = 0;
};

/// Decides by what is known before the token is drawn: for every rule and every schedule. Models learning_confidence.
using learned_confidence = basic_learned_confidence<false>;
/// Knows the token as well: for rules that are exact for any draft (target_match, keyed_coupling).
using token_confidence = basic_learned_confidence<true>;

SURELEAP_END_NAMESPACE
