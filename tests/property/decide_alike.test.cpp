// SPDX-License-Identifier: MIT
//
// A round that failed is run again, and has to be limited, cut and planned as it was: otherwise its length depends on
// why it failed, which may be a token that was drafted. So every adapter decides alike, however often it is asked and
// whoever else it was asked about, until a round is observed; and goes on as if it had been asked once.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/adapters.hpp"
#include "support/closed_loop.hpp"

using namespace closed_loop;

namespace {

constexpr std::size_t block = 5;
constexpr std::size_t most = 24;  // requests

/// Traffic in which everything changes: who is there, how well drafts do, what tokens are worth.
struct traffic {
    explicit traffic(std::uint64_t seed)
        : roll(seed),
          world(
              seed, most, 150, block, [&](std::size_t, std::size_t) { return kinds[roll.below(4)]; },
              20 + roll.below(60)) {
        for (std::size_t t = 0; t < world.rounds; ++t) loads.push_back(1 + roll.below(t / 40 % 2 == 0 ? most : 6));
        for (std::size_t r = 0; r < most; ++r) {
            settings.push_back({.max_new_tokens = 1u << 30,
                                .max_draft_tokens = roll.chance(0.1) ? roll.below(block) : block,
                                .priority = roll.chance(0.3) ? 0.3 : 1.0,
                                .tokens_per_second = roll.chance(0.3) ? roll.between(0.5, 3.0) : 0.0});
        }
    }

    template <class Schedule, class Cost>
    [[nodiscard]] outcome through(Schedule& schedule, Cost const& cost, std::uint64_t failures) const {
        auto const load = [&](std::size_t t) { return loads[t]; };
        return run(world, schedule, cost, load, {.settings = &settings, .noise = 0.1, .failures = failures});
    }

    static constexpr domain kinds[] = {chat, code, math, {-1.5, 0.3, 0.5, 0.5}};
    support::dice roll;
    blocks world;
    std::vector<std::size_t> loads{};
    std::vector<request_settings> settings{};
};

machine const machines[] = {
    {.per_token = 1.0 / 40, .draft = 0.02},
    {.per_token = 1.0 / 200, .draft = 0.25, .per_draft_token = 0.004},
    {.padded_to = 16, .draft = 0.05, .per_draft_token = 0.004},
};

/// Two copies of the schedule, one of which lives through failures, in two runs: what the first left decides in the
/// second.
template <class Schedule>
[[nodiscard]] bool decides_alike(Schedule const& schedule, machine const& cost, std::uint64_t seed) {
    Schedule calm = schedule;
    Schedule tried = schedule;
    for (std::uint64_t const s : {seed, seed + 1}) {
        traffic const t(s);
        outcome const expected = t.through(calm, cost, 0);
        outcome const found = t.through(tried, cost, 1000 + s);
        if (found.decisions != expected.decisions || found.lengths != expected.lengths ||
            found.by_slot != expected.by_slot) {
            return false;
        }
    }
    return true;
}

}  // namespace

TEST_CASE("asked again, every adapter decides alike until a round is observed") {
    for (machine const& cost : machines) {
        adapters::for_each_adapter(cost, [&](std::string const& name, auto const& schedule) {
            for (std::uint64_t seed = 1; seed <= 10; seed += 2) {
                INFO(name << ", seed " << seed << ", per token " << cost.per_token << ", padded to " << cost.padded_to);
                CHECK(decides_alike(schedule, cost, seed));
            }
        });
    }
}

TEST_CASE("the traffic makes adapters do something") {
    std::size_t limited = 0;
    std::size_t weighed = 0;
    std::size_t cut = 0;
    std::size_t planned = 0;
    traffic const t(3);
    for (machine const& cost : machines) {
        auto schedule = never_lose{speed_targets{planned_schedule{cost}}};
        auto const& decisions = t.through(schedule, cost, 0).decisions;
        auto at = decisions.begin();
        for (std::size_t const load : t.loads) {
            for (std::size_t r = 0; r < load; ++r) {
                limited += *at++ < block ? 1u : 0u;
                weighed += *at++ < certain / 3 ? 1u : 0u;
            }
            cut += *at++ > 0 ? 1u : 0u;
            planned += *at++ > 0 ? 1u : 0u;
        }
        CHECK(at == decisions.end());
    }
    INFO("limited " << limited << ", weighed " << weighed << ", cut " << cut << ", planned " << planned);
    for (std::size_t const n : {limited, weighed, cut, planned}) CHECK(n > 50);
}

// ---- what the test would see ----------------------------------------------------------------------------------------

namespace {

using plain = planned_schedule<machine>;

/// Takes turns by how often it is asked, and not by the rounds that were run.
struct advances : schedule_adapter<plain> {
    std::size_t asked = 0;
    explicit advances(plain schedule) : schedule_adapter(std::move(schedule)) {}
    void limit_drafts(std::span<request_view> requests) noexcept {
        ++asked;
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if ((r + asked) % 4 == 0) requests[r].draft_limit = 1;
        }
    }
};

/// The same of a floor.
struct cuts_in_turn : schedule_adapter<plain> {
    mutable std::size_t asked = 0;
    explicit cuts_in_turn(plain schedule) : schedule_adapter(std::move(schedule)) {}
    [[nodiscard]] fixed_probability draft_floor() const noexcept { return ++asked % 4 == 0 ? certain / 2 : 0; }
};

/// The same of a budget.
struct plans_in_turn : schedule_adapter<plain> {
    mutable std::size_t asked = 0;
    explicit plans_in_turn(plain schedule) : schedule_adapter(std::move(schedule)) {}
    template <class Origin>
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& table) const {
        return ++asked % 4 == 0 ? 0 : schedule_adapter::budget(table);
    }
};

/// Forgets a request as soon as it is asked about another in its slot, though that one's round may fail.
struct forgets : schedule_adapter<plain> {
    std::vector<request_id> known = std::vector<request_id>(most);
    std::vector<std::size_t> rounds = std::vector<std::size_t>(most);
    explicit forgets(plain schedule) : schedule_adapter(std::move(schedule)) {}
    void limit_drafts(std::span<request_view> requests) noexcept {
        for (request_view& r : requests) {
            if (known[r.slot] != r.id) rounds[r.slot] = 0;
            known[r.slot] = r.id;
            if (rounds[r.slot] < 4) r.draft_limit = 1;
        }
    }
    void observe(round_record const& record) noexcept {
        for (request_view const& r : record.requests) ++rounds[r.slot];
    }
};

}  // namespace

TEST_CASE("an adapter that advances when it is asked is caught") {
    for (machine const& cost : machines) {
        for (std::uint64_t const seed : {1u, 3u}) {
            INFO("seed " << seed);
            CHECK_FALSE(decides_alike(advances{plain{cost}}, cost, seed));
            CHECK_FALSE(decides_alike(cuts_in_turn{plain{cost}}, cost, seed));
            CHECK_FALSE(decides_alike(plans_in_turn{plain{cost}}, cost, seed));
            CHECK_FALSE(decides_alike(forgets{plain{cost}}, cost, seed));
        }
    }
}
