// SPDX-License-Identifier: MIT
//
// The stages of a round, each usable alone:
//
//     (prepare) -> forward -> plan -> draw -> admit -> flatten -> score -> accept -> (commit)
//
// A stage takes earlier stages' values and nothing else; none calls back. An engine that owns its loop calls them in
// this order; decoder is the same calls in a loop, and gives the same tokens bit for bit. No stage allocates, throws,
// locks or enters the system, unless an executor that was lent does (executor.hpp); what a user's model does is the model's
// own affair, and its failure propagates before anything was committed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/acceptance/verification.hpp>
#include <sureleap/calibration_ref.hpp>
#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/draft_block.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/error.hpp>
#include <sureleap/executor.hpp>
#include <sureleap/round_check.hpp>
#include <sureleap/round_record.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verdict.hpp>
#include <sureleap/verify_batch.hpp>

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

// ---- memory ----------------------------------------------------------------------------------------------------

/// Sizes of an engine's rounds.
struct round_limits {
    std::size_t max_requests = 1;
    /// For everything that passes over rows of logits; a static table. Default: the best that this machine runs.
    row_kernels const* kernels = &native_row_kernels();
    /// Threads that a round may use; must outlive the memory. Default: the calling one. Results are the same bits with any.
    executor_ref executor{};
    /// Applied to every confidence, live and at the anchor; must outlive the memory. Default: none.
    calibration_ref calibration{};
};

/// All memory of a round, carved once. T: target storage; Q: draft compute type; Hook: logits hook.
template <class T, class Q, class Hook = no_logits_hook>
class round_memory {
public:
    template <class Drafter, class Rule>
    round_memory(Drafter const& drafter, Rule const&, round_limits const& limits)
        : buffer_(size_of(shape_of<Drafter, Rule>(drafter, limits), drafter.target_vocabulary())) {
        if (limits.max_requests == 0) detail::fail("round_limits: max_requests is 0, expected at least 1");
        if (limits.kernels == nullptr)
            detail::fail("round_limits: kernels is null, expected a table that outlives the memory");
        if (limits.executor.width() == 0) detail::fail("round_limits: the executor's width is 0, expected at least 1");
        workspace ws{buffer_};
        carve(ws, shape_of<Drafter, Rule>(drafter, limits), drafter.target_vocabulary());
    }
    // The members are views of the buffer. It moves along with them; a copy's views would point into the original.
    round_memory(round_memory&&) noexcept = default;
    round_memory& operator=(round_memory&&) noexcept = default;

    draft_block<Q> block{};
    planning_memory planning{};
    frontier_memory frontier{};
    verify_batch batch{};
    std::span<verification_memory<T, Hook>> verifications{};  ///< one for every request that may be judged at once
    executor_ref executor{};
    std::span<verdict> verdicts{};          ///< [R]
    std::span<token_id> emitted{};          ///< [R, gamma + 1]
    std::span<double> log_probabilities{};  ///< [R, gamma + 1]
    std::size_t target_vocabulary = 0;

    [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.size(); }

private:
    template <class Drafter, class Rule>
    [[nodiscard]] static draft_shape shape_of(Drafter const& d, round_limits const& limits) noexcept {
        constexpr bool rows = Rule::access == q_access::row && !drafts_deterministically_v<Drafter, Rule>;
        draft_shape shape{.requests = limits.max_requests,
                          .block_size = d.block_size(),
                          .vocabulary = d.vocabulary(),
                          .state_size = d.state_size(),
                          .keep_rows = rows,
                          .kernels = limits.kernels,
                          .executor = limits.executor,
                          .calibration = limits.calibration};
        if constexpr (requires { d.list_scratch(shape); }) d.list_scratch(shape);
        return shape;
    }
    void carve(workspace& ws, draft_shape const& shape, std::size_t vocabulary) noexcept {
        std::size_t const rows = shape.requests * (shape.block_size + 1);
        block = draft_block<Q>(ws, shape);
        planning = planning_memory::carve(ws, shape.requests, shape.block_size);
        frontier = frontier_memory::carve(ws, shape.requests);
        batch = verify_batch(ws, shape.requests, shape.block_size);
        executor = shape.executor;
        verifications = ws.take<verification_memory<T, Hook>>(std::min(executor.width(), shape.requests));
        for (std::size_t w = 0; w < std::min(executor.width(), shape.requests); ++w) {
            auto const one = verification_memory<T, Hook>::carve(ws, shape.block_size, vocabulary, *shape.kernels);
            if (!ws.counting()) verifications[w] = one;
        }
        verdicts = ws.take<verdict>(shape.requests);
        emitted = ws.take<token_id>(rows);
        log_probabilities = ws.take<double>(rows);
        target_vocabulary = vocabulary;
    }
    [[nodiscard]] std::size_t size_of(draft_shape const& shape, std::size_t vocabulary) noexcept {
        workspace sizer;
        carve(sizer, shape, vocabulary);
        return sizer.used();
    }

    std::vector<std::byte> buffer_;
};

// ---- stages ----------------------------------------------------------------------------------------------------

/// Weights from priorities: each request's relative to the largest, at least 1 (of 2^24).
inline void weigh(std::span<request_view> requests) noexcept {
    double most = 0.0;
    for (request_view const& r : requests) most = std::max(most, r.settings->priority);
    for (request_view& r : requests) {
        double const share = r.settings->priority / most * static_cast<double>(certain);
        r.weight = std::max(static_cast<fixed_probability>(share), fixed_probability{1});
    }
}

/// Prepare. Weighs the requests by their priorities, lets the schedule limit what they draft, and empties the block for
/// them. False if nobody drafts: forward, plan and draw may be left out then.
template <class Schedule, class Q>
[[nodiscard]] bool prepare(Schedule& schedule, std::span<request_view> requests, draft_block<Q>& block) {
    weigh(requests);
    if constexpr (draft_limiter<Schedule>) schedule.limit_drafts(requests);
    fixed_probability floor = 0;
    if constexpr (draft_stopper<Schedule>) floor = schedule.draft_floor();
    block.begin(requests, floor);
    return block.load().drafting > 0;
}

/// What the plan stage hands to admit: how many positions to verify, if a planner decided that.
using verify_budget = std::optional<std::size_t>;

/// Plan from past rounds, by all that it reads: who takes part, and the tables that earlier rounds left. Nothing of it is
/// written while a block is drawn, so it may run beside `draw` on another thread, with `memory` its own: the asynchronous
/// scheduler of paper section 5.2. The history must be pushed to after both.
template <planner Schedule>
[[nodiscard]] verify_budget plan(Schedule const& schedule, std::span<request_view const> requests,
                                 survival_history const& history, planning_memory& memory) {
    static_assert(
        !std::is_same_v<typename Schedule::origin, from_anchor>,
        "plan: this schedule plans from this round's forward pass, so give it the drafter, what forward() returned "
        "and the block; only a planner of past rounds (top_k_schedule) may run beside the draw");
    if constexpr (!std::is_same_v<typename Schedule::origin, from_anchor>) {
        return schedule.budget(history.template lagged<Schedule::origin::lag>(requests, memory));
    }
}

/// Plan. Before anything is drawn: asks a planner for the budget, from the anchor or from past rounds. A schedule that
/// decides live plans nothing. `block` must have begun; it lends scratch.
template <class Schedule, class Drafter, class Forward, class Block>
[[nodiscard]] verify_budget plan(Schedule const& schedule, Drafter const& drafter, Forward const& forward,
                                 Block const& block, survival_history const& history, planning_memory& memory) {
    if constexpr (!planner<Schedule>) {
        return std::nullopt;
    } else if constexpr (std::is_same_v<typename Schedule::origin, from_anchor>) {
        memory.start(block.requests(), block.calibration());
        drafter.plan(forward, block, memory);
        return schedule.budget(detail::planning_access::make<from_anchor>(memory.view(), memory.walk));
    } else {
        return plan(schedule, block.requests(), history, memory);
    }
}

/// Admit. The verify length of every request, in memory.lengths.
template <class Schedule>
[[nodiscard]] std::span<std::uint32_t const> admit(Schedule const& schedule, draft_table const& table,
                                                   verify_budget const& budget, frontier_memory const& memory) {
    std::size_t const requests = table.survivals.requests();
    if constexpr (planner<Schedule>) {
        causal_frontier frontier{table.survivals, memory};
        frontier.admit_best(budget.value_or(0));
    } else if constexpr (frontier_scheduler<Schedule>) {
        causal_frontier frontier{table.survivals, memory};
        schedule.admit(frontier);
    } else {
        schedule.admit(table, memory);
        for (std::size_t r = 0; r < requests; ++r) SURELEAP_EXPECTS(memory.lengths[r] <= table.survivals.sizes[r]);
    }
    return memory.lengths.first(requests);
}

/// Flatten. The batch the target scores: anchors and admitted prefixes, request after request.
template <class Q>
void flatten(draft_block<Q> const& block, std::span<std::uint32_t const> lengths, verify_batch& batch) noexcept {
    batch.begin(block.requests());
    for (std::size_t r = 0; r < block.requests().size(); ++r) batch.append(block.tokens(r).first(lengths[r]));
}

namespace detail {

/// The verdict on request r of the batch, with scratch of its own. It writes what is request r's alone.
template <class Rule, class T, class Q, class Hook, class Rng>
void judge(std::size_t r, Rule const& rule, logits_rows<T> const& rows, bool shaped, Hook const& hook, Rng& rng,
           verification_memory<T, Hook> const& scratch, round_memory<T, Q, Hook>& memory) {
    verify_batch const& batch = memory.batch;
    request_view const& request = batch.requests()[r];
    verdict& out = memory.verdicts[r];
    out = {.id = request.id,
           .slot = request.slot,
           .outcome = memory.block.outcome(r),
           .drafted = memory.block.size(r),
           .verified = batch.length(r)};
    if (out.outcome != status::ok) return;
    auto const drafted = batch.drafted(r);
    decision d{};
    verification<T, Q, Hook> view{request, drafted, memory.block.laws(r), rows, batch.first_row(r), hook, scratch};
    if (shaped) d = view.decide_by(rule, rng);
    if (!d.valid) {
        out.outcome = status::invalid_target;
        return;
    }
    out.accepted = d.accepted;
    std::size_t const first = r * (memory.block.block_size() + 1);
    std::size_t count = 0;
    while (count <= d.accepted && !out.stopped) {
        token_id const x = count < d.accepted ? drafted[count] : d.next;
        memory.emitted[first + count] = x;
        if (request.settings->log_probabilities) {
            memory.log_probabilities[first + count] = view.target(count).log_probability(x);
        }
        out.stopped = request.settings->stops_at(x);
        ++count;
    }
    out.emitted = memory.emitted.subspan(first, count);
    if (request.settings->log_probabilities) out.log_probabilities = memory.log_probabilities.subspan(first, count);
}

}  // namespace detail

/// Accept. One verdict per request, in the order of the batch. Rows of the wrong shape or without a law give the status
/// invalid_target; nothing is emitted then.
///
/// Requests are divided among the threads that memory.executor lends, if there is work for them and draws may be made at
/// once (concurrent_randomness); then rule and hook are called concurrently, and neither may throw.
template <class Rule, class T, class Q, class Hook, class Rng>
[[nodiscard]] std::span<verdict const> accept(Rule const& rule, logits_rows<T> const& rows, Hook const& hook, Rng& rng,
                                              round_memory<T, Q, Hook>& memory) {
    verify_batch const& batch = memory.batch;
    std::size_t const requests = batch.requests().size();
    bool const shaped = rows.values.rows >= batch.rows() && rows.values.cols == memory.target_vocabulary &&
                        (rows.log_normalisers.empty() || rows.log_normalisers.size() >= batch.rows()) &&
                        (rows.block_sums.empty() || (rows.block_sums.rows >= batch.rows() &&
                                                     rows.block_sums.cols == row_blocks(memory.target_vocabulary)));
    if constexpr (concurrent_randomness<Rng>) {
        // About half of the rows are touched, mostly by bounds, which take half as long as a sum.
        std::size_t const workers = memory.executor.worth(batch.rows() * memory.target_vocabulary / 4);
        detail::share_out(memory.executor, std::min(workers, memory.verifications.size()), requests,
                          [&](std::size_t worker, std::size_t r) {
                              detail::judge(r, rule, rows, shaped, hook, std::as_const(rng),
                                            memory.verifications[worker], memory);
                          });
    } else {
        for (std::size_t r = 0; r < requests; ++r) {
            detail::judge(r, rule, rows, shaped, hook, rng, memory.verifications[0], memory);
        }
    }
    return memory.verdicts.first(requests);
}

/// What the round was, for everything that learns or counts. After accept; before the requests' views change.
template <class T, class Q, class Hook>
[[nodiscard]] round_record record_of(round_memory<T, Q, Hook> const& memory,
                                     double seconds = std::numeric_limits<double>::quiet_NaN()) noexcept {
    round_record record{memory.block.requests(),
                        memory.verdicts.first(memory.block.requests().size()),
                        memory.block.table().survivals,
                        memory.block.raw_confidences(),
                        memory.block.load(),
                        seconds};
    record.load.batch_tokens = memory.batch.rows();
    return record;
}

SURELEAP_END_NAMESPACE
