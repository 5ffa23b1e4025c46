// SPDX-License-Identifier: MIT
//
// What an engine watches while it serves: counts and histograms of rounds, filled from round records and readable from
// another thread at any time.
//
//     serving_metrics metrics{drafter.block_size()};
//     while (dec.step()) metrics.observe(dec.round());     // one thread: the engine's
//     serving_counts now = metrics.read();                 // any other: an exporter's (serving/metrics_text.hpp)
//
// Everything is a sum since construction. So the difference of two reads is what happened between them. Watch
// calibration by such windows: sums since the start of a server hide the last minute's drift.
//
// The observing thread counts into memory of its own and then publishes the sums as a whole under a sequence number (a
// seqlock). It never waits, and a reader that was overtaken reads again. The form without fences is used, since thread
// sanitizers do not know fences (Boehm, "Can seqlocks get along with programming language memory models?", 2012).
// Rejected: an atomic for each count, which costs about as much, and shows a reader verified tokens of a round whose
// drafted tokens it has not seen; a lock, by which a slow scrape delays a round.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/round/record.hpp>

SURELEAP_BEGIN_NAMESPACE

// ---- what is counted -------------------------------------------------------------------------------------------

/// Values by size. Bucket i holds those up to and including bounds[i]; one more bucket holds whatever is larger.
struct histogram_counts {
    std::vector<double> bounds;         ///< ascending
    std::vector<std::uint64_t> counts;  ///< [bounds + 1], of each bucket alone
    double sum = 0.0;                   ///< of the values

    histogram_counts() = default;
    explicit histogram_counts(std::vector<double> upper) : bounds(std::move(upper)), counts(bounds.size() + 1) {}

    void add(double value) noexcept {
        ++counts[static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())];
        sum += value;
    }
    [[nodiscard]] std::uint64_t count() const noexcept {
        std::uint64_t n = 0;
        for (std::uint64_t const c : counts) n += c;
        return n;
    }
    /// NaN without values.
    [[nodiscard]] double mean() const noexcept { return sum / static_cast<double>(count()); }
};

/// Of one position of the block. Whether x_k is verified is decided before x_k is known. So if c_k is calibrated,
/// accepted / reached and confidence / reached estimate the same number, however much was trimmed.
struct position_counts {
    std::uint64_t verified = 0;  ///< scored by the target
    std::uint64_t reached = 0;   ///< of those in chains, with everything before them accepted
    std::uint64_t accepted = 0;
    double confidence = 0.0;  ///< sum of c_k, calibrated, over the reached

    /// P(x_k accepted | reached), and what the confidences said it would be. NaN if never reached.
    [[nodiscard]] double acceptance() const noexcept {
        return static_cast<double>(accepted) / static_cast<double>(reached);
    }
    [[nodiscard]] double predicted_acceptance() const noexcept { return confidence / static_cast<double>(reached); }
};

/// Sums over rounds. A round is a step of the whole batch. A request round is the part that one request has in it.
/// (round_report calls the two target calls and rounds.) Ratios are NaN where nothing was counted.
struct serving_counts {
    /// What may go wrong with a request round, in the order of `failures`.
    static constexpr std::array failure_statuses{
        status::invalid_draft,  status::invalid_confidence, status::drafter_failed,
        status::invalid_target, status::wrong_draft_rule,   status::other_draft,
        status::invalid_tree,   status::ranks_lost,         status::ranks_differ};

    std::uint64_t rounds = 0;
    std::uint64_t undrafted_rounds = 0;  ///< nobody drafted: plain decoding
    std::uint64_t request_rounds = 0;
    std::uint64_t gated_request_rounds = 0;  ///< draft_limit or model_limit was 0
    std::array<std::uint64_t, failure_statuses.size()>
        failures{};             ///< of invalid drafts and confidences the rest was emitted
    std::uint64_t drafted = 0;  ///< tokens, as are the next three
    std::uint64_t verified = 0;
    std::uint64_t accepted = 0;
    std::uint64_t emitted = 0;
    /// An estimate of the tokens that verifying every drafted one would have accepted. It counts what was accepted.
    /// Where the prefix was accepted and the rest trimmed, it adds the sum of the survivals a_k / a_l of the rest.
    /// Behind a rejection it adds nothing, since nothing could have been accepted. Unbiased if confidences are
    /// calibrated.
    double acceptable = 0.0;

    std::vector<position_counts> positions;    ///< [gamma]
    std::vector<reliability_bin> reliability;  ///< [gamma, bins], of survivals a_k at verified positions
    histogram_counts verify_length;            ///< l of a request round
    histogram_counts batch_tokens;             ///< B of a round: anchors and admitted drafts
    histogram_counts step_seconds;             ///< of rounds that were timed
    histogram_counts step_ratio;    ///< observed / predicted seconds, of rounds that were timed and predicted
    double observed_seconds = 0.0;  ///< of the same rounds
    double predicted_seconds = 0.0;

    /// Part of the drafted tokens that was not worth verifying.
    [[nodiscard]] double trimmed_share() const noexcept { return ratio(drafted - verified, drafted); }
    /// Emitted tokens a request round, failures included.
    [[nodiscard]] double tokens_per_request_round() const noexcept { return ratio(emitted, request_rounds); }
    /// Part of what verifying everything would have accepted: what trimming costs in tokens. 1 at best.
    [[nodiscard]] double ceiling_share() const noexcept { return static_cast<double>(accepted) / acceptable; }
    /// Expected calibration error of survivals at position k, in [0, 1], as calibration_metrics::ece.
    [[nodiscard]] double calibration_error(std::size_t k) const noexcept {
        std::size_t const bins = reliability.size() / positions.size();
        return expected_calibration_error(std::span(reliability).subspan(k * bins, bins));
    }

    /// What was counted since `earlier`, a read of the same metrics.
    [[nodiscard]] serving_counts since(serving_counts const& earlier) const {
        serving_counts difference = *this;
        for_each_number([](auto& later, auto const& before) { later -= before; }, difference, earlier);
        return difference;
    }

    /// visit(counts.x...) for every number x of counts of one shape, in one order; the only list of them.
    template <class Visit, class... Counts>
    static void for_each_number(Visit&& visit, Counts&... counts) {
        auto const& first = std::get<0>(std::tie(counts...));
        visit(counts.rounds...);
        visit(counts.undrafted_rounds...);
        visit(counts.request_rounds...);
        visit(counts.gated_request_rounds...);
        for (std::size_t i = 0; i < first.failures.size(); ++i) visit(counts.failures[i]...);
        visit(counts.drafted...);
        visit(counts.verified...);
        visit(counts.accepted...);
        visit(counts.emitted...);
        visit(counts.acceptable...);
        for (std::size_t i = 0; i < first.positions.size(); ++i) {
            visit(counts.positions[i].verified...);
            visit(counts.positions[i].reached...);
            visit(counts.positions[i].accepted...);
            visit(counts.positions[i].confidence...);
        }
        for (std::size_t i = 0; i < first.reliability.size(); ++i) {
            visit(counts.reliability[i].count...);
            visit(counts.reliability[i].sum_predictions...);
            visit(counts.reliability[i].sum_labels...);
        }
        auto const visit_histogram = [&](auto&... histogram) {
            std::size_t const buckets = std::get<0>(std::tie(histogram...)).counts.size();
            for (std::size_t i = 0; i < buckets; ++i) visit(histogram.counts[i]...);
            visit(histogram.sum...);
        };
        visit_histogram(counts.verify_length...);
        visit_histogram(counts.batch_tokens...);
        visit_histogram(counts.step_seconds...);
        visit_histogram(counts.step_ratio...);
        visit(counts.observed_seconds...);
        visit(counts.predicted_seconds...);
    }

private:
    [[nodiscard]] static double ratio(std::uint64_t a, std::uint64_t b) noexcept {
        return static_cast<double>(a) / static_cast<double>(b);
    }
};

// ---- counting --------------------------------------------------------------------------------------------------

/// Resolution of serving_metrics. Bounds are upper bounds of histogram buckets, finite and ascending.
struct serving_metrics_settings {
    std::size_t bins = 20;  ///< of the reliability diagram behind ECE, equal width, >= 1
    std::vector<double> batch_bounds{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
    std::vector<double> second_bounds{0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
    std::vector<double> ratio_bounds{0.5, 0.67, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 5};
};

/// Counts rounds. One thread observes, any number of threads read meanwhile. All memory is taken at construction:
/// O(gamma bins). observe() allocates nothing and waits for nobody: O(drafted tokens) for counting and
/// 3 gamma bins stores for publishing.
class serving_metrics {
public:
    explicit serving_metrics(std::size_t block_size, serving_metrics_settings const& settings = {})
        : empty_(zeros(block_size, settings)), counts_(empty_), published_(numbers_of(empty_)) {}
    // Readers hold on to it.
    serving_metrics(serving_metrics const&) = delete;
    serving_metrics& operator=(serving_metrics const&) = delete;

    [[nodiscard]] std::size_t block_size() const noexcept { return empty_.positions.size(); }

    /// One round. predicted_seconds is what a cost model said of a step with its load; NaN if nobody asked one. Error,
    /// with nothing counted, if the round's blocks have more positions than the metrics.
    void observe(round_record const& round, double predicted_seconds = std::numeric_limits<double>::quiet_NaN()) {
        detail::expect_block("serving_metrics", round.survivals.block_size, block_size());
        ++counts_.rounds;
        if (round.load.drafting == 0) ++counts_.undrafted_rounds;
        counts_.request_rounds += round.requests.size();
        counts_.batch_tokens.add(static_cast<double>(round.load.batch_tokens));
        for (std::size_t r = 0; r < round.requests.size(); ++r) count_request(round, r);
        if (round.seconds > 0.0) {
            counts_.step_seconds.add(round.seconds);
            if (predicted_seconds > 0.0) {
                counts_.observed_seconds += round.seconds;
                counts_.predicted_seconds += predicted_seconds;
                counts_.step_ratio.add(round.seconds / predicted_seconds);
            }
        }
        publish();
    }
    /// One round, and what `cost` predicts for it.
    template <step_cost Cost>
    void observe(round_record const& round, Cost const& cost) {
        if constexpr (cost_model<Cost>) {
            observe(round, static_cast<double>(cost.step_seconds(round.load)));
        } else {
            observe(round, 1.0 / static_cast<double>(cost.steps_per_second(round.load.batch_tokens)));
        }
    }

    /// The counts after some round, all of the same one. From any thread.
    [[nodiscard]] serving_counts read() const {
        serving_counts counts;
        read(counts);
        return counts;
    }
    /// The same into `counts`, which allocates nothing if it held a read of these metrics before.
    void read(serving_counts& counts) const {
        counts = empty_;
        for (;;) {
            // Acquire: a number of a later round shows that round's odd sequence to the second look.
            std::uint64_t const before = sequence_.load(std::memory_order_acquire);
            std::size_t i = 0;
            serving_counts::for_each_number(
                [&]<class Number>(Number& n) {
                    n = std::bit_cast<Number>(published_[i++].load(std::memory_order_acquire));
                },
                counts);
            if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return;
            std::this_thread::yield();  // the observing thread may have been put to sleep in the middle
        }
    }

private:
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
                  "serving_metrics: 64-bit atomics take a lock on this machine, which a round must not");

    [[nodiscard]] static serving_counts zeros(std::size_t block_size, serving_metrics_settings const& settings) {
        if (block_size == 0) fail_with("serving_metrics: block size is 0, expected at least 1");
        if (settings.bins == 0) fail_with("serving_metrics: bins is 0, expected at least 1");
        check_bounds("batch_bounds", settings.batch_bounds);
        check_bounds("second_bounds", settings.second_bounds);
        check_bounds("ratio_bounds", settings.ratio_bounds);
        serving_counts counts;
        counts.positions.resize(block_size);
        counts.reliability.resize(block_size * settings.bins);
        std::vector<double> lengths;
        for (std::size_t l = 0; l < block_size; ++l) lengths.push_back(static_cast<double>(l));
        lengths.push_back(static_cast<double>(block_size));
        counts.verify_length = histogram_counts(std::move(lengths));
        counts.batch_tokens = histogram_counts(settings.batch_bounds);
        counts.step_seconds = histogram_counts(settings.second_bounds);
        counts.step_ratio = histogram_counts(settings.ratio_bounds);
        return counts;
    }
    static void check_bounds(char const* name, std::vector<double> const& bounds) {
        if (bounds.empty()) fail_with("serving_metrics: ", name, " is empty, expected at least one bound");
        for (std::size_t i = 0; i < bounds.size(); ++i) {
            if (!std::isfinite(bounds[i]) || (i > 0 && !(bounds[i] > bounds[i - 1]))) {
                fail_with("serving_metrics: ", name, "[", i, "] is ", bounds[i],
                          ", expected finite numbers in ascending order");
            }
        }
    }
    [[nodiscard]] static std::size_t numbers_of(serving_counts const& counts) {
        std::size_t n = 0;
        serving_counts::for_each_number([&](auto const&) { ++n; }, counts);
        return n;
    }

    void count_request(round_record const& round, std::size_t r) noexcept {
        verdict const& v = round.verdicts[r];
        if (std::min(round.requests[r].draft_limit, round.requests[r].model_limit) == 0) ++counts_.gated_request_rounds;
        status const wrong = v.outcome != status::ok ? v.outcome : v.draft_outcome;
        for (std::size_t i = 0; i < counts_.failures.size(); ++i) {
            if (serving_counts::failure_statuses[i] == wrong) ++counts_.failures[i];
        }
        if (v.outcome != status::ok) return;
        counts_.drafted += v.drafted;
        counts_.verified += v.verified;
        counts_.accepted += v.accepted;
        counts_.emitted += v.emitted.size();
        counts_.verify_length.add(static_cast<double>(v.verified));
        counts_.acceptable += static_cast<double>(v.accepted);

        // Products of confidences and not the table's survivals, which begin at the request's weight and round down.
        auto const confidence = [&](std::size_t k) {
            return static_cast<double>(round.survivals.at(r, k).confidence) / static_cast<double>(certain);
        };
        double survival = 1.0;
        for (std::size_t k = 0; k < v.verified; ++k) {
            double const c = confidence(k);
            survival *= c;
            count_position(k, c, survival, v);
        }
        if (v.accepted < v.verified || !v.parents.empty()) return;
        double trimmed = 1.0;
        for (std::size_t k = v.verified; k < v.drafted; ++k) {
            trimmed *= confidence(k);
            counts_.acceptable += trimmed;
        }
    }
    void count_position(std::size_t k, double confidence, double survival, verdict const& v) noexcept {
        SURELEAP_EXPECTS(k < block_size());
        position_counts& at = counts_.positions[k];
        ++at.verified;
        if (v.parents.empty() && v.reached(k)) {
            ++at.reached;
            at.confidence += confidence;
        }
        if (v.kept(k)) ++at.accepted;
        std::size_t const bins = counts_.reliability.size() / block_size();
        reliability_bin& bin = counts_.reliability[k * bins + probability_bin(survival, bins)];
        ++bin.count;
        bin.sum_predictions += survival;
        bin.sum_labels += v.kept(k) ? 1.0 : 0.0;
    }

    void publish() noexcept {
        std::uint64_t const before = sequence_.load(std::memory_order_relaxed);
        sequence_.store(before + 1, std::memory_order_relaxed);
        std::size_t i = 0;
        // Release: whoever sees one of these numbers sees the odd sequence as well.
        serving_counts::for_each_number(
            [&](auto const& n) { published_[i++].store(std::bit_cast<std::uint64_t>(n), std::memory_order_release); },
            counts_);
        sequence_.store(before + 2, std::memory_order_release);
    }

    serving_counts const empty_;  // readers' shape: counts_ is the observing thread's alone
    serving_counts counts_;
    std::vector<std::atomic<std::uint64_t>> published_;
    std::atomic<std::uint64_t> sequence_{0};  // odd while numbers are being published
};

SURELEAP_END_NAMESPACE
