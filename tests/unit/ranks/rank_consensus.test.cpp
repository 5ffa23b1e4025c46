// SPDX-License-Identifier: MIT
//
// Ranks that agree over a communicator: with clocks, histories and requests of their own; and those that do not, which
// all of them learn before anything is emitted.
//
// Meant for the thread sanitizer too.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/speed_targets.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/closed_loop.hpp"
#include "support/error_text.hpp"
#include "support/on_ranks.hpp"
#include "support/small_world.hpp"

using namespace closed_loop;
using support::error_text;
using support::on_ranks;
using support::says;

namespace {

static_assert(batch_exchange<rank_consensus<one_rank>>);
static_assert(planner<agreed<top_k_schedule<machine>, rank_consensus<one_rank>>>);

constexpr std::size_t requests = 24;
machine const stairs{.padded_to = 16, .draft = 0.05, .per_draft_token = 0.004};
std::size_t full(std::size_t) {
    return requests;
}

/// What a rank's decoder emitted, and what its rounds ended with.
struct told {
    std::vector<std::vector<token_id>> texts;
    std::vector<status> outcomes;

    [[nodiscard]] std::size_t tokens() const {
        std::size_t count = 0;
        for (auto const& text : texts) count += text.size();
        return count;
    }
};

/// A decoder on every rank, for `rounds` rounds. before(rank, round) may do something first; false ends the rank.
struct rank_of_engine {
    std::uint64_t seed = 70;
    std::size_t submitted = 4;
    std::uint64_t fingerprint = 0;
    token_id stop = no_token;  // behind which its target has no law
};
std::vector<told> decode(std::size_t size, std::size_t rounds, thread_ranks& ranks,
                         std::function<rank_of_engine(std::size_t)> const& make,
                         std::function<bool(std::size_t, std::size_t)> const& before) {
    std::vector<told> all(size);
    on_ranks(size, [&](std::size_t rank) {
        using namespace small_world;
        rank_of_engine const engine = make(rank);
        world const w{.seed = 12, .vocabulary = 3, .block_size = 3, .stop = engine.stop};
        auto target = target_of(w);
        auto own = ranks.of(rank);
        decoder dec{target,
                    semi_of(w),
                    agreed{top_k_schedule{machine{.padded_to = 4}},
                           rank_consensus{own, {.max_requests = 8, .fingerprint = engine.fingerprint}}},
                    token_rejection{},
                    {.max_requests = 8}};
        told& out = all[rank];
        std::vector<request_id> ids;
        for (std::size_t r = 0; r < engine.submitted; ++r) {
            ids.push_back(dec.submit(std::vector<token_id>{static_cast<token_id>(r % w.vocabulary)},
                                     {.seed = engine.seed + r, .max_new_tokens = 10000}));
        }
        out.texts.resize(ids.size());
        for (std::size_t t = 0; t < rounds; ++t) {
            if (!before(rank, t)) return ranks.leave();
            if (!dec.step()) break;
            status outcome = status::ok;
            for (auto const& event : dec.events()) {
                if (event.outcome != status::ok) outcome = event.outcome;
                auto const r = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.request) - ids.begin());
                out.texts[r].insert(out.texts[r].end(), event.tokens.begin(), event.tokens.end());
            }
            out.outcomes.push_back(outcome);
            if (outcome != status::ok && outcome != status::invalid_target) break;
            for (auto const& event : dec.events()) {
                if (event.outcome != status::ok) dec.resume(event.request);
            }
        }
    });
    return all;
}
bool always(std::size_t, std::size_t) {
    return true;
}

}  // namespace

TEST_CASE("rank consensus: clocks of their own, and a rank that was restarted") {
    constexpr std::size_t size = 3;
    blocks const world(31, requests, 120, 7, [](std::size_t, std::size_t) { return code; });
    blocks const before(33, requests, 40, 7, [](std::size_t, std::size_t) { return math; });
    std::vector<request_settings> settings(requests, request_settings{.max_new_tokens = 1u << 30});
    for (std::size_t r = 0; r < 6; ++r) settings[r].tokens_per_second = 2.5;
    thread_ranks ranks{size};
    std::vector<outcome> all(size);
    on_ranks(size, [&](std::size_t rank) {
        auto known = never_lose{speed_targets{top_k_schedule{stairs}}};
        if (rank == 0) (void)run(before, known, stairs, full);
        auto own = ranks.of(rank);
        agreed schedule{std::move(known), rank_consensus{own, {.max_requests = requests}}};
        all[rank] = run(world, schedule, stairs, full, {.settings = &settings, .noise = 0.3, .noise_seed = 100 + rank});
    });
    for (outcome const& o : all) CHECK(o.lengths == all[0].lengths);
}

TEST_CASE("rank consensus: requests of their own pad to one size") {
    constexpr std::size_t size = 3;
    machine const costly{.per_token = 1.0 / 24, .padded_to = 16};
    std::vector<blocks> worlds;
    for (std::size_t rank = 0; rank < size; ++rank) {
        worlds.emplace_back(40 + rank, requests, 60, 7, [](std::size_t, std::size_t) { return code; });
    }
    auto const load_of = [](std::size_t rank) {
        return [rank](std::size_t t) { return 4 + (7 * t + 11 * rank) % 21; };
    };
    thread_ranks ranks{size};
    std::vector<outcome> all(size);
    on_ranks(size, [&](std::size_t rank) {
        auto own = ranks.of(rank);
        agreed schedule{top_k_schedule{costly}, rank_consensus{own, {.requests = rank_requests::own}}};
        all[rank] = run(worlds[rank], schedule, costly, load_of(rank), {.noise = 0.2, .noise_seed = 5 + rank});
    });
    for (std::size_t t = 0; t < 60; ++t) {
        std::size_t most = 0;
        for (outcome const& o : all) most = std::max(most, o.batches[t]);
        for (std::size_t rank = 0; rank < size; ++rank) {
            INFO("round " << t << ", rank " << rank);
            CHECK(all[rank].batches[t] == std::min(most, 8 * load_of(rank)(t)));
        }
    }
}

TEST_CASE("rank consensus: ranks with the same requests emit the same") {
    thread_ranks ranks{3};
    auto const all = decode(3, 30, ranks, [](std::size_t) { return rank_of_engine{}; }, always);
    CHECK(all[0].tokens() > 100);
    for (told const& o : all) {
        CHECK(o.texts == all[0].texts);
        CHECK(o.outcomes == std::vector<status>(30, status::ok));
    }
}

TEST_CASE("rank consensus: ranks with other requests or seeds end the round with an error, on all ranks") {
    for (auto const& odd :
         {rank_of_engine{.seed = 71}, rank_of_engine{.submitted = 3}, rank_of_engine{.submitted = 5}}) {
        thread_ranks ranks{3};
        auto const all =
            decode(3, 30, ranks, [&](std::size_t rank) { return rank == 1 ? odd : rank_of_engine{}; }, always);
        for (told const& o : all) {
            CHECK(o.outcomes == std::vector<status>{status::ranks_differ});
            CHECK(o.tokens() == 0);
        }
    }
}

TEST_CASE("rank consensus: a rank that is lost ends the others' round with nothing emitted, and no sooner") {
    for (std::size_t const size : {2u, 3u}) {
        thread_ranks ranks{size, {.seconds = 30.0}};
        auto const all = decode(
            size, 30, ranks, [](std::size_t) { return rank_of_engine{}; },
            [](std::size_t rank, std::size_t t) { return rank != 1 || t < 12; });
        thread_ranks again{size};
        auto const whole = decode(size, 12, again, [](std::size_t) { return rank_of_engine{}; }, always);
        CHECK(all[1].outcomes == std::vector<status>(12, status::ok));
        for (std::size_t rank = 0; rank < size; ++rank) {
            CHECK(all[rank].texts == whole[0].texts);  // from which the requests can be resumed
            if (rank == 1) continue;
            REQUIRE(all[rank].outcomes.size() == 13);
            CHECK(all[rank].outcomes.back() == status::ranks_lost);
        }
    }
}

TEST_CASE("rank consensus: a rank whose target gave a row without a law is found in the next round") {
    thread_ranks ranks{3};
    auto const all = decode(
        3, 30, ranks, [](std::size_t rank) { return rank_of_engine{.stop = rank == 1 ? token_id{2} : no_token}; },
        always);
    for (told const& o : all) {
        REQUIRE(o.outcomes.size() >= 2);
        REQUIRE(o.outcomes.size() == all[1].outcomes.size());
        bool const has_none = &o == &all[1];
        CHECK(o.outcomes[o.outcomes.size() - 2] == (has_none ? status::invalid_target : status::ok));
        CHECK(o.outcomes.back() == status::ranks_differ);
    }
}

TEST_CASE("rank consensus: another model, version or size is refused when it is made, on all ranks") {
    thread_ranks ranks{3};
    std::vector<std::string> texts(3);
    on_ranks(3, [&](std::size_t rank) {
        auto own = ranks.of(rank);
        texts[rank] = error_text([&] { rank_consensus{own, {.fingerprint = rank == 2 ? 5u : 4u}}; });
    });
    for (std::string const& text : texts) CHECK(says(text, {"rank 2", "fingerprint", "rank 0"}));

    thread_ranks alone{2, {.seconds = 0.05}};
    auto own = alone.of(0);
    CHECK(says(error_text([&] { rank_consensus{own}; }), {"rank 0 of 2", "waited in vain"}));
}

TEST_CASE("rank consensus: a schedule that is chosen at run time passes it on") {
    one_rank ranks;
    any_schedule const schedule{agreed{top_k_schedule{stairs}, rank_consensus{ranks}}};
    CHECK(schedule.standing() == status::ok);
}
