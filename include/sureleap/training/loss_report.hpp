// SPDX-License-Identifier: MIT
//
// What a training step reports: the losses and the figures the released training code logs. Each is a sum and its
// weight, so that reports of blocks, threads and devices add up exactly. Means would not.
//
// `acceptance` and `tau` predict decoding from training data: c* is the probability that a position is accepted
// given that all before it were, under teacher forcing. They move long before a decoding run would show it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/training/losses.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A sum of weighted values and the sum of their weights.
struct weighted_sum {
    double sum = 0.0;
    double weight = 0.0;

    void add(double value, double w) noexcept {
        sum += w * value;
        weight += w;
    }
    void add(weighted_sum const& other) noexcept {
        sum += other.sum;
        weight += other.weight;
    }
    /// NaN if nothing was added.
    [[nodiscard]] double mean() const noexcept { return sum / weight; }
};

/// Sums over blocks. One per thread, then merged. Adding allocates nothing.
class loss_report {
public:
    loss_report(loss_settings const& settings, std::size_t block_size) : settings_(settings), acceptance_(block_size) {
        check_losses(settings);
        if (block_size == 0) fail_with("loss_report: block size is 0, expected at least 1");
    }

    /// A block's supervised positions, from its first on. At most block_size; none (a dummy block) changes nothing.
    void add(std::span<position_loss const> block) noexcept {
        SURELEAP_EXPECTS(block.size() <= acceptance_.size());
        if (block.empty()) return;
        double expected = 1.0;  // the token that a round emits whatever happens
        double accepted = 1.0;
        double predicted = 1.0;
        for (std::size_t k = 0; k < block.size(); ++k) {
            position_loss const& loss = block[k];
            double const w = position_weight(settings_, k);
            total_.add(total_loss(settings_, loss), w);
            cross_entropy_.add(loss.cross_entropy, w);
            distance_.add(loss.distance, w);
            acceptance_[k].add(loss.acceptance, 1.0);
            accepted *= loss.acceptance;
            expected += accepted;
            if (!loss.has_confidence) continue;
            predicted *= loss.confidence;
            confidence_loss_.add(loss.confidence_loss, w);
            confidence_error_.add(std::abs(loss.confidence - loss.acceptance), w);
            confidence_bias_.add(loss.confidence - loss.acceptance, w);
            survival_bias_.add(predicted - accepted, w);
        }
        tau_.add(expected, 1.0);
    }

    /// Adds another report of the same settings and block size.
    void merge(loss_report const& other) noexcept {
        SURELEAP_EXPECTS(other.block_size() == block_size());
        total_.add(other.total_);
        cross_entropy_.add(other.cross_entropy_);
        distance_.add(other.distance_);
        confidence_loss_.add(other.confidence_loss_);
        confidence_error_.add(other.confidence_error_);
        confidence_bias_.add(other.confidence_bias_);
        survival_bias_.add(other.survival_bias_);
        tau_.add(other.tau_);
        for (std::size_t k = 0; k < acceptance_.size(); ++k) acceptance_[k].add(other.acceptance_[k]);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return acceptance_.size(); }

    /// The loss that is minimised: weighted sum / (sum of weights + loss_epsilon). 0 without a position.
    [[nodiscard]] double loss() const noexcept { return total_.sum / (total_.weight + loss_epsilon); }

    /// Unweighted coefficients, weighted positions.
    [[nodiscard]] weighted_sum const& cross_entropy() const noexcept { return cross_entropy_; }
    [[nodiscard]] weighted_sum const& distance() const noexcept { return distance_; }
    [[nodiscard]] weighted_sum const& confidence_loss() const noexcept { return confidence_loss_; }
    /// c* at position k over the blocks that have it.
    [[nodiscard]] weighted_sum const& acceptance(std::size_t k) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        return acceptance_[k];
    }
    /// 1 + sum_k prod_{i <= k} c*_i over blocks: emitted tokens a round, as far as the text of a block reaches.
    [[nodiscard]] weighted_sum const& tau() const noexcept { return tau_; }
    /// |c - c*|, c - c*, and the difference of their running products: positive means overconfident.
    [[nodiscard]] weighted_sum const& confidence_error() const noexcept { return confidence_error_; }
    [[nodiscard]] weighted_sum const& confidence_bias() const noexcept { return confidence_bias_; }
    [[nodiscard]] weighted_sum const& survival_bias() const noexcept { return survival_bias_; }

private:
    loss_settings settings_;
    weighted_sum total_;
    weighted_sum cross_entropy_;
    weighted_sum distance_;
    weighted_sum confidence_loss_;
    weighted_sum confidence_error_;
    weighted_sum confidence_bias_;
    weighted_sum survival_bias_;
    weighted_sum tau_;
    std::vector<weighted_sum> acceptance_;  // [gamma]
};

SURELEAP_END_NAMESPACE
