// SPDX-License-Identifier: MIT
//
// A round, stage by stage:
//
//     begin_round -> forward -> plan -> draw -> admit -> score -> accept -> end_round
//
// An engine that owns its loop calls them in this order. The decoder makes the same calls in a loop and gives the same
// tokens bit for bit. What one stage leaves for the next is in the round_memory, where nobody else can change it. So
// between two stages an engine may do what it likes. A stage that is called out of order throws, before anything is
// committed, and says what to call. Tokens come out of end_round, so that none is forgotten.
//
// Rounds of several round_memory objects may overlap: one is drafted while another is verified. What a model lends to
// one of them is refused once the model's next pass has overwritten it (core/pass.hpp).
//
// No stage allocates, locks or enters the system, unless an executor that was lent does (executor.hpp). None throws if
// the order is right. What a user's model does is the model's own affair: its failure propagates, nothing is committed,
// and the round may be begun again from the same place (round/attempts.hpp). From the first commit on nothing may
// throw.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/judge.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/stage_checks.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verification.hpp>
#include <sureleap/verify/verify_batch.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Score. target.score(batch), or target(batch) for a lambda.
template <class Target>
[[nodiscard]] auto score(Target& target, verify_batch const& batch) {
    if constexpr (requires { target.score(batch); }) {
        return target.score(batch);
    } else {
        return target(batch);
    }
}

/// Storage format of a target's logits.
template <class Target>
using target_value_t = typename decltype(score(std::declval<std::remove_reference_t<Target>&>(),
                                               std::declval<verify_batch const&>()))::value_type;

namespace detail {
/// Weights from priorities: each request's relative to the largest, at least 1 (of 2^24).
inline void weigh(std::span<request_view> requests) noexcept {
    double most = 0.0;
    for (request_view const& r : requests) most = std::max(most, r.settings->priority);
    for (request_view& r : requests) {
        double const share = r.settings->priority / most * static_cast<double>(certain);
        r.weight = std::max(static_cast<fixed_probability>(share), fixed_probability{1});
    }
}

// What begin_round and admit do whatever the schedule is.

template <class T, class Q, class Hook>
[[nodiscard]] std::span<request_view> take_requests(std::span<request_view const> requests, void const* schedule,
                                                    round_state<T, Q, Hook>& round) {
    if (requests.size() > round.requests.size()) {
        fail_with("begin_round: there are ", requests.size(),
                  " requests, expected at most max_requests = ", round.requests.size());
    }
    for (std::size_t r = 0; r < requests.size(); ++r) check_request(r, requests[r], round.parts);
    round.attempts.check(requests);
    if (round.attempts.undecided()) expect_same(round.schedule, schedule, "begin_round");

    // Nothing of the round before is left, whatever the schedule throws now.
    round.attempts.remember(round.block);
    round.at = {};
    round.schedule = schedule;
    if (round.clock) round.began = round.clock();
    auto const views = round.requests.first(requests.size());
    std::copy(requests.begin(), requests.end(), views.begin());
    weigh(views);
    for (request_view& view : views) view.model_limit = std::min(view.model_limit, round.parts.model_block_size);
    return views;
}

template <class T, class Q, class Hook>
[[nodiscard]] bool empty_block(std::span<request_view> views, fixed_probability floor, round_state<T, Q, Hook>& round) {
    for (request_view& view : views) view.draft_floor = floor;
    round.attempts.repeat_limits(views);
    round.attempts.begin(views);
    round.block.begin(views);
    round.budget.reset();
    round.at = {.begun = true};
    return std::any_of(views.begin(), views.end(), [&](request_view const& r) {
        return (round.parts.finds_tokens ? r.found_cap(1) : r.draft_cap(1)) > 0;
    });
}

template <class T, class Q, class Hook>
void admit_lengths(std::span<std::uint32_t const> lengths, draft_table const& table,
                   std::span<request_view const> requests, round_state<T, Q, Hook>& round) {
    // Before anybody's length is decided: if one cannot be, none is.
    for (std::size_t r = 0; r < requests.size(); ++r) {
        std::uint32_t const drafted = table.survivals.sizes[r];
        if (lengths[r] > drafted) {
            fail_with("admit: the schedule gives request ", r, " the length ", lengths[r], ", expected at most ",
                      drafted, ", the tokens that it drafted");
        }
        check_draft(r, requests[r], round);
    }
    round.batch.begin(requests);
    for (std::size_t r = 0; r < requests.size(); ++r) {
        std::uint32_t const drafted = table.survivals.sizes[r];
        std::uint32_t const length = std::min(round.attempts.length(requests[r], lengths[r]), drafted);
        auto const parents = round.block.parents(r);
        round.attempts.admit(requests[r], drafted, length);
        round.batch.append(round.block.tokens(r).first(length), parents.empty() ? parents : parents.first(length));
    }
    round.attempts.decide();
    round.at.admitted = true;
}

// What both ways of planning do.

template <class Schedule, class T, class Q, class Hook>
[[nodiscard]] round_state<T, Q, Hook>& begun_by(Schedule const& schedule, round_memory<T, Q, Hook>& memory) {
    auto& round = round_access::state(memory);
    expect_schedule(round.parts, schedule, "plan");
    expect_round(round.at.begun, "plan: no round has begun; call begin_round first");
    expect_same(round.schedule, std::addressof(schedule), "plan");
    return round;
}
template <planner Schedule, class Round>
void take_budget(Schedule const& schedule, Round& round) {
    round.budget =
        schedule.budget(planning_access::make<typename Schedule::origin>(round.planning.view(), round.planning.walk));
    round.at.planned = true;
}
template <class Schedule, class T, class Q, class Hook>
void plan_by_history(Schedule const& schedule, round_memory<T, Q, Hook>& memory) {
    auto& round = begun_by(schedule, memory);
    round.history.recall(memory.requests(), round.planning);
    take_budget(schedule, round);
}
}  // namespace detail

// ---- stages ----------------------------------------------------------------------------------------------------

/// Begin. Takes the requests of the round, which are copied; weighs them by their priorities, lets the schedule limit
/// what they draft, and empties the block. False if nobody drafts: forward, plan and draw may be left out then.
///
/// Throws if a request cannot take part: it has no usable settings, its anchor is no token, or it has nothing left to
/// emit. Throws, too, if a slot is out of range or taken twice, or if a position is not where the last round ended.
///
/// A round that failed is begun again with the same requests at the same places, in their slots. They are given the
/// limits and lengths of the first time. If it failed between draw and admit, nobody else may begin a round before
/// (undecided()).
template <class Schedule, class T, class Q, class Hook>
[[nodiscard]] bool begin_round(Schedule& schedule, std::span<request_view const> requests,
                               round_memory<T, Q, Hook>& memory) {
    auto& round = detail::round_access::state(memory);
    detail::expect_schedule(round.parts, schedule, "begin_round");
    if constexpr (sized_part<Schedule>) {
        detail::expect_round(!traits_of(schedule).is_sized || schedule.sizes() == memory.sizes(),
                             "begin_round: the schedule is not set up for these rounds; make the round_memory with the "
                             "object that the stages are given, and not with a copy of it");
    }
    auto const views = detail::take_requests(requests, std::addressof(schedule), round);
    if constexpr (draft_limiter<Schedule>) {
        schedule.limit_drafts(views);
        detail::keep_limits(views, requests, round.parts.model_block_size);
    }
    fixed_probability floor = 0;
    if constexpr (draft_stopper<Schedule>) floor = schedule.draft_floor();
    return detail::empty_block(views, floor, round);
}

/// Plan from past rounds, by all that it reads: who takes part, and the tables that earlier rounds left. Nothing of it
/// is written while a block is drawn, so it may run beside `draw` on another thread: the asynchronous scheduler of
/// paper section 5.2. A schedule that is chosen at run time and plans otherwise, or not, plans nothing here.
template <planner Schedule, class T, class Q, class Hook>
void plan(Schedule const& schedule, round_memory<T, Q, Hook>& memory) {
    if constexpr (!detail::chosen_at_run_time<Schedule>) {
        static_assert(
            !traits_of<Schedule>().plans_at_anchor(),
            "plan: this schedule plans from this round's forward pass, so give it the drafter and what forward() "
            "returned; only a planner of past rounds (top_k_schedule) may run beside the draw");
    }
    if (traits_of(schedule).reads_history()) detail::plan_by_history(schedule, memory);
}

/// Plan. Before anything is drawn: asks a planner how many positions to verify, from the anchor or from past rounds. A
/// schedule that decides live plans nothing.
template <class Schedule, class Drafter, class Forward, class T, class Q, class Hook>
void plan(Schedule const& schedule, Drafter const& drafter, Forward const& forward, round_memory<T, Q, Hook>& memory) {
    if constexpr (planner<Schedule>) {
        schedule_traits const how = traits_of(schedule);
        if (how.reads_history()) return detail::plan_by_history(schedule, memory);
        if constexpr (traits_of<Drafter>().plans_at_anchor) {
            if (!how.plans) return;
            auto& round = detail::begun_by(schedule, memory);
            detail::expect_round(!round.at.drawn, "plan: the block is drawn already; plan before draw");
            detail::expect_forward(pass_of(forward), memory.requests(), "plan");
            round.planning.start(memory.requests(), round.block.calibration());
            plan_block(drafter, forward, round.block, detail::round_access::draft_memory<Drafter>(round),
                       round.planning);
            detail::take_budget(schedule, round);
        }
    }
}

/// Draw. The drafter fills the block, each token as the rule wants it drawn.
template <class Drafter, class Forward, class Rule, class Rng, class T, class Q, class Hook>
void draw(Drafter& drafter, Forward const& forward, Rule const& rule, Rng& rng, round_memory<T, Q, Hook>& memory) {
    auto& round = detail::round_access::state(memory);
    detail::expect_rule(round.parts, rule, "draw");
    detail::expect_round(round.at.begun, "draw: no round has begun; call begin_round first");
    detail::expect_round(!round.at.drawn && !round.at.admitted,
                         "draw: the block is drawn or admitted already; begin the next round after end_round");
    draft_shape const& shape = round.block.shape();
    bool const same = round.parts.drafter == detail::tag_of<Drafter>() && drafter.block_size() == shape.block_size &&
                      drafter.vocabulary() == shape.vocabulary &&
                      detail::state_size_of(drafter) == round.parts.state_size &&
                      drafter.target_vocabulary() == round.parts.target_vocabulary;
    detail::expect_round(same,
                         "draw: the round_memory was made for a drafter of another type or shape; make one for each");
    detail::expect_forward(pass_of(forward), memory.requests(), "draw");
    round.at.drawn = true;
    if (lends_rows_v<Drafter> && shape.keep_rows) round.at.lent_drafts = pass_of(forward);
    round.rule = detail::object_of(rule);
    round.attempts.draw(memory.requests(), {std::addressof(drafter), round.rule});
    auto const fill = [&]<class DraftRule>(DraftRule how) {
        draw_block(drafter, forward, how, round.block, detail::round_access::draft_memory<Drafter>(round), rng);
    };
    if constexpr (detail::chosen_at_run_time<Rule>) {
        detail::with_draft_rule(traits_of(rule).draft_rule, fill);
    } else {
        fill(typename Rule::draft_rule{});
    }
}

/// The drafter threw, and the round may go on with what it had drafted (end_drafts): if nothing was drawn yet, if the
/// round has one request, or if the rule takes any draft; and nobody has drafted less than in an attempt that failed.
template <class T, class Q, class Hook>
[[nodiscard]] bool can_end_drafts(round_memory<T, Q, Hook>& memory) noexcept {
    return detail::may_end_drafts(detail::round_access::state(memory));
}
/// The drafter threw, in forward, plan or draw, and the round goes on with what it had drafted: admit comes next.
/// Verdicts report status::drafter_failed. What was drawn is verified as far as the schedule says, or the failure would
/// choose among it.
///
/// Throws if it may not (can_end_drafts): with several requests, a rule that samples, and a failure between two draws.
/// One request's token may have caused it and ends another's chain, so a schedule would learn of that token. Such a
/// round is begun again until the drafter works, as after any failure.
template <class T, class Q, class Hook>
void end_drafts(round_memory<T, Q, Hook>& memory) {
    auto& round = detail::round_access::state(memory);
    detail::expect_round(round.at.begun && !round.at.admitted,
                         "end_drafts: no round drafts; call it between begin_round and admit, where the drafter threw");
    detail::expect_round(
        detail::may_end_drafts(round),
        "end_drafts: tokens were drawn for several requests, or fewer than in the attempt that failed, "
        "so the round would depend on them; begin it again (can_end_drafts tells)");
    auto const requests = memory.requests();
    for (std::size_t r = 0; r < requests.size(); ++r) {
        bool const drafts = requests[r].found_cap(round.block.block_size()) > 0;
        if (drafts && round.block.draft_outcome(r) == status::ok) round.block.reject(r, status::drafter_failed);
    }
}

/// What the plan stage hands to admit: how many positions to verify, if a planner decided that.
using verify_budget = std::optional<std::size_t>;

/// The verify length of every request of a table, in memory.lengths: what admit asks a schedule, and what a simulation
/// or a schedule's own test asks it.
template <class Schedule>
[[nodiscard]] std::span<std::uint32_t const> admit(Schedule const& schedule, draft_table const& table,
                                                   verify_budget const& budget, frontier_memory const& memory) {
    if (traits_of(schedule).plans) {
        causal_frontier frontier{table.survivals, memory};
        frontier.admit_best(budget.value_or(0));
    } else {
        detail::admit_by(schedule, table, memory);
    }
    return memory.lengths.first(table.survivals.requests());
}

/// Admit. Decides how much of each block is verified, and returns the batch that the target has to score: anchors and
/// admitted prefixes, request after request.
///
/// There is one way to verify less: to draft less, by draft_limit in begin_round. A batch that turns out too large for
/// one pass of the target is scored in several, or fails; its requests then run alone, with the same lengths.
template <class Schedule, class T, class Q, class Hook>
[[nodiscard]] verify_batch const& admit(Schedule const& schedule, round_memory<T, Q, Hook>& memory) {
    auto& round = detail::round_access::state(memory);
    detail::expect_schedule(round.parts, schedule, "admit");
    detail::expect_round(round.at.begun, "admit: no round has begun; call begin_round first");
    detail::expect_same(round.schedule, std::addressof(schedule), "admit");
    detail::expect_round(round.at.planned || !round.at.drawn || !traits_of(schedule).plans,
                         "admit: the schedule plans and was not asked; call plan before draw");
    auto const requests = memory.requests();
    if constexpr (requires { schedule.standing(); }) round.at.ranks = schedule.standing();
    draft_table const table = round.block.table();
    detail::admit_lengths(admit(schedule, table, round.budget, round.frontier), table, requests, round);
    return round.batch;
}

/// Accept. Judges each request by the target's rows, one a row of the batch. A row without a law gives its request the
/// status invalid_target, and a target that gives no rows all of them; rows of another shape are an error. Asked again,
/// the same comes out; verdicts are handed out by end_round.
///
/// Requests are divided among the threads that were lent, if there is work for them and draws may be made at once
/// (concurrent_randomness); then rule and hook are called concurrently. What one of them throws comes out of accept,
/// with nothing decided: it may be asked again, or the round begun again.
template <class Rule, class Row, class RowHook, class Rng, class T, class Q, class Hook>
void accept(Rule const& rule, logits_rows<Row> const& rows, RowHook const& hook, Rng& rng,
            round_memory<T, Q, Hook>& memory) {
    static_assert(
        std::is_same_v<Row, T>,
        "accept: the target's rows are stored in another format than the round_memory was made for; its first "
        "parameter is that format (target_value_t)");
    static_assert(
        std::is_same_v<RowHook, Hook>,
        "accept: the hook is not the one that the round_memory was made for; its third parameter is the hook's "
        "type, by default no_logits_hook");
    if constexpr (std::is_same_v<Row, T> && std::is_same_v<RowHook, Hook>) {
        detail::accept_rows(rule, rows, hook, rng, memory);
    }
}

/// Tells a model what became of the round, if it has commit: the round's drafter with the block and its own memory.
template <class Model, class T, class Q, class Hook>
void commit_to(Model& model, std::span<verdict const> verdicts, round_memory<T, Q, Hook>& memory) noexcept {
    auto const& round = detail::round_access::state(memory);
    if constexpr (drafter<Model>) {
        if (round.parts.drafter == detail::tag_of<Model>()) {
            return commit_block(model, verdicts, round.block, detail::round_access::draft_memory<Model>(round));
        }
    }
    // A drafter of another round that learns from its own drafts alone has none.
    if constexpr (!drafter<Model> || requires { model.commit(verdicts); }) detail::commit_to(model, verdicts);
}

/// End. Commits the verdicts to the models that have commit (commit_to), in the order given, the target first;
/// remembers the round for planners; lets the schedule observe it. Returns its record, with the verdicts, valid until
/// the next round begins. An engine that rolls back its caches itself names no models and does so by the record.
///
/// From the first commit on nothing may fail, or some would have committed and others not, and the tokens would be
/// lost. So commit and observe are noexcept, which is asserted.
template <class Schedule, class T, class Q, class Hook, class... Models>
round_record end_round(Schedule& schedule, round_memory<T, Q, Hook>& memory, Models&... models) {
    auto& round = detail::round_access::state(memory);
    detail::expect_schedule(round.parts, schedule, "end_round");
    detail::expect_round(round.at.judged, "end_round: the round is not judged; call accept first");
    detail::expect_same(round.schedule, std::addressof(schedule), "end_round");
    auto const requests = memory.requests();
    detail::expect_rows(round.at.scored, requests, "end_round");
    std::span<verdict const> const verdicts = round.verdicts.first(requests.size());
    (commit_to(models, verdicts, memory), ...);
    if (traits_of(schedule).reads_history()) {
        round.history.push(requests, round.block.table().survivals,
                           [&](std::size_t r) { return round.block.has_ended(r); });
    }
    round.attempts.end(requests, verdicts);
    round.at = {};
    round_record record{requests, verdicts, round.block.table().survivals, round.block.raw_confidences(),
                        round.block.load()};
    if (round.clock) record.seconds = round.clock() - round.began;
    record.found = round.block.found();
    record.load.batch_tokens = round.batch.rows();
    for (std::size_t r = 0; r < requests.size(); ++r) {
        std::size_t const cap = record.found[r] ? requests[r].draft_cap(round.block.block_size()) : 0;
        record.load.drafting -= cap > 0 ? 1 : 0;
        record.load.draft_tokens -= cap;
    }
    detail::observe_by(schedule, record);
    return record;
}

SURELEAP_END_NAMESPACE

#if SURELEAP_COMPILED
#define SURELEAP_DETAIL_TEMPLATE extern template
#include <sureleap/round/compiled.inl>
#endif
