// SPDX-License-Identifier: MIT
//
// What parts say of themselves, as values, and which parts do not go together.
//
// A part says what it is by constants of its type (concepts.hpp). The compiler reads them and refuses a combination
// (round/check.hpp). A part that is chosen when the program runs (any_schedule, any_rule) has a member traits()
// instead. A round_memory reads it and throws. Both ask misfit_of, so both refuse the same and in the same words.
#pragma once

#include <cstddef>
#include <type_traits>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>

// Every misfit with its text. The texts are literals, because a static_assert takes nothing else.
#define SURELEAP_DETAIL_MISFITS(MISFIT)                                                                               \
    MISFIT(unknown_draft_rule,                                                                                        \
           "sureleap: the acceptance rule's draft_rule is unknown; it is categorical_draft, argmax_draft or "         \
           "coupled_draft")                                                                                           \
    MISFIT(judges_chains,                                                                                             \
           "sureleap: the drafter drafts trees, and this acceptance rule judges chains. Use a rule that chooses the " \
           "target's token first (target_match, keyed_coupling), recursive_rejection or traversal_verification, or "  \
           "the drafter inside tree_drafter alone")                                                                   \
    MISFIT(lossy_rule,                                                                                                \
           "sureleap: this acceptance rule is lossy: the output would not have the target's law. Use "                \
           "token_rejection, block_verification, target_match or keyed_coupling, or pass sureleap::allow_lossy")      \
    MISFIT(grows_by_tokens,                                                                                           \
           "sureleap: the drafter decides by a token whether it is there, which biases rules that sample. Use "       \
           "tree_drafter, or a rule that is exact for any draft or any tree (target_match, keyed_coupling), or pass " \
           "sureleap::allow_lossy")                                                                                   \
    MISFIT(noise_returns,                                                                                             \
           "sureleap: coupled_draft names its noise by absolute position, so a position that is drafted "             \
           "again meets noise that decided about it before, which biases rules that sample. Give "                    \
           "token_rejection and block_verification categorical_draft or argmax_draft, or use keyed_coupling")         \
    MISFIT(looks_ahead,                                                                                               \
           "sureleap: this schedule looks ahead (it sees drafted tokens it decides about), which biases "             \
           "rules whose guarantee is fidelity::distribution (token_rejection, block_verification). Use a "            \
           "schedule that only sees the causal_frontier (greedy_schedule, threshold_schedule) or plans "              \
           "before drafting (planned_schedule, top_k_schedule), or a rule that is exact under any schedule "          \
           "(target_match, keyed_coupling), or deterministic drafts (token_rejection<argmax_draft>), or pass "        \
           "sureleap::allow_lossy")                                                                                   \
    MISFIT(no_confidence,                                                                                             \
           "sureleap: this schedule reads confidences and the drafter has none. Give the drafter a "                  \
           "confidence_head or top1_confidence, or use fixed_schedule")                                               \
    MISFIT(no_anchor,                                                                                                 \
           "sureleap: planned_schedule asks for confidences at the anchor, before any token is drawn. It "            \
           "needs a parallel backbone (semi_autoregressive, parallel) and a confidence with at_anchor; use "          \
           "top_k_schedule otherwise")

SURELEAP_BEGIN_NAMESPACE

// ---- what parts are --------------------------------------------------------------------------------------------

/// What a drafter drafts, and by what it decides that.
struct drafter_traits {
    bool is_deterministic = false;  ///< its tokens are a function of the context, whatever the draft rule
    bool has_confidence = false;
    bool plans_at_anchor = false;  ///< its plan() gives confidences at the anchor
    bool drafts_trees = false;     ///< its tokens may be trees
    /// What decides whether a drafted token is there. A drafter that looks at a token before it decides that says
    /// `static constexpr bool grows_by_tokens = true`.
    causality growth = causality::non_anticipating;
};

/// What a schedule sees of a block, and what it needs for that.
struct schedule_traits {
    causality sees = causality::anticipating;
    bool needs_confidence = true;
    bool plans = false;     ///< models planner: it decides a budget before the block is drawn,
    std::size_t lag = 0;    ///< from tables of so many rounds ago; 0: at the anchor
    bool is_sized = false;  ///< models sized_part: it keeps something for each slot

    [[nodiscard]] constexpr bool plans_at_anchor() const noexcept { return plans && lag == 0; }
    [[nodiscard]] constexpr bool reads_history() const noexcept { return plans && lag > 0; }
};

/// What an acceptance rule promises, and what it needs for that.
struct rule_traits {
    fidelity guarantee = fidelity::lossy;
    q_access access = q_access::row;
    drawn_by draft_rule = drawn_by::any;
    bool judges_trees = false;  ///< a chain is a tree
    bool greedy_only = false;   ///< it has the law of requests at temperature 0 alone
};

namespace detail {

/// The part says its traits as a value.
template <class Part>
concept chosen_at_run_time = requires(Part const& part) { part.traits(); };

/// A type as a value that can be compared; equal in one program and nowhere else.
using type_tag = void const*;
template <class T>
inline constexpr char tagged{};
template <class T>
[[nodiscard]] constexpr type_tag tag_of() noexcept {
    return &tagged<std::remove_cvref_t<T>>;
}
/// Of a part: its type, or the type of what it holds.
template <class Part>
[[nodiscard]] constexpr type_tag tag_of(Part const& part) noexcept {
    if constexpr (requires { part.held_type(); }) {
        return part.held_type();
    } else {
        return tag_of<Part>();
    }
}

/// use(DraftRule{}).
template <class Use>
decltype(auto) with_draft_rule(drawn_by how, Use const& use) {
    switch (how) {
        case drawn_by::argmax: return use(argmax_draft{});
        case drawn_by::coupled: return use(coupled_draft{});
        default: return use(categorical_draft{});
    }
}

}  // namespace detail

/// The traits of a drafter, a schedule or an acceptance rule whose type says all.
template <class Part>
[[nodiscard]] constexpr auto traits_of() noexcept {
    static_assert(
        !detail::chosen_at_run_time<Part> || drafter<Part>,
        "traits_of: this part is chosen at run time, so its type says nothing; ask the object, traits_of(part)");
    if constexpr (requires { Part::guarantee; }) {
        // Of a rule that lacks one of them check_round says so.
        rule_traits traits{.guarantee = Part::guarantee};
        if constexpr (requires { Part::access; }) traits.access = Part::access;
        if constexpr (requires { typename Part::draft_rule; })
            traits.draft_rule = drawn_by_v<typename Part::draft_rule>;
        traits.judges_trees = requires { requires Part::judges_trees; };
        traits.greedy_only = requires { requires Part::greedy_only; };
        return traits;
    } else if constexpr (drafter<Part>) {
        drafter_traits traits{.is_deterministic = Part::is_deterministic, .has_confidence = Part::has_confidence};
        traits.plans_at_anchor = requires { requires Part::plans_at_anchor; };
        traits.drafts_trees = requires { requires Part::drafts_trees; };
        if (requires { requires Part::grows_by_tokens; }) traits.growth = causality::anticipating;
        return traits;
    } else if constexpr (!scheduler<Part>) {
        return schedule_traits{};
    } else {
        schedule_traits traits{.sees = causality_of_v<Part>,
                               .needs_confidence = needs_confidence_v<Part>,
                               .plans = planner<Part>,
                               .is_sized = sized_part<Part>};
        if constexpr (requires { Part::origin::lag; }) traits.lag = Part::origin::lag;
        return traits;
    }
}
/// The traits of a part, which may be chosen at run time.
template <class Part>
[[nodiscard]] constexpr auto traits_of(Part const& part) noexcept {
    if constexpr (detail::chosen_at_run_time<Part>) {
        return part.traits();
    } else {
        return traits_of<Part>();
    }
}

namespace detail {
/// Refuses a schedule with an optional member that nobody can call as it is called, and that would be left out
/// silently.
template <class Schedule>
constexpr void check_optional_members() noexcept {
    static_assert(
        draft_limiter<Schedule> || !requires { &Schedule::limit_drafts; },
        "sureleap: this schedule's limit_drafts would never be called; write "
        "void limit_drafts(std::span<request_view> requests)");
    static_assert(
        draft_stopper<Schedule> || !requires { &Schedule::draft_floor; },
        "sureleap: this schedule's draft_floor would never be called; write "
        "fixed_probability draft_floor() const");
    static_assert(
        round_observer<Schedule> || !requires { &Schedule::observe; },
        "sureleap: this schedule's observe would never be called; write "
        "void observe(round_record const& record) noexcept");
    static_assert(
        sized_part<Schedule> || !requires { &Schedule::set_up; },
        "sureleap: this schedule's set_up would never be called; write void set_up(round_sizes const& sizes), "
        "and round_sizes sizes() const, which says what it was set up for");
}
}  // namespace detail

// ---- what does not go together ---------------------------------------------------------------------------------

#define SURELEAP_DETAIL_MISFIT(name, text) name,
/// What is wrong with a combination of parts.
enum class misfit : unsigned char { none, SURELEAP_DETAIL_MISFITS(SURELEAP_DETAIL_MISFIT) };
#undef SURELEAP_DETAIL_MISFIT

/// The words in which it is refused, with the remedy; empty for none.
[[nodiscard]] constexpr char const* to_string(misfit m) noexcept {
#define SURELEAP_DETAIL_MISFIT(name, text) \
    case misfit::name: return text;
    switch (m) {
        SURELEAP_DETAIL_MISFITS(SURELEAP_DETAIL_MISFIT)
        default: return "";
    }
#undef SURELEAP_DETAIL_MISFIT
}

/// A rule under a schedule keeps the target's law of what the drafter drafts.
[[nodiscard]] constexpr bool is_lossless(drafter_traits const& d, schedule_traits const& s,
                                         rule_traits const& r) noexcept {
    bool const constant = d.is_deterministic || r.draft_rule == drawn_by::argmax;
    bool const causal = s.sees == causality::non_anticipating && d.growth == causality::non_anticipating;
    return is_lossless(r.guarantee, causal ? causality::non_anticipating : causality::anticipating, constant,
                       !constant && r.draft_rule == drawn_by::coupled);
}

/// The first misfit of parts. `lossy_too`: the target's law need not be kept.
[[nodiscard]] constexpr misfit misfit_of(drafter_traits const& d, schedule_traits const& s, rule_traits const& r,
                                         bool lossy_too = false) noexcept {
    if (r.draft_rule == drawn_by::any) return misfit::unknown_draft_rule;
    if (d.drafts_trees && !r.judges_trees) return misfit::judges_chains;
    if (!lossy_too && !is_lossless(d, s, r)) {
        if (r.guarantee == fidelity::lossy) return misfit::lossy_rule;
        if (d.growth == causality::anticipating) return misfit::grows_by_tokens;
        if (r.draft_rule == drawn_by::coupled) return misfit::noise_returns;
        return misfit::looks_ahead;
    }
    if (s.needs_confidence && !d.has_confidence) return misfit::no_confidence;
    if (s.plans_at_anchor() && !d.plans_at_anchor) return misfit::no_anchor;
    return misfit::none;
}

SURELEAP_END_NAMESPACE
