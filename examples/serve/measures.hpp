// SPDX-License-Identifier: MIT
//
// What a simulated run is judged by.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <sureleap/round/record.hpp>
#include <sureleap/verify/verdict.hpp>

namespace serve {

/// Survivals that were predicted, beside what became of them: 15 bins of equal width a depth. Only positions that were
/// verified have an outcome; which those are depends on confidences alone, so the outcomes of a bin are no selection.
class reliability {
public:
    static constexpr std::size_t bins = 15;

    explicit reliability(std::size_t block_size = 0) : cells_(block_size) {}

    void add(sureleap::round_record const& record) {
        for (std::size_t r = 0; r < record.size(); ++r) {
            sureleap::verdict const& v = record.verdicts[r];
            double survival = 1;
            for (std::size_t k = 0; k < v.verified && k < cells_.size(); ++k) {
                survival *= static_cast<double>(record.survivals.at(r, k).confidence) * 0x1p-24;
                auto const bin = std::min(static_cast<std::size_t>(survival * bins), bins - 1);
                cell& c = cells_[k][bin];
                c.count += 1;
                c.predicted += survival;
                c.came += v.accepted > k ? 1 : 0;
            }
        }
    }
    void add(reliability const& other) noexcept {
        for (std::size_t k = 0; k < cells_.size(); ++k) {
            for (std::size_t b = 0; b < bins; ++b) {
                cells_[k][b].count += other.cells_[k][b].count;
                cells_[k][b].predicted += other.cells_[k][b].predicted;
                cells_[k][b].came += other.cells_[k][b].came;
            }
        }
    }
    [[nodiscard]] std::size_t block_size() const noexcept { return cells_.size(); }
    [[nodiscard]] double count(std::size_t k) const noexcept {
        double n = 0;
        for (cell const& c : cells_[k]) n += c.count;
        return n;
    }
    /// Expected calibration error of depth k; NaN if nothing was verified there.
    [[nodiscard]] double ece(std::size_t k) const noexcept {
        double error = 0;
        for (cell const& c : cells_[k]) error += std::abs(c.predicted - c.came);
        return error / count(k);
    }
    /// Mean over the depths that were verified `least` times or more; NaN if there is none.
    [[nodiscard]] double ece(double least = 200) const noexcept {
        double sum = 0;
        double n = 0;
        for (std::size_t k = 0; k < cells_.size(); ++k) {
            if (count(k) < least) continue;
            sum += ece(k);
            n += 1;
        }
        return n > 0 ? sum / n : std::numeric_limits<double>::quiet_NaN();
    }

private:
    struct cell {
        double count = 0;
        double predicted = 0;
        double came = 0;
    };
    std::vector<std::array<cell, bins>> cells_;
};

/// Sums over rounds.
struct round_sums {
    double seconds = 0;
    std::uint64_t rounds = 0;
    std::uint64_t request_rounds = 0;  ///< a step with R requests is R of them
    std::uint64_t tokens = 0;          ///< emitted
    std::uint64_t batch_tokens = 0;    ///< scored by the target, anchors included
    std::uint64_t drafted = 0;
    std::uint64_t verified = 0;
    std::uint64_t accepted = 0;

    void add(sureleap::round_record const& record) noexcept {
        seconds += record.seconds;
        ++rounds;
        request_rounds += record.size();
        batch_tokens += record.load.batch_tokens;
        for (sureleap::verdict const& v : record.verdicts) {
            tokens += v.emitted.size();
            drafted += v.drafted;
            verified += v.verified;
            accepted += v.accepted;
        }
    }
    void add(round_sums const& other) noexcept {
        seconds += other.seconds;
        rounds += other.rounds;
        request_rounds += other.request_rounds;
        tokens += other.tokens;
        batch_tokens += other.batch_tokens;
        drafted += other.drafted;
        verified += other.verified;
        accepted += other.accepted;
    }
    [[nodiscard]] double tokens_per_second() const noexcept { return static_cast<double>(tokens) / seconds; }
    /// Emitted tokens a round of a request.
    [[nodiscard]] double tau() const noexcept { return ratio(tokens, request_rounds); }
    /// Batch tokens a request, the anchor included: MTP-1 has 2.
    [[nodiscard]] double budget() const noexcept { return ratio(batch_tokens, request_rounds); }
    /// Of the drafted tokens, those never verified.
    [[nodiscard]] double trimmed() const noexcept { return drafted == 0 ? 0.0 : 1.0 - ratio(verified, drafted); }
    /// Of the verified tokens, those kept.
    [[nodiscard]] double acceptance() const noexcept { return ratio(accepted, verified); }
    [[nodiscard]] double mean_concurrency() const noexcept { return ratio(request_rounds, rounds); }

private:
    [[nodiscard]] static double ratio(std::uint64_t part, std::uint64_t whole) noexcept {
        return static_cast<double>(part) / static_cast<double>(whole);
    }
};

/// A request that is done.
struct served_request {
    double waited = 0;       ///< seconds from its arrival until the step that took it in
    double first_token = 0;  ///< seconds from its arrival to its first tokens
    double generating = 0;   ///< seconds from then to its last token, or from that step where all came at once
    std::uint64_t tokens = 0;

    [[nodiscard]] double tokens_per_second() const noexcept { return static_cast<double>(tokens) / generating; }
};

/// Where every request that arrived has gone.
struct request_counts {
    std::uint64_t arrived = 0;
    std::uint64_t finished = 0;
    std::uint64_t failed = 0;   ///< their round did, and they were cancelled
    std::uint64_t placed = 0;   ///< when the run ended, by the decoder's own books
    std::uint64_t waiting = 0;  ///< the same

    [[nodiscard]] std::uint64_t lost() const noexcept { return arrived - finished - failed - placed - waiting; }
};

struct outcome {
    std::string policy;
    bool lossless = true;
    round_sums sums;                  ///< after the warm-up
    reliability confidences;          ///< the same
    std::vector<round_sums> windows;  ///< of all rounds, so many each
    std::vector<reliability> window_confidences;
    std::vector<std::uint64_t> window_texts;  ///< that had arrived before each
    std::vector<served_request> served;       ///< joined after the warm-up
    request_counts requests;
};

/// The value that a share q of them is at most; NaN of none.
template <class F>
[[nodiscard]] double quantile(std::vector<served_request> const& served, double q, F const& of) {
    if (served.empty()) return std::numeric_limits<double>::quiet_NaN();
    std::vector<double> values;
    for (served_request const& s : served) values.push_back(of(s));
    auto const at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<std::size_t>(at)];
}

}  // namespace serve
