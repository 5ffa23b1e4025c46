// SPDX-License-Identifier: MIT
//
// How good confidences are, per position of the block: expected calibration error (ECE), AUROC, Brier score and the
// reliability bins behind a reliability diagram.
//
// The prediction at position k is the survival a_k = prod_{i<=k} c_i. Its label is 1 if all of x_1..x_k were accepted.
// (These are the paper's names; position k is k - 1 in code.) Survival is measured because schedulers sum survivals. So
// errors of c_k that cancel in the product are not counted. Definitions follow the released evaluation code:
// predictions clamped to [1e-8, 1 - 1e-8], 20 bins for ECE, 1000 for AUROC, means over positions weighted by the number
// of observations.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Resolution of the metrics. The defaults are those of the released evaluation code.
struct metric_settings {
    std::size_t bins = 20;          ///< equal-width bins of ECE and reliability, >= 1
    std::size_t auroc_bins = 1000;  ///< equal-width bins in which scores count as tied, >= 1
    double clamp = 1e-8;            ///< predictions are clamped to [clamp, 1 - clamp]; in [0, 0.5)
};

/// Sums over the predictions that fell into one bin; the ingredients of a reliability diagram.
struct reliability_bin {
    std::uint64_t count = 0;
    double sum_predictions = 0.0;
    double sum_labels = 0.0;

    /// What was predicted and what happened; NaN in an empty bin.
    [[nodiscard]] double mean_prediction() const noexcept { return sum_predictions / static_cast<double>(count); }
    [[nodiscard]] double mean_label() const noexcept { return sum_labels / static_cast<double>(count); }
};

/// The metrics of one position, or their weighted means. NaN where undefined: everything without observations,
/// AUROC also while only one of the two labels has been seen.
struct calibration_metrics {
    std::uint64_t count = 0;
    double ece = std::numeric_limits<double>::quiet_NaN();    ///< in [0, 1], 0 is best
    double auroc = std::numeric_limits<double>::quiet_NaN();  ///< in [0, 1], 1 is best, 0.5 is chance
    double brier = std::numeric_limits<double>::quiet_NaN();  ///< in [0, 1], 0 is best
    double mean_prediction = std::numeric_limits<double>::quiet_NaN();
    double mean_label = std::numeric_limits<double>::quiet_NaN();
};

/// Bin of a probability among `bins` equal-width ones: floor(bins * p), and p = 1 belongs to the last.
[[nodiscard]] inline std::size_t probability_bin(double p, std::size_t bins) noexcept {
    SURELEAP_EXPECTS(p >= 0.0 && p <= 1.0);
    return std::min(static_cast<std::size_t>(p * static_cast<double>(bins)), bins - 1);
}

/// ECE of a set of bins: sum over bins of |sum of predictions - sum of labels|, divided by the number of
/// observations. The same as weighting each bin's |mean prediction - mean label| by its count, without the
/// divisions by counts that may be 0. NaN without observations.
[[nodiscard]] inline double expected_calibration_error(std::span<reliability_bin const> bins) noexcept {
    std::uint64_t count = 0;
    double gap = 0.0;
    for (reliability_bin const& bin : bins) {
        count += bin.count;
        gap += std::fabs(bin.sum_predictions - bin.sum_labels);
    }
    return gap / static_cast<double>(count);
}

/// A streaming recorder of (prediction, label) pairs per position. All memory is taken at construction,
/// O(gamma (bins + auroc_bins)); observing is O(1) per position and allocates nothing. A round of more
/// positions than block_size() is an error, and nothing of it is recorded. One recorder per thread: observing is not
/// synchronised.
class calibration_recorder {
public:
    explicit calibration_recorder(std::size_t block_size, metric_settings settings = {}) : settings_(settings) {
        if (block_size == 0) fail_with("calibration_recorder: block size is 0, expected at least 1");
        if (settings.bins == 0) fail_with("calibration_recorder: bins is 0, expected at least 1");
        if (settings.auroc_bins == 0) fail_with("calibration_recorder: auroc_bins is 0, expected at least 1");
        if (!(settings.clamp >= 0.0 && settings.clamp < 0.5)) {
            fail_with("calibration_recorder: clamp is ", settings.clamp, ", expected a number in [0, 0.5)");
        }
        grid_ = {settings.bins,
                 settings.auroc_bins,
                 static_cast<double>(settings.bins),
                 static_cast<double>(settings.auroc_bins),
                 settings.clamp,
                 1.0 - settings.clamp};
        squares_.resize(block_size);
        bins_.resize(block_size * settings.bins);
        scores_.resize(block_size * settings.auroc_bins);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return squares_.size(); }
    [[nodiscard]] metric_settings const& settings() const noexcept { return settings_; }

    /// One round, from conditional confidences c_k: predictions are their running products. `labels` is the mask of
    /// the accepted prefix. Only the first `length` positions count (the verified length, or less if generation
    /// ended there); both spans have at least that many values, labels are 0 or 1. A confidence that is NaN or
    /// outside [0, 1] among them: invalid_confidence, and nothing of the round is recorded.
    status observe(std::span<double const> confidences, std::span<std::uint8_t const> labels, std::size_t length) {
        if (!usable(confidences, labels, length)) return status::invalid_confidence;
        grid const g = grid_;
        double survival = 1.0;
        for (std::size_t k = 0; k < length; ++k) {
            survival *= confidences[k];
            record(g, k, survival, labels[k]);
        }
        return status::ok;
    }

    /// One round, from predictions that are survivals already (the running product of calibrated confidences, say).
    status observe_survivals(std::span<double const> survivals, std::span<std::uint8_t const> labels,
                             std::size_t length) {
        if (!usable(survivals, labels, length)) return status::invalid_confidence;
        grid const g = grid_;
        for (std::size_t k = 0; k < length; ++k) record(g, k, survivals[k], labels[k]);
        return status::ok;
    }

    /// One pair. Requires k < block_size() and a prediction in [0, 1].
    void add(std::size_t k, double prediction, bool label) {
        detail::expect_position("calibration_recorder", k, block_size());
        SURELEAP_EXPECTS(prediction >= 0.0 && prediction <= 1.0);
        record(grid_, k, prediction, label ? 1 : 0);
    }

    /// The reliability bins of position k, bin i covering [i, i + 1) / bins. Valid while the recorder lives.
    [[nodiscard]] std::span<reliability_bin const> reliability(std::size_t k) const noexcept {
        SURELEAP_EXPECTS(k < block_size());
        return std::span<reliability_bin const>(bins_).subspan(k * settings_.bins, settings_.bins);
    }

    /// The metrics of position k. O(bins + auroc_bins).
    [[nodiscard]] calibration_metrics position(std::size_t k) const noexcept {
        calibration_metrics out;
        double predictions = 0.0;
        double labels = 0.0;
        for (reliability_bin const& bin : reliability(k)) {
            out.count += bin.count;
            predictions += bin.sum_predictions;
            labels += bin.sum_labels;
        }
        if (out.count == 0) return out;
        auto const count = static_cast<double>(out.count);
        out.ece = expected_calibration_error(reliability(k));
        out.auroc = auroc(k);
        out.brier = squares_[k] / count;
        out.mean_prediction = predictions / count;
        out.mean_label = labels / count;
        return out;
    }

    /// Means over positions, weighted by their counts; a position where a metric is undefined takes no part in its
    /// mean.
    [[nodiscard]] calibration_metrics mean() const noexcept {
        calibration_metrics out;
        weighted ece, auroc, brier, prediction, label;
        for (std::size_t k = 0; k < block_size(); ++k) {
            calibration_metrics const m = position(k);
            out.count += m.count;
            ece.add(m.ece, m.count);
            auroc.add(m.auroc, m.count);
            brier.add(m.brier, m.count);
            prediction.add(m.mean_prediction, m.count);
            label.add(m.mean_label, m.count);
        }
        out.ece = ece.mean();
        out.auroc = auroc.mean();
        out.brier = brier.mean();
        out.mean_prediction = prediction.mean();
        out.mean_label = label.mean();
        return out;
    }

    /// Forgets all observations, keeps the memory.
    void clear() noexcept {
        std::fill(squares_.begin(), squares_.end(), 0.0);
        std::fill(bins_.begin(), bins_.end(), reliability_bin{});
        std::fill(scores_.begin(), scores_.end(), score_bin{});
    }

private:
    struct score_bin {
        std::array<std::uint64_t, 2> count{};  // by label: an index, since nobody can foresee a branch on labels
    };
    /// The settings as a record wants them: turning an unsigned size into a double, or back, takes longer than the
    /// rest.
    struct grid {
        std::size_t bins;
        std::size_t scores;
        double bin_count;
        double score_count;
        double lowest;
        double highest;
    };
    /// probability_bin.
    [[nodiscard]] static std::size_t place(double p, double count) noexcept {
        double const at = p * count;
        return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(at < count - 1.0 ? at : count - 1.0));
    }
    void record(grid const& g, std::size_t k, double prediction, std::uint32_t label) noexcept {
        double const raised = prediction > g.lowest ? prediction : g.lowest;
        double const p = raised < g.highest ? raised : g.highest;
        auto const y = static_cast<double>(label);
        reliability_bin& bin = bins_[k * g.bins + place(p, g.bin_count)];
        ++bin.count;
        bin.sum_predictions += p;
        bin.sum_labels += y;
        ++scores_[k * g.scores + place(p, g.score_count)].count[label];
        squares_[k] += (p - y) * (p - y);
    }

    struct weighted {
        double sum = 0.0;
        double weight = 0.0;
        void add(double value, std::uint64_t count) noexcept {
            if (std::isnan(value)) return;
            sum += value * static_cast<double>(count);
            weight += static_cast<double>(count);
        }
        [[nodiscard]] double mean() const noexcept {
            return weight > 0.0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
        }
    };

    [[nodiscard]] bool usable(std::span<double const> values, std::span<std::uint8_t const> labels,
                              std::size_t length) const {
        detail::expect_block("calibration_recorder", length, block_size());
        SURELEAP_EXPECTS(length <= values.size() && length <= labels.size());
        for (std::size_t k = 0; k < length; ++k) {
            SURELEAP_EXPECTS(labels[k] <= 1);
            if (!(values[k] >= 0.0 && values[k] <= 1.0)) return false;
        }
        return true;
    }

    // Probability that a positive outscores a negative. Histograms instead of a sort: memory stays fixed however
    // many rounds are seen, and what they cost, pairs within a bin of 1/1000 counting half, is what the reference
    // does. Doubles hold the counts exactly far beyond any run, while products of two 64-bit counts could overflow.
    [[nodiscard]] double auroc(std::size_t k) const noexcept {
        double positives = 0.0;
        double negatives = 0.0;
        double wins = 0.0;
        for (std::size_t i = 0; i < settings_.auroc_bins; ++i) {
            score_bin const& bin = scores_[k * settings_.auroc_bins + i];
            auto const up = static_cast<double>(bin.count[1]);
            auto const down = static_cast<double>(bin.count[0]);
            wins += up * (negatives + 0.5 * down);
            positives += up;
            negatives += down;
        }
        if (positives == 0.0 || negatives == 0.0) return std::numeric_limits<double>::quiet_NaN();
        return wins / (positives * negatives);
    }

    metric_settings settings_;
    grid grid_{};
    std::vector<double> squares_;        // [gamma]
    std::vector<reliability_bin> bins_;  // [gamma, bins]
    std::vector<score_bin> scores_;      // [gamma, auroc_bins]
};

SURELEAP_END_NAMESPACE
