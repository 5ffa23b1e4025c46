// SPDX-License-Identifier: MIT
//
// Makes ranks of one engine verify the same lengths.
//
// A budget is a pure function of a table, and lengths are one of the table and the budget, in integers. So ranks that
// hold the same tables agree without communication. What can differ are clocks, and histories where a rank has missed
// rounds. With this adapter ranks exchange the few numbers through which such a difference could act:
//
//     mpi_ranks ranks{MPI_COMM_WORLD};                                       // ext/mpi.hpp
//     agreed schedule{top_k_schedule{cost}, rank_consensus{ranks}};          // ranks/rank_consensus.hpp
//
// Ranks exchange the batch B = R + K, not the budget. For ranks that hold the same requests it makes no difference.
// Ranks that hold requests of their own can agree by the maximum on the size that all of them pad to, and fill it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

/// exchange(B) -> B: what the ranks agree on, each having said its own batch. Called on every rank exactly once a
/// round, before anything is admitted; may wait for the others.
///
/// Optional: seconds(s) -> s, of a round that was timed (or NaN), called on every rank once a round. Without it ranks
/// whose schedules learn from seconds should be given one clock. Optional: drafting(requests, floor) replaces
/// draft_limit and weight of every request and the floor by those of one rank. It is called once a round, first. It is
/// for ranks with the same requests whose schedules limit drafts by histories that may differ. A round that is run
/// again counts as another one: all ranks run it again. Optional: standing() -> status, asked when the batch is made.
/// If it is not ok, every request of the round ends with it and emits nothing.
///
/// Promise: ranks are given the same answer, which depends on nothing that this round's blocks are drawn from. A round
/// that is run again gets the answer of its first attempt, which the same ranks ask for with the same numbers.
template <class E>
concept batch_exchange = requires(E const& exchange, std::size_t batch_tokens) {
    { exchange(batch_tokens) } noexcept -> std::convertible_to<std::size_t>;
};

/// Planner: planner. Exchange: batch_exchange. Models planner. The outermost adapter. A rank on which nobody may draft
/// plans nothing, but says so.
template <scheduler Planner, class Exchange>
class agreed : public schedule_adapter<Planner> {
    using base = schedule_adapter<Planner>;
    static_assert(
        planner<Planner>,
        "agreed: exchanges the batch that a planner decides on, and this schedule is none. One that decides live needs "
        "no exchange: ranks with the same tables admit the same");
    static_assert(
        batch_exchange<Exchange>,
        "agreed: the exchange must be callable as exchange(std::size_t) const noexcept and return the batch that the "
        "ranks agree on");

public:
    /// Limits that somebody else changed afterwards could keep a rank from planning, and the others waiting.
    static constexpr bool acts_last = true;

    agreed(Planner planner, Exchange exchange) : base(std::move(planner)), exchange_(std::move(exchange)) {}

    template <class Origin>
        requires std::same_as<Origin, typename Planner::origin>
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& table) const {
        std::size_t const own = table.requests() + base::budget(table);
        std::size_t const batch = exchange_(own);
        return batch - std::min(batch, table.requests());
    }

    void limit_drafts(std::span<request_view> requests) {
        base::limit_drafts(requests);
        floor_ = base::draft_floor();
        // One limit for all drafts: whether a rank plans must not depend on what its drafter finds.
        for (request_view& r : requests) {
            r.draft_limit = std::min(r.draft_limit, r.model_limit);
            r.model_limit = std::numeric_limits<std::size_t>::max();
        }
        if constexpr (requires(Exchange const& e, fixed_probability& floor) { e.drafting(requests, floor); }) {
            exchange_.drafting(requests, floor_);
        }
        bool const drafts =
            std::any_of(requests.begin(), requests.end(), [](request_view const& r) { return r.draft_cap(1) > 0; });
        // budget() is not asked then, and the other ranks wait.
        if (!drafts) static_cast<void>(exchange_(requests.size()));
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept { return floor_; }

    /// Not ok: the ranks did not agree, and the round emits nothing.
    [[nodiscard]] status standing() const noexcept {
        if constexpr (requires(Exchange const& e) { e.standing(); }) return exchange_.standing();
        return status::ok;
    }

    /// Record: round_record.
    template <class Record>
    void observe(Record const& record) noexcept {
        if constexpr (requires(Exchange const& e, double s) { e.seconds(s); }) {
            Record shared = record;
            shared.seconds = exchange_.seconds(record.seconds);
            base::observe(shared);
        } else {
            base::observe(record);
        }
    }

private:
    Exchange exchange_;
    fixed_probability floor_ = 0;
};

template <class Planner, class Exchange>
agreed(Planner, Exchange) -> agreed<Planner, Exchange>;

template <class Planner, class Exchange>
inline constexpr bool enable_non_anticipating<agreed<Planner, Exchange>> = enable_non_anticipating<Planner>;

SURELEAP_END_NAMESPACE
