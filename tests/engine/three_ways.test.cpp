// SPDX-License-Identifier: MIT
//
// A decoder, a loop of stages and the engine's server serve the same requests, with priorities. Their schedule limits
// drafts, ends chains and observes. In every round all three draft, verify, emit and observe the same.
//
// The schedule's choices are a hash of everything that records of past rounds hold. So a record that differs in one
// number changes later rounds.
//
// A server whose round failed while it drafted goes on as if it had not.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <engine/parts.hpp>
#include <engine/server.hpp>
#include <sureleap/sureleap.hpp>

#include "support/adaptive.hpp"
#include "support/dice.hpp"
#include "support/tiny_models.hpp"

namespace {

using namespace sureleap;

constexpr std::size_t slots = 4;
constexpr tiny::drafter_shape drafter_shape{.block_size = 4};

/// A planner of past rounds that limits, stops and observes. The first round of a request is plain, as the server's is:
/// there are no features of its past yet.
struct probing_schedule : adaptive::free_schedule<top_k_schedule<analytic_capacity, 1>> {
    explicit probing_schedule(std::uint64_t seed)
        : free_schedule(lagged_top_k<1>(analytic_capacity{1000.0, 6.0}, 0.6),
                        {.limits = true, .floors = true, .seed = seed}) {}

    void limit_drafts(std::span<request_view> requests) const noexcept {
        free_schedule::limit_drafts(requests);
        for (request_view& r : requests) {
            if (r.position == 0) r.draft_limit = 0;
        }
    }
};
static_assert(draft_limiter<probing_schedule> && draft_stopper<probing_schedule> && round_observer<probing_schedule> &&
              planner<probing_schedule>);

/// What there is to see of a request's round.
struct request_round {
    request_id id;
    std::size_t limit;
    fixed_probability weight, floor;
    std::size_t drafted, verified, accepted;
    std::vector<token_id> emitted;
    std::vector<fixed_probability> survivals;

    [[nodiscard]] bool operator==(request_round const&) const = default;
};
using history = std::vector<std::map<request_id, request_round>>;

void append(history& to, round_record const& round) {
    auto& here = to.emplace_back();
    for (std::size_t r = 0; r < round.size(); ++r) {
        request_view const& request = round.requests[r];
        verdict const& v = round.verdicts[r];
        REQUIRE(v.outcome == status::ok);
        request_round seen{request.id,
                           request.draft_cap(drafter_shape.block_size),
                           request.weight,
                           request.draft_floor,
                           v.drafted,
                           v.verified,
                           v.accepted,
                           {},
                           {}};
        seen.emitted.assign(v.emitted.begin(), v.emitted.end());
        for (std::size_t k = 0; k < v.drafted; ++k) seen.survivals.push_back(round.survivals.at(r, k).survival);
        here.emplace(request.id, std::move(seen));
    }
}

/// The models of one way, and what an engine does beside the stages: the drafter feeds on features of what was emitted.
struct models {
    tiny::served parts;
    std::vector<engine::batch_row> rows{};
    std::vector<float> features{};
    std::vector<token_id> next{};
    verify_batch batch{};

    explicit models(tiny::agreeing_models const& m, tiny::kind drafter = tiny::kind::vanilla)
        : parts(m, drafter, drafter_shape, engine::storage::f32,
                {.slots = slots, .context_length = 64, .max_rows = slots * (drafter_shape.block_size + 1)}) {}

    [[nodiscard]] auto& drafter() { return std::get<engine::dspark_drafter<float>>(parts.drafter); }
    [[nodiscard]] std::size_t vocabulary() const { return parts.target.vocabulary(); }
    [[nodiscard]] logits_rows<float> score(verify_batch const& flat) {
        batch = flat;
        return parts.target.score(flat);
    }
    void commit(std::span<verdict const> verdicts) noexcept {
        auto const all = parts.target.features();
        rows.clear(), features.clear(), next.clear();
        for (std::size_t r = 0; r < verdicts.size(); ++r) {
            std::size_t const first = batch.first_row(r);
            for (std::size_t k = 0; k < verdicts[r].emitted.size(); ++k) {
                auto const position = static_cast<std::uint32_t>(batch.positions()[first + k]);
                rows.push_back({static_cast<std::uint32_t>(verdicts[r].slot), position, 0});
                features.insert(features.end(), all.row(first + k).begin(), all.row(first + k).end());
                next.push_back(verdicts[r].emitted[k]);
            }
        }
        if (!rows.empty()) parts.observer->observe(rows, features.data(), next);
    }
};

/// Limits and stops drafts by what past rounds were like, and fails once when it has admitted: in that admission from
/// now.
struct failing_schedule : adaptive::free_schedule<threshold_schedule> {
    std::size_t* admissions_left;  // 0: it does not fail

    explicit failing_schedule(std::size_t* left)
        : free_schedule(threshold_schedule{0.3}, {.limits = true, .floors = true, .seed = 7}), admissions_left(left) {}

    void limit_drafts(std::span<request_view> requests) const noexcept {
        free_schedule::limit_drafts(requests);
        for (request_view& r : requests) {
            if (r.position == 0) r.draft_limit = 0;
        }
    }
    void admit(causal_frontier& frontier) const {
        free_schedule::admit(frontier);
        if (*admissions_left > 0 && --*admissions_left == 0) throw std::runtime_error("admit");
    }
};
using server_type = engine::server<float>;

struct job {
    token_id prompt;
    request_settings settings;
};

template <class Rule>
history by_decoder(tiny::agreeing_models const& m, std::vector<job> const& jobs, std::uint64_t seed, Rule const& rule) {
    models mine(m);
    decoder dec{mine, mine.drafter(), probing_schedule{seed}, rule, {.max_requests = slots}};
    for (job const& j : jobs) dec.submit(std::span(&j.prompt, 1), j.settings);
    history seen;
    while (dec.step()) append(seen, dec.round());
    return seen;
}

template <class Rule>
history by_stages(tiny::agreeing_models const& m, std::vector<job> const& jobs, std::uint64_t seed, Rule const& rule) {
    models mine(m);
    auto& drafter = mine.drafter();
    probing_schedule schedule{seed};
    philox_randomness rng;
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = slots}};
    std::vector<std::vector<token_id>> texts;
    for (job const& j : jobs) texts.push_back({j.prompt});
    history seen;
    for (;;) {
        std::vector<request_view> views;
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            request_settings const& s = jobs[i].settings;
            std::size_t const emitted = texts[i].size() - 1;
            if (emitted == s.max_new_tokens) continue;
            views.push_back({.id = i + 1,
                             .slot = i,
                             .anchor = texts[i].back(),
                             .position = emitted,
                             .seed = *s.seed,
                             .remaining = s.max_new_tokens - emitted,
                             .settings = &s});
        }
        if (views.empty()) return seen;
        if (begin_round(schedule, views, memory)) {
            auto const forward = drafter.forward(memory.requests());
            plan(schedule, drafter, forward, memory);
            draw(drafter, forward, rule, rng, memory);
        }
        accept(rule, mine.score(admit(schedule, memory)), no_logits_hook{}, rng, memory);
        round_record const round = end_round(schedule, memory, mine, drafter);
        append(seen, round);
        for (verdict const& v : round.verdicts) {
            texts[v.slot].insert(texts[v.slot].end(), v.emitted.begin(), v.emitted.end());
        }
    }
}

history by_server(tiny::agreeing_models const& m, std::vector<job> const& jobs, std::uint64_t seed,
                  sureleap::any_rule const& rule) {
    models mine(m);
    server_type server(mine.parts.target, mine.parts.drafter, mine.parts.observer, probing_schedule{seed}, rule,
                       mine.parts.pool);
    for (job const& j : jobs) server.submit({j.prompt}, j.settings);
    history seen;
    while (server.step()) append(seen, server.last_round());
    return seen;
}

std::vector<job> random_jobs(support::dice& roll) {
    std::vector<job> jobs;
    for (std::size_t i = 0; i < slots; ++i) {
        jobs.push_back({static_cast<token_id>(roll.below(61)),
                        {.temperature = roll.between(0.4, 1.2),
                         .seed = roll.bits(),
                         .max_new_tokens = 20 + roll.below(30),
                         .priority = roll.between(0.2, 3.0)}});
    }
    return jobs;
}

template <class Rule>
void compare(std::uint64_t seed, Rule const& rule) {
    support::dice roll(seed);
    INFO("seed " << roll.seed());
    tiny::agreeing_models const m({2, 32, 48, 4, 2, 8, 61, true, 1e6}, seed);
    std::vector<job> const jobs = random_jobs(roll);
    history const one = by_decoder(m, jobs, seed, rule);
    CHECK(one == by_stages(m, jobs, seed, rule));
    CHECK(one == by_server(m, jobs, seed, rule));

    // And all that is compared was there to be seen.
    std::size_t weighted = 0, limited = 0, ended = 0, trimmed = 0, accepted = 0;
    for (auto const& round : one) {
        for (auto const& [id, r] : round) {
            weighted += r.weight != certain ? 1u : 0u;
            limited += r.limit > 0 && r.limit < drafter_shape.block_size ? 1u : 0u;
            ended += r.drafted < r.limit ? 1u : 0u;
            trimmed += r.verified < r.drafted ? 1u : 0u;
            accepted += r.accepted;
        }
    }
    for (std::size_t const n : {weighted, limited, ended, trimmed, accepted}) CHECK(n > 3);
}

/// The rounds of a server whose company changes after round `when`: the last job joins, the first leaves.
struct served_rounds {
    history seen;
    std::size_t failed_in = 0;        // the round whose admission failed
    std::vector<request_id> heard{};  // whom events were about after the change
};
served_rounds serve(tiny::agreeing_models const& m, tiny::kind drafter, std::vector<job> const& jobs,
                    std::size_t admissions_left, std::size_t when) {
    models mine(m, drafter);
    server_type server(mine.parts.target, mine.parts.drafter, mine.parts.observer, failing_schedule{&admissions_left},
                       token_rejection<>{}, mine.parts.pool);
    for (std::size_t i = 0; i + 1 < jobs.size(); ++i) server.submit({jobs[i].prompt}, jobs[i].settings);
    served_rounds found;
    bool changed = false;
    auto const change_company = [&] {
        server.submit({jobs.back().prompt}, jobs.back().settings);
        server.leave(1);
        changed = true;
    };
    for (;;) {
        try {
            if (!server.step()) return found;
        } catch (std::runtime_error const&) {
            REQUIRE_FALSE(changed);
            found.failed_in = found.seen.size() + 1;
            change_company();
            continue;
        }
        append(found.seen, server.last_round());
        if (changed) {
            for (auto const& event : server.events()) found.heard.push_back(event.id);
        }
        if (found.seen.size() == when) change_company();
    }
}

}  // namespace

TEST_CASE("server: a round that failed while it drafted comes first, as it was", "[engine]") {
    tiny::agreeing_models const m({2, 32, 48, 4, 2, 8, 61, true, 1e6}, 31);
    support::dice roll(31);
    INFO("seed " << roll.seed());
    std::vector<job> const jobs = random_jobs(roll);
    for (tiny::kind const drafter : {tiny::kind::vanilla, tiny::kind::eagle3}) {
        for (std::size_t const admissions : {2u, 5u, 9u}) {
            INFO(name_of(drafter) << ", admission " << admissions << " fails");
            served_rounds const failed = serve(m, drafter, jobs, admissions, 0);
            REQUIRE(failed.failed_in > 0);
            served_rounds const undisturbed = serve(m, drafter, jobs, 0, failed.failed_in);
            CHECK(failed.seen == undisturbed.seen);
            // Whoever left took part once more, and was not heard of.
            CHECK(failed.seen[failed.failed_in - 1].contains(1));
            CHECK_FALSE(failed.seen[failed.failed_in].contains(1));
            CHECK(failed.seen[failed.failed_in].contains(slots));
            CHECK(std::ranges::count(failed.heard, request_id{1}) == 0);
        }
    }
}

TEST_CASE("server: a round that failed is given up when all have left", "[engine]") {
    tiny::agreeing_models const m({2, 32, 48, 4, 2, 8, 61, true, 1e6}, 32);
    support::dice roll(32);
    INFO("seed " << roll.seed());
    std::vector<job> const jobs = random_jobs(roll);
    models mine(m, tiny::kind::eagle3);
    std::size_t admissions_left = 3;
    server_type server(mine.parts.target, mine.parts.drafter, mine.parts.observer, failing_schedule{&admissions_left},
                       token_rejection<>{}, mine.parts.pool);
    for (std::size_t i = 0; i < 2; ++i) server.submit({jobs[i].prompt}, jobs[i].settings);
    auto const run_until_it_fails = [&] {
        while (server.step()) {
        }
    };
    REQUIRE_THROWS_AS(run_until_it_fails(), std::runtime_error);
    request_id const late = server.submit({jobs[2].prompt}, jobs[2].settings);
    server.leave(1);
    server.leave(2);
    std::size_t tokens = 0;
    while (server.step()) {
        for (auto const& event : server.events()) {
            CHECK(event.id == late);
            tokens += event.tokens.size();
        }
    }
    CHECK(tokens == jobs[2].settings.max_new_tokens);
}

TEST_CASE("decoder, stages and server: the same rounds, drafted, verified, emitted, observed", "[engine]") {
    compare(21, token_rejection<>{});
    compare(22, block_verification<>{});
    compare(23, keyed_coupling{});
}
