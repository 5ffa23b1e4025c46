// SPDX-License-Identifier: MIT
//
// Anchor-bounded packing: the division against its definition, the fewest groups and padding; the indices of a batch
// against masks written out in full.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include <sureleap/training/anchors.hpp>
#include <sureleap/training/packing.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using support::error_text;
using support::says;
using sureleap::anchored_block;
using sureleap::packed_batch;
using sureleap::row_span;

namespace {

using batches = std::vector<std::vector<std::size_t>>;

std::size_t total(std::vector<std::size_t> const& group, std::vector<std::size_t> const& sizes) {
    std::size_t sum = 0;
    for (std::size_t const i : group) sum += sizes[i];
    return sum;
}

/// Best fit decreasing as one would explain it.
batches plain_best_fit(std::vector<std::size_t> const& sizes, std::size_t budget) {
    std::vector<std::size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return sizes[i] > sizes[j]; });
    batches out;
    for (std::size_t const i : order) {
        if (sizes[i] == 0) continue;
        std::size_t best = out.size();
        for (std::size_t g = 0; g < out.size(); ++g) {
            std::size_t const filled = total(out[g], sizes);
            if (filled + sizes[i] > budget) continue;
            if (best == out.size() || filled > total(out[best], sizes)) best = g;
        }
        if (best == out.size()) out.emplace_back();
        out[best].push_back(i);
    }
    return out;
}

/// The fewest batches, by trying everything.
std::size_t fewest(std::vector<std::size_t> const& sizes, std::size_t budget, std::size_t at,
                   std::vector<std::size_t>& filled, std::size_t best) {
    if (filled.size() >= best) return best;
    if (at == sizes.size()) return filled.size();
    if (sizes[at] == 0) return fewest(sizes, budget, at + 1, filled, best);
    for (std::size_t g = 0; g < filled.size(); ++g) {
        if (filled[g] + sizes[at] > budget) continue;
        filled[g] += sizes[at];
        best = fewest(sizes, budget, at + 1, filled, best);
        filled[g] -= sizes[at];
    }
    filled.push_back(sizes[at]);
    best = fewest(sizes, budget, at + 1, filled, best);
    filled.pop_back();
    return best;
}

struct text {
    std::vector<std::uint8_t> loss_mask;
    std::vector<anchored_block> blocks;
};

text random_text(std::size_t length, std::size_t anchors, std::size_t gamma, support::dice& roll) {
    text out;
    out.loss_mask.resize(length);
    std::size_t const prompt = roll.below(length);
    for (std::size_t t = prompt; t < length; ++t) out.loss_mask[t] = roll.chance(0.97) ? 1 : 0;
    out.blocks = sureleap::sample_blocks(out.loss_mask, anchors, gamma, [&](std::size_t) { return roll.real(); });
    return out;
}

}  // namespace

TEST_CASE("packing: best fit decreasing") {
    support::dice roll(8);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const budget = 1 + roll.below(50);
        std::vector<std::size_t> sizes(roll.below(30));
        for (std::size_t& s : sizes) s = roll.below(budget + 1);
        auto const got = sureleap::pack_sequences(sizes, budget);
        CHECK(got == plain_best_fit(sizes, budget));

        std::vector<std::size_t> times(sizes.size());
        for (auto const& group : got) {
            CHECK(total(group, sizes) <= budget);
            for (std::size_t const i : group) ++times[i];
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) CHECK(times[i] == (sizes[i] > 0 ? 1 : 0));
        // Two batches that fit into one would have been one.
        for (std::size_t a = 0; a < got.size(); ++a) {
            for (std::size_t b = 0; b < a; ++b) CHECK(total(got[a], sizes) + total(got[b], sizes) > budget);
        }
    }
}

TEST_CASE("packing: close to the fewest possible batches") {
    support::dice roll(9);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 150; ++trial) {
        std::size_t const budget = 4 + roll.below(30);
        std::vector<std::size_t> sizes(roll.below(9));
        for (std::size_t& s : sizes) s = roll.below(budget + 1);
        std::vector<std::size_t> filled;
        std::size_t const least = fewest(sizes, budget, 0, filled, sizes.size() + 1);
        CHECK(9 * sureleap::pack_sequences(sizes, budget).size() <= 11 * least + 6);
    }
}

TEST_CASE("packing: a sequence that fits nowhere is named") {
    std::vector<std::size_t> const sizes{3, 10, 4};
    CHECK(says(error_text([&] { std::ignore = sureleap::pack_sequences(sizes, 9); }),
               "pack_sequences: sequence 1 takes 10 rows, expected at most the budget 9"));
    CHECK(sureleap::pack_sequences(sizes, 10).size() == 2);
    CHECK(sureleap::pack_sequences({}, 10).empty());
    CHECK(sureleap::pack_sequences(std::vector<std::size_t>{0, 0}, 0).empty());
}

TEST_CASE("packing: nothing behind the last supervised position") {
    CHECK(sureleap::bounded_rows({}) == 0);
    CHECK(sureleap::bounded_rows(std::vector<anchored_block>{{3, 2}, {9, 7}}) == 16);
    CHECK(sureleap::bounded_rows(std::vector<anchored_block>{{9, 7}, {3, 2}, {0, 0}, {50, 0}}) == 16);
}

TEST_CASE("packing: every block row sees its context and its block, and nothing else") {
    support::dice roll(10);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 60; ++trial) {
        std::size_t const gamma = 1 + roll.below(7);
        packed_batch batch(gamma);
        std::vector<text> texts;
        for (std::size_t s = 0, n = 1 + roll.below(5); s < n; ++s) {
            std::size_t const length = 1 + roll.below(40);
            std::size_t const anchors = roll.below(6);
            texts.push_back(random_text(length, anchors, gamma, roll));
            if (roll.chance(0.3)) texts.back().blocks.resize(texts.back().blocks.size() + 2);  // dummies
            batch.add(100 + s, texts.back().blocks);
        }

        // Written out: what every token row and every block row is.
        struct token {
            std::size_t sequence, position;
        };
        struct slot {
            std::size_t sequence, block, anchor, k;
            bool supervised;
        };
        std::vector<token> tokens;
        std::vector<slot> slots;
        std::size_t block = 0;
        for (std::size_t s = 0; s < texts.size(); ++s) {
            std::size_t last = 0;
            for (auto const& b : texts[s].blocks) {
                if (b.positions == 0) continue;
                last = std::max(last, b.anchor + b.positions);
                for (std::size_t k = 0; k < gamma; ++k) slots.push_back({s, block, b.anchor, k, k < b.positions});
                ++block;
            }
            for (std::size_t t = 0; t < last; ++t) tokens.push_back({s, t});
            CHECK(last < texts[s].loss_mask.size());
            REQUIRE(batch.sequences()[s].index == 100 + s);
            REQUIRE(batch.sequences()[s].rows == row_span{tokens.size() - last, tokens.size()});
        }
        REQUIRE(batch.rows() == tokens.size());
        REQUIRE(batch.block_rows() == slots.size());
        REQUIRE(batch.blocks().size() == block);

        std::vector<std::size_t> supervised;
        std::vector<std::size_t> reached(texts.size());
        for (std::size_t i = 0; i < slots.size(); ++i) {
            slot const& q = slots[i];
            for (std::size_t t = 0; t < tokens.size(); ++t) {
                bool const sees = tokens[t].sequence == q.sequence && tokens[t].position < q.anchor;
                REQUIRE(batch.context(i).contains(t) == sees);
            }
            for (std::size_t j = 0; j < slots.size(); ++j) {
                REQUIRE(batch.own_block(i).contains(j) == (slots[j].block == q.block));
            }
            REQUIRE(batch.context(i).end <= batch.rows());
            REQUIRE(batch.own_block(i).size() == gamma);
            REQUIRE(batch.position(i) == q.anchor + q.k);
            if (!q.supervised) continue;
            supervised.push_back(i);
            std::size_t const row = batch.target_row(i);
            REQUIRE(row < tokens.size());
            REQUIRE(tokens[row].sequence == q.sequence);
            REQUIRE(tokens[row].position == q.anchor + q.k);
            reached[q.sequence] = std::max(reached[q.sequence], tokens[row].position + 1);
        }
        CHECK(batch.supervised_rows() == supervised);
        // Cut as short as possible: the last row of every sequence supervises something.
        for (std::size_t s = 0; s < texts.size(); ++s) CHECK(reached[s] == batch.sequences()[s].rows.size());
    }
}

TEST_CASE("packing: a batch of nothing, and blocks that are too long") {
    CHECK(says(error_text([] { packed_batch(0); }), "packed_batch: block size (gamma) is 0, expected at least 1"));
    packed_batch batch(3);
    CHECK(batch.rows() == 0);
    CHECK(batch.block_rows() == 0);
    batch.add(4, {});
    CHECK(batch.rows() == 0);
    CHECK(batch.sequences().size() == 1);
    CHECK(says(error_text([&] { batch.add(5, std::vector<anchored_block>{{2, 1}, {7, 4}}); }),
               "packed_batch: the block at 7 of sequence 5 has 4 positions, expected at most the block size 3"));
    CHECK(batch.sequences().size() == 1);  // and nothing of it was added
}

TEST_CASE("packing: how full batches are, against padding") {
    // 2,000 texts of 16 to 512 tokens, most of them short, 64 anchors each, batches of 2,048 rows. Padding: in the
    // order they come, as many at a time as the batch has room for at the length of its longest.
    support::dice roll(12);
    INFO("seed " << roll.seed());
    constexpr std::size_t gamma = 7;
    constexpr std::size_t budget = 2048;
    std::vector<std::size_t> sizes;
    std::size_t whole = 0;
    for (int i = 0; i < 2000; ++i) {
        double const u = roll.real();
        auto const length = static_cast<std::size_t>(16.0 + 496.0 * u * u);
        whole += length;
        sizes.push_back(sureleap::bounded_rows(random_text(length, 64, gamma, roll).blocks));
    }
    auto const packed = sureleap::pack_sequences(sizes, budget);
    auto const used = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    double const fill = used / static_cast<double>(packed.size() * budget);
    std::size_t rectangles = 0;
    std::size_t count = 0;
    std::size_t longest = 0;
    for (std::size_t const size : sizes) {
        if (std::max(longest, size) * (count + 1) > budget) {
            rectangles += longest * count;
            count = longest = 0;
        }
        longest = std::max(longest, size);
        ++count;
    }
    rectangles += longest * count;
    double const padded = used / static_cast<double>(rectangles);
    WARN("rows that are tokens: packed " << 100.0 * fill << " %, padded " << 100.0 * padded << " %; cutting behind the "
                                         << "last block saved " << 100.0 * (1.0 - used / static_cast<double>(whole))
                                         << " % of all tokens before that");
    CHECK(fill > 0.99);
    CHECK(padded < 0.7);
    // Every batch but the last is nearly full, so a step costs what its tokens cost.
    for (std::size_t g = 0; g + 1 < packed.size(); ++g) CHECK(total(packed[g], sizes) > budget * 95 / 100);
}
