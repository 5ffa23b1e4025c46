// SPDX-License-Identifier: MIT
//
// Exactness of the whole pipeline, under every causal schedule and every rule, for requests that join, leave and come
// back. Tested are gates, floors, priorities, calibrations that learn, and cost models of all that a step depends on,
// each alone and all together. Horizons go to lag + 2 and further, so that decisions of past rounds have taken effect.
#include "support/pipeline.hpp"

using namespace pipeline;

namespace {

template <class Visit>
void for_each_costed_schedule(Visit&& visit) {
    visit("greedy, whole step", greedy_schedule{whole_step_cost{}});
    visit("planned, whole step", planned_schedule{whole_step_cost{}});
    visit("top-K, lag 1, whole step", lagged_top_k<1>(whole_step_cost{}, 0.7));
    visit("top-K, lag 2, whole step", top_k_schedule{whole_step_cost{}, 0.7});
}

template <class Schedule, class Rule>
void check_pipeline(std::string const& name, Schedule const& schedule, Rule const& rule, freedom const& may,
                    bool calibrated, extent most) {
    free_schedule const free{schedule, may};
    for (pipeline_trial const& t : pipeline_trials()) {
        if (t.size > most) continue;
        auto const make = [&] { return semi_of(t.where); };
        if (t.fresh_too)
            check_one(name, enumerator::noise::fresh, t.where, t.what, free_parts{calibrated}, make, free, rule);
        check_one(name, enumerator::noise::keyed, t.where, t.what, free_parts{calibrated}, make, free, rule);
    }
}

template <class Rule, class Visit>
void for_each_schedule_of(Rule const&, Visit&& visit) {
    if constexpr (Rule::guarantee == fidelity::pathwise) {
        for_each_schedule(visit);
    } else {
        for_each_causal_schedule(visit);
    }
    for_each_costed_schedule(visit);
}

/// Everything at once, under every schedule.
template <class Rule>
void check_everything(Rule const& rule, extent most = extent::large) {
    for_each_schedule_of(rule, [&](std::string const& name, auto const& schedule) {
        for (std::uint64_t const seed : {5u, 6u}) check_pipeline(name, schedule, rule, everything(seed), true, most);
    });
}

}  // namespace

// ---- each part alone -------------------------------------------------------------------------------------------

namespace {

template <class Rule>
void check_each_alone(Rule const& rule, extent most) {
    for_one_schedule_of_a_kind([&](std::string const& name, auto const& schedule) {
        check_pipeline(name + ", priorities of the requests", schedule, rule, {}, false, most);
        check_pipeline(name + ", gate", schedule, rule, {.limits = true}, false, most);
        check_pipeline(name + ", floor", schedule, rule, {.floors = true}, false, most);
        check_pipeline(name + ", weights that change", schedule, rule, {.weights = true}, false, most);
        check_pipeline(name + ", calibration that learns", schedule, rule, {}, true, most);
    });
}

}  // namespace

TEST_CASE("the pipeline, each part alone, small scenes: exact", "[exact][long]") {
    for_each_rule([](auto const& rule) { check_each_alone(rule, extent::small); });
}
TEST_CASE("the pipeline, each part alone, token rejection: exact", "[exact][long]") {
    check_each_alone(token_rejection<>{}, extent::usual);
}
TEST_CASE("the pipeline, each part alone, block verification: exact", "[exact][long]") {
    check_each_alone(block_verification<>{}, extent::usual);
}
TEST_CASE("the pipeline, each part alone, keyed coupling: exact", "[exact][long]") {
    check_each_alone(keyed_coupling{}, extent::usual);
}

// ---- all of them together --------------------------------------------------------------------------------------

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
    check_everything(target_match<categorical_draft>{}, extent::usual);
}
TEST_CASE("the whole pipeline, keyed coupling: exact", "[exact][long]") {
    check_everything(keyed_coupling{});
}

TEST_CASE("the whole pipeline in all scenes of the exactness list: exact", "[exact][long]") {
    // Truncated targets, drafts with a temperature of their own, temperature 0 among sampled requests.
    for_each_rule([](auto const& rule) {
        for_one_schedule_of_a_kind([&](std::string const& name, auto const& schedule) {
            check_trials(name, free_schedule{schedule, everything(8)}, rule, true, false);
        });
    });
}

TEST_CASE("the whole pipeline with drafters that have no head: exact", "[exact][long]") {
    for_each_rule([](auto const& rule) {
        auto const check = [&](std::string const& name, auto const& schedule) {
            free_schedule const free{schedule, everything(9)};
            scene stopped{{{}, {{1}, {}, 1}}, 3, 0};  // the second joins a round later
            for (auto& request : stopped.requests) request.settings.stop_tokens = stop_token;
            world const three{9, 3, 2};
            auto const from_three = [&] { return autoregressive_of(three); };
            check_one(name, enumerator::noise::keyed, three, stopped, free_parts{}, from_three, free, rule);
            world const two{8, 2, 3};
            auto const from_two = [&] { return autoregressive_of(two); };
            check_one(name, enumerator::noise::keyed, two, {{{}}, 4, 1}, free_parts{}, from_two, free, rule);
        };
        check("fixed", fixed_schedule{});
        check("greedy", greedy_schedule{whole_step_cost{}});
        check("top-K, lag 1", lagged_top_k<1>(cliff_capacity{}, 0.7));
        check("top-K, lag 2", top_k_schedule{whole_step_cost{}, 0.7});

        world const repeated{2, 3, 3};
        auto const look_up = [] { return lookup{{.block_size = 3, .target_vocabulary = 3}}; };
        check_one("lookup", enumerator::noise::keyed, repeated, {{{{0, 1, 2, 0, 1}}}, 4, 1}, free_parts{}, look_up,
                  free_schedule{fixed_schedule{}, everything(9)}, rule);
    });
}

// ---- that the tests are about something ------------------------------------------------------------------------

TEST_CASE("the parts that learn do act in the scenes above", "[exact][long]") {
    action seen;
    auto const watch = [&](round_record const& round) { seen.observe(round); };
    free_schedule const free{planned_schedule{whole_step_cost{}}, everything(5)};
    for (pipeline_trial const& t : pipeline_trials()) {
        if (t.size == extent::large) continue;
        (void)pipeline_law(
            enumerator::noise::keyed, t.where, t.what, free_parts{}, [&] { return semi_of(t.where); }, free,
            token_rejection<>{}, watch);
    }
    for (std::size_t const n :
         {seen.undrafted, seen.limited, seen.ended, seen.weighted, seen.calibrated, seen.trimmed}) {
        CHECK(20 * n > seen.rounds);
    }
}
