// SPDX-License-Identifier: MIT
//
// A block records what was drawn, from what, and how sure the draft was.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

struct fixture {
    draft_shape shape;
    std::vector<std::byte> memory;
    draft_block<double> block;
    draft_rows<double> rows;
    std::vector<request_settings> settings;
    std::vector<request_view> views;

    fixture(draft_shape const& s, std::size_t requests) : shape(s), settings(requests) {
        auto const carve = [&](workspace& ws) {
            block = draft_block<double>(ws, shape);
            rows = draft_rows<double>(ws, block.shape(), false);
        };
        workspace sizer;
        carve(sizer);
        memory.resize(sizer.used());
        workspace ws{memory};
        carve(ws);
        CHECK(ws.used() == sizer.used());
        for (std::size_t r = 0; r < requests; ++r) {
            views.push_back({.id = r,
                             .slot = r,
                             .anchor = 0,
                             .position = 20 + r,
                             .seed = 5 + r,
                             .remaining = 100,
                             .settings = &settings[r]});
        }
        block.begin(views);
    }
};

std::vector<double> random_row(support::dice& roll, std::size_t size) {
    std::vector<double> row;
    for (std::size_t v = 0; v < size; ++v) row.push_back(2.0 * roll.bell());
    return row;
}

}  // namespace

TEST_CASE("draft_block: draws by the rule's kind, and records the law that was sampled") {
    support::dice roll(81);
    INFO("seed " << roll.seed());
    philox_randomness rng;
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const requests = 1 + roll.below(4), gamma = 1 + roll.below(5), vocabulary = 2 + roll.below(10);
        auto const kind = trial % 3;
        fixture f({requests, gamma, vocabulary}, requests);
        for (auto& s : f.settings) s.temperature = roll.between(0.4, 1.5);
        INFO("trial " << trial);
        // Position after position over all requests, as an autoregressive drafter fills it.
        std::vector<std::vector<std::vector<double>>> rows(requests);
        std::vector<std::vector<double>> confidences(requests);
        for (std::size_t k = 0; k < gamma; ++k) {
            for (std::size_t r = 0; r < requests; ++r) {
                auto const row = random_row(roll, vocabulary);
                auto const place = f.rows.next(f.block, r);
                REQUIRE(place.size() == vocabulary);
                std::copy(row.begin(), row.end(), place.begin());
                auto const q = f.rows.law(f.block, r, place);
                double const c = roll.real();
                token_id x = no_token, expected = no_token;
                if (kind == 0) {
                    expected = rng.categorical(
                        {f.views[r].seed, f.views[r].position, static_cast<std::uint32_t>(k), purpose::draft}, q);
                    x = f.block.draw(r, categorical_draft{}, q, c, rng);
                } else if (kind == 1) {
                    expected = q.mode();
                    x = f.block.draw(r, argmax_draft{}, q, c, rng);
                } else {
                    expected = rng.gumbel_max({f.views[r].seed, f.views[r].position + 1 + k, 0, purpose::noise}, q);
                    x = f.block.draw(r, coupled_draft{}, q, c, rng);
                }
                REQUIRE(x == expected);
                rows[r].push_back(row);
                confidences[r].push_back(c);
            }
        }
        auto const table = f.block.table();
        REQUIRE(table.survivals.requests() == requests);
        for (std::size_t r = 0; r < requests; ++r) {
            REQUIRE(f.block.draft_outcome(r) == status::ok);
            REQUIRE(f.block.size(r) == gamma);
            REQUIRE(f.block.tokens(r).size() == gamma);
            REQUIRE(f.block.laws(r).size() == gamma);
            std::uint64_t survival = certain;
            for (std::size_t k = 0; k < gamma; ++k) {
                auto const& law = f.block.laws(r)[k];
                token_id const x = f.block.tokens(r)[k];
                REQUIRE(law.is_one_hot() == (kind == 1));
                if (kind == 1) {
                    REQUIRE(law.mode() == x);
                    REQUIRE(table.token_probabilities[r * gamma + k] == 1.0);
                } else {
                    double sum = 0.0;
                    for (double const l : rows[r][k]) sum += std::exp(l / f.settings[r].temperature);
                    for (std::size_t v = 0; v < vocabulary; ++v) {
                        double const q = std::exp(rows[r][k][v] / f.settings[r].temperature) / sum;
                        REQUIRE(std::abs(law.probability(static_cast<token_id>(v)) - q) < 1e-12);
                    }
                    REQUIRE(table.token_probabilities[r * gamma + k] == law.probability(x));
                }
                fixed_probability c = 0;
                REQUIRE(quantise(confidences[r][k], c));
                survival = survival * c >> 24;
                REQUIRE(table.tokens[r * gamma + k] == x);
                REQUIRE(table.survivals.at(r, k).confidence == c);
                REQUIRE(table.survivals.at(r, k).survival == survival);
            }
            auto const prefixes = f.block.prefixes(gamma);
            REQUIRE(std::equal(prefixes.of(r).begin(), prefixes.of(r).end(), f.block.tokens(r).begin(),
                               f.block.tokens(r).end()));
            REQUIRE(f.block.prefixes(0).of(r).empty());
        }
        f.block.begin(f.views);  // the next round
        for (std::size_t r = 0; r < requests; ++r) REQUIRE(f.block.size(r) == 0);
    }
}

TEST_CASE("draft_block: the draft's own transform shapes q, truncation included") {
    fixture f({1, 2, 4}, 1);
    f.settings[0].temperature = 0.3;
    f.settings[0].draft = transform{.temperature = 1.0, .top_k = 2};
    auto const row = f.rows.next(f.block, 0);
    double const logits[] = {1.0, 3.0, 2.0, 0.0};
    std::copy(std::begin(logits), std::end(logits), row.begin());
    philox_randomness rng;
    f.block.draw(0, categorical_draft{}, f.rows.law(f.block, 0, row), 1.0, rng);
    auto const& law = f.block.laws(0)[0];
    CHECK(std::abs(law.probability(1) - 1.0 / (1.0 + std::exp(-1.0))) < 1e-15);
    CHECK(law.probability(0) == 0.0);
    CHECK(law.probability(3) == 0.0);
}

TEST_CASE("draft_block: a bad row or confidence ends the chain and names the reason") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    philox_randomness rng;
    fixture f({2, 3, 2}, 2);
    auto const draw = [&](std::size_t r, double logit, double confidence) {
        auto const row = f.rows.next(f.block, r);
        row[0] = logit;
        row[1] = 0.0;
        return f.block.draw(r, categorical_draft{}, f.rows.law(f.block, r, row), confidence, rng);
    };
    CHECK(draw(0, 0.0, 0.9) != no_token);
    CHECK(draw(1, 0.0, 0.9) != no_token);
    CHECK(draw(0, nan, 0.9) == no_token);
    CHECK(f.block.draft_outcome(0) == status::invalid_draft);
    CHECK(f.block.size(0) == 1);  // what was drawn before stays
    CHECK(f.block.tokens(0).size() == 1);
    CHECK(f.block.draft_outcome(1) == status::ok);  // the neighbour is not concerned
    CHECK(f.block.size(1) == 1);
    for (double const bad : {nan, -0.1, 1.1}) {
        f.block.begin(f.views);
        CHECK(f.block.draft_outcome(0) == status::ok);
        CHECK(draw(0, 0.0, bad) == no_token);
        CHECK(f.block.draft_outcome(0) == status::invalid_confidence);
        CHECK(f.block.size(0) == 0);
    }
    CHECK(f.block.table().survivals.sizes[0] == 0);
}

TEST_CASE("draft_block: without kept rows one row of scratch serves all positions of a request") {
    fixture f({.requests = 3, .block_size = 4, .vocabulary = 5, .keep_rows = false}, 3);
    CHECK(f.rows.next(f.block, 0).data() != f.rows.next(f.block, 2).data());
    auto const row = f.rows.next(f.block, 0);
    f.block.append_found(0, 1, 5);
    CHECK(f.rows.next(f.block, 0).data() == row.data());
    fixture kept({.requests = 3, .block_size = 4, .vocabulary = 5, .keep_rows = true}, 3);
    auto const kept_row = kept.rows.next(kept.block, 0);
    kept.block.append_found(0, 1, 5);
    CHECK(kept.rows.next(kept.block, 0).data() == kept_row.data() + 5);
    CHECK(f.memory.size() < kept.memory.size());
}

TEST_CASE("draft_block: found tokens are one-hot over the target vocabulary") {
    fixture f({1, 3, 0}, 1);
    f.block.append_found(0, 7, 9);
    f.block.append_found(0, 2, 9, certain / 2);
    CHECK(f.block.size(0) == 2);
    CHECK(f.block.tokens(0)[1] == 2);
    CHECK(f.block.laws(0)[0].is_one_hot());
    CHECK(f.block.laws(0)[0].size() == 9);
    CHECK(f.block.laws(0)[0].probability(7) == 1.0);
    CHECK(f.block.table().survivals.at(0, 1).survival == certain / 2);
    CHECK(f.block.table().token_probabilities[0] == 1.0);
}
