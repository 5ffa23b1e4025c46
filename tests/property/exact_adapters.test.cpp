// SPDX-License-Identifier: MIT
//
// Schedule adapters. Those that limit drafts, cut chains, weigh requests or hold a budget by past rounds do not change
// the law, under rules that a look ahead would bias.
#include "support/exactness.hpp"

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

TEST_CASE("adapters act in the scenes that they are judged on") {
    // Exactness of something that never does anything would be no news: limits, floors and weights differ between paths.
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
            for (request_view const& r : dec.round().requests) limited += r.draft_limit < 2 ? 1 : 0;
            for (verdict const& v : dec.round().verdicts) cut += v.drafted == 1 ? 1 : 0;
        }
    }
    CHECK(limited > 20);
    CHECK(cut > 20);
}
