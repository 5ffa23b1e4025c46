// SPDX-License-Identifier: MIT
//
// Rules and schedules that are chosen when the program runs. Types are few, so that the implementation compiles in
// seconds: one for all rules, one for all schedules that decide live. What they say of themselves as types is the least
// that holds for each of them. Whether the parts that were chosen keep the target's law is asked of their values, in the
// words of the compiler's check (round/combination.hpp).
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include <sureleap/c/round.h>
#include <sureleap/c/calibration.hpp>
#include <sureleap/c/cost.hpp>
#include <sureleap/c/handle.hpp>
#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/round/combination.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

using lent_cost = cost_ref<any_cost>;

/// One of the acceptance rules. They decide by the laws that were recorded, whatever the draft rule was.
class any_rule {
public:
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = categorical_draft;

    explicit any_rule(std::int32_t which) noexcept : which_(which) {}

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        switch (which_) {
            case SURELEAP_TOKEN_REJECTION: return token_rejection<>{}(v, rng);
            case SURELEAP_BLOCK_VERIFICATION: return block_verification<>{}(v, rng);
            case SURELEAP_TARGET_MATCH: return target_match<>{}(v, rng);
            case SURELEAP_GREEDY_MATCH: return greedy_match{}(v, rng);
            case SURELEAP_KEYED_COUPLING: return keyed_coupling{}(v, rng);
        }
        return {};
    }

private:
    std::int32_t which_;
};

/// One of the schedules that see the frontier alone.
class live_schedule {
public:
    explicit live_schedule(sureleap_round_options const& o) : chosen_(choice(o)) {}

    void admit(causal_frontier& frontier) const noexcept {
        std::visit([&](auto const& schedule) { schedule.admit(frontier); }, chosen_);
    }

private:
    using any =
        std::variant<fixed_schedule, threshold_schedule, survival_threshold_schedule, greedy_schedule<lent_cost>>;
    [[nodiscard]] static any choice(sureleap_round_options const& o) {
        if (o.schedule == SURELEAP_THRESHOLD) return threshold_schedule{o.threshold};
        if (o.schedule == SURELEAP_SURVIVAL_THRESHOLD) return survival_threshold_schedule{o.threshold};
        if (o.schedule == SURELEAP_GREEDY) return greedy_schedule<lent_cost>{lent_cost{o.cost->model}};
        return fixed_schedule{o.fixed_length};
    }

    any chosen_;
};

/// A schedule of type Schedule by the options.
template <class Schedule>
[[nodiscard]] Schedule make_schedule(sureleap_round_options const& o) {
    return Schedule{lent_cost{o.cost->model}};
}
template <>
[[nodiscard]] inline live_schedule make_schedule<live_schedule>(sureleap_round_options const& o) {
    return live_schedule{o};
}
template <>
[[nodiscard]] inline top_k_schedule<lent_cost, 1> make_schedule(sureleap_round_options const& o) {
    return lagged_top_k<1>(lent_cost{o.cost->model}, o.prior);
}
template <>
[[nodiscard]] inline top_k_schedule<lent_cost, 2> make_schedule(sureleap_round_options const& o) {
    return lagged_top_k<2>(lent_cost{o.cost->model}, o.prior);
}

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

[[nodiscard]] inline combination combination_of(sureleap_round_options const& o) noexcept {
    bool const samples = o.rule == SURELEAP_TOKEN_REJECTION || o.rule == SURELEAP_BLOCK_VERIFICATION;
    drawn_by const how = draft_rule_of(o);
    return {.rule = samples ? token_rejection<>::guarantee : target_match<>::guarantee,
            .schedule = o.schedule == SURELEAP_RETROSPECTIVE ? causality::anticipating : causality::non_anticipating,
            .deterministic_draft = o.q == SURELEAP_Q_ONE_HOT || how == drawn_by::argmax,
            .noise_returns = how == drawn_by::coupled,
            .reads_confidences = o.schedule != SURELEAP_FIXED,
            .has_confidences = o.confidence != SURELEAP_CONFIDENCE_NONE,
            .plans = o.schedule == SURELEAP_PLANNED,
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
    if (char const* const fault = fault_of(combination_of(o), o.allow_lossy != 0)) {
        fail_as(SURELEAP_NOT_LOSSLESS, fault);
    }
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
