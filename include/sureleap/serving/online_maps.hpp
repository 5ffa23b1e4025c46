// SPDX-License-Identifier: MIT
//
// Sequential scaling that learns from what was accepted: one online_map per position, what it may be trusted with, and
// what is used instead while it may not.
//
// What is fitted, and why trimming does not bias it. Position k is learned from the rounds that verified and reached
// it: k < l, and x_1..x_{k-1} accepted (in code: accepted >= k). The label is whether x_k was accepted too. Both
// conditions are decided before x_k is: a lossless schedule decides k < l by what was known before x_k was drawn, and
// the prefix is what x_k is judged after. Selecting by them selects no outcome, so
//
//     P(x_k accepted | c_k, k < l, prefix accepted) = c_k   for a true confidence,
//
// under any schedule, and the product of these conditionals is the survival that schedules need. Two readings of the
// same rounds are biased (exactly so, in tests/property/online_calibration.test.cpp):
//
//   - labels of all gamma positions, unverified ones as rejected: survival beyond l is unobserved, not 0;
//   - all `known` labels (calibration.hpp): after a rejection later positions are 0 for certain, but they become known
//     BECAUSE of it. Beyond l only rounds with a rejection are left.
//
// Rejected: fitting survivals a_k to labels of all verified rounds, as the offline fits do. It is free of this bias.
// But its residual at k contains the errors of positions 1..k-1, so after a shift every map corrects for the ones
// before it. Unlike conditionals it can correct for confidences that depend on each other beyond being reached. If that
// matters for a head, the ECE of survivals shows it (serving docs), and an offline fit as the prior corrects it.
//
// If acceptance is not a function of c_k alone, a fit is right only for the mix of rounds it saw. Here these are the
// rounds that schedules verify, which is the mix their decisions need.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/serving/drift.hpp>
#include <sureleap/serving/online_fit.hpp>

SURELEAP_BEGIN_NAMESPACE

struct online_settings {
    online_terms terms = online_terms::platt;
    /// Where maps start and what they return to without evidence: an offline fit, one entry per position. Empty: the
    /// identity, which is not trusted before it was confirmed.
    std::vector<logit_scaling> prior{};
    double prior_weight = 32.0;  ///< observations that the prior counts as; >= 1
    /// Observations fade by this many rounds of one request: 32,768 are 512 rounds of 64 requests. >= 1.
    double memory = 32768.0;
    /// A map acts on its own from so many observations on; before, at the start and after a drift, it is capped by the
    /// acceptance rate. At the latest after 8 times as many rounds of one request: a cap may be what keeps a position
    /// from being verified, and what is never verified is never learned.
    double trusted_observations = 64.0;
    /// Over-confidence in points of probability beyond chance (drift_monitor::excess) from which a map is capped.
    double tolerated_excess = 0.05;
    /// The acceptance rate that a first position nobody has observed is expected to have; in (0, 1). Counts as 8
    /// observations; later positions are expected to be like the one before.
    double assumed_acceptance = 0.8;
    drift_settings drift{};
};

/// Maps of one block. Models calibrator, and calls are constant between two close_round(). All memory is taken at
/// construction; nothing here allocates or throws after it. Not synchronised: observe from one thread, between rounds.
class online_maps {
public:
    explicit online_maps(std::size_t block_size, online_settings const& settings = {})
        : terms_(settings.terms),
          prior_weight_(settings.prior_weight),
          memory_(settings.memory),
          trusted_observations_(settings.trusted_observations),
          tolerated_excess_(settings.tolerated_excess),
          assumed_acceptance_(settings.assumed_acceptance),
          positions_(block_size),
          drift_(block_size, settings.drift) {
        auto const expect = [](char const* what, double value, double least) {
            if (!(value >= least && std::isfinite(value))) {
                fail_with("online_settings: ", what, " is ", value, ", expected a finite number of at least ", least);
            }
        };
        expect("prior_weight", prior_weight_, 1.0);
        expect("memory", memory_, 1.0);
        expect("trusted_observations", trusted_observations_, 0.0);
        expect("tolerated_excess", tolerated_excess_, 0.0);
        if (!(assumed_acceptance_ > 0.0 && assumed_acceptance_ < 1.0)) {
            fail_with("online_settings: assumed_acceptance is ", assumed_acceptance_, ", expected a number in (0, 1)");
        }
        if (!settings.prior.empty()) {
            if (settings.prior.size() != block_size) {
                fail_with("online_settings: prior has ", settings.prior.size(),
                          " positions, expected block_size (gamma) = ", block_size);
            }
            detail::check_scalings("online_settings: prior", settings.prior);
            has_prior_ = prior_is_trusted_ = true;
        }
        for (std::size_t k = 0; k < settings.prior.size(); ++k) {
            // Where maps end in any case: from further away, differences between a fit and its prior could overflow.
            positions_[k].prior = {
                std::clamp(1.0 / settings.prior[k].temperature, logit_evidence::lowest_slope,
                           logit_evidence::highest_slope),
                std::clamp(settings.prior[k].offset, -logit_evidence::largest_offset, logit_evidence::largest_offset),
                0.0};
        }
        refit(nullptr);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return positions_.size(); }

    /// The calibrated conditional confidence at position k < block_size(). Increasing in c, up to its limits: 0 and 1
    /// count as odds of e^-12 and e^12, and a cap makes what is above it equal. NaN stays NaN.
    [[nodiscard]] double operator()(std::size_t k, double c) const noexcept {
        return (*this)(k, logit_terms::of_confidence(c));
    }
    [[nodiscard]] double operator()(std::size_t k, logit_terms const& x) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        position const& at = positions_[k];
        return std::min(at.map(x), at.cap);  // in this order: a NaN stays one
    }

    /// Position k was verified and reached, and x_k accepted or not. x is what its confidence was made of.
    void observe(std::size_t k, logit_terms const& x, bool accepted) {
        detail::expect_position("online_maps", k, block_size());
        position& at = positions_[k];
        if (is_established(at) && at.step < watched_step) drift_.observe(k, at.own.argument(x), accepted);
        at.evidence.add(x, accepted, at.map);
    }

    /// What a round says: raw confidences of a block of which l tokens were verified and a <= l accepted.
    void observe_round(std::span<double const> raw, std::size_t verified, std::size_t accepted) {
        SURELEAP_EXPECTS(accepted <= verified && verified <= raw.size());
        detail::expect_block("online_maps", verified, block_size());
        for (std::size_t k = 0; k < verified && k <= accepted; ++k) {
            observe(k, logit_terms::of_confidence(raw[k]), k < accepted);
        }
    }

    /// Ends a round of so many requests: only now maps change. Returns the drifts that came to light, valid until the
    /// next call; they empty the evidence, and maps start anew. O(gamma).
    ///
    /// With a `centre`, these are maps of a part of its traffic: they shrink towards its maps, which count as `weight`
    /// >= 1 observations, and share its caps while they have too few of their own.
    std::span<drift_report const> close_round(std::size_t requests, online_maps const* centre = nullptr,
                                              double weight = 1.0) noexcept {
        double const factor = std::exp(-static_cast<double>(requests) / memory_);
        for (position& at : positions_) at.evidence.decay(factor);
        auto const found = drift_.close_round();
        clock_ += static_cast<double>(requests);
        if (!found.empty()) {
            for (position& at : positions_) at.evidence = {};
            drift_.restart();
            prior_is_trusted_ = false;
            clock_ = 0.0;
        }
        refit(centre, weight);
        // Measurements that were taken far from where the map is now were Newton's steps from there: they lead on, and
        // fade.
        for (position& at : positions_) at.evidence.fade(1.0 / (1.0 + at.step * at.step));
        return found;
    }
    /// Makes the maps anew, after their centre moved.
    void refit(online_maps const* centre, double weight = 1.0) noexcept {
        double before = assumed_acceptance_;
        double observations = 0.0;
        double accepted = 0.0;
        for (position const& at : positions_) {
            observations += at.evidence.observations();
            accepted += at.evidence.accepted();
        }
        mean_acceptance_ = rate(accepted, observations, centre ? centre->mean_acceptance_ : before);
        online_map learned{0.0, 0.0, 0.0};  // at the position before, beyond what it started from
        bool trusted = prior_is_trusted_ || clock_ >= patience * trusted_observations_;
        for (std::size_t k = 0; k < positions_.size(); ++k) {
            position& at = positions_[k];
            online_map const start = centre ? centre->positions_[k].map : at.prior;
            at.map = at.evidence.fit(start + learned, centre ? weight : prior_weight_, terms_);
            // What is watched is what was learned: a map that a prior or a centre holds back is wrong, but has not
            // drifted.
            online_map const own = at.evidence.fit(start + learned, watched_weight, terms_);
            logit_terms const typical = at.evidence.mean();
            at.step = std::fabs((own - at.own).argument(typical));
            at.own = own;
            // Not held up by its prior; to be held up by the whole is what a part shrinks to it for.
            bool const free = centre != nullptr || (at.map - own).argument(typical) < trusted_step;
            bool const settled = is_established(at) && at.step < trusted_step && free;
            learned = at.map - start;
            at.rate =
                rate(at.evidence.accepted(), at.evidence.observations(), centre ? centre->positions_[k].rate : before);
            before = at.rate;
            trusted = (trusted || settled) && drift_.excess(k) <= tolerated_excess_;
            bool const leans = centre != nullptr && !is_established(at);
            at.cap = leans ? centre->positions_[k].cap : trusted ? 1.0 : cautious(at);
        }
    }
    /// As constructed.
    void forget() noexcept {
        for (position& at : positions_) at.evidence = {};
        drift_.clear();
        prior_is_trusted_ = has_prior_;
        clock_ = 0.0;
        refit(nullptr);
    }

    // ---- what was learned --------------------------------------------------------------------------------------

    [[nodiscard]] online_map const& map(std::size_t k) const noexcept { return positions_[k].map; }
    /// It acts without a cap.
    [[nodiscard]] bool is_trusted(std::size_t k) const noexcept { return positions_[k].cap == 1.0; }
    /// What confidences at k are capped by: 1, or the lower end of the acceptance rate.
    [[nodiscard]] double cap(std::size_t k) const noexcept { return positions_[k].cap; }
    /// Acceptance of x_k where it was reached, decayed; with few observations that of the position before.
    [[nodiscard]] double acceptance(std::size_t k) const noexcept { return positions_[k].rate; }
    /// The same of all positions together.
    [[nodiscard]] double mean_acceptance() const noexcept { return mean_acceptance_; }
    [[nodiscard]] double observations(std::size_t k) const noexcept { return positions_[k].evidence.observations(); }
    [[nodiscard]] drift_monitor const& drift() const noexcept { return drift_; }

    /// What it takes to go on after a restart, with the settings of before.
    [[nodiscard]] logit_evidence const& evidence(std::size_t k) const noexcept { return positions_[k].evidence; }
    void restore(std::span<logit_evidence const> evidence) {
        if (evidence.size() != block_size()) {
            fail_with("online_maps: restored evidence has ", evidence.size(),
                      " positions, expected block_size (gamma) = ", block_size());
        }
        for (std::size_t k = 0; k < evidence.size(); ++k) positions_[k].evidence = evidence[k];
        drift_.restart();
        refit(nullptr);
        refit(nullptr);  // the maps have arrived where they are
    }

private:
    struct position {
        online_map prior{};
        logit_evidence evidence{};
        online_map map{};
        online_map own{};
        double step = 0.0;  // of own in the last round, in logits
        double rate = 0.0;
        double cap = 1.0;
    };
    static constexpr double patience = 8.0;        // trust comes after so many times trusted_observations_ by the clock
    static constexpr double watched_weight = 4.0;  // of the prior in a map that is watched for drift
    // A map that moves by less in a round, in logits, is one to go by; and one that has arrived, so that a drift is
    // news.
    static constexpr double trusted_step = 0.25;
    static constexpr double watched_step = 0.1;
    // Pseudo-observations of a rate nobody has observed.
    static constexpr double rate_weight = 8.0;

    [[nodiscard]] bool is_established(position const& at) const noexcept {
        return at.evidence.observations() >= trusted_observations_;
    }
    [[nodiscard]] static double rate(double accepted, double observations, double expected) noexcept {
        return (accepted + rate_weight * expected) / (observations + rate_weight);
    }
    // One standard deviation below the rate. Not further: a cap of 0 would never be verified, and so never be mended.
    [[nodiscard]] static double cautious(position const& at) noexcept {
        double const variance = at.rate * (1.0 - at.rate) / (at.evidence.observations() + rate_weight);
        return std::max(at.rate - std::sqrt(variance), 0.25 * at.rate);
    }

    online_terms terms_;
    double prior_weight_;
    double memory_;
    double trusted_observations_;
    double tolerated_excess_;
    double assumed_acceptance_;
    double mean_acceptance_ = 0.0;
    double clock_ = 0.0;  // rounds of one request since the start, or since the last drift
    bool has_prior_ = false;
    bool prior_is_trusted_ = false;  // until a drift says otherwise
    std::vector<position> positions_;
    drift_monitor drift_;
};

SURELEAP_END_NAMESPACE
