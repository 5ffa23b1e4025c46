// SPDX-License-Identifier: MIT
//
// Which limit pays: exact values on small curves, and what the profile that it knows by learns and does not.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/serving/throughput_forecast.hpp>

#include "support/survival_tables.hpp"

using namespace sureleap;

TEST_CASE("survival classes") {
    for (std::size_t i = 0; i + 1 < detail::survival_class::count; ++i) {
        CHECK(detail::survival_class::of(detail::survival_class::least(i)) == i);
        CHECK(detail::survival_class::of(detail::survival_class::least(i + 1) - 1) == i);
    }
    CHECK(detail::survival_class::of(certain) == detail::survival_class::count - 1);
    CHECK(detail::survival_class::least(detail::survival_class::count - 1) == certain);
}

namespace {

/// One round of requests that all may draft `cap`, with these survivals and nothing accepted.
struct told_round {
    request_settings settings{.max_new_tokens = 1000};
    std::vector<request_view> views;
    std::vector<verdict> verdicts;
    support::owned_table table;

    told_round(std::size_t requests, std::size_t gamma, std::size_t cap, double confidence)
        : views(requests), verdicts(requests), table(requests, gamma) {
        for (std::size_t r = 0; r < requests; ++r) {
            views[r] = {.id = r + 1, .slot = r, .remaining = 1000, .settings = &settings, .draft_limit = cap};
            verdicts[r] = {.id = r + 1, .slot = r, .drafted = cap};
            table.sizes[r] = static_cast<std::uint32_t>(cap);
            for (std::size_t k = 0; k < cap; ++k) {
                table.set(r, k, static_cast<fixed_probability>(confidence * static_cast<double>(certain)));
            }
        }
    }
    [[nodiscard]] round_record record() const { return {views, verdicts, table.view(), {}, {}}; }
};

/// Seconds 10 + B: the worth of a place is easy to tell.
struct line {
    [[nodiscard]] double steps_per_second(std::size_t b) const noexcept {
        return 1.0 / (10.0 + static_cast<double>(b));
    }
};

/// Of requests that all may draft everything, by confidences that keep what they promise.
struct crowd {
    std::vector<double> open, trust;
    detail::survival_profile const& profile;
    std::size_t requests;
    double replay = 0.0;
    line curve{};

    crowd(detail::survival_profile const& profile_, std::size_t requests_)
        : open(profile_.block_size(), static_cast<double>(requests_)),
          trust(profile_.block_size(), 1.0),
          profile(profile_),
          requests(requests_) {}
    template <bool Ranks = true>
    [[nodiscard]] detail::round_prospect<Ranks, line> prospect() const {
        step_load const load{.requests = requests, .batch_tokens = requests};
        return {curve, profile, load, static_cast<double>(requests), open, trust, replay};
    }
};
double throughput_of(detail::survival_profile const& profile, std::size_t requests, std::size_t limit) {
    return crowd(profile, requests).prospect().at_limit(limit).throughput;
}
/// A profile of requests that offer 1/2 and 1/4.
detail::survival_profile halves() {
    detail::survival_profile profile(2, 0.5);
    for (int i = 0; i < 200; ++i) profile.observe(told_round(8, 2, 2, 0.5).record(), 0, 100.0);
    return profile;
}

}  // namespace

TEST_CASE("a forecast is Theta of what was seen, for any number of requests") {
    detail::survival_profile const profile = halves();
    // With R requests: R 1.5 / (10 + 2 R), R 1.75 / (10 + 3 R), R / (10 + R).
    for (std::size_t const requests : {1u, 4u, 40u}) {
        double const n = static_cast<double>(requests);
        double const none = n / (10.0 + n);
        double const one = std::max(none, 1.5 * n / (10.0 + 2.0 * n));
        double const two = std::max(one, 1.75 * n / (10.0 + 3.0 * n));
        CHECK(std::abs(throughput_of(profile, requests, 1) - one) < 1e-6);
        CHECK(std::abs(throughput_of(profile, requests, 2) - two) < 1e-6);
        detail::throughput_forecasts const found = crowd(profile, requests).prospect().forecast(1.0, 1);
        CHECK(std::abs(found.plain.throughput - none) < 1e-6);
        CHECK(std::abs(found.same.throughput - one) < 1e-6);
        CHECK(std::abs(found.best.throughput - two) < 1e-6);
    }
    CHECK(std::abs(crowd(profile, 1).prospect().at_limit(2).batch_tokens - 3.0) < 1e-6);
    CHECK(std::abs(crowd(profile, 40).prospect().at_limit(2).batch_tokens - 40.0) < 1e-6);
}

TEST_CASE("a round's limit changes for more than the margin") {
    struct {
        double plain, best, same;  // throughputs
        bool may_draft;
        std::size_t limit;
    } const table[] = {
        // The last round drafted 1 position, the best is 2.
        {1.0, 2.0, 1.5, true, 2},     {1.0, 2.0, 2.0 * 0.9981, true, 1}, {1.0, 2.0, 2.0 * 0.9979, true, 2},
        {1.0, 0.9, 0.9979, true, 0},  {1.0, 0.9, 0.9981, true, 1},       {1.0, 1.0, 0.9, true, 0},
        {1.0, 2.0, 0.9979, false, 0},
    };
    for (auto const& row : table) {
        detail::throughput_forecasts const found{
            {0, certain, row.plain}, {2, certain, row.best}, {1, certain, row.same}};
        INFO("plain " << row.plain << ", best " << row.best << ", same " << row.same);
        CHECK(found.choice(row.may_draft).limit == row.limit);
    }
}

TEST_CASE("a schedule that does not keep promises drafts less") {
    // 1.5 / 12 with one draft and 1.75 / 13 with two, by a yield of 0.65 below 1 / 11 both.
    detail::survival_profile const profile = halves();
    crowd const one(profile, 1);
    CHECK(one.prospect().forecast(1.0, 0).choice().limit == 2);
    CHECK(one.prospect().forecast(0.68, 0).choice().limit == 2);
    CHECK(one.prospect().forecast(0.67, 0).choice().limit == 0);
}

TEST_CASE("where chains end, and what one request's drafts take") {
    detail::survival_profile const profile = halves();
    crowd four(profile, 4);
    detail::throughput_forecast const choice = four.prospect().at_limit(2);
    auto const worth = static_cast<double>(choice.worth);
    REQUIRE(choice.worth > 0);
    CHECK(four.prospect().chain_floor(choice, false) == static_cast<fixed_probability>(0.5 * worth));
    CHECK(four.prospect().chain_floor(choice, true) == static_cast<fixed_probability>(0.125 * worth));
    CHECK(four.prospect<false>().chain_floor(choice, false) == choice.worth);
    CHECK(four.prospect<false>().chain_floor(choice, true) == choice.worth / 4);
    CHECK(four.prospect().chain_floor(detail::throughput_forecast{}, false) == 0);
    CHECK(four.prospect().row_worth(choice) == choice.worth);
    // A curve knows no price of drafting.
    CHECK(four.prospect().tokens_for_one(choice) == 0.0);
    four.replay = 2.0;
    detail::throughput_forecast const dear = four.prospect().at_limit(2);
    CHECK(dear.throughput < choice.throughput);
    CHECK(four.prospect().tokens_for_one({.limit = 2, .throughput = 0.3, .rejections = 3.0}) ==
          0.3 * (2.0 * 3.0 / 4.0));
    // A replay is no part of a row's price: 0.2 tokens a second, a second a row.
    CHECK(four.prospect().row_worth({.limit = 2, .worth = certain, .throughput = 0.25, .batch_tokens = 8.0}) ==
          certain / 4);
}

namespace {

/// Seconds of passes that serve `group` rows each.
struct groups {
    double group, step;
    [[nodiscard]] double steps_per_second(std::size_t b) const noexcept {
        double const left = std::fmod(static_cast<double>(b), group);
        return 1.0 / (10.0 + (left == 0.0 ? 0.0 : step));
    }
};

}  // namespace

TEST_CASE("no chain is cut short of a batch that takes less time than a smaller one") {
    detail::survival_profile const profile = halves();
    std::vector<double> const open(2, 1.0), trust(2, 1.0);
    detail::throughput_forecast const choice{.limit = 2, .worth = certain / 2, .batch_tokens = 24.0};
    struct {
        double group, step;
        bool cut;
    } const table[] = {
        {8.0, 1.0, false},   // seven rows take longer than eight
        {8.0, 0.25, false},  // by a fortieth
        {8.0, 0.15, true},   // by a seventieth: a measured curve wobbles so much
        {1.0, 1.0, true},    // no groups
    };
    for (auto const& row : table) {
        groups const curve{row.group, row.step};
        detail::round_prospect<true, groups> const round{curve, profile, {1, 1}, 1.0, open, trust, 0.0};
        INFO("groups of " << row.group << ", a step of " << row.step);
        CHECK((round.chain_floor(choice, false) > 0) == row.cut);
    }
}

TEST_CASE("where nobody looked nothing is learned") {
    detail::survival_profile profile = halves();
    double const before = throughput_of(profile, 1, 2);
    SECTION("beyond a limit") {
        for (int i = 0; i < 200; ++i) profile.observe(told_round(8, 2, 1, 0.5).record(), 0, 100.0);
        CHECK(std::abs(throughput_of(profile, 1, 2) - before) < 1e-6);
    }
    SECTION("below a floor: chains of 1/2 end before 1/4") {
        for (int i = 0; i < 200; ++i) {
            told_round round(8, 2, 2, 0.5);
            for (auto& size : round.table.sizes) size = 1;
            profile.observe(round.record(), certain / 8 * 3, 100.0);
        }
        CHECK(std::abs(throughput_of(profile, 1, 2) - before) < 1e-6);
    }
    SECTION("but what could have been seen and was not is gone") {
        for (int i = 0; i < 200; ++i) {
            told_round round(8, 2, 2, 0.5);
            for (auto& size : round.table.sizes) size = 1;
            profile.observe(round.record(), 0, 100.0);
        }
        CHECK(std::abs(throughput_of(profile, 1, 2) - 1.5 / 12.0) < 1e-6);
    }
}
