// SPDX-License-Identifier: MIT
//
// Which rule keeps the target's law under which schedule with which draft: the table of docs/losslessness.md, as
// the compiler sees it. The property tests compute that the entries are true; here it is fixed what is claimed.
#include <array>
#include <cstddef>
#include <span>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

namespace guarantee_test {

struct curve {
    double steps_per_second(std::size_t) const;
};
// A user's schedules. The last one is handed everything too, and its author vouches for it.
struct own_live {
    void admit(causal_frontier&) const;
};
struct own_table {
    void admit(draft_table const&, frontier_memory const&) const;
};
struct own_proved_table {
    void admit(draft_table const&, frontier_memory const&) const;
};
template <class Capacity>
struct own_proved_template {
    void admit(draft_table const&, frontier_memory const&) const;
};
// A rule that saves time by accepting too much.
struct typical_acceptance {
    static constexpr fidelity guarantee = fidelity::lossy;
    static constexpr q_access access = q_access::none;
    using draft_rule = categorical_draft;
    decision operator()(auto&, auto&) const;
};
// A rule that needs no position-keyed noise and yet withstands any schedule.
struct fresh_noise_match {
    static constexpr fidelity guarantee = fidelity::schedule_invariant;
    static constexpr q_access access = q_access::none;
    using draft_rule = categorical_draft;
    decision operator()(auto&, auto&) const;
};

// A confidence that a tree can grow by.
struct half_sure {
    double operator()(std::span<float const>, token_id, std::size_t) const;
};

}  // namespace guarantee_test

// The opt-in is one line, for a type or for a template.
template <>
inline constexpr bool sureleap::enable_non_anticipating<guarantee_test::own_proved_table> = true;
template <class Capacity>
inline constexpr bool sureleap::enable_non_anticipating<guarantee_test::own_proved_template<Capacity>> = true;

namespace guarantee_test {

// ---- what a schedule may know ----------------------------------------------------------------------------------

constexpr auto causal = causality::non_anticipating;
constexpr auto looks_ahead = causality::anticipating;

static_assert(causality_of_v<fixed_schedule> == causal);
static_assert(causality_of_v<threshold_schedule> == causal);
static_assert(causality_of_v<survival_threshold_schedule> == causal);
static_assert(causality_of_v<greedy_schedule<curve>> == causal);
static_assert(causality_of_v<top_k_schedule<curve>> == causal);
static_assert(causality_of_v<top_k_schedule<curve, 7>> == causal);
static_assert(causality_of_v<planned_schedule<curve>> == causal);
static_assert(causality_of_v<own_live> == causal);
static_assert(causality_of_v<retrospective_schedule<curve>> == looks_ahead);
static_assert(causality_of_v<own_table> == looks_ahead);
static_assert(causality_of_v<own_proved_table> == causal);
static_assert(causality_of_v<own_proved_template<curve>> == causal);
static_assert(!enable_non_anticipating<retrospective_schedule<curve>> && !enable_non_anticipating<own_table>);

// ---- the table -------------------------------------------------------------------------------------------------

using sampled =
    autoregressive<decltype([](std::span<request_view const>, draft_prefixes const&) { return logits_rows<float>{}; }),
                   top1_confidence>;
using sampled_block =
    parallel<decltype([](std::span<request_view const>) { return block_forward<float>{}; }), top1_confidence>;
using found = lookup;  // deterministic by nature
using trees =
    tree_drafter<parallel<decltype([](std::span<request_view const>) { return block_forward<float>{}; }), half_sure>>;
struct ranked_trees : trees {  // nodes are ranked by their own probability
    static constexpr bool grows_by_tokens = true;
};

template <class Rule, class Drafter>
constexpr std::array row{
    is_lossless_round_v<Rule, fixed_schedule, Drafter>,
    is_lossless_round_v<Rule, threshold_schedule, Drafter>,
    is_lossless_round_v<Rule, survival_threshold_schedule, Drafter>,
    is_lossless_round_v<Rule, greedy_schedule<curve>, Drafter>,
    is_lossless_round_v<Rule, top_k_schedule<curve>, Drafter>,
    is_lossless_round_v<Rule, planned_schedule<curve>, Drafter>,
    is_lossless_round_v<Rule, own_live, Drafter>,
    is_lossless_round_v<Rule, own_proved_table, Drafter>,
    is_lossless_round_v<Rule, retrospective_schedule<curve>, Drafter>,
    is_lossless_round_v<Rule, own_table, Drafter>,
};

constexpr bool exact = true;
constexpr bool lossy = false;
//                                        fixed  thresh survi- greedy top_k  plan-  own    own    retro- own
//                                               old    val                  ned    live   proved spect. table
constexpr std::array under_causal_ones = {exact, exact, exact, exact, exact, exact, exact, exact, lossy, lossy};
constexpr std::array under_all_of_them = {exact, exact, exact, exact, exact, exact, exact, exact, exact, exact};
constexpr std::array under_none_of_them = {lossy, lossy, lossy, lossy, lossy, lossy, lossy, lossy, lossy, lossy};

// Sampled drafts.
static_assert(row<token_rejection<>, sampled> == under_causal_ones);
static_assert(row<block_verification<>, sampled> == under_causal_ones);
static_assert(row<target_match<>, sampled> == under_all_of_them);
static_assert(row<target_match<categorical_draft>, sampled> == under_all_of_them);
static_assert(row<fresh_noise_match, sampled> == under_all_of_them);
static_assert(row<greedy_match, sampled> == under_all_of_them);
static_assert(row<keyed_coupling, sampled> == under_all_of_them);
static_assert(row<typical_acceptance, sampled> == under_none_of_them);
static_assert(row<token_rejection<>, sampled_block> == under_causal_ones);
static_assert(row<block_verification<>, sampled_block> == under_causal_ones);
static_assert(row<keyed_coupling, sampled_block> == under_all_of_them);

// Deterministic drafts: because the rule asks for the argmax, or because the drafter looks tokens up. They are
// known before they are drawn, so looking ahead at them shows nothing.
static_assert(row<token_rejection<argmax_draft>, sampled> == under_all_of_them);
static_assert(row<block_verification<argmax_draft>, sampled_block> == under_all_of_them);
static_assert(row<token_rejection<>, found> == under_all_of_them);
static_assert(row<block_verification<>, found> == under_all_of_them);
static_assert(row<keyed_coupling, found> == under_all_of_them);
// Trees are as good as chains, if no token decides whether it is there.
static_assert(row<recursive_rejection<>, trees> == under_causal_ones);
static_assert(row<traversal_verification<>, trees> == under_causal_ones);
static_assert(row<recursive_rejection<argmax_draft>, trees> == under_all_of_them);
static_assert(row<target_match<>, trees> == under_all_of_them);
static_assert(row<keyed_coupling, with_lookup<trees>> == under_all_of_them);
static_assert(row<recursive_rejection<>, ranked_trees> == under_none_of_them);
static_assert(row<traversal_verification<>, with_lookup<ranked_trees>> == under_none_of_them);
static_assert(row<recursive_rejection<argmax_draft>, ranked_trees> == under_all_of_them);
static_assert(row<keyed_coupling, ranked_trees> == under_all_of_them);
static_assert(traits_of<recursive_rejection<>>().judges_trees && !traits_of<token_rejection<>>().judges_trees);
static_assert(traits_of<trees>().drafts_trees && traits_of<with_lookup<trees>>().drafts_trees);
static_assert(!traits_of<with_lookup<sampled>>().drafts_trees);

// Neither saves a rule that is lossy by itself.
static_assert(row<typical_acceptance, found> == under_none_of_them);

// ---- the levels ------------------------------------------------------------------------------------------------

static_assert(token_rejection<>::guarantee == fidelity::distribution);
static_assert(block_verification<>::guarantee == fidelity::distribution);
static_assert(target_match<>::guarantee == fidelity::pathwise);
static_assert(greedy_match::guarantee == fidelity::pathwise);
static_assert(keyed_coupling::guarantee == fidelity::pathwise);

template <fidelity F>
constexpr std::array level{is_lossless_v<F, looks_ahead, false>, is_lossless_v<F, looks_ahead, true>,
                           is_lossless_v<F, causal, false>, is_lossless_v<F, causal, true>};
//                                                          anticipating   causal
//                                                          sampled 1-hot  sampled 1-hot
static_assert(level<fidelity::lossy> == std::array{lossy, lossy, lossy, lossy});
static_assert(level<fidelity::distribution> == std::array{lossy, exact, exact, exact});
static_assert(level<fidelity::schedule_invariant> == std::array{exact, exact, exact, exact});
static_assert(level<fidelity::pathwise> == std::array{exact, exact, exact, exact});

// Weakest first, each level including the ones before.
static_assert(fidelity::lossy < fidelity::distribution && fidelity::distribution < fidelity::schedule_invariant &&
              fidelity::schedule_invariant < fidelity::pathwise);

// allow_lossy has to be written: nothing converts into it, braces included.
template <class T>
concept accepts_braces = requires(void (&take)(T)) { take({}); };
static_assert(!accepts_braces<allow_lossy_t>);
static_assert(!std::is_convertible_v<bool, allow_lossy_t> && !std::is_convertible_v<int, allow_lossy_t>);

}  // namespace guarantee_test
