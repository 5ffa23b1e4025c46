// SPDX-License-Identifier: MIT
//
// Schedules inside schedules: whatever limits drafts, cuts chains, weighs requests or holds a budget by past rounds leaves
// the law as it is, under rules that a look ahead would bias.
#include "support/exactness.hpp"

#include <sureleap/acceptance/block.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/speed_targets.hpp>

using namespace exactness;

namespace {

/// Drafting costs, so that limits, gates and probes have something to decide about.
struct dear_drafts {
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return 1.0 + 0.65 * static_cast<double>(load.batch_tokens / 2) + 0.08 * static_cast<double>(load.draft_tokens);
    }
};

struct as_said {
    [[nodiscard]] std::size_t operator()(std::size_t batch) const noexcept { return batch; }
    [[nodiscard]] double seconds(double) const noexcept { return 1.0; }
};

never_lose_options const careful{.prior = 0.6, .probing = 0.3};

template <class Visit>
void for_each_adapter(Visit&& visit) {
    speed_target_options const targets{.window = 2.0, .step = 2.0, .most = 3.0, .patience = 1};
    dear_drafts const cost;
    visit("never lose, planned", never_lose{planned_schedule{cost}, careful});
    visit("never lose, lagged", never_lose{lagged_top_k<1>(cost, 0.7), careful});
    visit("never lose, greedy", never_lose{greedy_schedule{cost}, careful});
    visit("never lose, fixed", never_lose{fixed_schedule{}, cost, careful});
    visit("hysteresis, planned", hysteresis{planned_schedule{jagged_capacity{}}, {.margin = 0.3}});
    visit("hysteresis, lagged", hysteresis{lagged_top_k<1>(jagged_capacity{}, 0.7), {.margin = 0.3}});
    visit("targets, greedy", speed_targets{greedy_schedule{cost}, targets});
    visit("targets, planned", speed_targets{planned_schedule{cost}, targets});
    visit("all of them",
          agreed{never_lose{speed_targets{hysteresis{top_k_schedule{cost, 0.7}}, targets}, careful}, as_said{}});
}

template <class Rule>
void check_rule(Rule const& rule) {
    for (trial t : trials()) {
        if (t.large) continue;
        // Priorities and targets that differ: weights do something.
        t.what.requests[0].settings.tokens_per_second = 1.1;
        t.what.requests.back().settings.priority = 0.4;
        for_each_adapter([&](std::string const& name, auto const& schedule) {
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
    never_lose schedule{planned_schedule{cost}, careful};
    world const w{12, 2, 2};
    auto target = target_of(w);
    std::size_t limited = 0;
    std::size_t cut = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        decoder dec{target, semi_of(w), schedule, token_rejection<>{}, {.max_requests = 2, .seed = seed}};
        dec.join(std::vector<token_id>{0}, {.max_new_tokens = 12});
        dec.join(std::vector<token_id>{1}, {.max_new_tokens = 12});
        while (dec.step()) {
            for (request_view const& r : dec.round().requests) limited += r.draft_limit < 2 ? 1 : 0;
            for (verdict const& v : dec.round().verdicts) cut += v.drafted == 1 ? 1 : 0;
        }
    }
    CHECK(limited > 20);
    CHECK(cut > 20);
}
