// SPDX-License-Identifier: MIT
//
// Every part of the library in one list, and the law of every combination that compiles: rule template x draft rule x
// schedule x adapter, in rounds that succeed and in rounds that fail at each stage and are run again. A part that is
// not in the list fails the test exactness_list, which reads the headers.
//
// The decoder sees schedules as any_schedule. A decoder of its own for each of some hundred schedules would take
// minutes to compile. What compiles is asked of the types themselves.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/speed_targets.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/rejection.hpp>
#include <sureleap/verify/traversal.hpp>

#include "support/failing_rounds.hpp"
#include "support/with_trees.hpp"

namespace every_part {

using namespace failing_rounds;

// ---- the list --------------------------------------------------------------------------------------------------

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

/// visit(name, schedule) for each of the library.
template <class Visit>
void for_each_bare_schedule(Visit&& visit) {
    visit("fixed_schedule", fixed_schedule{});
    visit("threshold_schedule", threshold_schedule{0.6});
    visit("survival_threshold_schedule", survival_threshold_schedule{0.45});
    visit("greedy_schedule", greedy_schedule{dear_drafts{}});
    visit("top_k_schedule, lag 1", lagged_top_k<1>(dear_drafts{}, 0.7));
    visit("top_k_schedule, lag 2", top_k_schedule{dear_drafts{}, 0.7});
    visit("planned_schedule", planned_schedule{dear_drafts{}});
    visit("retrospective_schedule", retrospective_schedule{dear_drafts{}});
}
/// visit(name, adapter around the schedule) for each adapter that takes it; the compiler refuses it to others.
template <class Schedule, class Visit>
void for_each_adapter_around(Schedule const& s, Visit&& visit) {
    visit("", s);
    visit(" in never_lose", never_lose{s, dear_drafts{}, {.prior = 0.6, .probing = 0.3}});
    if constexpr (needs_confidence_v<Schedule>) {
        speed_target_options const targets{.window = 2.0, .step = 2.0, .most = 3.0, .patience = 1};
        visit(" in speed_targets", speed_targets{s, dear_drafts{}, targets});
    }
    if constexpr (planner<Schedule>) {
        visit(" in hysteresis", hysteresis{s, {.margin = 0.3}});
        visit(" in agreed", agreed{s, as_said{}});
    }
}
template <class Visit>
void for_each_schedule_and_adapter(Visit&& visit) {
    for_each_bare_schedule([&](std::string const& name, auto const& bare) {
        for_each_adapter_around(bare, [&](std::string const& around, auto const& s) { visit(name + around, s); });
    });
}
/// visit(name, rule) of a rule template with every draft rule that there is.
template <template <class> class Rule, class Visit>
void for_each_draft_rule(std::string const& name, Visit&& visit) {
    visit(name + "<categorical_draft>", Rule<categorical_draft>{});
    visit(name + "<argmax_draft>", Rule<argmax_draft>{});
    visit(name + "<coupled_draft>", Rule<coupled_draft>{});
}
// ---- the check -------------------------------------------------------------------------------------------------

/// Chains for rules that judge chains, and trees for the others.
template <class Rule>
struct drafter_for {
    world const* w;
    [[nodiscard]] auto operator()() const {
        if constexpr (support::is_given_trees_v<Rule>) {
            // What siblings are thought to be worth changes after every round.
            sibling_worth_settings const moody{.younger = 1.0, .assumed_weight = 0.3, .memory = 1.5};
            tree_options const options{.nodes = w->block_size + 1, .children = 2, .siblings = moody};
            auto chains = semi_of(*w);
            return tree_drafter<decltype(chains)>{std::move(chains), options};
        } else {
            return semi_of(*w);
        }
    }
};

struct tally {
    std::size_t combinations = 0;  ///< that compile
    std::size_t refused = 0;       ///< that do not
    strikes struck{};
};

/// Small, and enough for what past rounds decide to act (lag + 2 tokens): one request; two of unequal priority; the
/// same whose texts end at a token behind which the target has no law. Rules that draw at every position have more
/// paths, and lengths to which they are indifferent: a token less.
template <class Rule>
[[nodiscard]] std::vector<trial> scenes() {
    double const temperature = traits_of<Rule>().greedy_only ? 0.0 : 1.0;
    std::size_t const horizon = Rule::guarantee == fidelity::pathwise ? 3 : 4;
    auto const one = [&](token_id prompt, double priority) {
        return scene_request{{prompt}, {.temperature = temperature, .priority = priority, .tokens_per_second = 0.8}};
    };
    auto const ending = [&](double priority) {
        scene_request request = one(0, priority);
        request.settings.stop_tokens = stop_at_one;
        return request;
    };
    return {{{12, 2, 3}, {{one(0, 1.0)}, horizon, 1}},
            {{41, 2, 2}, {{one(0, 1.0), one(1, 0.3)}, 2, 1}},
            {{12, 2, 3, 1}, {{ending(1.0)}, 3, 1}},
            {{41, 2, 2, 1}, {{ending(1.0), ending(0.3)}, 2, 1}}};
}

/// A rule with everything it may be combined with, through every trouble.
template <class Rule>
void check_rule(std::string const& rule_name, Rule const& rule, tally& seen) {
    for_each_schedule_and_adapter([&]<class Schedule>(std::string const& name, Schedule const& schedule) {
        using drafter_type = std::invoke_result_t<drafter_for<Rule>>;
        if constexpr (!is_lossless_round_v<Rule, Schedule, drafter_type>) {
            ++seen.refused;
        } else {
            check_round<drafter_type, Schedule, Rule>();
            ++seen.combinations;
            any_schedule const some = schedule;
            for (trial const& t : scenes<Rule>()) {
                bad_luck luck;
                world const w = in_trouble(t.where, luck);
                check_in_trouble(rule_name + ", " + name, w, t.what, luck, drafter_for<Rule>{&w}, some, rule,
                                 seen.struck);
            }
        }
    });
}

/// Every trouble struck, and the compiler refused what looks ahead or reuses noise where the rule samples.
inline void check_tally(tally const& seen, bool samples) {
    INFO(seen.combinations << " combinations, " << seen.refused << " refused");
    CHECK(seen.combinations > 50);
    CHECK((seen.refused > 0) == samples);
    seen.struck.check();
}

}  // namespace every_part
