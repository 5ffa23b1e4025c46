// SPDX-License-Identifier: MIT
//
// Anchors and blocks of a training sequence: the choice against its definition, every set of anchors equally likely,
// masks and labels against the reference code's wording of them, keyed draws.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <sureleap/training/anchors.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using sureleap::anchored_block;
using sureleap::token_id;

namespace {

std::vector<std::uint8_t> random_mask(std::size_t size, double share, support::dice& roll) {
    std::vector<std::uint8_t> mask(size);
    for (auto& m : mask) m = roll.chance(share) ? 1 : 0;
    return mask;
}

}  // namespace

TEST_CASE("training anchors: the candidates with the smallest draws, in order") {
    support::dice roll(1);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 400; ++trial) {
        std::size_t const length = roll.below(25);
        auto const mask = random_mask(length, 0.8, roll);
        std::size_t const count = roll.below(8);
        std::size_t const gamma = 1 + roll.below(7);
        std::vector<double> u(mask.size());
        for (double& x : u) x = static_cast<double>(roll.below(10)) / 10.0;  // coarse: ties are common

        // The rule read aloud: rank the candidates by draw, keep the first ones, put them in order.
        std::set<std::pair<double, std::size_t>> ranked;
        for (std::size_t t = 0; t + 1 < mask.size(); ++t) {
            if (mask[t] == 1 && mask[t + 1] == 1) ranked.insert({u[t], t});
        }
        std::set<std::size_t> expected;
        for (auto const& [draw, t] : ranked) {
            if (expected.size() < count) expected.insert(t);
        }

        auto const blocks = sureleap::sample_blocks(mask, count, gamma, [&](std::size_t t) { return u[t]; });
        std::vector<std::size_t> anchors;
        for (auto const& b : blocks) {
            anchors.push_back(b.anchor);
            CHECK(b.positions == sureleap::supervised_positions(mask, b.anchor, gamma));
            CHECK(b.positions >= 1);
        }
        CHECK(anchors == std::vector<std::size_t>(expected.begin(), expected.end()));
    }
}

TEST_CASE("training anchors: every set of anchors is equally likely") {
    // Five candidates, two anchors: over all 120 orders of the draws each of the 10 pairs comes out exactly 12 times.
    std::vector<std::uint8_t> const mask{1, 1, 1, 0, 1, 1, 1, 1};
    std::vector<std::size_t> const candidates{0, 1, 4, 5, 6};
    std::vector<std::size_t> order{0, 1, 2, 3, 4};
    std::map<std::vector<std::size_t>, int> seen;
    do {
        auto const blocks = sureleap::sample_blocks(mask, 2, 3, [&](std::size_t t) {
            auto const at = std::find(candidates.begin(), candidates.end(), t) - candidates.begin();
            REQUIRE(at < 5);  // asked for candidates only
            return static_cast<double>(order[static_cast<std::size_t>(at)]);
        });
        REQUIRE(blocks.size() == 2);
        ++seen[{blocks[0].anchor, blocks[1].anchor}];
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(seen.size() == 10);
    for (auto const& [pair, times] : seen) CHECK(times == 12);
}

TEST_CASE("training anchors: supervised positions are the cumulative AND of masks") {
    support::dice roll(2);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const length = 1 + roll.below(20);
        auto const mask = random_mask(length, 0.8, roll);
        std::size_t const gamma = 1 + roll.below(9);
        for (std::size_t anchor = 0; anchor < mask.size(); ++anchor) {
            std::size_t const n = sureleap::supervised_positions(mask, anchor, gamma);
            bool all = true;
            for (std::size_t k = 0; k < gamma; ++k) {
                std::size_t const label = anchor + 1 + k;
                all = all && label < mask.size() && mask[label] == 1;
                REQUIRE((k < n) == all);
            }
        }
    }
    std::vector<std::uint8_t> const mask{1, 1, 0};
    CHECK(sureleap::is_anchor_candidate(mask, 0));
    CHECK_FALSE(sureleap::is_anchor_candidate(mask, 1));
    CHECK_FALSE(sureleap::is_anchor_candidate(mask, 2));
    std::vector<std::uint8_t> const longer{1, 1, 1};
    CHECK_FALSE(sureleap::is_anchor_candidate(std::span(longer).first(2), 1));  // no label behind the end
    CHECK_FALSE(sureleap::is_anchor_candidate({}, 0));
    CHECK_FALSE(sureleap::is_anchor_candidate(std::vector<std::uint8_t>{0, 1}, 0));
}

TEST_CASE("training anchors: labels and previous tokens") {
    std::vector<token_id> const tokens{10, 11, 12, 13, 14};
    std::vector<token_id> labels(3), previous(3);
    sureleap::block_labels(tokens, 1, labels);
    sureleap::block_previous(tokens, 1, previous);
    CHECK(labels == std::vector<token_id>{12, 13, 14});
    CHECK(previous == std::vector<token_id>{11, 12, 13});
    sureleap::block_labels(tokens, 3, labels);
    sureleap::block_previous(tokens, 3, previous);
    CHECK(labels == std::vector<token_id>{14, 14, 14});
    CHECK(previous == std::vector<token_id>{13, 14, 14});
}

TEST_CASE("training anchors: few candidates, none, and dummies") {
    std::vector<std::uint8_t> const mask{0, 1, 1, 1, 0};
    auto const flat = [](std::size_t) { return 0.5; };
    auto blocks = sureleap::sample_blocks(mask, 4, 7, flat);
    CHECK(blocks == std::vector<anchored_block>{{1, 2}, {2, 1}});
    blocks.resize(4);
    CHECK(blocks[3] == anchored_block{0, 0});
    CHECK(sureleap::sample_blocks(mask, 0, 7, flat).empty());
    CHECK(sureleap::sample_blocks({}, 4, 7, flat).empty());
    CHECK(sureleap::sample_blocks(std::vector<std::uint8_t>{1}, 4, 7, flat).empty());
    auto const text = support::error_text([&] { std::ignore = sureleap::sample_blocks(mask, 4, 0, flat); });
    CHECK(support::says(text, "sample_blocks: block size (gamma) is 0, expected at least 1"));
}

TEST_CASE("training anchors: a draw is a function of seed, sequence and position") {
    std::set<double> seen;
    double sum = 0.0;
    std::size_t count = 0;
    for (std::uint64_t const seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
        for (std::uint64_t const sequence : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{7} << 32}) {
            for (std::size_t t = 0; t < 500; ++t) {
                double const u = sureleap::anchor_uniform(seed, sequence, t);
                REQUIRE((u >= 0.0 && u < 1.0));
                CHECK(u == sureleap::anchor_uniform(seed, sequence, t));
                seen.insert(u);
                sum += u;
                ++count;
            }
        }
    }
    CHECK(seen.size() == count);
    // Mean of n uniforms: standard deviation 1 / sqrt(12 n) = 0.0043. The draws are fixed, so this passes or fails for
    // good.
    CHECK(std::abs(sum / static_cast<double>(count) - 0.5) < 0.015);

    // No draw of a decoding round, whatever its purpose, is also an anchor's.
    for (std::uint32_t use = 1; use <= 6; ++use) {
        for (std::uint32_t index = 0; index < 50; ++index) {
            CHECK_FALSE(seen.contains(sureleap::uniform({0, 7, index, static_cast<sureleap::purpose>(use)})));
        }
    }
}
