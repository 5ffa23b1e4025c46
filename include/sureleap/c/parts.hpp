// SPDX-License-Identifier: MIT
//
// The parts that options name, and what is wrong with options. Whether the parts keep the target's law is asked before
// any of them is made, in the words of the compiler's check (traits.hpp).
#pragma once

#include <cstddef>

#include <sureleap/c/round.h>
#include <sureleap/c/calibration.hpp>
#include <sureleap/c/cost.hpp>
#include <sureleap/c/handle.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/any.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// How tokens are drawn from q.
[[nodiscard]] inline drawn_by draft_rule_of(sureleap_round_options const& o) noexcept {
    switch (o.draft_rule) {
        case SURELEAP_DRAFT_CATEGORICAL: return drawn_by::categorical;
        case SURELEAP_DRAFT_ARGMAX: return drawn_by::argmax;
        case SURELEAP_DRAFT_COUPLED: return drawn_by::coupled;
        default: break;
    }
    switch (o.rule) {
        case SURELEAP_TARGET_MATCH:
        case SURELEAP_GREEDY_MATCH: return drawn_by::argmax;
        case SURELEAP_KEYED_COUPLING: return drawn_by::coupled;
        default: return drawn_by::categorical;
    }
}

[[nodiscard]] inline any_rule rule_of(sureleap_round_options const& o) {
    return detail::with_draft_rule(draft_rule_of(o), [&]<class DraftRule>(DraftRule) -> any_rule {
        switch (o.rule) {
            case SURELEAP_BLOCK_VERIFICATION: return block_verification<DraftRule>{};
            case SURELEAP_TARGET_MATCH: return target_match<DraftRule>{};
            case SURELEAP_GREEDY_MATCH: return greedy_match{};
            case SURELEAP_KEYED_COUPLING: return keyed_coupling{};
            default: return token_rejection<DraftRule>{};
        }
    });
}

/// use(make), where make() makes the schedule. It asks for the cost, if there is one.
template <class Use>
[[nodiscard]] auto with_schedule(sureleap_round_options const& o, Use const& use) {
    auto const cost = [&] { return cost_ref<any_cost>{o.cost->model}; };
    switch (o.schedule) {
        case SURELEAP_THRESHOLD: return use([&] { return threshold_schedule{o.threshold}; });
        case SURELEAP_SURVIVAL_THRESHOLD: return use([&] { return survival_threshold_schedule{o.threshold}; });
        case SURELEAP_GREEDY: return use([&] { return greedy_schedule{cost()}; });
        case SURELEAP_TOP_K:
            if (o.lag == 1) return use([&] { return lagged_top_k<1>(cost(), o.prior); });
            return use([&] { return lagged_top_k<2>(cost(), o.prior); });
        case SURELEAP_PLANNED: return use([&] { return planned_schedule{cost()}; });
        case SURELEAP_RETROSPECTIVE: return use([&] { return retrospective_schedule{cost()}; });
        default: return use([&] { return fixed_schedule{o.fixed_length}; });
    }
}
[[nodiscard]] inline any_schedule schedule_of(sureleap_round_options const& o) {
    return with_schedule(o, [](auto const& make) { return any_schedule{make()}; });
}

/// Of the chains that are written from outside.
[[nodiscard]] inline drafter_traits drafter_of(sureleap_round_options const& o) noexcept {
    return {.is_deterministic = o.q == SURELEAP_Q_ONE_HOT,
            .has_confidence = o.confidence != SURELEAP_CONFIDENCE_NONE,
            .plans_at_anchor = o.plans_at_anchor != 0};
}

/// Everything that can be said of options before memory is made.
inline void check_options(sureleap_round_options const* options) {
    char const* const who = "sureleap_round";
    expect_options(who, options);
    sureleap_round_options const& o = *options;
    expect_choice(who, "rule", o.rule, SURELEAP_KEYED_COUPLING);
    expect_choice(who, "draft_rule", o.draft_rule, SURELEAP_DRAFT_COUPLED);
    expect_choice(who, "schedule", o.schedule, SURELEAP_RETROSPECTIVE);
    expect_choice(who, "confidence", o.confidence, SURELEAP_CONFIDENCE_TOP1);
    expect_choice(who, "target_format", o.target_format, SURELEAP_BF16);
    expect_choice(who, "draft_format", o.draft_format, SURELEAP_BF16);
    expect_choice(who, "q", o.q, SURELEAP_Q_ONE_HOT);
    expect_choice(who, "q_values", o.q_values, SURELEAP_Q_PROBABILITIES);
    expect_choice(who, "plans_at_anchor", o.plans_at_anchor, 1);
    expect_choice(who, "allow_lossy", o.allow_lossy, 1);
    expect_choice(who, "constrained", o.constrained, 1);
    // Products of these stay far below what a size can hold.
    expect_size(who, "max_requests", o.max_requests, 1, 65536);
    expect_size(who, "block_size", o.block_size, 1, 1024);
    expect_size(who, "vocabulary", o.vocabulary, 1, std::size_t{1} << 30);
    expect_size(who, "top_log_probabilities", o.top_log_probabilities, 0, 1024);
    if (o.q == SURELEAP_Q_SPARSE) expect_size(who, "list_size", o.list_size, 1, o.vocabulary);
    if (o.schedule == SURELEAP_TOP_K) expect_size(who, "lag", o.lag, 1, 2);
    drawn_by const how = draft_rule_of(o);
    if (o.rule == SURELEAP_GREEDY_MATCH && how != drawn_by::argmax) {
        fail_with(who, ": draft_rule is ", o.draft_rule,
                  ", expected SURELEAP_DRAFT_ARGMAX: greedy_match takes no other");
    }
    if (o.rule == SURELEAP_KEYED_COUPLING && how != drawn_by::coupled) {
        fail_with(who, ": draft_rule is ", o.draft_rule,
                  ", expected SURELEAP_DRAFT_COUPLED: keyed_coupling takes no other");
    }
    if (o.q == SURELEAP_Q_ONE_HOT && o.confidence == SURELEAP_CONFIDENCE_TOP1) {
        fail_with(who,
                  ": confidence is SURELEAP_CONFIDENCE_TOP1 and q is one-hot, expected rows to take it from; give "
                  "confidences, or none");
    }
    auto const schedule = with_schedule(o, [](auto const& make) { return traits_of<decltype(make())>(); });
    misfit const found = misfit_of(drafter_of(o), schedule, rule_of(o).traits(), o.allow_lossy != 0);
    if (found != misfit::none) fail_as(SURELEAP_NOT_LOSSLESS, to_string(found));
    if (o.schedule >= SURELEAP_GREEDY && !handle<sureleap_cost>::lives(o.cost)) {
        fail_as(o.cost == nullptr ? SURELEAP_INVALID_ARGUMENT : SURELEAP_INVALID_HANDLE, who,
                ": this schedule reckons with a cost, and cost is null or was destroyed; expected one of "
                "sureleap_cost_create");
    }
    if (o.calibration != nullptr && !handle<sureleap_calibration>::lives(o.calibration)) {
        fail_as(SURELEAP_INVALID_HANDLE, who, ": calibration was destroyed, expected one that lives, or null");
    }
}

}  // namespace c
SURELEAP_END_NAMESPACE
