// SPDX-License-Identifier: MIT
//
// Hysteresis at the edges of a table: a budget that stays on the stair of the last round unless another is worth a
// margin.
//
// Where steps are padded to sizes, the curve is a staircase. If load or confidences vary near an edge, the best batch
// jumps between stairs for next to nothing in Theta. Jumps cost an engine what the curve does not show: graphs that are
// swapped in, buffers that move, tails of latency. So the choice is between two batches, the planner's and the best on
// the old stair. The planner's has to be better by the margin, which is also all that can be lost. The old stair is
// that of a past round and the table is a planner's own, so the budget is as causal as it was.
//
// Rejected: holding the budget K. Load changes by joins and leaves, and the edge is one of B = R + K.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/schedule/adapter.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/throughput.hpp>

SURELEAP_BEGIN_NAMESPACE

/// When a batch leaves the stair of the cost curve that it is on.
struct hysteresis_options {
    double margin = 0.01;  ///< of Theta: what leaving the stair has to gain; >= 0
    double height = 0.02;  ///< of a step's time: batches of one stair differ by less; >= 0
};

namespace detail {

/// Keeps the best prefix with `low` <= B <= `high`. Models admission_rule.
template <capacity_curve Curve>
class best_between {
public:
    best_between(Curve const& curve, std::size_t low, std::size_t high, expected_step const& without_drafts) noexcept
        : curve_(&curve), low_(low), high_(high), best_(without_drafts) {
        (void)take(without_drafts);
    }

    [[nodiscard]] bool take(expected_step const& longer) noexcept {
        if (longer.batch_tokens > high_) return false;
        if (longer.batch_tokens < low_) return true;
        if (double const theta = longer.throughput(*curve_); theta > theta_) {
            best_ = longer;
            theta_ = theta;
        }
        return true;
    }
    /// Those before the stair are walked over; on it, one looks.
    [[nodiscard]] bool pass(admission_segment const& s) noexcept {
        if (s.to.batch_tokens < low_) return true;
        if (s.from.batch_tokens + 1 < low_ || s.to.batch_tokens > high_) return false;
        return surely_below(*curve_, s, theta_);
    }
    void visit(expected_step const&) const noexcept {}
    [[nodiscard]] std::size_t answer() const noexcept { return best_.batch_tokens; }
    [[nodiscard]] double theta() const noexcept { return theta_; }  ///< 0: there is no such prefix

private:
    Curve const* curve_;
    std::size_t low_;
    std::size_t high_;
    expected_step best_;
    double theta_ = 0.0;
};

/// The first batch beyond `from`, in steps of -1 or 1, whose time is not within a share `height` of that of `from`;
/// found by doubling, for times that rise.
template <capacity_curve Curve>
class stair_of {
public:
    stair_of(Curve const& curve, std::size_t batch, double height, std::size_t least, std::size_t most) noexcept
        : curve_(&curve), seconds_(seconds_of(curve, batch)), height_(height) {
        low = edge(batch, least);
        high = edge(batch, most);
    }
    std::size_t low = 0;
    std::size_t high = 0;

private:
    [[nodiscard]] static double seconds_of(Curve const& curve, std::size_t batch) noexcept {
        return 1.0 / static_cast<double>(curve.steps_per_second(batch));
    }
    [[nodiscard]] bool holds(std::size_t batch) const noexcept {
        double const s = seconds_of(*curve_, batch);
        return s - seconds_ <= height_ * seconds_ && seconds_ - s <= height_ * seconds_;
    }
    /// The last batch from `inside` towards `end` that is on the stair.
    [[nodiscard]] std::size_t edge(std::size_t inside, std::size_t end) const noexcept {
        bool const up = end > inside;
        std::size_t left = up ? end - inside : inside - end;
        for (std::size_t stride = 1; left > 0; stride *= 2) {
            stride = std::min(stride, left);
            std::size_t const next = up ? inside + stride : inside - stride;
            if (!holds(next)) {
                left = stride - 1;  // `inside` holds, `next` does not
                while (left > 0) {
                    std::size_t const half = (left + 1) / 2;
                    std::size_t const middle = up ? inside + half : inside - half;
                    if (holds(middle)) {
                        inside = middle;
                        left -= half;
                    } else {
                        left = half - 1;
                    }
                }
                return inside;
            }
            inside = next;
            left -= stride;
        }
        return inside;
    }

    Curve const* curve_;
    double seconds_;
    double height_;
};

}  // namespace detail

/// Planner: a planner with a capacity() that it reckons with (planned_schedule, top_k_schedule, or an adapter around
/// one). Models planner. Costs two walks over the table in rounds whose best batch lies on another stair, nothing in
/// others.
///
/// A stair is the batches around the last one whose step times are within a share `height` of each other. The curve is
/// that of the coming round. With margin 0 it changes a budget of planned_schedule only where Thetas tie.
template <scheduler Planner>
class hysteresis : public schedule_adapter<Planner> {
    using base = schedule_adapter<Planner>;
    static_assert(
        planner<Planner>,
        "hysteresis: holds the budget of a planner, and this schedule has none: one that decides live stops where "
        "Theta does. Use planned_schedule or top_k_schedule");
    static_assert(
        !planner<Planner> || requires(Planner const& p) { p.capacity(); },
        "hysteresis: the planner has no capacity(), the cost that it reckons with, so stairs are not known");

public:
    explicit hysteresis(Planner planner, hysteresis_options const& options = {})
        : base(std::move(planner)), options_(options) {
        if (!(options.margin >= 0.0)) fail_with("hysteresis: margin is ", options.margin, ", expected at least 0");
        if (!(options.height >= 0.0)) fail_with("hysteresis: height is ", options.height, ", expected at least 0");
    }

    template <class Origin>
        requires std::same_as<Origin, typename Planner::origin>
    [[nodiscard]] std::size_t budget(planning_table<Origin> const& table) const {
        std::size_t const free = base::budget(table);
        std::size_t const requests = table.requests();
        std::size_t const most = requests + requests * table.survivals().block_size;
        if (last_ < requests || last_ > most) return free;  // nothing, or another load
        auto const& capacity = base::capacity();
        auto const& curve = curve_of(capacity, table.survivals().load_without_drafts());
        detail::stair_of const stair{curve, last_, options_.height, requests, most};
        if (requests + free >= stair.low && requests + free <= stair.high) return free;

        auto const best = [&](std::size_t low, std::size_t high) {
            detail::best_between rule{curve, low, high, expected_step::without_drafts(table.survivals())};
            detail::frontier_access::walk(table.survivals(), table.memory(), rule);
            return rule;
        };
        auto const held = best(stair.low, stair.high);
        auto const left = best(requests + free, requests + free);
        return left.theta() > (1.0 + options_.margin) * held.theta() ? free : held.answer() - requests;
    }

    /// Record: round_record. The batch of a round in which nobody drafted is no stair to stay on.
    template <class Record>
    void observe(Record const& record) noexcept {
        base::observe(record);
        if (record.load.drafting > 0) last_ = record.load.batch_tokens;
    }

    /// Batch tokens of the last round that drafted; 0 before there was one.
    [[nodiscard]] std::size_t last_batch() const noexcept { return last_; }

private:
    hysteresis_options options_;
    std::size_t last_ = 0;
};

template <class Planner>
hysteresis(Planner) -> hysteresis<Planner>;
template <class Planner>
hysteresis(Planner, hysteresis_options) -> hysteresis<Planner>;

template <class Planner>
inline constexpr bool enable_non_anticipating<hysteresis<Planner>> = enable_non_anticipating<Planner>;

SURELEAP_END_NAMESPACE
