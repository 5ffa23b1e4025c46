// SPDX-License-Identifier: MIT
//
// When rounds probe, how many requests do, how far, and who.
#include "support/catch.hpp"

#include <cstddef>
#include <vector>

#include <sureleap/serving/probe_schedule.hpp>

using namespace sureleap;
using detail::probe_terms;

namespace {

/// Rounds from one probe to the next, each of which is told to cost nothing.
std::vector<std::size_t> gaps(probe_terms const& terms, std::size_t probes) {
    detail::probe_schedule schedule;
    std::vector<std::size_t> found;
    for (std::size_t since = 0; found.size() < probes && since < 5000;) {
        ++since;
        if (!schedule.begin(terms)) continue;
        schedule.start(terms, 1);
        found.push_back(since);
        since = 0;
    }
    return found;
}

}  // namespace

TEST_CASE("a quarter of the requests probe, 16 to 64 of them") {
    struct {
        std::size_t requests, probers;
    } const table[] = {{0, 0},   {1, 1},    {16, 16},  {17, 16},  {64, 16},  {67, 16},
                       {68, 17}, {100, 25}, {256, 64}, {260, 64}, {4096, 64}};
    for (auto const& row : table) CHECK(detail::probers_of(row.requests) == row.probers);
}

TEST_CASE("probers draft all, or two positions more where all of it is verified") {
    CHECK(detail::probed_limit(0, 7, true) == 7);
    CHECK(detail::probed_limit(0, 7, false) == 2);
    CHECK(detail::probed_limit(5, 7, false) == 7);
    CHECK(detail::probed_limit(6, 7, false) == 7);
}

TEST_CASE("a period is what a probe costs of the share that it may, 16 to 1024 rounds") {
    struct {
        double cost, share, period;
    } const table[] = {{0.0, 0.01, 16.0}, {0.15, 0.01, 16.0},   {0.155, 0.01, 16.0},  {0.165, 0.01, 17.0},
                       {0.5, 0.01, 50.0}, {10.0, 0.01, 1000.0}, {10.3, 0.01, 1024.0}, {0.5, 0.5, 16.0}};
    detail::probe_schedule const schedule;
    for (auto const& row : table) {
        INFO("cost " << row.cost << ", share " << row.share);
        CHECK(schedule.period({.hides = true, .drafts = true, .cost = row.cost, .share = row.share}) == row.period);
    }
    CHECK(schedule.period({.hides = false, .drafts = true, .cost = 0.5, .share = 0.01}) > 1024.0);
    // Off, it is looked at soon whatever that costs.
    CHECK(schedule.period({.hides = true, .drafts = false, .cost = 10.0, .share = 0.01}) == 16.0);
}

TEST_CASE("the first round probes; off, periods double up to what is paid for; near plain decoding two follow") {
    using list = std::vector<std::size_t>;
    CHECK(gaps({.hides = true, .drafts = true, .cost = 0.5, .share = 0.01}, 4) == list{1, 50, 50, 50});
    CHECK(gaps({.hides = true, .drafts = false, .cost = 2.0, .share = 0.01}, 7) == list{1, 32, 64, 128, 200, 200, 200});
    CHECK(gaps({.hides = true, .drafts = false, .cost = 99.0, .share = 0.01}, 9) ==
          list{1, 32, 64, 128, 256, 512, 1024, 1024, 1024});
    // The two that follow are paid for by a period three times as long.
    CHECK(gaps({.hides = true, .drafts = false, .near = true, .cost = 0.16, .share = 0.01}, 7) ==
          list{1, 1, 1, 32, 1, 1, 48});
    CHECK(gaps({.hides = true, .drafts = true, .near = true, .cost = 0.16, .share = 0.01}, 4) == list{1, 16, 16, 16});
}

TEST_CASE("a probe is priced by what the last ones took, and one that told nothing is made again") {
    detail::probe_schedule schedule;
    probe_terms const terms{.hides = true, .drafts = true, .cost = 0.2, .share = 0.01};
    CHECK(schedule.period(terms) == 20.0);
    schedule.observe(1.0);
    CHECK(schedule.period(terms) == 50.0);
    schedule.observe(1.0);
    CHECK(schedule.period(terms) == 75.0);
    schedule.observe(-1.0);  // its tokens paid for it
    CHECK(schedule.period(terms) == 38.0);
    REQUIRE(schedule.begin(terms));
    schedule.start(terms, 1);
    CHECK(schedule.running());
    CHECK_FALSE(schedule.begin(terms));
    CHECK_FALSE(schedule.running());
    schedule.failed();
    CHECK(schedule.begin(terms));
    schedule.start(terms, 0);  // nobody could be asked
    CHECK_FALSE(schedule.running());
    CHECK(schedule.begin(terms));
}

TEST_CASE("who probes: those whose turn it is, or the cheapest that are paid for") {
    struct {
        std::size_t first, most;
        double pays;
        bool cheapest;
        std::vector<std::size_t> chosen;
    } const table[] = {
        {0, 2, 7.0, false, {0, 1}}, {3, 2, 7.0, false, {3, 0}},   {7, 2, 7.0, false, {3, 0}},
        {0, 2, 6.9, false, {}},     {0, 2, 6.9, true, {2, 3}},    {0, 2, 0.9, true, {2}},
        {0, 2, -1.0, true, {2}},    {0, 4, 3.0, true, {1, 2, 3}},
    };
    double const prices[] = {5.0, 2.0, 0.0, 1.0};  // of requests 0 to 3
    for (auto const& row : table) {
        INFO("from " << row.first << ", " << row.most << " for " << row.pays);
        std::vector<request_view> requests(4);
        for (std::size_t r = 0; r < 4; ++r) requests[r].slot = r;
        detail::probe_line line(4);
        CHECK(line.pick(requests, row.first, row.most, row.pays, row.cheapest,
                        [&](request_view const& r) { return prices[r.slot]; }) == row.chosen.size());
        std::size_t count = 0;
        for (std::size_t const r : row.chosen) CHECK(line.has(r));
        for (std::size_t r = 0; r < 4; ++r) count += line.has(r) ? 1u : 0u;
        CHECK(count == row.chosen.size());
    }
}
