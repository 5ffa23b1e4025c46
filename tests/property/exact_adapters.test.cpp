// SPDX-License-Identifier: MIT
//
// Schedule adapters. Those that limit drafts, cut chains, weigh requests or hold a budget by past rounds do not change
// the law, under rules that a look ahead would bias.
#include "support/exactness.hpp"

#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/verify/block.hpp>

#include "support/adapters.hpp"

using namespace exactness;

namespace {

/// Drafting costs, so that limits, gates and probes have something to decide about.
struct dear_drafts {
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return 1.0 + 0.65 * static_cast<double>(load.batch_tokens / 2) + 0.08 * static_cast<double>(load.draft_tokens);
    }
};

/// Only drafting costs.
struct cheap_rows {
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return 1.0 + 0.01 * static_cast<double>(load.batch_tokens) + static_cast<double>(load.draft_tokens);
    }
};

template <class Rule>
void check_rule(Rule const& rule) {
    for (trial t : trials()) {
        if (t.large) continue;
        // Priorities and targets that differ: weights do something.
        t.what.requests[0].settings.tokens_per_second = 1.1;
        t.what.requests.back().settings.priority = 0.4;
        adapters::for_each_adapter(dear_drafts{}, [&](std::string const& name, auto const& schedule) {
            auto const make = [&] { return semi_of(t.where); };
            check_exact(name, enumerator::noise::keyed, t.where, t.what, make, schedule, rule);
        });
    }
}

}  // namespace

TEST_CASE("adapters: token rejection keeps the law", "[exact][long]") {
    check_rule(token_rejection<>{});
}

TEST_CASE("adapters: block verification keeps the law", "[exact][long]") {
    check_rule(block_verification{});
}

TEST_CASE("adapters: lookup joined with a model keeps the law, also where the model is not asked", "[exact]") {
    with_lookup_options const joined{
        .longest = 3,
        .shortest = 1,
        .acceptance = {.assumed = 0.6, .assumed_longest = 0.6, .assumed_weight = 1, .memory = 4}};
    std::size_t found_alone = 0;  // tokens found in rounds in which the model was not to draft
    auto const check = [&](auto const& rule) {
        for (std::uint64_t const seed : {1u, 2u}) {
            world const w{seed, 2, 2};
            auto const make = [&] { return with_lookup{semi_of(w), joined}; };
            adapters::for_each_adapter(dear_drafts{}, [&](std::string const& name, auto const& schedule) {
                check_exact(name, enumerator::noise::keyed, w, {{{{0, 1, 0}}}, 3, 1}, make, schedule, rule);
                check_exact(name, enumerator::noise::keyed, w, {{{{1, 1}}, {{0}, {}, 0}}, 2, 1}, make, schedule, rule);
            });
            auto target = target_of(w);
            never_lose schedule{planned_schedule{cheap_rows{}}, {.prior = 0.6, .probing = 0.01}};
            auto longer = joined;
            longer.shortest = 3;  // so that the model drafts first, and shows that it does not pay
            for (std::uint64_t run = 0; run < 40; ++run) {
                decoder dec{target, with_lookup{semi_of(w), longer}, schedule, rule, {.seed = run}};
                dec.submit(std::vector<token_id>{0, 1, 0}, {.max_new_tokens = 24});
                while (dec.step()) {
                    auto const& round = dec.round();
                    bool const only_found = round.requests[0].model_limit == 0 && round.found[0];
                    found_alone += only_found && round.verdicts[0].verified > 0 ? 1u : 0u;
                }
            }
        }
    };
    check(token_rejection<>{});
    check(block_verification{});
    CHECK(found_alone > 20);
}

TEST_CASE("adapters act in the scenes that they are judged on") {
    // Exactness of something that never does anything would be no news: limits, floors and weights differ between
    // paths.
    dear_drafts const cost;
    never_lose schedule{planned_schedule{cost}, adapters::careful};
    world const w{12, 2, 2};
    auto target = target_of(w);
    std::size_t limited = 0;
    std::size_t cut = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        decoder dec{target, semi_of(w), schedule, token_rejection<>{}, {.max_requests = 2, .seed = seed}};
        dec.submit(std::vector<token_id>{0}, {.max_new_tokens = 12});
        dec.submit(std::vector<token_id>{1}, {.max_new_tokens = 12});
        while (dec.step()) {
            for (request_view const& r : dec.round().requests) limited += r.model_limit < 2 ? 1 : 0;
            for (verdict const& v : dec.round().verdicts) cut += v.drafted == 1 ? 1 : 0;
        }
    }
    CHECK(limited > 20);
    CHECK(cut > 20);
}
