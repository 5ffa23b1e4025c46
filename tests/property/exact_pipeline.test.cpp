// SPDX-License-Identifier: MIT
//
// Exactness of the whole pipeline: gates, floors, priorities, calibrations that learn and cost models of all that a step
// depends on, each alone and all together, under every causal schedule and every rule, for requests that join, leave and
// come back. Horizons are at least lag + 2, so that what past rounds decided has acted.
#include "support/adaptive.hpp"

using namespace adaptive;

namespace {

/// Depends on everything that a cost model may depend on, with cliffs that move with the context.
struct whole_step_cost {
    [[nodiscard]] double step_seconds(step_load const& l) const {
        std::size_t const shift = l.context_tokens % 2;
        return 1.0 + 0.5 * static_cast<double>((l.batch_tokens + shift) / 2) + 0.1 * static_cast<double>(l.requests) +
               0.02 * static_cast<double>(l.draft_tokens) + 0.05 * static_cast<double>(l.drafting);
    }
};

template <class Visit>
void for_each_costed_schedule(Visit&& visit) {
    visit("greedy, whole step", greedy_schedule{whole_step_cost{}});
    visit("planned, whole step", planned_schedule{whole_step_cost{}});
    visit("top-K, lag 1, whole step", lagged_top_k<1>(whole_step_cost{}, 0.7));
    visit("top-K, lag 2, whole step", top_k_schedule{whole_step_cost{}, 0.7});
}

struct pipeline_trial {
    world where;
    scene what;
    bool fresh_too = true;
    bool large = false;  ///< tens of thousands of paths
};

std::vector<pipeline_trial> pipeline_trials() {
    auto const one = [](token_id prompt, double priority = 1.0, std::uint32_t tenant = 0) {
        return scene_request{{prompt}, {.priority = priority, .tenant = tenant}};
    };
    std::vector<pipeline_trial> list;
    list.push_back({{11, 2, 2}, {{one(0)}, 5, 2}});
    list.push_back({{24, 2, 3}, {{one(1)}, 4, 1}});
    list.push_back({{22, 3, 2}, {{one(2)}, 4, 0}, false});
    // A stop token, and a cap of its own on the block.
    pipeline_trial stopped{{31, 3, 3}, {{one(0)}, 4, 0}, false};
    stopped.what.requests[0].settings.stop_tokens = stop_token;
    stopped.what.requests[0].settings.max_draft_tokens = 2;
    list.push_back(stopped);
    // Two requests of unequal priority; together, the second later, the first away for a round or two.
    list.push_back({{41, 2, 2}, {{one(0), one(1, 0.3, 1)}, 3, 1}});
    list.push_back({{44, 2, 2}, {{one(1), one(0, 0.3, 1)}, 4, 0}, false, true});
    pipeline_trial late{{42, 2, 2}, {{one(1, 0.2), one(0, 1.0, 1)}, 4, 0}, false, true};
    late.what.requests[1].joins_after = 1;
    list.push_back(late);
    pipeline_trial away{{43, 2, 2}, {{one(0, 1.0, 1), one(1, 0.5)}, 4, 0}, false, true};
    away.what.requests[0].leaves_after = 1;
    away.what.requests[0].returns_after = 2;
    list.push_back(away);
    pipeline_trial to_and_fro{{45, 2, 2}, {{one(0), one(1)}, 3, 1}};
    to_and_fro.what.requests[0].leaves_after = 2;
    to_and_fro.what.requests[0].returns_after = 3;
    to_and_fro.what.requests[1].joins_after = 1;
    to_and_fro.what.requests[1].settings.stop_tokens = std::span(stop_token);
    list.push_back(to_and_fro);
    return list;
}

template <class MakeDrafter, class Schedule, class Rule>
void check_one(std::string const& name, enumerator::noise kind, world const& w, scene const& s,
               MakeDrafter const& make_drafter, Schedule const& schedule, Rule const& rule, bool calibrated) {
    static_assert(is_lossless_round_v<Rule, Schedule, std::invoke_result_t<MakeDrafter const&>>,
                  "the exactness list holds combinations that the compiler lets through");
    INFO(name << ", " << (kind == enumerator::noise::keyed ? "keyed" : "fresh") << " noise, world " << w.seed
              << ", V = " << w.vocabulary << ", gamma = " << w.block_size << ", requests = " << s.requests.size());
    law const found = adaptive::law_of(kind, w, s, make_drafter, schedule, rule, calibrated);
    CHECK(largest_difference(found, autoregressive_law(w, s)) <= tolerance);
}

template <class Schedule, class Rule>
void check_pipeline(std::string const& name, Schedule const& schedule, Rule const& rule, freedom const& may,
                    bool calibrated, bool large) {
    free_schedule const free{schedule, may};
    for (pipeline_trial const& t : pipeline_trials()) {
        if (t.large && !large) continue;
        auto const make = [&] { return semi_of(t.where); };
        if (t.fresh_too) check_one(name, enumerator::noise::fresh, t.where, t.what, make, free, rule, calibrated);
        check_one(name, enumerator::noise::keyed, t.where, t.what, make, free, rule, calibrated);
    }
}

constexpr freedom everything{.limits = true, .floors = true, .weights = true, .seed = 5};

/// Everything at once, under every schedule.
template <class Rule>
void check_everything(Rule const& rule, bool large = true) {
    auto const visit = [&](std::string const& name, auto const& schedule) {
        check_pipeline(name, schedule, rule, everything, true, large);
    };
    if constexpr (Rule::guarantee == fidelity::pathwise) {
        for_each_schedule(visit);
    } else {
        for_each_causal_schedule(visit);
    }
    for_each_costed_schedule(visit);
}

}  // namespace

TEST_CASE("the whole pipeline, token rejection: exact", "[exact][long]") {
    check_everything(token_rejection<>{});
}
TEST_CASE("the whole pipeline, block verification: exact", "[exact][long]") {
    check_everything(block_verification<>{});
}
TEST_CASE("the whole pipeline, target match, argmax drafts: exact", "[exact][long]") {
    check_everything(target_match<>{});
}
TEST_CASE("the whole pipeline, target match, sampled drafts: exact", "[exact][long]") {
    check_everything(target_match<categorical_draft>{}, false);
}
TEST_CASE("the whole pipeline, keyed coupling: exact", "[exact][long]") {
    check_everything(keyed_coupling{});
}
