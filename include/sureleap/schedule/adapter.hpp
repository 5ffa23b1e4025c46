// SPDX-License-Identifier: MIT
//
// A schedule around a schedule. What a controller, a constraint or a rank's agreement adds is the same for every
// schedule, so it wraps one. It stays what it wraps: a planner of the same tables, a live scheduler, or one that looks
// ahead, which check_round still refuses. Adapters nest, in any order; the outer one acts after the inner one.
//
//     never_lose{speed_targets{planned_schedule{cost}, ...}, ...}
//
// Rejected: hooks of the decoder. They would act beside the schedule, and an engine that owns its loop would have to
// call them in the right order.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/traits.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
template <class Schedule>
struct planning_origin {};
template <planner Schedule>
struct planning_origin<Schedule> {
    using origin = typename Schedule::origin;
};

/// What a sized_part cannot be set up for.
inline void expect_sizes(char const* who, round_sizes const& sizes) {
    if (sizes.max_requests == 0) fail_with(who, ": set up for rounds of max_requests = 0, expected at least 1");
    if (sizes.block_size == 0) fail_with(who, ": set up for a block_size of 0, expected the drafter's gamma");
}

/// Slots that a sized_part was not told of, in release builds too: it would write beyond its memory.
inline void expect_slots(char const* who, std::span<request_view const> requests, round_sizes const& sizes) {
    for (std::size_t r = 0; r < requests.size(); ++r) {
        if (requests[r].slot < sizes.max_requests) continue;
        if (sizes.max_requests == 0) {
            fail_with(who,
                      ": used before set_up, so it has no memory for any request; call set_up({max_requests, "
                      "block_size}) once, as round_runner and the decoders do, and forward it where you wrap it");
        }
        fail_with(who, ": request ", r, " has slot ", requests[r].slot,
                  ", expected one below max_requests = ", sizes.max_requests, ", which set_up was told");
    }
}
/// Lets a schedule observe a round, if it wants to.
template <class Schedule, class Record>
void observe_by(Schedule& schedule, Record const& record) noexcept {
    if constexpr (requires { schedule.observe(record); }) {
        static_assert(
            noexcept(schedule.observe(record)),
            "observe: a schedule's observe(record) may throw, but the round is over when it is called, and its "
            "tokens would be lost. Say that it does not: void observe(round_record const&) noexcept. One that "
            "cannot learn from a round remembers that, and throws in limit_drafts");
        schedule.observe(record);
    }
}
/// What a planner of past rounds assumes of a request that has no past.
template <class Schedule>
[[nodiscard]] double prior_of(Schedule const& schedule) {
    if constexpr (requires {
                      { schedule.prior() } -> std::convertible_to<double>;
                  }) {
        return schedule.prior();
    } else {
        static_assert(
            !traits_of<Schedule>().reads_history(),
            "round_memory: a planner of past rounds needs prior(), the confidence of requests that have no past");
        return 1.0;
    }
}
/// Lets a schedule that decides live, or looks ahead, leave its lengths in the memory.
template <class Schedule>
void admit_by(Schedule const& schedule, draft_table const& table, frontier_memory const& memory) {
    if constexpr (frontier_scheduler<Schedule>) {
        causal_frontier frontier{table.survivals, memory};
        schedule.admit(frontier);
    } else if constexpr (table_scheduler<Schedule>) {
        schedule.admit(table, memory);
    }
}
}  // namespace detail

/// A schedule that does what `Schedule` does. Base of adapters, which hide what they change and call the base's member
/// in it. Models what Schedule models: planner, frontier_scheduler, table_scheduler, sized_part; and draft_limiter,
/// draft_stopper and round_observer, which do nothing where Schedule has no such member.
template <scheduler Schedule>
class schedule_adapter : public detail::planning_origin<Schedule> {
public:
    using schedule_type = Schedule;
    static constexpr bool needs_confidence = needs_confidence_v<Schedule>;
    static_assert(
        !requires { requires Schedule::acts_last; },
        "schedule_adapter: this schedule is wrapped already by one that has to be the outermost, because it counts on "
        "nobody changing limits after it: agreed{never_lose{..}, ..} and not never_lose{agreed{..}, ..}. Neither does "
        "an "
        "adapter go around any_schedule: wrap the schedule, and give any_schedule what comes out");

    explicit schedule_adapter(Schedule schedule) : schedule_(std::move(schedule)) {
        detail::check_optional_members<Schedule>();
    }

    void admit(causal_frontier& frontier) const
        requires frontier_scheduler<Schedule>
    {
        schedule_.admit(frontier);
    }
    void admit(draft_table const& table, frontier_memory const& memory) const
        requires table_scheduler<Schedule>
    {
        schedule_.admit(table, memory);
    }
    template <class Origin>
        requires planner<Schedule> && std::same_as<Origin, typename detail::planning_origin<Schedule>::origin>
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& table) const {
        return schedule_.budget(table);
    }

    [[nodiscard]] double prior() const
        requires requires(Schedule const& s) {
            { s.prior() } -> std::convertible_to<double>;
        }
    {
        return schedule_.prior();
    }
    [[nodiscard]] decltype(auto) capacity() const noexcept
        requires requires(Schedule const& s) { s.capacity(); }
    {
        return schedule_.capacity();
    }

    void set_up(round_sizes const& sizes)
        requires sized_part<Schedule>
    {
        schedule_.set_up(sizes);
    }
    [[nodiscard]] round_sizes sizes() const noexcept
        requires sized_part<Schedule>
    {
        return schedule_.sizes();
    }

    void limit_drafts(std::span<request_view> requests) {
        if constexpr (draft_limiter<Schedule>) schedule_.limit_drafts(requests);
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept {
        if constexpr (draft_stopper<Schedule>) return schedule_.draft_floor();
        return 0;
    }
    void observe(round_record const& record) noexcept { detail::observe_by(schedule_, record); }

    /// What is wrapped.
    [[nodiscard]] Schedule const& schedule() const noexcept { return schedule_; }

protected:
    [[nodiscard]] Schedule& wrapped() noexcept { return schedule_; }

private:
    Schedule schedule_;
};

SURELEAP_END_NAMESPACE
