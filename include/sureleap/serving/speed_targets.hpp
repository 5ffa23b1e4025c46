// SPDX-License-Identifier: MIT
//
// Requests that were promised a speed: request_settings::tokens_per_second as a constraint on what schedules maximise.
//
//     speed_targets schedule{planned_schedule{cost}};
//
// Schedules maximise Theta = sum_r w_r tau_r / T, with the priorities w. A target says tau_r / T >= v_r: a term of the
// same form, so the Lagrangian is Theta with weights w_r (1 + lambda_r), and any schedule that honours weights solves
// it. A multiplier rises while its request is slower than the target and falls while it is faster (dual ascent). It is
// set by the tokens and seconds of past rounds. Nothing of the coming block goes in, and weights are known before it is
// drafted.
//
// A target that cannot be met would raise its multiplier for ever, at the others' cost and for no gain. So multipliers
// are bounded. A request that stays behind at the bound is reported and weighs no more than its priority. It is tried
// again later, less and less often.
//
// Rejected: fixed shares of the batch. What share makes a speed depends on the load and on everybody's acceptance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/adapter.hpp>

SURELEAP_BEGIN_NAMESPACE

/// How speeds are measured and how hard their targets are pursued; fixed at set-up.
struct speed_target_options {
    double window = 32.0;  ///< rounds that a speed is the mean of, about; >= 1
    double step = 0.25;    ///< of the ascent: a request that stands still gains this much lambda a round; finite, > 0
    double most = 15.0;    ///< bound of lambda: a token weighs at most 1 + most of the others'; > 0
    std::size_t patience = 64;  ///< rounds at the bound until a target counts as out of reach; >= 1
};

/// What is known of a request's speed.
struct speed_report {
    double speed = 0.0;     ///< tokens per second of late; 0: no round yet
    double target = 0.0;    ///< tokens per second; 0: none
    double lambda = 0.0;    ///< its multiplier
    bool reachable = true;  ///< false: stayed behind although nothing more could be done for it
};

/// Schedule: one that reads survivals; one that does not (fixed_schedule) cannot favour anybody. Cost: cost_model or
/// capacity_curve; predicts seconds where a round was not timed. Models what Schedule models, and sized_part. O(R) a
/// round.
///
/// Weights are set by what was observed: asked again before observe(), it sets the same.
template <scheduler Schedule, step_cost Cost>
class speed_targets : public schedule_adapter<Schedule> {
    using base = schedule_adapter<Schedule>;
    static_assert(needs_confidence_v<Schedule>,
                  "speed_targets: this schedule reads no confidences, so weights do nothing; use planned_schedule, "
                  "top_k_schedule or greedy_schedule");

public:
    speed_targets(Schedule schedule, Cost cost, speed_target_options const& options = {})
        : base(std::move(schedule)), cost_(std::move(cost)), options_(options) {
        if (!(options.window >= 1.0)) fail_with("speed_targets: window is ", options.window, ", expected >= 1");
        if (!(options.step > 0.0) || !std::isfinite(options.step)) {
            fail_with("speed_targets: step is ", options.step, ", expected a finite number > 0");
        }
        if (!(options.most > 0.0 && options.most <= 1e4)) {
            fail_with("speed_targets: most is ", options.most, ", expected a number in (0, 10000]");
        }
        if (options.patience == 0) fail_with("speed_targets: patience is 0, expected at least 1 round");
    }
    /// With the cost that the schedule has.
    explicit speed_targets(Schedule schedule, speed_target_options const& options = {})
        requires requires(Schedule const& s) { s.capacity(); }
        : speed_targets(schedule, Cost(schedule.capacity()), options) {}

    /// Takes the memory. The same sizes again change nothing; other sizes make it forget the requests that it knew.
    void set_up(round_sizes const& sizes) {
        detail::expect_sizes("speed_targets", sizes);
        if constexpr (sized_part<Schedule>) base::set_up(sizes);
        if (sizes == sizes_) return;
        places_.assign(sizes.max_requests, place{});
        sizes_ = sizes;
    }
    [[nodiscard]] round_sizes sizes() const noexcept { return sizes_; }

    /// Sets weights: priority times 1 + lambda, relative to the largest. Error before set_up, and for slots beyond it.
    void limit_drafts(std::span<request_view> requests) {
        detail::expect_slots("speed_targets", requests, sizes_);
        double largest = 0.0;  // priority: the product with 1 + lambda may exceed what a double holds
        for (request_view const& r : requests) largest = std::max(largest, r.settings->priority);
        double most = 0.0;
        for (request_view const& r : requests) most = std::max(most, worth(r, largest));
        for (request_view& r : requests) {
            auto const share = static_cast<fixed_probability>(worth(r, largest) / most * static_cast<double>(certain));
            r.weight = std::max(share, fixed_probability{1});
        }
        base::limit_drafts(requests);
    }

    void observe(round_record const& record) noexcept {
        base::observe(record);
        double seconds = record.seconds;
        if (!(seconds > 0.0)) {  // NaN: not timed
            seconds =
                1.0 / static_cast<double>(curve_of(cost_, record.load).steps_per_second(record.load.batch_tokens));
        }
        double const keep = 1.0 - 1.0 / options_.window;
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            request_view const& request = record.requests[r];
            if (request.slot >= places_.size()) continue;  // not a round that it was set up for
            place& p = places_[request.slot];
            if (!p.is_of(request)) p = {.id = request.id, .used = true};
            p.tokens = std::fma(keep, p.tokens, static_cast<double>(record.verdicts[r].emitted.size()));
            p.seconds = std::fma(keep, p.seconds, seconds);
            ascend(p, request.settings->tokens_per_second);
        }
    }

    /// Of the request whose round in this slot was observed last; of nobody, if there is no such slot.
    [[nodiscard]] speed_report report(std::size_t slot) const noexcept {
        if (slot >= places_.size()) return {};
        place const& p = places_[slot];
        return {p.seconds > 0.0 ? p.tokens / p.seconds : 0.0, p.target, p.lambda, !p.out_of_reach};
    }

private:
    struct place {
        request_id id = 0;
        bool used = false;
        bool out_of_reach = false;
        double tokens = 0.0;  // of the last rounds, fading
        double seconds = 0.0;
        double target = 0.0;
        double lambda = 0.0;
        std::size_t at_bound = 0;  // rounds
        std::size_t rest = 0;      // rounds until the next attempt
        std::size_t attempts = 0;

        /// Otherwise it is of the one who had the slot before.
        [[nodiscard]] bool is_of(request_view const& r) const noexcept { return used && id == r.id; }
    };

    /// Relative to a priority of `largest`. Precondition: the slot is one.
    [[nodiscard]] double worth(request_view const& r, double largest) const noexcept {
        place const& p = places_[r.slot];
        return r.settings->priority / largest * (1.0 + (p.is_of(r) ? p.lambda : 0.0));
    }

    void ascend(place& p, double target) noexcept {
        p.target = target;
        if (!(target > 0.0)) {
            p.lambda = 0.0;
            return;
        }
        double const due = p.seconds * target;                         // tokens
        double const behind = due > 0.0 ? 1.0 - p.tokens / due : 0.0;  // negative: ahead
        if (behind <= 0.0) {
            p.out_of_reach = false;
            p.attempts = 0;
        }
        if (p.rest > 0) {
            --p.rest;
            return;
        }
        p.lambda = std::clamp(std::fma(options_.step, behind, p.lambda), 0.0, options_.most);
        p.at_bound = p.lambda == options_.most && behind > 0.0 ? p.at_bound + 1 : 0;
        if (p.at_bound >= options_.patience) {
            p.out_of_reach = true;
            p.lambda = 0.0;
            p.at_bound = 0;
            // What it takes from others in an attempt becomes a vanishing part of what it does not.
            p.rest = options_.patience << std::min<std::size_t>(4 + p.attempts++, 12);
        }
    }

    Cost cost_;
    speed_target_options options_;
    round_sizes sizes_{};
    std::vector<place> places_;  // [max_requests]
};

template <class Schedule>
speed_targets(Schedule)
    -> speed_targets<Schedule, std::remove_cvref_t<decltype(std::declval<Schedule const&>().capacity())>>;
template <class Schedule>
speed_targets(Schedule, speed_target_options)
    -> speed_targets<Schedule, std::remove_cvref_t<decltype(std::declval<Schedule const&>().capacity())>>;
template <class Schedule, step_cost Cost>
speed_targets(Schedule, Cost) -> speed_targets<Schedule, Cost>;
template <class Schedule, class Cost>
speed_targets(Schedule, Cost, speed_target_options) -> speed_targets<Schedule, Cost>;

template <class Schedule, class Cost>
inline constexpr bool enable_non_anticipating<speed_targets<Schedule, Cost>> = enable_non_anticipating<Schedule>;

SURELEAP_END_NAMESPACE
