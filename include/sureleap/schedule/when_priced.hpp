// SPDX-License-Identifier: MIT
//
// What to do without a cost table: no more speculation than the user asked for by number. A schedule that knows no costs
// could verify everything. That is right at low load, and at high load slower than not speculating at all, where an engine
// can afford it least.
//
//   auto offer = find_cost("cost.json", {.machine = here, .max_age = 30 * 86400});       // ext/cost_json.hpp
//   std::optional<planned_schedule<profiled_cost>> schedule;
//   if (offer.table) schedule.emplace(offer.table->model());
//   decoder dec{target, drafter, when_priced{std::move(schedule), 1, offer.refusal}, rule};
//   if (!offer.refusal.empty()) log(offer.refusal);
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/simple.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The schedule if there is one; without, every request drafts and verifies at most `fixed_length` positions, and with
/// a length of 0 nothing is drafted. Models whatever Schedule models, and draft_limiter. Chosen once: what a table says
/// does not change while serving.
template <scheduler Schedule>
class when_priced : public detail::planning_origin<Schedule> {
public:
    using schedule_type = Schedule;
    static constexpr bool needs_confidence = needs_confidence_v<Schedule>;

    /// `reason`: why there is none, for the report.
    explicit when_priced(std::optional<Schedule> schedule, std::size_t fixed_length = 0, std::string reason = {})
        : schedule_(std::move(schedule)), fixed_(fixed_length), reason_(std::move(reason)) {
        if (!schedule_ && reason_.empty()) reason_ = "no cost table was given";
        if (schedule_) reason_.clear();
    }

    [[nodiscard]] bool priced() const noexcept { return schedule_.has_value(); }
    /// Why nothing is priced; empty if it is.
    [[nodiscard]] std::string const& reason() const noexcept { return reason_; }
    [[nodiscard]] std::size_t fixed_length() const noexcept { return fixed_.length(); }
    [[nodiscard]] std::optional<Schedule> const& schedule() const noexcept { return schedule_; }

    void set_up(round_sizes const& sizes)
        requires sized_part<Schedule>
    {
        if (schedule_) schedule_->set_up(sizes);
        sizes_ = sizes;
    }
    [[nodiscard]] round_sizes sizes() const noexcept
        requires sized_part<Schedule>
    {
        return sizes_;
    }

    void limit_drafts(std::span<request_view> requests) {
        if (!schedule_) {
            for (request_view& r : requests) r.draft_limit = std::min(r.draft_limit, fixed_.length());
        } else if constexpr (draft_limiter<Schedule>) {
            schedule_->limit_drafts(requests);
        }
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept
        requires draft_stopper<Schedule>
    {
        return schedule_ ? schedule_->draft_floor() : 0;
    }
    void observe(round_record const& round) noexcept
        requires round_observer<Schedule>
    {
        if (schedule_) detail::observe_by(*schedule_, round);
    }

    // The fallback limits the batch as well, for an engine that calls the stages and drafts as it likes.

    void admit(causal_frontier& frontier) const noexcept
        requires frontier_scheduler<Schedule>
    {
        schedule_ ? schedule_->admit(frontier) : fixed_.admit(frontier);
    }
    void admit(draft_table const& table, frontier_memory const& memory) const noexcept
        requires table_scheduler<Schedule>
    {
        if (schedule_) return schedule_->admit(table, memory);
        causal_frontier frontier{table.survivals, memory};
        fixed_.admit(frontier);
    }
    template <class Origin>
        requires planner<Schedule> && std::same_as<Origin, typename Schedule::origin>
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& table) const noexcept {
        if (schedule_) return schedule_->budget(table);
        std::size_t positions = 0;
        for (std::size_t const size : table.survivals().sizes) positions += std::min(size, fixed_.length());
        return positions;
    }
    [[nodiscard]] double prior() const noexcept
        requires requires(Schedule const& s) { s.prior(); }
    {
        return schedule_ ? static_cast<double>(schedule_->prior()) : 1.0;
    }

private:
    std::optional<Schedule> schedule_;
    fixed_schedule fixed_;
    std::string reason_;
    round_sizes sizes_{};  // without a schedule nobody else remembers them
};

/// Both of its schedules keep to what the wrapped one keeps to.
template <class Schedule>
inline constexpr bool enable_non_anticipating<when_priced<Schedule>> = enable_non_anticipating<Schedule>;

SURELEAP_END_NAMESPACE
