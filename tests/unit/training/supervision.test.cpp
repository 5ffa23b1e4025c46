// SPDX-License-Identifier: MIT
//
// Target supervision in chunks: bit for bit what it is without chunks, whatever the limits; every slot once; no more
// memory than said; no target law computed twice without need.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include <sureleap/head/linear.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/supervision.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using support::error_text;
using support::says;
using sureleap::chunk_limits;
using sureleap::matrix_span;
using sureleap::matrix_view;
using sureleap::supervised_chunk;
using sureleap::target_supervision;
using sureleap::token_id;

namespace {

constexpr std::size_t hidden_size = 5;
constexpr std::size_t vocabulary = 23;

struct scene {
    std::vector<double> hidden, lm_head, draft;
    std::vector<std::size_t> sources;
    std::size_t rows;

    scene(std::size_t row_count, std::size_t slots, support::dice& roll) : rows(row_count) {
        hidden.resize(rows * hidden_size);
        lm_head.resize(vocabulary * hidden_size);
        draft.resize(slots * vocabulary);
        for (auto* const values : {&hidden, &lm_head, &draft}) {
            for (double& x : *values) x = roll.bell();
        }
        sources.resize(slots);
        for (std::size_t& s : sources) s = roll.below(rows);
    }
    [[nodiscard]] matrix_view<double> states() const { return {hidden.data(), rows, hidden_size}; }
    void product(matrix_view<double> states, matrix_span<double> logits) const {
        matrix_view<double> const head(lm_head.data(), vocabulary, hidden_size);
        for (std::size_t i = 0; i < states.rows; ++i) {
            sureleap::scalar_backend::gemv(head, states.row(i), logits.row(i));
        }
    }
    [[nodiscard]] token_id label(std::size_t slot) const { return static_cast<token_id>(slot % vocabulary); }
};

/// Draft gradients of all slots, from logits of all slots at once: what chunks are there to avoid.
std::vector<double> unchunked(scene const& s) {
    std::vector<double> gradient = s.draft;
    std::vector<double> target(s.sources.size() * vocabulary);
    for (std::size_t i = 0; i < s.sources.size(); ++i) {
        matrix_span<double> const row(target.data() + i * vocabulary, 1, vocabulary);
        s.product(row_range(s.states(), s.sources[i], 1), row);
        sureleap::row_softmax{}(std::span<double const>(row.row(0)), row.row(0));
        std::ignore = sureleap::draft_loss({}, 0.5, std::span(gradient).subspan(i * vocabulary, vocabulary),
                                           sureleap::probability_row<double>{row.row(0)}, s.label(i));
    }
    return gradient;
}

}  // namespace

TEST_CASE("supervision: chunks give bit for bit what everything at once gives") {
    support::dice roll(77);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 100; ++trial) {
        std::size_t const rows = 1 + roll.below(12);
        std::size_t const slots = roll.below(40);
        scene const s(rows, slots, roll);
        chunk_limits const limits{.rows = 1 + roll.below(7), .slots = 1 + roll.below(9)};
        INFO("slots " << s.sources.size() << ", limits " << limits.rows << " rows, " << limits.slots << " slots");
        target_supervision const supervision(s.sources, limits);
        REQUIRE(supervision.slots() == s.sources.size());

        sureleap::workspace sizer;
        std::ignore = sureleap::carve_supervision<double>(sizer, limits, hidden_size, vocabulary);
        CHECK(sizer.used() <= limits.rows * (hidden_size + vocabulary) * sizeof(double) + 3 * 64);
        std::vector<std::byte> bytes(sizer.used());
        sureleap::workspace ws(bytes);
        auto const memory = sureleap::carve_supervision<double>(ws, limits, hidden_size, vocabulary);

        std::vector<double> gradient = s.draft;
        std::vector<int> visits(s.sources.size());
        std::size_t products = 0;
        std::size_t chunks = 0;
        supervision.for_each_chunk(
            s.states(), memory,
            [&](matrix_view<double> states, matrix_span<double> logits) {
                REQUIRE(states.rows == logits.rows);
                REQUIRE(states.cols == hidden_size);
                REQUIRE(logits.cols == vocabulary);
                products += states.rows;
                s.product(states, logits);
            },
            [&](supervised_chunk<double> const& chunk) {
                ++chunks;
                REQUIRE(chunk.slots.size() == chunk.rows.size());
                REQUIRE((chunk.slots.size() >= 1 && chunk.slots.size() <= limits.slots));
                REQUIRE((chunk.logits.rows >= 1 && chunk.logits.rows <= limits.rows));
                REQUIRE(chunk.rows.back() + 1 == chunk.logits.rows);
                REQUIRE(std::ranges::is_sorted(chunk.rows));
                for (std::size_t i = 1; i < chunk.slots.size(); ++i) {
                    REQUIRE((chunk.rows[i] > chunk.rows[i - 1] || chunk.slots[i] > chunk.slots[i - 1]));
                }
                for (std::size_t i = 0; i < chunk.logits.rows; ++i) {
                    sureleap::row_softmax{}(std::span<double const>(chunk.logits.row(i)), chunk.logits.row(i));
                }
                for (std::size_t i = 0; i < chunk.slots.size(); ++i) {
                    std::size_t const slot = chunk.slots[i];
                    ++visits[slot];
                    std::ignore = sureleap::draft_loss(
                        {}, 0.5, std::span(gradient).subspan(slot * vocabulary, vocabulary),
                        sureleap::probability_row<double>{chunk.logits.row(chunk.rows[i])}, s.label(slot));
                }
            });
        CHECK(std::ranges::all_of(visits, [](int n) { return n == 1; }));
        CHECK(gradient == unchunked(s));
        CHECK(chunks == supervision.chunks());
        CHECK(products == supervision.rows());
        // Once per distinct source, and again only where a chunk was full in the middle of one.
        std::size_t const distinct = std::set<std::size_t>(s.sources.begin(), s.sources.end()).size();
        CHECK(products >= distinct);
        CHECK(products <= distinct + s.sources.size() / limits.slots);
    }
}

TEST_CASE("supervision: the slots of one position share one law") {
    // Three blocks of four, anchored at 5, 6 and 8: positions 5..8, 6..9, 8..11, seven different ones.
    std::vector<std::size_t> const sources{5, 6, 7, 8, 6, 7, 8, 9, 8, 9, 10, 11};
    target_supervision const all(sources, {});
    CHECK(all.slots() == 12);
    CHECK(all.rows() == 7);
    CHECK(all.chunks() == 1);
    target_supervision const narrow(sources, {.rows = 1, .slots = 256});
    CHECK(narrow.rows() == 7);
    CHECK(narrow.chunks() == 7);
    target_supervision const split(sources, {.rows = 128, .slots = 6});
    CHECK(split.chunks() == 2);
    CHECK(split.rows() == 8);  // the first chunk ends between the slots of position 8, which is computed again
}

TEST_CASE("supervision: nothing to supervise, and what cannot be") {
    auto const never = [](auto&&...) { FAIL("there is no chunk"); };
    target_supervision const none({}, {});
    CHECK(none.chunks() == 0);
    sureleap::supervision_memory<double> const memory{{nullptr, 1, 2}, {nullptr, 1, 2}};
    none.for_each_chunk(matrix_view<double>(nullptr, 0, 2), memory, never, never);

    std::vector<std::size_t> const sources{0, 4, 2};
    CHECK(says(error_text([&] { target_supervision(sources, {.rows = 0}); }),
               "target_supervision: rows of a chunk is 0, expected at least 1"));
    CHECK(says(error_text([&] { target_supervision(sources, {.slots = 0}); }),
               "target_supervision: slots of a chunk is 0, expected at least 1"));

    std::vector<double> values(100);
    sureleap::supervision_memory<double> const room{{values.data(), 8, 2}, {values.data() + 16, 8, 3}};
    target_supervision const supervision(sources, {.rows = 8, .slots = 8});
    CHECK(says(
        error_text([&] { supervision.for_each_chunk(matrix_view<double>(values.data(), 4, 2), room, never, never); }),
        "target_supervision: a slot reads target row 4, but there are 4 rows"));
}
