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
#include <sureleap/traits.hpp>

// What a part is told that is none, wherever it is given.
#define SURELEAP_DETAIL_NO_DRAFTER                                                                                     \
    "sureleap: the drafter is no sureleap::drafter; wrap a model in autoregressive, parallel or semi_autoregressive. " \
    "One of your own has value_type, is_deterministic, is_parallel, has_confidence, block_size(), vocabulary(), "      \
    "target_vocabulary() and forward(requests) (concepts.hpp; examples/own_drafter.cpp)"
#define SURELEAP_DETAIL_NO_RULE                                                                             \
    "sureleap: the acceptance rule is no acceptance_sampler; give it guarantee, access, draft_rule and a "  \
    "const call operator (verification&, rng&) whose declared return type is sureleap::decision, not auto " \
    "(concepts.hpp; examples/own_rule.cpp)"
#define SURELEAP_DETAIL_NO_SCHEDULE                                                                        \
    "sureleap: the schedule is no scheduler; give it admit(causal_frontier&) const to decide live, or an " \
    "origin and budget(planning_table<origin> const&) const to plan before drafting (concepts.hpp; "       \
    "examples/own_scheduler.cpp)"

SURELEAP_BEGIN_NAMESPACE

/// The target scores trees: row i is behind the token's own path (verify_batch::parents), as it says itself.
template <class Target>
inline constexpr bool scores_trees_v = requires { requires std::remove_reference_t<Target>::scores_trees; };

/// Rule, schedule and drafter together keep the target's law.
template <class Rule, class Schedule, class Drafter>
inline constexpr bool is_lossless_round_v = is_lossless(traits_of<Drafter>(), traits_of<Schedule>(), traits_of<Rule>());

/// The drafter finds tokens beside those of its model, which model_limit is no limit to.
template <class Drafter>
inline constexpr bool finds_tokens_v = requires(Drafter const& d) {
    { d.model_block_size() } -> std::convertible_to<std::size_t>;
};

namespace detail {
template <class... Parts>
inline constexpr bool are_types = (!chosen_at_run_time<Parts> && ...);
}  // namespace detail

/// The compiler's checks of a combination. Of parts that are chosen at run time it knows only that they are parts.
template <class Drafter, class Schedule, class Rule, bool AllowLossy = false>
constexpr void check_round() noexcept {
    static_assert(drafter<Drafter>, SURELEAP_DETAIL_NO_DRAFTER);
    static_assert(acceptance_sampler<Rule>, SURELEAP_DETAIL_NO_RULE);
    static_assert(scheduler<Schedule>, SURELEAP_DETAIL_NO_SCHEDULE);
    detail::check_optional_members<Schedule>();
    if constexpr (drafter<Drafter> && acceptance_sampler<Rule> && scheduler<Schedule> &&
                  detail::are_types<Drafter, Schedule, Rule>) {
        constexpr misfit found = misfit_of(traits_of<Drafter>(), traits_of<Schedule>(), traits_of<Rule>(), AllowLossy);
#define SURELEAP_DETAIL_MISFIT(name, text) static_assert(found != misfit::name, text);
        SURELEAP_DETAIL_MISFITS(SURELEAP_DETAIL_MISFIT)
#undef SURELEAP_DETAIL_MISFIT
    }
}
/// The checks of a combination, where its parts meet: round_memory, and so every decoder and every loop of stages. The
/// compiler refuses parts that are types. Those that are chosen at run time are refused by an error of the same words.
template <bool AllowLossy = false, class Drafter, class Schedule, class Rule>
constexpr void check_round(Drafter const& drafter, Schedule const& schedule, Rule const& rule) {
    check_round<Drafter, Schedule, Rule, AllowLossy>();
    if constexpr (!detail::are_types<Drafter, Schedule, Rule>) {
        misfit const found = misfit_of(traits_of(drafter), traits_of(schedule), traits_of(rule), AllowLossy);
        if (found != misfit::none) fail_with(to_string(found));
    }
}

/// Throws if a request's settings cannot be honoured. With `check_settings(s, traits_of(rule))` also
/// if the rule cannot: one that decodes greedily (`greedy_only`) has the law of requests at temperature 0 alone.
inline void check_settings(request_settings const& s, rule_traits const& rule = {}) {
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
    if (s.ranks && !s.log_probabilities) {
        fail_with("request_settings: ranks is true, expected log_probabilities beside it");
    }
    if (!(s.priority > 0.0) || !std::isfinite(s.priority)) {
        fail_with("request_settings: priority is ", s.priority, ", expected a positive finite number");
    }
    if (!(s.tokens_per_second >= 0.0) || !std::isfinite(s.tokens_per_second)) {
        fail_with("request_settings: tokens_per_second is ", s.tokens_per_second,
                  ", expected a finite number >= 0 (0 asks for no speed)");
    }
    if (rule.greedy_only && !s.target_transform().greedy()) {
        fail_with("request_settings: temperature is ", s.temperature,
                  ", expected 0: this acceptance rule decodes greedily; use another for sampling");
    }
}

SURELEAP_END_NAMESPACE
