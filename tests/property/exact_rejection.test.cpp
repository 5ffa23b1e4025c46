// SPDX-License-Identifier: MIT
//
// Token rejection has the target's law under every causal schedule, and with argmax drafts under any schedule.
#include "support/exactness.hpp"

using namespace exactness;

TEST_CASE("token rejection, sampled drafts: exact under every causal schedule", "[exact][long]") {
    for_each_causal_schedule(
        [](std::string const& name, auto const& s) { check_trials(name, s, token_rejection<>{}); });
}

TEST_CASE("token rejection, argmax drafts: exact under every schedule", "[exact][long]") {
    for_each_schedule(
        [](std::string const& name, auto const& s) { check_trials(name, s, token_rejection<argmax_draft>{}); });
}

TEST_CASE("token rejection among parts that are chosen at run time: exact", "[exact]") {
    for (any_rule const rule : {any_rule(token_rejection<>{}), any_rule(token_rejection<argmax_draft>{})}) {
        for (any_schedule const& schedule :
             {any_schedule(greedy_schedule{jagged_capacity{}}), any_schedule(lagged_top_k<1>(jagged_capacity{}, 0.7)),
              any_schedule(planned_schedule{cliff_capacity{}})}) {
            check_trials("any", schedule, rule, true, false);
        }
    }
}
