// SPDX-License-Identifier: MIT
//
// Serving counters. They are compared with a sequence of rounds counted by hand. Calibration errors are compared with
// the recorder of fit/confidence_metrics.hpp, the estimate of the acceptance ceiling with an enumeration. Other threads
// read the counters meanwhile.
#include "support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/serving/metrics.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

token_id const some_tokens[16] = {};

/// A round of one's own making; record() views it.
struct made_round {
    std::size_t block_size = 2;
    step_load load{};
    double seconds = std::numeric_limits<double>::quiet_NaN();

    void add(verdict v, std::vector<double> const& confidences, bool gated = false) {
        request_view request{};
        if (gated) request.draft_limit = 0;
        requests.push_back(request);
        verdicts.push_back(v);
        sizes.push_back(static_cast<std::uint32_t>(confidences.size()));
        for (std::size_t k = 0; k < block_size; ++k) {
            fixed_probability c = 0;
            if (k < confidences.size()) REQUIRE(quantise(confidences[k], c));
            confidence.push_back(c);
            survival.push_back(0);  // nothing reads it: survivals begin at a request's weight
        }
    }
    [[nodiscard]] round_record record() const {
        round_record r{};
        r.requests = requests;
        r.verdicts = verdicts;
        r.survivals.block_size = block_size;
        r.survivals.sizes = sizes;
        r.survivals.confidence = confidence;
        r.survivals.survival = survival;
        r.load = load;
        r.seconds = seconds;
        return r;
    }

    std::vector<request_view> requests{};
    std::vector<verdict> verdicts{};
    std::vector<std::uint32_t> sizes{};
    std::vector<fixed_probability> confidence{};
    std::vector<fixed_probability> survival{};
};

verdict outcome(std::size_t drafted, std::size_t verified, std::size_t accepted) {
    return {.drafted = drafted, .verified = verified, .accepted = accepted, .emitted = {some_tokens, accepted + 1}};
}
verdict failure(status why) {
    return {.outcome = why};
}

}  // namespace

TEST_CASE("serving metrics: three rounds by hand") {
    serving_metrics metrics{2, {.bins = 4, .batch_bounds = {1, 4}, .second_bounds = {0.01, 0.1}, .ratio_bounds = {1}}};
    CHECK(metrics.block_size() == 2);
    CHECK(metrics.read().rounds == 0);
    CHECK(std::isnan(metrics.read().trimmed_share()));
    CHECK(std::isnan(metrics.read().calibration_error(0)));

    made_round first{.load = {.requests = 3, .batch_tokens = 6, .drafting = 3, .draft_tokens = 6}, .seconds = 0.02};
    first.add(outcome(2, 2, 2), {0.5, 0.5});
    first.add(outcome(2, 1, 1), {0.75, 0.5});  // trimmed behind an accepted token: 0.5 more could be had
    first.add(outcome(2, 0, 0), {0.5, 0.25});  // 0.5 + 0.125
    metrics.observe(first.record(), 0.025);

    made_round second{.load = {.requests = 3, .batch_tokens = 4, .drafting = 2, .draft_tokens = 4}, .seconds = 0.01};
    second.add(outcome(2, 1, 0), {0.5, 1.0});  // behind a rejection nothing could be had
    second.add(failure(status::invalid_target), {0.5, 0.5});
    second.add(outcome(0, 0, 0), {}, true);
    metrics.observe(second.record());
    serving_counts const before = metrics.read();

    made_round third{.load = {.requests = 2, .batch_tokens = 2}, .seconds = 0.5};  // nobody drafts
    third.add(outcome(0, 0, 0), {}, true);
    verdict undrafted = outcome(0, 0, 0);
    undrafted.draft_outcome = status::invalid_draft;  // it emits all the same
    third.add(undrafted, {});
    metrics.observe(third.record(), 0.25);

    serving_counts const now = metrics.read();
    CHECK(now.rounds == 3);
    CHECK(now.undrafted_rounds == 1);
    CHECK(now.request_rounds == 8);
    CHECK(now.gated_request_rounds == 2);
    CHECK(now.failures == std::array<std::uint64_t, 9>{1, 0, 0, 1, 0, 0, 0, 0, 0});
    // Every status but ok has its count.
    for (int s = 1; std::string(to_string(static_cast<status>(s))) != "unknown status"; ++s) {
        auto const& counted = serving_counts::failure_statuses;
        CHECK(std::count(counted.begin(), counted.end(), static_cast<status>(s)) == 1);
    }
    CHECK(now.drafted == 8);
    CHECK(now.verified == 4);
    CHECK(now.accepted == 3);
    CHECK(now.emitted == 3 + 2 + 1 + 1 + 1 + 1 + 1);
    CHECK(now.acceptable == 3 + 0.5 + 0.5 + 0.125);
    CHECK(now.trimmed_share() == 0.5);
    CHECK(now.ceiling_share() == 3.0 / 4.125);
    CHECK(now.tokens_per_request_round() == 10.0 / 8.0);

    // Position 0: verified with c = 0.5, 0.75, 0.5, accepted twice. Position 1: once, reached and accepted.
    CHECK(now.positions[0].verified == 3);
    CHECK(now.positions[0].reached == 3);
    CHECK(now.positions[0].accepted == 2);
    CHECK(now.positions[0].acceptance() == 2.0 / 3.0);
    CHECK(now.positions[0].predicted_acceptance() == 1.75 / 3.0);
    CHECK(now.positions[1].verified == 1);
    CHECK(now.positions[1].accepted == 1);
    CHECK(now.positions[1].confidence == 0.5);
    // Bins of a quarter. Position 0: 0.5 and 0.5 with labels 1 and 0; 0.75 with label 1. Position 1: 0.25 with label 1.
    CHECK(now.calibration_error(0) == (0.0 + 0.25) / 3.0);
    CHECK(now.calibration_error(1) == 0.75);

    CHECK(now.verify_length.bounds == std::vector<double>{0, 1, 2});
    CHECK(now.verify_length.counts == std::vector<std::uint64_t>{4, 2, 1, 0});
    CHECK(now.verify_length.sum == 4.0);
    CHECK(now.batch_tokens.counts == std::vector<std::uint64_t>{0, 2, 1});
    CHECK(now.batch_tokens.mean() == 4.0);
    CHECK(now.step_seconds.counts == std::vector<std::uint64_t>{1, 1, 1});  // a bound belongs to its bucket
    CHECK(now.step_ratio.counts == std::vector<std::uint64_t>{1, 1});
    CHECK(now.step_ratio.sum == 0.02 / 0.025 + 2.0);
    CHECK(now.observed_seconds == 0.02 + 0.5);
    CHECK(now.predicted_seconds == 0.025 + 0.25);

    serving_counts const last = now.since(before);
    CHECK(last.rounds == 1);
    CHECK(last.request_rounds == 2);
    CHECK(last.emitted == 2);
    CHECK(last.failures == std::array<std::uint64_t, 9>{1, 0, 0, 0, 0, 0, 0, 0, 0});
    CHECK(last.batch_tokens.counts == std::vector<std::uint64_t>{0, 1, 0});
    CHECK(last.batch_tokens.bounds == now.batch_tokens.bounds);
    CHECK(last.positions[0].verified == 0);
    CHECK(last.predicted_seconds == 0.25);
    CHECK(std::isnan(last.calibration_error(0)));
}

TEST_CASE("serving metrics: predictions of a cost model, of a curve, of nobody") {
    struct model {
        double step_seconds(step_load const& l) const { return 0.5 * static_cast<double>(l.requests); }
    };
    struct curve {
        double steps_per_second(std::size_t batch_tokens) const { return 4.0 / static_cast<double>(batch_tokens); }
    };
    serving_metrics metrics{1};
    made_round round{.block_size = 1, .load = {.requests = 2, .batch_tokens = 3}, .seconds = 1.5};
    metrics.observe(round.record(), model{});
    CHECK(metrics.read().predicted_seconds == 1.0);
    metrics.observe(round.record(), curve{});
    CHECK(metrics.read().predicted_seconds == 1.75);
    CHECK(metrics.read().step_ratio.sum == 1.5 + 2.0);
    metrics.observe(round.record());
    round.seconds = std::numeric_limits<double>::quiet_NaN();
    metrics.observe(round.record(), model{});  // nobody measured
    CHECK(metrics.read().step_ratio.count() == 2);
    CHECK(metrics.read().step_seconds.count() == 3);
    CHECK(metrics.read().observed_seconds == 3.0);
}

TEST_CASE("serving metrics: calibration errors are those of the recorder") {
    std::uint64_t const seed = GENERATE(1u, 2u, 3u);
    INFO("seed " << seed);
    support::dice roll{seed};
    std::size_t const gamma = 5;
    serving_metrics metrics{gamma, {.bins = 10}};
    calibration_recorder recorder{gamma, {.bins = 10, .clamp = 0.0}};
    for (int n = 0; n < 300; ++n) {
        made_round round{.block_size = gamma};
        std::vector<double> c;
        std::size_t const drafted = roll.below(gamma + 1);
        // Multiples of 2^-10, which a fixed_probability holds exactly.
        for (std::size_t k = 0; k < drafted; ++k) c.push_back(static_cast<double>(roll.below(1025)) / 1024.0);
        std::size_t const verified = roll.below(drafted + 1);
        std::size_t const accepted = roll.below(verified + 1);
        round.add(outcome(drafted, verified, accepted), c);
        metrics.observe(round.record());
        std::vector<std::uint8_t> labels(drafted);
        for (std::size_t k = 0; k < accepted; ++k) labels[k] = 1;
        REQUIRE(recorder.observe(c, labels, verified) == status::ok);
    }
    serving_counts const counts = metrics.read();
    for (std::size_t k = 0; k < gamma; ++k) {
        CHECK(counts.calibration_error(k) == recorder.position(k).ece);
        CHECK(counts.positions[k].verified == recorder.position(k).count);
    }
}

TEST_CASE("serving metrics: the acceptance ceiling is unbiased however much is trimmed") {
    std::vector<double> const c{0.75, 0.5, 0.25, 0.875};
    for (std::size_t verified = 0; verified <= c.size(); ++verified) {
        double expected = 0.0;
        double reached = 1.0;
        for (std::size_t accepted = 0; accepted <= verified; ++accepted) {
            double const p = accepted < verified ? reached * (1.0 - c[accepted]) : reached;
            serving_metrics metrics{c.size()};
            made_round round{.block_size = c.size()};
            round.add(outcome(c.size(), verified, accepted), c);
            metrics.observe(round.record());
            expected += p * metrics.read().acceptable;
            if (accepted < verified) reached *= c[accepted];
        }
        // The sum of all survivals.
        CHECK(std::abs(expected - (0.75 + 0.375 + 0.09375 + 0.08203125)) < 1e-15);
    }
}

TEST_CASE("serving metrics: a reader sees whole rounds, while they are counted") {
    serving_metrics metrics{3};
    made_round round{.block_size = 3, .load = {.requests = 2, .batch_tokens = 5, .drafting = 2}, .seconds = 0.5};
    round.add(outcome(3, 2, 2), {0.5, 0.5, 0.5});
    round.add(outcome(3, 1, 0), {0.25, 0.5, 0.5});
    round_record const record = round.record();

    std::uint64_t const rounds = 20000;
    std::atomic<bool> done{false};
    std::vector<std::thread> readers;
    std::atomic<std::size_t> torn{0};
    std::atomic<std::size_t> reads{0};
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([&] {
            serving_counts now;
            std::uint64_t last = 0;
            while (!done) {
                metrics.read(now);
                auto const n = static_cast<double>(now.rounds);
                bool const whole = now.rounds >= last && now.request_rounds == 2 * now.rounds &&
                                   now.drafted == 6 * now.rounds && now.verified == 3 * now.rounds &&
                                   now.acceptable == 2.5 * n && now.positions[0].verified == 2 * now.rounds &&
                                   now.verify_length.count() == 2 * now.rounds && now.step_seconds.sum == 0.5 * n &&
                                   now.predicted_seconds == 0.25 * n;
                if (!whole) ++torn;
                last = now.rounds;
                ++reads;
            }
        });
    }
    while (reads < 2) std::this_thread::yield();
    for (std::uint64_t n = 0; n < rounds; ++n) metrics.observe(record, 0.25);
    done = true;
    for (std::thread& t : readers) t.join();
    CHECK(torn == 0);
    CHECK(metrics.read().rounds == rounds);
}
