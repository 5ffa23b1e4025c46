// SPDX-License-Identifier: MIT
//
// A confidence that is learned while serving: one update by hand, a law that it finds, the start, drifts, and what a
// decoder teaches it. Half a minute to compile, seconds to run.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/serving/learned_confidence.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/decoder_scene.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/executors.hpp"

using namespace decoder_scene;
using support::error_text;

static_assert(learning_confidence<learned_confidence, float> && learning_confidence<token_confidence, double>);

namespace {

constexpr double forever = 1e300;
request_settings const plain_settings{};
request_view const somebody{.id = 1, .slot = 0, .settings = &plain_settings};

/// Rows of eight tokens, from nearly even to nearly certain, with one runner-up or many.
struct rows_of_all_kinds {
    support::dice roll;
    std::array<double, 8> row{};

    [[nodiscard]] distribution<double> next() {
        double const sharpness = roll.between(0.2, 6.0);
        for (double& l : row) l = sharpness * roll.bell();
        bool const is_between_two = roll.chance(0.5);
        for (std::size_t v = 2; v < row.size() && is_between_two; ++v) row[v] -= 8.0;
        return {{row, {}}, {}, {}};
    }
};

}  // namespace

TEST_CASE("terms are what the row says, and what the request did of late") {
    std::vector<double> const row{std::log(0.5), std::log(0.3), std::log(0.2)};
    distribution<double> const q{{row, {}}, {}, {}};
    learned_confidence confidence(2, {.max_requests = 1});
    logit_terms const known = confidence.terms(somebody, q);
    CHECK(std::fabs(known.logit) < 1e-12);
    CHECK(std::fabs(known.margin - std::log(5.0 / 3.0)) < 1e-12);
    CHECK(std::fabs(known.entropy + std::log(0.25 + 0.09 + 0.04)) < 1e-12);
    CHECK(known.history == 0.0);
    CHECK(known.surprise == 0.0);
    for (int i = 0; i < 3; ++i) confidence.observe(somebody, 0, known, false);
    CHECK(confidence.terms(somebody, q).history < -0.5);
    CHECK(confidence.terms({.id = 2, .slot = 0, .settings = &plain_settings}, q).history == 0.0);
    CHECK(confidence.terms({.id = 1, .slot = 1, .settings = &plain_settings}, q).history == 0.0);

    token_confidence const in_token(2);
    CHECK(in_token.terms(somebody, q, 0).surprise == 0.0);
    CHECK(std::fabs(in_token.terms(somebody, q, 2).surprise - std::log(2.5)) < 1e-12);

    // Rows with one token, and with ties, have finite terms.
    std::vector<double> const alone{0.0, -std::numeric_limits<double>::infinity()};
    logit_terms const certainty = confidence.terms(somebody, distribution<double>{{alone, {}}, {}, {}});
    CHECK(certainty.logit == logit_terms::certain_logit);
    CHECK(certainty.margin == logit_terms::certain_logit);
    CHECK(certainty.entropy == 0.0);
}

TEST_CASE("one update by hand: Newton's step on the log loss, from the prior") {
    learned_confidence confidence(1, {.maps = {.prior_weight = 32.0, .memory = forever}});
    logit_terms const x{.logit = 0.5, .history = 0.0, .entropy = 1.5, .margin = 0.75};
    confidence.observe(somebody, 0, x, false);
    confidence.close_round(1);
    // Precision 32 (1, 1/4, 1/4, 1/4, 1, 1/4) and one observation w x x': by Sherman and Morrison the step is the
    // residual -p times P^-1 x / (1 + w x' P^-1 x).
    double const p = 1.0 / (1.0 + std::exp(-0.5));
    double const w = p * (1.0 - p);
    std::array<double, 4> const along{0.5 / 32.0, 1.0 / 8.0, 1.5 / 8.0, 0.75 / 32.0};
    double const step = -p / (1.0 + w * (0.5 * along[0] + along[1] + 1.5 * along[2] + 0.75 * along[3]));
    online_map const& map = confidence.maps().map(0);
    CHECK(std::fabs(map.slope - (1.0 + step * along[0])) < 1e-12);
    CHECK(std::fabs(map.offset - step * along[1]) < 1e-12);
    CHECK(map.reliance == 0.0);
    CHECK(std::fabs(map.entropy - step * along[2]) < 1e-12);
    CHECK(std::fabs(map.margin - step * along[3]) < 1e-12);
    CHECK(map.surprise == 0.0);
}

TEST_CASE("a logistic law is found, and the error of survivals is a third of top-1's") {
    std::size_t constexpr gamma = 3;
    online_map const truth{.slope = 0.5, .offset = 1.0, .entropy = -1.5, .margin = 0.4, .surprise = -0.6};
    auto const check = [&]<class Confidence>(Confidence confidence, double tolerance) {
        rows_of_all_kinds rows{.roll = support::dice(5)};
        auto const terms = [&](distribution<double> const& q) {
            if constexpr (Confidence::reads_token) {
                return confidence.terms(somebody, q, q.quantile(rows.roll.real()));
            } else {
                return confidence.terms(somebody, q);
            }
        };
        for (int round = 0; round < 1500; ++round) {
            for (int r = 0; r < 32; ++r) {
                bool reached = true;
                for (std::size_t k = 0; k < gamma && reached; ++k) {
                    logit_terms const known = terms(rows.next());
                    reached = rows.roll.chance(truth(known));
                    confidence.observe(somebody, k, known, reached);
                }
            }
            confidence.close_round(32);
            REQUIRE(confidence.drifts().empty());
        }
        online_map const& found = confidence.maps().map(0);
        CAPTURE(found.slope, found.offset, found.entropy, found.margin, found.surprise);
        for (auto const weight : {&online_map::slope, &online_map::offset, &online_map::entropy, &online_map::margin}) {
            CHECK(std::fabs(found.*weight - truth.*weight) < tolerance);
        }
        if (Confidence::reads_token) CHECK(std::fabs(found.surprise - truth.surprise) < tolerance);
        calibration_recorder learned(gamma);
        calibration_recorder top1(gamma);
        for (int i = 0; i < 40000; ++i) {
            std::array<double, gamma> mine{};
            std::array<double, gamma> peaks{};
            std::array<std::uint8_t, gamma> label{};
            bool reached = true;
            for (std::size_t k = 0; k < gamma; ++k) {
                auto const q = rows.next();
                logit_terms const known = terms(q);
                mine[k] = confidence(known, k);
                peaks[k] = std::min(q.peak(), 1.0);
                reached = reached && rows.roll.chance(truth(known));
                label[k] = reached ? 1 : 0;
            }
            REQUIRE(learned.observe(mine, label, gamma) == status::ok);
            REQUIRE(top1.observe(peaks, label, gamma) == status::ok);
        }
        CAPTURE(learned.mean().ece, top1.mean().ece);
        CHECK(learned.mean().ece < top1.mean().ece / 3.0);
        CHECK(learned.mean().auroc > top1.mean().auroc);
    };
    // 48,000 observations of the first position, and a prior that does not hold the weights, which lean on each other.
    check(learned_confidence(gamma, {.maps = {.prior_weight = 1.0}}), 0.2);
    check(token_confidence(gamma, {.maps = {.prior_weight = 1.0}}), 0.2);
}

TEST_CASE("it begins as top-1: under the prior, or capped by the acceptance rate") {
    rows_of_all_kinds rows{.roll = support::dice(7)};
    learned_confidence const capped(2);
    learned_confidence const prepared(2, {.maps = {.prior = {{1.5, -0.25}, {2.0, 0.5}}}});
    logit_scaling const second{2.0, 0.5};
    for (int i = 0; i < 200; ++i) {
        auto const q = rows.next();
        double const top1 = std::min(q.peak(), 1.0);
        CHECK(std::fabs(prepared(prepared.terms(somebody, q), 1) - second.of_confidence(top1)) < 1e-9);
        double const c = capped(capped.terms(somebody, q), 0);
        CHECK(c <= 0.8);
        CHECK((std::fabs(c - top1) < 1e-12 || c < top1));
    }
}

TEST_CASE("a drift is reported, and learning begins anew") {
    learned_confidence confidence(1);
    rows_of_all_kinds rows{.roll = support::dice(9)};
    auto const rounds = [&](std::size_t count, double offset) {
        std::size_t drifts = 0;
        for (std::size_t i = 0; i < count; ++i) {
            for (int r = 0; r < 32; ++r) {
                logit_terms const known = confidence.terms(somebody, rows.next());
                confidence.observe(somebody, 0, known, rows.roll.chance(online_map{.offset = offset}(known)));
            }
            confidence.close_round(32);
            for (drift_report const& d : confidence.drifts()) {
                CHECK(d.direction == drift_direction::less_accepted);
                ++drifts;
            }
        }
        return drifts;
    };
    CHECK(rounds(300, 0.0) == 0);
    CHECK(rounds(300, -2.5) == 1);
    // What it says is right again, where it says it most.
    logit_terms const usual = confidence.maps().evidence(0).mean();
    CHECK(std::fabs(confidence.maps().map(0).argument(usual) - online_map{.offset = -2.5}.argument(usual)) < 0.15);
}

TEST_CASE("it goes on from evidence that was saved") {
    learned_confidence before(2);
    rows_of_all_kinds rows{.roll = support::dice(10)};
    for (int i = 0; i < 200; ++i) {
        for (std::size_t k = 0; k < 2; ++k) {
            before.observe(somebody, k, before.terms(somebody, rows.next()), rows.roll.chance(0.6));
        }
        before.close_round(1);
    }
    learned_confidence after(2);
    after.restore(std::array{before.maps().evidence(0), before.maps().evidence(1)});
    auto const known = after.terms(somebody, rows.next());
    CHECK(std::fabs(after(known, 1) - before(known, 1)) < 0.02);
}

TEST_CASE("what cannot be is refused") {
    learned_confidence small(3);
    CHECK(error_text([&] {
              autoregressive drafter{hash_model<float>(vocabulary, draft_language), small,
                                     drafter_options{.block_size = block, .vocabulary = vocabulary}};
          }) == "autoregressive: the confidence has 3 positions, expected at least block_size (gamma) = 4");
    CHECK(error_text([] { learned_confidence none(0); }) ==
          "drift_monitor: block size is 0, expected a finite number of at least 1");
    CHECK(error_text([] { learned_confidence wrong(1, {.maps = {.memory = 0.0}}); }) ==
          "online_settings: memory is 0, expected a finite number of at least 1");
}

// ---- behind drafters -----------------------------------------------------------------------------------------------

namespace {

drafter_options const shape{.block_size = block, .vocabulary = vocabulary};

template <class Confidence>
[[nodiscard]] auto autoregressive_with(Confidence& confidence) {
    return autoregressive<decltype(hash_model<float>(vocabulary, draft_language)), Confidence&>{
        hash_model<float>(vocabulary, draft_language), confidence, shape};
}

/// Positions that the rounds of a decoder verified and reached, of requests whose tokens the model drafted.
struct reached_positions {
    std::array<double, block> reached{};
    std::array<double, block> accepted{};

    void add(round_record const& round) {
        for (std::size_t r = 0; r < round.size(); ++r) {
            verdict const& v = round.verdicts[r];
            if (!round.tells_of_model(r)) continue;
            for (std::size_t k = 0; k < std::min(v.verified, block) && k <= v.accepted; ++k) {
                reached[k] += 1.0;
                accepted[k] += k < v.accepted ? 1.0 : 0.0;
            }
        }
    }
};

struct lived {
    std::vector<tokens> texts{};
    std::vector<std::array<double, logit_evidence::size>> evidence{};
    reached_positions seen{};
    bool operator==(lived const& o) const { return texts == o.texts && evidence == o.evidence; }
};

/// Five requests through three places; what was generated, and what it taught.
template <class Confidence, class Make, class Schedule, class Rule>
lived live(Make const& make, Schedule const& schedule, Rule const& rule, executor_ref lent = {}) {
    Confidence confidence(block, {.maps = {.memory = forever}, .max_requests = 3});
    auto target = target_model_of();
    decoder dec{target, make(confidence), schedule, rule, {.max_requests = 3, .executor = lent}};
    std::vector<request_id> ids;
    for (token_id i = 0; i < 5; ++i) {
        std::vector<token_id> const prompt{i, 1, i};
        ids.push_back(dec.submit(prompt, {.seed = static_cast<std::uint64_t>(i), .max_new_tokens = 40}));
    }
    lived out;
    out.texts.resize(ids.size());
    while (dec.step()) {
        out.seen.add(dec.round());
        for (request_event const& e : dec.events()) {
            tokens& text =
                out.texts[static_cast<std::size_t>(std::find(ids.begin(), ids.end(), e.request) - ids.begin())];
            text.insert(text.end(), e.tokens.begin(), e.tokens.end());
        }
    }
    for (std::size_t k = 0; k < block; ++k) {
        out.evidence.push_back(confidence.maps().evidence(k).numbers());
        CHECK(confidence.maps().observations(k) == out.seen.reached[k]);
        CHECK(confidence.maps().evidence(k).accepted() == out.seen.accepted[k]);
    }
    return out;
}

template <class Confidence, class Make, class Schedule, class Rule>
void check_lives(char const* name, Make const& make, Schedule const& schedule, Rule const& rule) {
    INFO(name);
    lived const once = live<Confidence>(make, schedule, rule);
    CAPTURE(once.seen.reached);
    CHECK(once.seen.reached[0] > 50.0);
    CHECK(once.seen.reached[1] > 10.0);
    CHECK(live<Confidence>(make, schedule, rule) == once);
    support::test_executor threads{support::task_order::at_once, 2};
    CHECK(live<Confidence>(make, schedule, rule, threads) == once);
    CHECK(threads.runs() > 0);
}

}  // namespace

TEST_CASE("rounds teach what was verified and reached, and the same rounds the same with any threads") {
    auto const stepwise = [](auto& confidence) { return autoregressive_with(confidence); };
    auto const at_once = []<class Confidence>(Confidence& confidence) {
        return parallel<hash_backbone, Confidence&>{
            hash_backbone{}, confidence, {.block_size = block, .vocabulary = vocabulary, .hidden_size = 3}};
    };
    check_lives<learned_confidence>("threshold", stepwise, threshold_schedule{0.4}, token_rejection<>{});
    check_lives<learned_confidence>("greedy", stepwise, greedy_schedule{analytic_capacity{100.0, 60.0}},
                                    target_match<>{});
    check_lives<learned_confidence>("planned", at_once, planned_schedule{analytic_capacity{100.0, 60.0}},
                                    token_rejection<>{});
    check_lives<token_confidence>("threshold, of the token", stepwise, threshold_schedule{0.4}, keyed_coupling{});
    check_lives<token_confidence>("fixed, of the token", at_once, fixed_schedule{3}, keyed_coupling{});
}

TEST_CASE("tokens that were found beside the model teach nothing") {
    auto const found =
        live<learned_confidence>([](auto& confidence) { return with_lookup{autoregressive_with(confidence)}; },
                                 fixed_schedule{}, token_rejection<>{});
    CHECK(found.seen.reached[0] > 20.0);
}

TEST_CASE("a token that is forced is certain, and a row that is none costs a round: both teach nothing") {
    // Token 0 alone may follow; behind it the draft has no law.
    constexpr std::array<std::uint32_t, 1> only_zero{1};
    auto const forced = [&](request_view const&, std::span<token_id const> drafted) noexcept {
        return drafted.empty() ? token_mask{only_zero} : token_mask{};
    };
    learned_confidence confidence(block);
    auto model = model_of<float>(vocabulary, [](std::span<token_id const> context, std::span<float> logits) {
        std::fill(logits.begin(), logits.end(), context.back() == 0 ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
    });
    autoregressive<decltype(model), learned_confidence&> drafter{model, confidence, shape};
    auto target = target_model_of();
    decoder dec{target, drafter, fixed_schedule{}, token_rejection<>{}, {.constrained = true}};
    dec.submit(std::vector<token_id>{1}, {.max_new_tokens = 4, .constraint = forced});
    REQUIRE(dec.step());
    CHECK(dec.round().verdicts[0].drafted == 1);
    CHECK(dec.round().verdicts[0].accepted == 1);
    CHECK(confidence.maps().observations(0) == 0.0);
    CHECK(confidence.maps().observations(1) == 0.0);
}
