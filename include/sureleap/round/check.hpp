// SPDX-License-Identifier: MIT
//
// Checks of what goes together. A static_assert says whether a drafter, a schedule and a rule keep the target's law,
// with the remedy in its message. A test at run time says whether a request's settings can be honoured.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/combination.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The draft is a function of the context: by the drafter's nature or because the rule asks for argmax drafts.
template <class Drafter, class Rule>
inline constexpr bool drafts_deterministically_v = Drafter::is_deterministic || Rule::draft_rule::is_deterministic;

/// The rule's tokens are drawn with noise that a position meets again when it is drafted again.
template <class Drafter, class Rule>
inline constexpr bool noise_returns_v =
    !drafts_deterministically_v<Drafter, Rule> && requires { requires Rule::draft_rule::noise_returns; };

/// The rule has the law of requests at temperature 0 alone.
template <class Rule>
inline constexpr bool is_greedy_only_v = requires { requires Rule::greedy_only; };

/// The rule judges trees, of which a chain is one.
template <class Rule>
inline constexpr bool judges_trees_v = requires { requires Rule::judges_trees; };

/// The drafter's tokens may be trees.
template <class Drafter>
inline constexpr bool drafts_trees_v = requires { requires Drafter::drafts_trees; };

/// The target scores trees: row i is behind the token's own path (verify_batch::parents), as it says itself.
template <class Target>
inline constexpr bool scores_trees_v = requires { requires std::remove_reference_t<Target>::scores_trees; };

/// What decides whether a drafted token is there. A drafter of trees that looks at a token before it decides that says
/// `static constexpr bool grows_by_tokens = true`: then sampling rules do not go with it.
template <class Drafter>
inline constexpr causality growth_of_v = causality::non_anticipating;
template <class Drafter>
    requires requires { requires Drafter::grows_by_tokens; }
inline constexpr causality growth_of_v<Drafter> = causality::anticipating;

/// Rule, schedule and drafter together keep the target's law.
template <class Rule, class Schedule, class Drafter>
inline constexpr bool is_lossless_round_v =
    is_lossless_v<Rule::guarantee, std::min(causality_of_v<Schedule>, growth_of_v<Drafter>),
                  drafts_deterministically_v<Drafter, Rule>, noise_returns_v<Drafter, Rule>>;

/// The drafter's plan() gives confidences at the anchor; a drafter that does not say so cannot.
template <class Drafter>
inline constexpr bool plans_at_anchor_v = requires { requires Drafter::plans_at_anchor; };

/// The drafter finds tokens beside those of its model, which model_limit is no limit to.
template <class Drafter>
inline constexpr bool finds_tokens_v = requires(Drafter const& d) {
    { d.model_block_size() } -> std::convertible_to<std::size_t>;
};

/// The checks of a combination, where its parts meet: round_memory, and so every decoder and every loop of stages.
template <class Drafter, class Schedule, class Rule, bool AllowLossy = false>
constexpr void check_round() noexcept {
    static_assert(
        drafter<Drafter>,
        "sureleap: the drafter is no sureleap::drafter; wrap a model in autoregressive, "
        "parallel or semi_autoregressive, or see concepts.hpp and examples/own_drafter.cpp for one of your own");
    static_assert(
        acceptance_sampler<Rule>,
        "sureleap: the acceptance rule is no acceptance_sampler; give it guarantee, access, draft_rule and a "
        "const call operator (verification&, rng&) whose declared return type is sureleap::decision, not auto "
        "(concepts.hpp; examples/own_rule.cpp)");
    static_assert(scheduler<Schedule>,
                  "sureleap: the schedule is no scheduler; give it admit(causal_frontier&) const to decide live, or an "
                  "origin and budget(planning_table<origin> const&) const to plan before drafting (concepts.hpp)");
    if constexpr (drafter<Drafter> && acceptance_sampler<Rule> && scheduler<Schedule>) {
        static_assert(
            judges_trees_v<Rule> || !drafts_trees_v<Drafter>,
            "sureleap: the drafter drafts trees, and this acceptance rule judges chains. Use a rule that chooses the "
            "target's token first (target_match, keyed_coupling), recursive_rejection or traversal_verification, or "
            "the drafter inside tree_drafter alone");
        static_assert(
            AllowLossy || Rule::guarantee != fidelity::distribution ||
                growth_of_v<Drafter> == causality::non_anticipating || drafts_deterministically_v<Drafter, Rule>,
            "sureleap: the drafter decides by a token whether it is there, which biases rules that sample. Use "
            "tree_drafter, or a rule that is exact for any tree (target_match, keyed_coupling), or pass "
            "sureleap::allow_lossy");
        static_assert(AllowLossy || Rule::guarantee != fidelity::lossy, SURELEAP_DETAIL_LOSSY_RULE);
        static_assert(drawn_by_v<typename Rule::draft_rule> != drawn_by::any,
                      "sureleap: the acceptance rule's draft_rule is unknown; it is categorical_draft, argmax_draft or "
                      "coupled_draft");
        constexpr bool noise_is_new = !noise_returns_v<Drafter, Rule> || Rule::guarantee != fidelity::distribution;
        static_assert(AllowLossy || noise_is_new, SURELEAP_DETAIL_NOISE_RETURNS);
        static_assert(AllowLossy || Rule::guarantee == fidelity::lossy || !noise_is_new ||
                          is_lossless_v<Rule::guarantee, causality_of_v<Schedule>,
                                        drafts_deterministically_v<Drafter, Rule>, noise_returns_v<Drafter, Rule>>,
                      SURELEAP_DETAIL_LOOKS_AHEAD);
        static_assert(!needs_confidence_v<Schedule> || Drafter::has_confidence, SURELEAP_DETAIL_NO_CONFIDENCE);
        if constexpr (planner<Schedule>) {
            static_assert(!std::is_same_v<typename Schedule::origin, from_anchor> || plans_at_anchor_v<Drafter>,
                          SURELEAP_DETAIL_NO_ANCHOR);
        }
    }
}

/// Throws if a request's settings cannot be honoured. With `check_settings<Rule>(s)` also if the rule cannot: one that
/// decodes greedily (`greedy_only`) has the law of requests at temperature 0 alone.
template <class Rule = void>
void check_settings(request_settings const& s) {
    auto const check = [](char const* which, transform const& t) {
        if (!(t.temperature >= 0.0 && t.temperature <= largest_temperature)) {
            fail_with("request_settings: ", which, "temperature is ", t.temperature,
                      ", expected a finite number >= 0 and at most ", largest_temperature);
        }
        if (t.top_k < 0) fail_with("request_settings: ", which, "top_k is ", t.top_k, ", expected >= 0 (0 keeps all)");
        if (!(t.top_p > 0.0 && t.top_p <= 1.0)) {
            fail_with("request_settings: ", which, "top_p is ", t.top_p, ", expected a number in (0, 1]");
        }
        if (!(t.min_p >= 0.0 && t.min_p <= 1.0)) {
            fail_with("request_settings: ", which, "min_p is ", t.min_p, ", expected a number in [0, 1]");
        }
    };
    check("", s.target_transform());
    if (s.draft) check("draft ", *s.draft);
    constexpr std::size_t most = std::size_t{1}
                                 << 31;  // a decoder reserves this many tokens when a request is submitted
    if (s.max_new_tokens == 0 || s.max_new_tokens > most) {
        fail_with("request_settings: max_new_tokens is ", s.max_new_tokens, ", expected 1 .. ", most);
    }
    if (s.min_new_tokens > s.max_new_tokens) {
        fail_with("request_settings: min_new_tokens is ", s.min_new_tokens,
                  ", expected at most max_new_tokens = ", s.max_new_tokens);
    }
    if (!(s.priority > 0.0) || !std::isfinite(s.priority)) {
        fail_with("request_settings: priority is ", s.priority, ", expected a positive finite number");
    }
    if (!(s.tokens_per_second >= 0.0) || !std::isfinite(s.tokens_per_second)) {
        fail_with("request_settings: tokens_per_second is ", s.tokens_per_second,
                  ", expected a finite number >= 0 (0 asks for no speed)");
    }
    if constexpr (is_greedy_only_v<Rule>) {
        if (!s.target_transform().greedy()) {
            fail_with("request_settings: temperature is ", s.temperature,
                      ", expected 0: this acceptance rule decodes greedily; use another for sampling");
        }
    }
}

SURELEAP_END_NAMESPACE
