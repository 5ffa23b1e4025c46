// SPDX-License-Identifier: MIT
//
// The gate of requests that are not worth drafting for: what a request's drafts did is judged by its own measure,
// whatever its tokens are worth beside those of others.
#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/serving/request_gate.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

constexpr std::size_t block = 3;  // gamma

/// One round of one request whose drafts were all verified, asked about at one price.
void observe(detail::request_gate& gate, request_view const& request, std::vector<fixed_probability> const& survival,
             std::size_t accepted, double price, fixed_probability worth) {
    std::array<double, block> const trust{1.0, 1.0, 1.0};
    std::array<fixed_probability, block> const confidence{};
    auto const size = static_cast<std::uint32_t>(block);
    verdict const v{.drafted = block, .verified = block, .accepted = accepted};
    gate.observe(
        {.requests = {&request, 1}, .verdicts = {&v, 1}, .survivals = {block, {&size, 1}, confidence, survival}}, price,
        price, worth, trust);
}

}  // namespace

TEST_CASE("request gate: a request of less weight is judged as one of full weight, at prices of its own measure") {
    support::dice roll(83);
    INFO("seed " << roll.seed());
    request_settings const settings;
    std::size_t shut = 0, open = 0;
    for (int trial = 0; trial < 200; ++trial) {
        // A power of two: then everything scales to the last bit.
        fixed_probability const part = 1u << (1 + roll.below(12));
        request_view const full{.id = 7, .remaining = 100, .settings = &settings};
        request_view less = full;
        less.weight = certain / part;
        detail::request_gate one(1), other(1);
        double const price = roll.between(0.0, 2.0);
        double const honesty = roll.real();  // how often drafts keep what survivals promise
        fixed_probability const worth = static_cast<fixed_probability>(roll.below(certain / 2 / part)) * part;
        for (int round = 0; round < 60; ++round) {
            bool const shuts = one.shuts(full, price);
            INFO("trial " << trial << ", round " << round << ", weight 1 / " << part);
            REQUIRE(other.shuts(less, price / part) == shuts);
            (shuts ? shut : open) += 1;
            std::vector<fixed_probability> survival, weighted;
            std::size_t accepted = 0;
            bool goes_on = true;
            for (std::size_t k = 0; k < block; ++k) {
                fixed_probability const before = k == 0 ? certain / part : weighted[k - 1];
                weighted.push_back(static_cast<fixed_probability>(before * roll.between(0.6, 1.0)));
                survival.push_back(weighted[k] * part);
                goes_on = goes_on && roll.chance(honesty);
                accepted += goes_on ? 1u : 0u;
            }
            observe(one, full, survival, accepted, price, worth);
            observe(other, less, weighted, accepted, price / part, worth / part);
        }
    }
    CHECK(shut > 1000);
    CHECK(open > 1000);
}

TEST_CASE("request gate: a poor beginning is made up for, and a request that keeps nothing is shut") {
    request_settings const settings;
    request_view const request{.id = 7, .remaining = 100, .settings = &settings};
    double const price = 0.25;
    auto const of = [](double p) { return static_cast<fixed_probability>(p * static_cast<double>(certain)); };
    // Survivals promise 1.5 tokens a round.
    std::vector<fixed_probability> const survival{of(0.7), of(0.5), of(0.3)};
    detail::request_gate late(1), never(1);
    for (int round = 0; round < 40; ++round) {
        INFO("round " << round);
        CHECK_FALSE(late.shuts(request, price));
        observe(late, request, survival, round < 8 ? 0 : 1 + static_cast<std::size_t>(round % 2), price, of(0.15));
        observe(never, request, survival, 0, price, of(0.15));
    }
    CHECK(never.shuts(request, price));
}

TEST_CASE("request gate: evidence of 16 rounds shuts below three quarters of the price, and nine tenths open again") {
    request_settings const settings;
    request_view const request{.id = 7, .remaining = 100, .settings = &settings};
    // Survivals keep what they promise: 3 tokens a round.
    std::vector<fixed_probability> const survival(block, certain);
    struct {
        int rounds;
        double price;
        bool shuts;
    } const table[] = {{15, 100.0, false}, {16, 100.0, true}, {16, 4.01, true}, {16, 3.99, false}};
    for (auto const& row : table) {
        INFO(row.rounds << " rounds, price " << row.price);
        detail::request_gate gate(1);
        for (int round = 0; round < row.rounds; ++round) observe(gate, request, survival, block, 0.0, 0);
        CHECK(gate.shuts(request, row.price) == row.shuts);
        CHECK_FALSE(gate.shuts({.id = 8, .remaining = 100, .settings = &settings}, row.price));
        CHECK_FALSE(gate.shuts({.id = 7, .slot = 1, .remaining = 100, .settings = &settings}, row.price));
    }
    detail::request_gate gate(1);
    for (int round = 0; round < 20; ++round) observe(gate, request, survival, block, 0.0, 0);
    observe(gate, request, survival, block, 5.0, 0);
    CHECK(gate.shuts(request, 3.35));  // 0.9 of it is more than 3
    CHECK_FALSE(gate.shuts(request, 3.32));
}

TEST_CASE("request gate: every slot is looked at again once in 64 rounds, in a round of its own") {
    std::array<int, 64> times{};
    for (std::uint64_t round = 1000; round < 1064; ++round) {
        int slots = 0;
        for (std::size_t slot = 0; slot < times.size(); ++slot) {
            if (!detail::request_gate::looks_again(slot, round)) continue;
            ++slots;
            ++times[slot];
        }
        CHECK(slots == 1);
    }
    for (int const n : times) CHECK(n == 1);
}
