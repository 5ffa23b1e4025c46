// SPDX-License-Identifier: MIT
//
// Ranks that verify the same: by construction where they hold the same tables, by an exchange where clocks and
// histories differ; and ranks with requests of their own that pad to one size. Planning beside the draw, on another
// thread.
//
// Meant for the thread sanitizer too.
#include "support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/speed_targets.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/closed_loop.hpp"
#include "support/small_world.hpp"
#include "support/survival_tables.hpp"

using namespace closed_loop;
using support::owned_table;

namespace {

/// What ranks say to each other, as threads: every answer waits for all of them.
class meeting {
public:
    explicit meeting(std::size_t ranks) : said_(ranks), heard_(ranks), gate_(static_cast<std::ptrdiff_t>(ranks)) {}

    template <class T, class Choose>
    T decide(std::size_t rank, T own, Choose const& choose) noexcept {
        said_[rank] = static_cast<double>(own);
        gate_.arrive_and_wait();
        auto const answer = static_cast<T>(choose(said_));
        gate_.arrive_and_wait();
        return answer;
    }
    /// Rank 0's limits, weights and floor.
    void drafting(std::size_t rank, std::span<request_view> requests, fixed_probability& floor) noexcept {
        if (rank == 0) {
            views_ = requests;
            floor_ = floor;
        }
        gate_.arrive_and_wait();
        for (std::size_t r = 0; rank != 0 && r < requests.size(); ++r) {
            requests[r].draft_limit = views_[r].draft_limit;
            requests[r].weight = views_[r].weight;
        }
        floor = floor_;
        gate_.arrive_and_wait();
    }
    std::size_t& exchanges(std::size_t rank) { return heard_[rank]; }

private:
    std::vector<double> said_;
    std::vector<std::size_t> heard_;
    std::span<request_view const> views_{};
    fixed_probability floor_ = 0;
    std::barrier<> gate_;
};

double first(std::vector<double> const& all) {
    return all.front();
}
double largest(std::vector<double> const& all) {
    return *std::max_element(all.begin(), all.end());
}

struct by_rank_0 {
    meeting* ranks;
    std::size_t rank;
    std::size_t operator()(std::size_t batch) const noexcept {
        ++ranks->exchanges(rank);
        return ranks->decide(rank, batch, first);
    }
    double seconds(double s) const noexcept { return ranks->decide(rank, s, first); }
};
struct all_by_rank_0 : by_rank_0 {
    void drafting(std::span<request_view> requests, fixed_probability& floor) const noexcept {
        ranks->drafting(rank, requests, floor);
    }
};
struct by_maximum {
    meeting* ranks;
    std::size_t rank;
    std::size_t operator()(std::size_t batch) const noexcept {
        ++ranks->exchanges(rank);
        return ranks->decide(rank, batch, largest);
    }
};

/// Runs a function for every rank, each on a thread of its own.
std::vector<outcome> on_ranks(std::size_t ranks, std::function<outcome(std::size_t)> const& of_rank) {
    std::vector<outcome> all(ranks);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks; ++i) threads.emplace_back([&, i] { all[i] = of_rank(i); });
    for (std::thread& t : threads) t.join();
    return all;
}

constexpr std::size_t requests = 24;
machine const stairs{.padded_to = 16, .draft = 0.05, .per_draft_token = 0.004};
std::size_t full(std::size_t) {
    return requests;
}

}  // namespace

TEST_CASE("lengths are a function of the tables: any version of the passes, any thread, any memory") {
    support::dice roll(30);
    for (int trial = 0; trial < 60; ++trial) {
        std::size_t const count = trial % 6 == 0 ? 1024 + roll.below(1024) : 1 + roll.below(40);
        std::size_t const gamma = 1 + roll.below(8);
        owned_table const live = support::random_table(roll, count, gamma, roll.chance(0.5) ? 5 : 1000);
        owned_table const past = support::random_table(roll, count, gamma, roll.chance(0.5) ? 5 : 1000);
        machine const m{.padded_to = 1 + roll.below(64)};
        std::size_t const last = count + roll.below(count * gamma);

        auto const lengths = [&](survival_kernels const& kernels) {
            hysteresis schedule{planned_schedule{m}};
            round_record record;
            record.load = {.requests = count, .batch_tokens = last, .drafting = 1};
            schedule.observe(record);
            support::admission_memory planning(count);
            support::admission_memory memory(count);
            auto const budget =
                schedule.budget(detail::planning_access::make<from_anchor>(past.view(), planning.view(kernels)));
            (void)admit(schedule, draft_table{live.view(), {}, {}}, budget, memory.view(kernels));
            return memory.lengths;
        };
        auto const expected = lengths(scalar_kernels<survival_kernels>);
        INFO("seed " << roll.seed() << ", trial " << trial << ", requests " << count);
        for (survival_kernels const* const kernels : available_kernels<survival_kernels>())
            CHECK(lengths(*kernels) == expected);
        std::vector<decltype(lengths(scalar_kernels<survival_kernels>))> found(4);
        std::vector<std::thread> threads;
        for (auto& f : found) threads.emplace_back([&] { f = lengths(native_kernels<survival_kernels>()); });
        for (std::thread& t : threads) t.join();
        for (auto const& f : found) CHECK(f == expected);
    }
}

TEST_CASE("ranks with clocks of their own: batches differ, and agree once seconds and batches are exchanged") {
    constexpr std::size_t ranks = 3;
    blocks const world(31, requests, 150, 7, [](std::size_t, std::size_t) { return code; });
    std::vector<request_settings> settings(requests, request_settings{.max_new_tokens = 1u << 30});
    for (std::size_t r = 0; r < 6; ++r) settings[r].tokens_per_second = 2.5;
    auto const schedule_of = [] { return speed_targets{top_k_schedule{stairs}}; };
    auto const options_of = [&](std::size_t rank) {
        return run_options{.settings = &settings, .noise = 0.3, .noise_seed = 100 + rank};
    };

    auto const apart = on_ranks(ranks, [&](std::size_t rank) {
        auto schedule = schedule_of();
        return run(world, schedule, stairs, full, options_of(rank));
    });
    CHECK(apart[0].lengths != apart[1].lengths);

    meeting table(ranks);
    auto const together = on_ranks(ranks, [&](std::size_t rank) {
        agreed schedule{schedule_of(), by_rank_0{&table, rank}};
        return run(world, schedule, stairs, full, options_of(rank));
    });
    for (outcome const& o : together) CHECK(o.lengths == together[0].lengths);
    for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(table.exchanges(rank) == world.rounds);
}

TEST_CASE("ranks with histories of their own: a rank that was restarted follows") {
    blocks const world(32, requests, 150, 7, [](std::size_t, std::size_t) { return chat; });
    blocks const other(33, requests, 40, 7, [](std::size_t, std::size_t) { return math; });
    auto const schedule_of = [](std::size_t rank, auto schedule, blocks const& before) {
        if (rank == 0) {  // has seen other rounds
            auto& known = schedule;
            (void)run(before, known, stairs, full);
        }
        return schedule;
    };
    auto const bare = [] { return never_lose{planned_schedule{stairs}}; };
    auto const apart = on_ranks(2, [&](std::size_t rank) {
        auto schedule = schedule_of(rank, bare(), other);
        return run(world, schedule, stairs, full);
    });
    CHECK(apart[0].lengths != apart[1].lengths);

    meeting table(2);
    auto const together = on_ranks(2, [&](std::size_t rank) {
        agreed schedule{schedule_of(rank, bare(), other), all_by_rank_0{{&table, rank}}};
        return run(world, schedule, stairs, full);
    });
    CHECK(together[0].lengths == together[1].lengths);
    CHECK(together[0].lengths == apart[0].lengths);
}

TEST_CASE("ranks with requests of their own pad to one size, and fill it") {
    // As many requests as there happen to be; rank 2 drafts nothing at all and still takes part.
    constexpr std::size_t ranks = 3;
    constexpr std::size_t rounds = 120;
    machine const costly{.per_token = 1.0 / 24, .padded_to = 16};
    std::vector<blocks> worlds;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        worlds.emplace_back(40 + rank, requests, rounds, 7, [](std::size_t, std::size_t) { return code; });
    }
    std::vector<request_settings> const silent(requests,
                                               request_settings{.max_new_tokens = 1u << 30, .max_draft_tokens = 0});
    auto const load_of_rank = [](std::size_t rank) {
        return [rank](std::size_t t) { return 4 + (7 * t + 11 * rank) % 21; };
    };
    auto const options_of = [&](std::size_t rank) { return run_options{.settings = rank == 2 ? &silent : nullptr}; };
    auto const apart = on_ranks(ranks, [&](std::size_t rank) {
        planned_schedule schedule{costly};
        return run(worlds[rank], schedule, costly, load_of_rank(rank), options_of(rank));
    });
    meeting table(ranks);
    auto const together = on_ranks(ranks, [&](std::size_t rank) {
        agreed schedule{planned_schedule{costly}, by_maximum{&table, rank}};
        return run(worlds[rank], schedule, costly, load_of_rank(rank), options_of(rank));
    });
    double before = 0.0;
    double filled = 0.0;
    for (std::size_t t = 0; t < rounds; ++t) {
        std::size_t most = 0;
        for (outcome const& o : apart) most = std::max(most, o.batches[t]);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            std::size_t const n = load_of_rank(rank)(t);
            INFO("round " << t << ", rank " << rank);
            CHECK(together[rank].batches[t] == std::min(most, rank == 2 ? n : 8 * n));
            before += apart[rank].round_tokens[t];
            filled += together[rank].round_tokens[t];
        }
    }
    // The time is that of the largest batch in both; what padding pays for is used.
    INFO("tokens " << before << " apart, " << filled << " together");
    CHECK(filled > 1.02 * before);
    for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(table.exchanges(rank) == rounds);
}

TEST_CASE("a budget from past rounds is planned beside the draw") {
    // The stages of a round, the plan on a thread of its own from the moment drawing begins: same lengths, and no data
    // race.
    using namespace small_world;
    world const w{12, 3, 3};
    auto target = target_of(w);
    auto const tokens_of = [&](bool beside) {
        auto drafter = semi_of(w);
        token_rejection<> const rule;
        auto schedule = lagged_top_k<2>(machine{.padded_to = 4}, 0.7);
        constexpr std::size_t count = 5;
        round_memory<double, double> memory(drafter, schedule, rule, {.max_requests = count});
        std::vector<std::vector<token_id>> texts;
        for (std::size_t r = 0; r < count; ++r) texts.push_back({static_cast<token_id>(r % w.vocabulary)});
        request_settings const settings{.max_new_tokens = 1000};
        philox_randomness const rng;
        no_logits_hook const hook;
        std::vector<std::size_t> batches;
        for (std::size_t t = 0; t < 40; ++t) {
            std::vector<request_view> views;
            for (std::size_t r = 0; r < count; ++r) {
                views.push_back({.id = r + 1,
                                 .slot = r,
                                 .anchor = texts[r].back(),
                                 .position = texts[r].size() - 1,
                                 .context = texts[r],
                                 .seed = 70 + r,
                                 .remaining = 500,
                                 .settings = &settings});
            }
            REQUIRE(begin_round(schedule, std::span<request_view const>(views), memory));
            auto const forward = drafter.forward(memory.requests());
            if (beside) {
                std::atomic<bool> begun{false};
                std::thread planning([&] {
                    begun = true;
                    plan(schedule, memory);
                });
                while (!begun) std::this_thread::yield();
                draw(drafter, forward, rule, rng, memory);
                planning.join();
            } else {
                plan(schedule, drafter, forward, memory);
                draw(drafter, forward, rule, rng, memory);
            }
            accept(rule, score(target, admit(schedule, memory)), hook, rng, memory);
            round_record const record = end_round(schedule, memory);
            for (verdict const& v : record.verdicts) {
                texts[v.slot].insert(texts[v.slot].end(), v.emitted.begin(), v.emitted.end());
            }
            batches.push_back(record.load.batch_tokens);
        }
        texts.push_back({batches.begin(), batches.end()});
        return texts;
    };
    CHECK(tokens_of(true) == tokens_of(false));
}
