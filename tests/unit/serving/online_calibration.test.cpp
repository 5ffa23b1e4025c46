// SPDX-License-Identifier: MIT
//
// Calibration behind a decoder and in an engine's own loop: what it learns from records, tenants and what they share,
// the history of requests, restarts.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/error_text.hpp"
#include "support/hash_models.hpp"
#include "support/traffic.hpp"

using namespace sureleap;
using support::domain;
using support::error_text;

namespace {

greedy_schedule<analytic_capacity> const schedule{analytic_capacity{20000.0, 1000.0}};
constexpr std::size_t block = 5;
domain const easy{.offset = 1.2, .slope = 0.8};
domain const hard{.offset = -1.2, .slope = 0.8};

/// Means over positions of |map - truth|, on a grid of confidences.
double distance(online_maps const& maps, domain const& truth) {
    double sum = 0.0;
    int count = 0;
    for (std::size_t k = 0; k < maps.block_size(); ++k) {
        for (double z = -1.0; z <= 4.0; z += 0.5) {
            double const p = support::sigmoid_of(truth.offset - truth.decay * static_cast<double>(k) + truth.slope * z);
            sum += std::fabs(maps(k, support::sigmoid_of(z)) - p);
            ++count;
        }
    }
    return sum / count;
}

bool same_maps(online_maps const& a, online_maps const& b) {
    for (std::size_t k = 0; k < a.block_size(); ++k) {
        if (a.map(k) != b.map(k) || a.cap(k) != b.cap(k) || a.observations(k) != b.observations(k)) return false;
    }
    return true;
}

request_view request_of(request_id id, std::size_t slot, request_settings const& settings) {
    return {.id = id, .slot = slot, .remaining = 100, .settings = &settings};
}

}  // namespace

TEST_CASE("behind a decoder, the top-1 probability of a drafter without a head becomes a calibrated confidence") {
    constexpr std::size_t vocabulary = 12;
    constexpr std::size_t requests = 16;
    support::hash_language const target_language{};
    // Sure of itself, and often wrong.
    support::hash_language const draft_language{.own = 5, .disagreement = 1.0, .sharpness = 5.0};
    online_calibration calibration(block, {.maps = {.terms = online_terms::history}, .max_requests = requests});
    decoder decode{support::hash_model<float>(vocabulary, target_language),
                   autoregressive{support::hash_model<float>(vocabulary, draft_language),
                                  top1_confidence{},
                                  {.block_size = block, .vocabulary = vocabulary}},
                   schedule,
                   token_rejection{},
                   {.max_requests = requests, .seed = 3, .calibration = calibration}};
    token_id const prompt[] = {1, 2};
    calibration_recorder raw(block);
    calibration_recorder learned(block);
    std::size_t mismatches = 0;
    for (std::size_t r = 0; r < requests; ++r) (void)decode.submit(prompt, {.max_new_tokens = 5000});
    for (int i = 0; i < 600; ++i) {
        REQUIRE(decode.step());
        round_record const& round = decode.round();
        for (std::size_t r = 0; r < round.size(); ++r) {
            verdict const& v = round.verdicts[r];
            double before = 1.0;
            double after = 1.0;
            for (std::size_t k = 0; k < v.verified; ++k) {
                double const c = round.raw_confidence(r, k);
                fixed_probability applied = 0;
                REQUIRE(quantise(calibration(round.requests[r], k, c), applied));
                mismatches += round.survivals.at(r, k).confidence == applied ? 0u : 1u;
                before *= c;
                after *= calibration(round.requests[r], k, c);
                if (i < 300) continue;
                raw.add(k, before, k < v.accepted);
                learned.add(k, after, k < v.accepted);
            }
        }
        calibration.observe(round);
    }
    CHECK(mismatches == 0);  // the map was the same for the whole round
    CAPTURE(raw.mean().count, raw.mean().ece, learned.mean().ece);
    CHECK(raw.mean().count > 5000);
    CHECK(raw.mean().ece > 0.2);
    CHECK(learned.mean().ece < 0.2 * raw.mean().ece);
}

TEST_CASE("drafts that were found, with no confidence of their own, teach the rate of their position") {
    constexpr std::size_t vocabulary = 4;
    online_calibration calibration(block);
    decoder decode{support::hash_model<float>(vocabulary, support::hash_language{}),
                   lookup{{.block_size = block, .target_vocabulary = vocabulary}},
                   fixed_schedule{},
                   token_rejection{},
                   {.max_requests = 4, .seed = 5, .calibration = calibration}};
    token_id const prompt[] = {1, 2, 1};
    for (std::size_t r = 0; r < 4; ++r) (void)decode.submit(prompt, {.max_new_tokens = 1000});
    double accepted = 0.0;
    double reached = 0.0;
    while (decode.step()) {
        round_record const& round = decode.round();
        for (std::size_t r = 0; r < round.size(); ++r) {
            verdict const& v = round.verdicts[r];
            for (std::size_t k = 0; k < v.drafted; ++k) REQUIRE(round.raw_confidence(r, k) == 1.0);
            reached += v.verified > 0 ? 1.0 : 0.0;
            accepted += v.accepted > 0 ? 1.0 : 0.0;
        }
        calibration.observe(round);
    }
    CAPTURE(accepted, reached, calibration.shared()(0, 1.0));
    CHECK(reached > 500.0);
    CHECK(std::fabs(calibration.shared()(0, 1.0) - accepted / reached) < 0.05);
}

TEST_CASE("an engine that keeps no records learns the same") {
    support::traffic traffic(8, block, schedule, 7);
    online_calibration by_record(block, {.maps = {.terms = online_terms::history}, .max_requests = 8, .tenants = 3});
    online_calibration by_hand(block, {.maps = {.terms = online_terms::history}, .max_requests = 8, .tenants = 3});
    for (std::size_t r = 0; r < 8; ++r) traffic.settings(r).tenant = static_cast<std::uint32_t>(r % 3);
    for (int i = 0; i < 100; ++i) {
        auto const round = traffic.round(by_record, [&](std::size_t r) { return r % 3 == 0 ? easy : hard; });
        for (std::size_t r = 0; r < round.size(); ++r) {
            by_hand.learn(round.requests[r], round.verdicts[r].verified, round.verdicts[r].accepted,
                          [&](std::size_t k) { return round.raw_confidences[r * block + k]; });
        }
        by_hand.close_round();
        by_record.observe(round);
    }
    CHECK(same_maps(by_record.shared(), by_hand.shared()));
    CHECK(same_maps(*by_record.of_tenant(1), *by_hand.of_tenant(1)));
    CHECK(by_record.rounds() == 100);
}

TEST_CASE("failed requests teach nothing, and a round without requests only passes") {
    support::traffic traffic(4, block, schedule, 8);
    online_calibration calibration(block);
    online_calibration const untouched(block);
    auto const round = traffic.round(calibration, [](std::size_t) { return easy; });
    std::vector<verdict> failed(round.verdicts.begin(), round.verdicts.end());
    for (verdict& v : failed) v.outcome = status::invalid_target;
    auto record = round;
    record.verdicts = failed;
    calibration.observe(record);
    CHECK(same_maps(calibration.shared(), untouched.shared()));
    round_record const nothing{.survivals = {.block_size = block}};
    calibration.observe(nothing);
    CHECK(same_maps(calibration.shared(), untouched.shared()));
    CHECK(calibration.rounds() == 2);
}

TEST_CASE("tenants have maps of their own, newcomers those of all") {
    support::traffic traffic(12, block, schedule, 9);
    for (std::size_t r = 0; r < 12; ++r) traffic.settings(r).tenant = r < 4 ? 70 : 71;
    auto const truth = [&](std::size_t r) { return traffic.settings(r).tenant == 70 ? easy : hard; };
    online_calibration calibration(block, {.tenants = 4});
    CHECK(calibration.of_tenant(70) == nullptr);
    for (int i = 0; i < 1500; ++i) calibration.observe(traffic.round(calibration, truth));
    REQUIRE(calibration.of_tenant(70) != nullptr);
    CAPTURE(distance(*calibration.of_tenant(70), easy), distance(*calibration.of_tenant(71), hard));
    CHECK(distance(*calibration.of_tenant(70), easy) < 0.05);
    CHECK(distance(*calibration.of_tenant(71), hard) < 0.05);
    CHECK(distance(calibration.shared(), easy) > 0.1);
    CHECK(distance(calibration.shared(), hard) > 0.1);
    request_settings const mine{.tenant = 70};
    request_settings const newcomer{.tenant = 72};
    CHECK(calibration(request_of(99, 0, mine), 0, 0.6) == (*calibration.of_tenant(70))(0, 0.6));
    CHECK(calibration(request_of(99, 0, newcomer), 0, 0.6) == calibration.shared()(0, 0.6));
    // With its first round it has a place, whose maps are still the shared ones.
    for (std::size_t r = 0; r < 12; ++r) traffic.settings(r).tenant = 72;
    calibration.observe(traffic.round(calibration, [](std::size_t) { return hard; }));
    REQUIRE(calibration.of_tenant(72) != nullptr);
    CHECK(std::fabs((*calibration.of_tenant(72))(0, 0.6) - calibration.shared()(0, 0.6)) < 0.03);
}

TEST_CASE("tenants that share nothing learn the same whoever else is served") {
    online_calibration_settings settings{.tenants = 8, .shares_between_tenants = false};
    online_calibration alone(block, settings);
    online_calibration among_others(block, settings);
    // The rounds are decided without either, so that both hear the same of tenant 1.
    support::traffic traffic(8, block, schedule, 10);
    for (std::size_t r = 0; r < 8; ++r) traffic.settings(r).tenant = r < 3 ? 1 : 2;
    for (int i = 0; i < 400; ++i) {
        auto const round = traffic.round({}, [&](std::size_t r) { return r < 3 ? easy : i < 200 ? easy : hard; });
        auto part = round;
        part.requests = round.requests.first(3);
        part.verdicts = round.verdicts.first(3);
        alone.observe(part);
        among_others.observe(round);
    }
    CHECK(same_maps(*alone.of_tenant(1), *among_others.of_tenant(1)));
    CHECK(same_maps(among_others.shared(), online_calibration(block).shared()));
    CHECK(distance(*alone.of_tenant(1), easy) < 0.05);
}

TEST_CASE("the tenant that was not seen for longest makes room") {
    online_calibration calibration(1, {.tenants = 8});
    request_settings settings;
    auto const round_of = [&](std::uint32_t tenant, bool accepted) {
        settings.tenant = tenant;
        calibration.learn(request_of(1, 0, settings), 1, accepted ? 1 : 0, [](std::size_t) { return 0.5; });
        calibration.close_round();
    };
    for (std::uint32_t t = 0; t < 8; ++t) round_of(t, true);
    for (std::uint32_t t = 0; t < 8; ++t) REQUIRE(calibration.of_tenant(t) != nullptr);
    round_of(0, true);
    round_of(100, false);
    CHECK(calibration.of_tenant(1) == nullptr);
    CHECK(calibration.of_tenant(0) != nullptr);
    REQUIRE(calibration.of_tenant(100) != nullptr);
    CHECK(calibration.of_tenant(100)->observations(0) < 1.001);  // nothing of its predecessor
    // Nine in one round: the last finds no place, and takes none away.
    for (std::uint32_t t = 200; t < 209; ++t) {
        settings.tenant = t;
        calibration.learn(request_of(1, 0, settings), 1, 1, [](std::size_t) { return 0.5; });
    }
    calibration.close_round();
    for (std::uint32_t t = 200; t < 208; ++t) CHECK(calibration.of_tenant(t) != nullptr);
    CHECK(calibration.of_tenant(208) == nullptr);
}

TEST_CASE("a request's own history tells hard from easy where confidences do not") {
    constexpr std::size_t requests = 32;
    std::uint64_t const seed = 12;
    INFO("seed " << seed);
    double loss[2] = {0.0, 0.0};
    double count = 0.0;
    support::traffic traffic(requests, block, schedule, seed);
    online_calibration plain(block);
    online_calibration with_history(block, {.maps = {.terms = online_terms::history}, .max_requests = requests});
    domain const truth{.offset = 0.0, .slope = 0.5};
    for (int i = 0; i < 2000; ++i) {
        for (std::size_t r = 0; r < requests; ++r) {
            if ((static_cast<std::size_t>(i) + r) % 50 != 0) continue;  // another request comes
            traffic.view(r).id += requests;
            traffic.ease(r) = 2.0 * traffic.roll().bell();
        }
        auto const round = traffic.round(plain, [&](std::size_t) { return truth; });
        for (std::size_t r = 0; r < requests && i >= 1000; ++r) {
            verdict const& v = round.verdicts[r];
            for (std::size_t k = 0; k < v.verified && k <= v.accepted; ++k) {
                double const c = round.raw_confidence(r, k);
                double const p[2] = {plain(round.requests[r], k, c), with_history(round.requests[r], k, c)};
                for (std::size_t m = 0; m < 2; ++m) loss[m] -= std::log(k < v.accepted ? p[m] : 1.0 - p[m]);
                count += 1.0;
            }
        }
        plain.observe(round);
        with_history.observe(round);
    }
    CAPTURE(loss[0] / count, loss[1] / count, with_history.shared().map(0).reliance);
    CHECK(with_history.shared().map(0).reliance > 0.3);
    CHECK(loss[1] < 0.95 * loss[0]);
    // A request nobody knows is an average one; so is one in a slot that served another.
    request_settings const settings;
    CHECK(with_history(request_of(999999, 0, settings), 0, 0.6) == with_history.shared()(0, 0.6));
    CHECK(with_history(request_of(1, 1000, settings), 0, 0.6) == with_history.shared()(0, 0.6));
}

TEST_CASE("learning is deterministic") {
    auto const run = [] {
        support::traffic traffic(8, block, schedule, 13);
        online_calibration calibration(block,
                                       {.maps = {.terms = online_terms::history}, .max_requests = 8, .tenants = 8});
        for (std::size_t r = 0; r < 8; ++r) traffic.settings(r).tenant = static_cast<std::uint32_t>(r);
        for (int i = 0; i < 200; ++i) calibration.observe(traffic.round(calibration, [](std::size_t) { return hard; }));
        return calibration;
    };
    auto const a = run();
    auto const b = run();
    CHECK(same_maps(a.shared(), b.shared()));
    for (std::uint32_t t = 0; t < 8; ++t) CHECK(same_maps(*a.of_tenant(t), *b.of_tenant(t)));
}

TEST_CASE("drifts are reported with the tenant they are of") {
    support::traffic traffic(16, block, schedule, 14);
    for (std::size_t r = 0; r < 16; ++r) traffic.settings(r).tenant = r < 8 ? 1 : 2;
    online_calibration calibration(block, {.tenants = 8});
    bool shifted = false;
    bool of_one = false;
    for (int i = 0; i < 1100; ++i) {
        shifted = i >= 1000;
        calibration.observe(traffic.round(calibration, [&](std::size_t r) { return r < 8 && shifted ? hard : easy; }));
        if (!shifted) REQUIRE(calibration.drifts().empty());
        for (calibration_drift const& d : calibration.drifts()) {
            CHECK(d.what.direction == drift_direction::less_accepted);
            CHECK(d.what.since >= 990);
            CHECK(d.tenant != std::optional<std::uint32_t>{2});
            of_one = of_one || d.tenant == std::optional<std::uint32_t>{1};
        }
    }
    CHECK(of_one);
}

TEST_CASE("a restarted server goes on where it was") {
    support::traffic traffic(16, block, schedule, 15);
    online_calibration calibration(block);
    for (int i = 0; i < 300; ++i) calibration.observe(traffic.round(calibration, [](std::size_t) { return hard; }));
    std::vector<logit_evidence> saved;
    for (std::size_t k = 0; k < block; ++k) saved.push_back(calibration.shared().evidence(k));
    online_calibration restarted(block);
    restarted.restore(saved);
    for (std::size_t k = 0; k < block; ++k) {
        CHECK(std::fabs(restarted.shared()(k, 0.7) - calibration.shared()(k, 0.7)) < 0.005);
        CHECK(restarted.shared().is_trusted(k));
    }
}

TEST_CASE("settings of a calibration are checked") {
    auto const text = [](online_calibration_settings const& s) {
        return error_text([&] { online_calibration calibration(block, s); });
    };
    CHECK(text({.shared_weight = 0.5}) ==
          "online_calibration_settings: shared_weight is 0.5, expected a finite number of at least 1");
    CHECK(text({.shares_between_tenants = false}) ==
          "online_calibration_settings: tenants is 0 and shares_between_tenants is false, expected places for tenants, "
          "or "
          "maps that are shared");
    CHECK(text({.maps = {.terms = online_terms::history}}) ==
          "online_calibration_settings: max_requests is 0, expected the number of slots whose history the maps rely on "
          "(online_terms::history)");
}
