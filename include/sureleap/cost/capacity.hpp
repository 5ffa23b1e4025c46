// SPDX-License-Identifier: MIT
//
// Capacity curves: how many steps per second the engine makes when a step has B batch tokens (paper, section 3.2.2). A
// scheduler maximises Theta = tau x SPS(B); this header turns measurements (fit/profile.hpp makes them), or a closed
// form, into SPS(B).
//
// Lengths must come out equal on every platform, so a curve's arithmetic is spelled so that no compiler may fuse or
// reorder it: division, subtraction and std::fma round in one way only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/cost/sample.hpp>

SURELEAP_BEGIN_NAMESPACE

/// One measurement: a step with this many batch tokens (anchors included) took this long.
struct capacity_point {
    std::size_t batch_tokens = 0;  ///< 1 .. 2^62
    double seconds = 0.0;          ///< in [1e-15, 1e9]: it has an inverse, and sums stay finite

    [[nodiscard]] bool operator==(capacity_point const&) const = default;
};

// ---- interpolation policies ------------------------------------------------------------------------------------
//
// A policy is a type with `static double seconds(std::span<capacity_point const>, std::size_t batch_tokens) noexcept`
// over points sorted by batch_tokens, never empty. Tables that are saved need a `static constexpr char const* name`.

/// Straight lines between points. Below the first point: the first point's time. Beyond the last: the slope of the
/// last segment continues, unless it falls, in which case (as for a table of one point) the last time stays.
///
/// The choice for engines that run any batch size. Beware of extrapolating: profile up to max_requests x (1 +
/// gamma).
struct linear_step_time {
    static constexpr char const* name = "linear_step_time";

    [[nodiscard]] static double seconds(std::span<capacity_point const> points, std::size_t batch_tokens) noexcept {
        auto const above = std::upper_bound(points.begin(), points.end(), batch_tokens,
                                            [](std::size_t b, auto const& p) { return b < p.batch_tokens; });
        if (above == points.begin() || points.size() == 1) return points.front().seconds;
        bool const beyond = above == points.end();
        capacity_point const& right = beyond ? points.back() : *above;
        capacity_point const& left = beyond ? points[points.size() - 2] : *(above - 1);
        double slope = (right.seconds - left.seconds) / static_cast<double>(right.batch_tokens - left.batch_tokens);
        capacity_point const& from = beyond ? right : left;
        if (beyond) slope = std::max(slope, 0.0);
        // fma and not a product and a sum, which compilers fuse on one machine and not on the other.
        return std::fma(slope, static_cast<double>(batch_tokens - from.batch_tokens), from.seconds);
    }
};

/// The time of the next larger profiled size: an engine that pads its batch to captured graph sizes pays for the
/// padding. Beyond the largest size the time grows in proportion to the tokens (several graphs one after the
/// other).
///
/// The cliffs of such a curve stop Algorithm 1's early-stopping walk; planned_schedule and top_k_schedule see over
/// them.
struct staircase {
    static constexpr char const* name = "staircase";

    [[nodiscard]] static double seconds(std::span<capacity_point const> points, std::size_t batch_tokens) noexcept {
        auto const next = std::lower_bound(points.begin(), points.end(), batch_tokens,
                                           [](auto const& p, std::size_t b) { return p.batch_tokens < b; });
        if (next != points.end()) return next->seconds;
        capacity_point const& last = points.back();
        return last.seconds * static_cast<double>(batch_tokens) / static_cast<double>(last.batch_tokens);
    }
};

namespace detail {

template <class I>
concept step_time_interpolation = requires(std::span<capacity_point const> points, std::size_t batch_tokens) {
    { I::seconds(points, batch_tokens) } noexcept -> std::same_as<double>;
};

/// Everything a table demands of its points; `who` opens the message (a file's name, when read from one).
inline void check_capacity_points(std::string const& who, std::span<capacity_point const> points) {
    if (points.empty()) fail_with(who, ": the table is empty, expected at least one point");
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (points[i].batch_tokens == 0) {
            fail_with(who, ": batch tokens at index ", i, ": got 0, expected at least 1");
        }
        if (points[i].batch_tokens > most_tokens) {
            fail_with(who, ": batch tokens at index ", i, ": got ", points[i].batch_tokens, ", expected ",
                      most_tokens_text);
        }
        if (!(points[i].seconds >= least_seconds && points[i].seconds <= most_seconds)) {
            fail_with(who, ": seconds at index ", i, " (batch tokens ", points[i].batch_tokens, "): got ",
                      points[i].seconds, ", expected a positive finite number in [1e-15, 1e9]");
        }
        if (i > 0 && points[i].batch_tokens == points[i - 1].batch_tokens) {
            fail_with(who, ": batch tokens at index ", i, ": got ", points[i].batch_tokens,
                      " a second time, expected each batch size once");
        }
        if (i > 0 && points[i].batch_tokens < points[i - 1].batch_tokens) {
            fail_with(who, ": batch tokens at index ", i, ": got ", points[i].batch_tokens, " after ",
                      points[i - 1].batch_tokens, ", expected ascending order");
        }
    }
}

}  // namespace detail

// ---- curves ----------------------------------------------------------------------------------------------------

/// A measured curve. Models capacity_curve. Immutable, concurrently callable; a copy copies the points.
///
/// Points ascend strictly in batch tokens; times need not ascend (measurements wobble) and are taken as they are.
template <class Interpolation = linear_step_time>
class capacity_table {
    static_assert(detail::step_time_interpolation<Interpolation>,
                  "capacity_table: Interpolation needs `static double seconds(std::span<sureleap::capacity_point "
                  "const>, std::size_t) noexcept`; use sureleap::linear_step_time or sureleap::staircase");

public:
    using interpolation_type = Interpolation;

    /// Error if the points are empty, unsorted, repeated or outside the bounds of capacity_point, with index and value.
    explicit capacity_table(std::vector<capacity_point> points) : points_(std::move(points)) {
        detail::check_capacity_points("capacity_table", points_);
    }

    /// Time of a step with that many batch tokens. O(log points), no allocation.
    [[nodiscard]] double step_seconds(std::size_t batch_tokens) const noexcept {
        return Interpolation::seconds(points_, batch_tokens);
    }
    [[nodiscard]] double steps_per_second(std::size_t batch_tokens) const noexcept {
        return 1.0 / step_seconds(batch_tokens);
    }

    [[nodiscard]] std::span<capacity_point const> points() const noexcept { return points_; }

    /// Whether all times lie within a relative tolerance of each other. A flat table is legal, but says that tokens
    /// are free: Theta then grows with every survival above 0, and every scheduler verifies everything. That is
    /// right for a target at small batches and wrong whenever the profile did not reach the load that is served;
    /// check before use.
    [[nodiscard]] bool is_flat(double relative_tolerance = 0.0) const noexcept {
        auto const [least, most] =
            std::minmax_element(points_.begin(), points_.end(),
                                [](capacity_point const& a, capacity_point const& b) { return a.seconds < b.seconds; });
        return most->seconds - least->seconds <= relative_tolerance * least->seconds;
    }

private:
    std::vector<capacity_point> points_;
};

/// Closed form SPS(B) = rate / (overhead + B): a step costs (overhead + B) / rate seconds, a fixed part and one
/// that grows with the batch. Models capacity_curve. For examples, tests, and engines without a profile.
class analytic_capacity {
public:
    /// rate in tokens per second, positive; overhead in tokens, not negative; both finite, and so that a step of one
    /// token takes 1e-15 to 1e9 seconds.
    analytic_capacity(double rate, double overhead) : rate_(rate), overhead_(overhead) {
        if (!(rate > 0.0 && std::isfinite(rate))) {
            fail_with("analytic_capacity: rate is ", rate, ", expected a positive finite number");
        }
        if (!(overhead >= 0.0 && std::isfinite(overhead))) {
            fail_with("analytic_capacity: overhead is ", overhead, ", expected a finite number of at least 0");
        }
        double const least = (overhead + 1.0) / rate;
        if (!(least >= detail::least_seconds && least <= detail::most_seconds)) {
            fail_with("analytic_capacity: with a rate of ", rate, " and an overhead of ", overhead,
                      " a step of one token takes ", least, " seconds, expected a number in [1e-15, 1e9]");
        }
    }

    /// No step is empty: B = 0 counts as 1, which also keeps the value finite without overhead.
    [[nodiscard]] double steps_per_second(std::size_t batch_tokens) const noexcept {
        return rate_ / (overhead_ + static_cast<double>(std::max<std::size_t>(batch_tokens, 1)));
    }

    [[nodiscard]] double rate() const noexcept { return rate_; }
    [[nodiscard]] double overhead() const noexcept { return overhead_; }

private:
    double rate_;
    double overhead_;
};

SURELEAP_END_NAMESPACE
