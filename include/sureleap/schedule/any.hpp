// SPDX-License-Identifier: MIT
//
// A schedule that is chosen when the program runs: by a flag, by a file, by whether there is a cost table.
//
//     any_schedule schedule = offer.table ? any_schedule{planned_schedule{offer.table->model()}}
//                                         : any_schedule{fixed_schedule{1}};
//     decoder dec{target, drafter, std::move(schedule), rule};
//
// It does what the schedule does that it holds, and says by traits() what that is. So a combination that the compiler
// would refuse is refused where the round_memory is made, in the same words.
//
// Rejected: a variant. It would have to name every schedule with its cost and its adapters, and rounds would be
// compiled for each of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/traits.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Holds a copy of any schedule: one of the library, in adapters or not, or one of your own. Allocates where it is made
/// or copied, and not in a round. Copies are independent. One that was moved from can only be assigned to. Models
/// planner, table_scheduler and all that a schedule may be besides; its traits say what it is.
class any_schedule {
public:
    /// Of planning tables: the anchor's or those of past rounds, which of them the traits say.
    struct origin {};
    /// Adapters go inside.
    static constexpr bool acts_last = true;

    template <class Schedule>
        requires(!std::same_as<Schedule, any_schedule> && scheduler<Schedule>)
    any_schedule(Schedule schedule)  // NOLINT: a schedule is one of any
        : held_(std::make_unique<holding<Schedule>>(std::move(schedule))),
          traits_(traits_of<Schedule>()),
          type_(detail::tag_of<Schedule>()) {
        static_assert(std::copy_constructible<Schedule>,
                      "any_schedule: holds a copy of the schedule, which cannot be copied; lend it what it has alone");
    }
    any_schedule(any_schedule const& other) : held_(other.held_->copy()), traits_(other.traits_), type_(other.type_) {}
    any_schedule(any_schedule&&) noexcept = default;
    any_schedule& operator=(any_schedule const& other) { return *this = any_schedule(other); }
    any_schedule& operator=(any_schedule&&) noexcept = default;
    ~any_schedule() = default;

    [[nodiscard]] schedule_traits traits() const noexcept { return traits_; }
    [[nodiscard]] detail::type_tag held_type() const noexcept { return type_; }
    /// The schedule that it holds, if that is a Schedule; else null.
    template <class Schedule>
    [[nodiscard]] Schedule const* get_if() const noexcept {
        return type_ == detail::tag_of<Schedule>() ? &static_cast<holding<Schedule> const&>(*held_).schedule : nullptr;
    }

    // What a schedule that plans, or one that does not, is asked; the other answers nothing.

    [[nodiscard]] std::size_t budget(planning_table<origin> const& table) const { return held_->budget(table); }
    [[nodiscard]] double prior() const { return held_->prior(); }
    void admit(draft_table const& table, frontier_memory const& memory) const { held_->admit(table, memory); }

    // What any schedule may be asked besides.

    void set_up(round_sizes const& sizes) { held_->set_up(sizes); }
    [[nodiscard]] round_sizes sizes() const { return held_->sizes(); }
    void limit_drafts(std::span<request_view> requests) { held_->limit_drafts(requests); }
    [[nodiscard]] fixed_probability draft_floor() const { return held_->draft_floor(); }
    [[nodiscard]] status standing() const noexcept { return held_->standing(); }
    void observe(round_record const& record) noexcept { held_->observe(record); }

private:
    struct some_schedule {
        some_schedule() = default;
        some_schedule(some_schedule const&) = delete;
        some_schedule& operator=(some_schedule const&) = delete;
        virtual ~some_schedule() = default;
        [[nodiscard]] virtual std::unique_ptr<some_schedule> copy() const = 0;
        [[nodiscard]] virtual std::size_t budget(planning_table<origin> const& table) const = 0;
        [[nodiscard]] virtual double prior() const = 0;
        virtual void admit(draft_table const& table, frontier_memory const& memory) const = 0;
        virtual void set_up(round_sizes const& sizes) = 0;
        [[nodiscard]] virtual round_sizes sizes() const = 0;
        virtual void limit_drafts(std::span<request_view> requests) = 0;
        [[nodiscard]] virtual fixed_probability draft_floor() const = 0;
        [[nodiscard]] virtual status standing() const noexcept = 0;
        virtual void observe(round_record const& record) noexcept = 0;
    };

    template <class Schedule>
    struct holding final : some_schedule {
        explicit holding(Schedule s) : schedule(std::move(s)) {}

        [[nodiscard]] std::unique_ptr<some_schedule> copy() const override {
            return std::make_unique<holding>(schedule);
        }
        [[nodiscard]] std::size_t budget(planning_table<origin> const& table) const override {
            if constexpr (planner<Schedule>) {
                using own = typename Schedule::origin;
                return schedule.budget(detail::planning_access::make<own>(table.survivals(), table.memory()));
            }
            return 0;
        }
        [[nodiscard]] double prior() const override { return detail::prior_of(schedule); }
        void admit(draft_table const& table, frontier_memory const& memory) const override {
            detail::admit_by(schedule, table, memory);
        }
        void set_up(round_sizes const& sizes) override {
            if constexpr (sized_part<Schedule>) schedule.set_up(sizes);
        }
        [[nodiscard]] round_sizes sizes() const override {
            if constexpr (sized_part<Schedule>) return schedule.sizes();
            return {};
        }
        void limit_drafts(std::span<request_view> requests) override {
            if constexpr (draft_limiter<Schedule>) schedule.limit_drafts(requests);
        }
        [[nodiscard]] status standing() const noexcept override {
            if constexpr (requires(Schedule const& s) { s.standing(); }) return schedule.standing();
            return status::ok;
        }
        [[nodiscard]] fixed_probability draft_floor() const override {
            if constexpr (draft_stopper<Schedule>) return schedule.draft_floor();
            return 0;
        }
        void observe(round_record const& record) noexcept override { detail::observe_by(schedule, record); }

        Schedule schedule;
    };

    std::unique_ptr<some_schedule> held_;
    schedule_traits traits_;
    detail::type_tag type_;
};

SURELEAP_END_NAMESPACE
