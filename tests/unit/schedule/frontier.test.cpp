// SPDX-License-Identifier: MIT
//
// Survival arithmetic and the causal frontier: the walk is a full sort with the stated tie order, whatever is admitted
// or closed on the way.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/survival.hpp>

#include "support/dice.hpp"
#include "support/survival_tables.hpp"

using namespace sureleap;

namespace {

bool same(candidate const& a, candidate const& b) {
    return std::tuple(a.request, a.position, a.confidence, a.survival) ==
           std::tuple(b.request, b.position, b.confidence, b.survival);
}

/// What the frontier is supposed to be, without a heap.
struct naive_frontier {
    survival_table table;
    std::vector<std::uint32_t> lengths;
    std::vector<bool> closed;

    explicit naive_frontier(survival_table const& t) : table(t), lengths(t.requests()), closed(t.requests()) {}

    [[nodiscard]] bool has_next(std::size_t r) const { return !closed[r] && lengths[r] < table.sizes[r]; }
    [[nodiscard]] std::vector<candidate> revealed() const {
        std::vector<candidate> out;
        for (std::size_t r = 0; r < table.requests(); ++r) {
            if (has_next(r)) out.push_back(table.at(r, lengths[r]));
        }
        return out;
    }
    [[nodiscard]] candidate best() const {
        auto const all = revealed();
        candidate winner = all.front();
        for (candidate const& c : all) {
            if (std::tuple(winner.survival, c.position, c.request) <
                std::tuple(c.survival, winner.position, winner.request)) {
                winner = c;
            }
        }
        return winner;
    }
};

}  // namespace

TEST_CASE("quantise: rounds to 2^-24 and refuses what is no probability") {
    fixed_probability out = 77;
    REQUIRE(quantise(0.0, out));
    CHECK(out == 0);
    REQUIRE(quantise(1.0, out));
    CHECK(out == certain);
    REQUIRE(quantise(0.5, out));
    CHECK(out == certain / 2);
    REQUIRE(quantise(0x1p-24, out));
    CHECK(out == 1);
    REQUIRE(quantise(0x1p-25, out));  // half a step rounds up
    CHECK(out == 1);
    REQUIRE(quantise(0x1.fffffep-26, out));
    CHECK(out == 0);
    REQUIRE(quantise(std::nextafter(1.0, 0.0), out));
    CHECK(out == certain);

    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const inf = std::numeric_limits<double>::infinity();
    for (double const bad : {nan, inf, -inf, -1e-300, std::nextafter(1.0, 2.0), 2.0, -1.0}) {
        INFO(bad);
        out = 77;
        CHECK_FALSE(quantise(bad, out));
        CHECK(out == 77);
    }
}

TEST_CASE("survival: products only fall, and 1 changes nothing") {
    support::dice roll(11);
    INFO("seed " << roll.seed());
    bool falls = true, monotone = true, unit = true, close = true;
    for (int i = 0; i < 200000; ++i) {
        auto const before = static_cast<fixed_probability>(roll.below(certain + 1));
        auto const c = static_cast<fixed_probability>(roll.below(certain + 1));
        fixed_probability const after = extend_survival(before, c);
        falls = falls && after <= before && after <= c;
        unit = unit && extend_survival(before, certain) == before && extend_survival(before, 0) == 0;
        monotone = monotone && extend_survival(before, c / 2) <= after && extend_survival(before / 2, c) <= after;
        double const exact = static_cast<double>(before) * static_cast<double>(c) * 0x1p-24;
        close = close && static_cast<double>(after) <= exact && exact < static_cast<double>(after) + 1.0;
    }
    CHECK(falls);
    CHECK(monotone);
    CHECK(unit);
    CHECK(close);
}

TEST_CASE("quantise: keeps the order of confidences") {
    support::dice roll(12);
    INFO("seed " << roll.seed());
    bool ordered = true;
    for (int i = 0; i < 100000; ++i) {
        double const a = roll.real();
        double const b = roll.chance(0.5) ? roll.real() : std::nextafter(a, 1.0);
        fixed_probability qa = 0, qb = 0;
        REQUIRE((quantise(a, qa) && quantise(b, qb)));
        ordered = ordered && (a <= b ? qa <= qb : qa >= qb);
    }
    CHECK(ordered);
}

TEST_CASE("the order of admission: survival, then position, then request") {
    candidate const base{.request = 3, .position = 2, .confidence = 9, .survival = 100};
    auto with = [&](std::size_t request, std::size_t position, fixed_probability survival) {
        return candidate{.request = request, .position = position, .confidence = 1, .survival = survival};
    };
    CHECK(precedes(with(9, 9, 101), base));
    CHECK_FALSE(precedes(with(0, 0, 99), base));
    CHECK(precedes(with(9, 1, 100), base));
    CHECK_FALSE(precedes(with(0, 3, 100), base));
    CHECK(precedes(with(2, 2, 100), base));
    CHECK_FALSE(precedes(with(4, 2, 100), base));
    CHECK_FALSE(precedes(base, base));
}

TEST_CASE("frontier: taking the best again and again is a full sort") {
    support::dice roll(13);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 3000; ++trial) {
        std::size_t const requests = roll.below(20);
        std::size_t const gamma = 1 + roll.below(8);
        auto const table = support::random_table(roll, requests, gamma, trial % 3 == 0 ? 1 : 2 + roll.below(6));
        support::admission_memory memory(requests);
        causal_frontier frontier{table.view(), memory.view()};
        auto const expected = support::sorted_candidates(table.view());
        bool equal = true;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            equal = equal && !frontier.empty() && frontier.admitted() == i && same(frontier.best(), expected[i]);
            if (!equal) break;
            frontier.admit(expected[i].request);
        }
        INFO("trial " << trial << ", requests " << requests << ", gamma " << gamma);
        REQUIRE(equal);
        REQUIRE(frontier.empty());
        REQUIRE(memory.lengths == table.sizes);
    }
}

TEST_CASE("frontier: any sequence of admit and close agrees with a model without a heap") {
    support::dice roll(14);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 2000; ++trial) {
        std::size_t const requests = 1 + roll.below(12);
        std::size_t const gamma = 1 + roll.below(6);
        auto const table = support::random_table(roll, requests, gamma, 1 + roll.below(4));
        support::admission_memory memory(requests);
        causal_frontier frontier{table.view(), memory.view()};
        naive_frontier model{table.view()};
        bool equal = true;
        std::size_t admitted = 0;
        // Requests are gone through before anybody asks for the best of all, or not.
        std::size_t const unordered = roll.below(2) * roll.below(requests * gamma);
        for (;;) {
            auto const revealed = model.revealed();
            bool const looks = admitted >= unordered;
            if (looks) equal = equal && frontier.empty() == revealed.empty();
            equal = equal && frontier.admitted() == admitted;
            for (std::size_t r = 0; r < requests && equal; ++r) {
                equal = frontier.has_next(r) == model.has_next(r) && frontier.length(r) == model.lengths[r];
                if (equal && model.has_next(r)) equal = same(frontier.next(r), table.view().at(r, model.lengths[r]));
            }
            if (!equal || revealed.empty()) break;
            if (looks) equal = same(frontier.best(), model.best());
            std::size_t const r =
                roll.chance(0.3) ? model.best().request : revealed[roll.below(revealed.size())].request;
            if (looks && roll.chance(0.25)) {
                frontier.close(r);
                model.closed[r] = true;
            } else {
                frontier.admit(r);
                ++model.lengths[r];
                ++admitted;
            }
        }
        INFO("trial " << trial);
        REQUIRE(equal);
        REQUIRE(memory.lengths == model.lengths);
    }
}

TEST_CASE("frontier: no requests, and requests without drafts") {
    support::owned_table const none(0, 4);
    support::admission_memory no_memory(0);
    CHECK(causal_frontier{none.view(), no_memory.view()}.empty());

    support::owned_table const idle(3, 4);  // all sizes 0
    support::admission_memory memory(3);
    causal_frontier const frontier{idle.view(), memory.view()};
    CHECK(frontier.empty());
    CHECK(frontier.requests() == 3);
    CHECK_FALSE(frontier.has_next(1));
    CHECK(memory.lengths == std::vector<std::uint32_t>{0, 0, 0});
}
