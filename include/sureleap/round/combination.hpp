// SPDX-License-Identifier: MIT
//
// What goes together, as values: for those who choose their parts when the program runs (c/). Parts that are types are
// checked by the compiler (round/check.hpp), which needs its texts as literals. Hence the macros: both say the same.
#pragma once

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>

#define SURELEAP_DETAIL_LOSSY_RULE                                                              \
    "sureleap: this acceptance rule is lossy: the output would not have the target's law. Use " \
    "token_rejection, block_verification, target_match or keyed_coupling, or pass sureleap::allow_lossy"
#define SURELEAP_DETAIL_NOISE_RETURNS                                                              \
    "sureleap: coupled_draft names its noise by absolute position, so a position that is drafted " \
    "again meets noise that decided about it before, which biases rules that sample. Give "        \
    "token_rejection and block_verification categorical_draft or argmax_draft, or use keyed_coupling"
#define SURELEAP_DETAIL_LOOKS_AHEAD                                                                     \
    "sureleap: this schedule looks ahead (it sees drafted tokens it decides about), which biases "      \
    "rules whose guarantee is fidelity::distribution (token_rejection, block_verification). Use a "     \
    "schedule that only sees the causal_frontier (greedy_schedule, threshold_schedule) or plans "       \
    "before drafting (planned_schedule, top_k_schedule), or a rule that is exact under any schedule "   \
    "(target_match, keyed_coupling), or deterministic drafts (token_rejection<argmax_draft>), or pass " \
    "sureleap::allow_lossy"
#define SURELEAP_DETAIL_NO_CONFIDENCE                                                         \
    "sureleap: this schedule reads confidences and the drafter has none. Give the drafter a " \
    "confidence_head or top1_confidence, or use fixed_schedule"
#define SURELEAP_DETAIL_NO_ANCHOR                                                                     \
    "sureleap: planned_schedule asks for confidences at the anchor, before any token is drawn. It "   \
    "needs a parallel backbone (semi_autoregressive, parallel) and a confidence with at_anchor; use " \
    "top_k_schedule otherwise"

SURELEAP_BEGIN_NAMESPACE

/// What parts say of themselves, as far as it decides whether they go together.
struct combination {
    fidelity rule = fidelity::lossy;  ///< what it guarantees
    causality schedule = causality::anticipating;
    bool deterministic_draft = false;  ///< by the drafter's nature or the rule's draft_rule
    bool noise_returns = false;        ///< the rule's draft_rule is coupled_draft
    bool reads_confidences = true;     ///< the schedule does
    bool has_confidences = false;      ///< the drafter does
    bool plans = false;                ///< the schedule asks at the anchor,
    bool plans_at_anchor = false;      ///< where the drafter can answer
};

/// What check_round says of such parts: its text, or null if they keep the target's law.
[[nodiscard]] constexpr char const* fault_of(combination const& c, bool lossy_too = false) noexcept {
    bool const returns = c.noise_returns && !c.deterministic_draft;
    if (!lossy_too) {
        if (c.rule == fidelity::lossy) return SURELEAP_DETAIL_LOSSY_RULE;
        if (returns && c.rule == fidelity::distribution) return SURELEAP_DETAIL_NOISE_RETURNS;
        if (!is_lossless(c.rule, c.schedule, c.deterministic_draft, returns)) return SURELEAP_DETAIL_LOOKS_AHEAD;
    }
    if (c.reads_confidences && !c.has_confidences) return SURELEAP_DETAIL_NO_CONFIDENCE;
    if (c.plans && !c.plans_at_anchor) return SURELEAP_DETAIL_NO_ANCHOR;
    return nullptr;
}

SURELEAP_END_NAMESPACE
