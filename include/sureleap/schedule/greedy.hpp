// SPDX-License-Identifier: MIT
//
// Algorithm 1 of the paper: admit the likeliest survivor while that raises Theta = tau x SPS(B), stop at the first that
// does not. The early stop keeps the schedule causal: going on to a later maximum would decide about x_k by confidences
// that depend on x_k (Appendix A). But on a capacity staircase it stops at the first cliff. planned_schedule and
// top_k_schedule search beyond.
#pragma once

#include <cstddef>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/throughput.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// The rule of Algorithm 1.
template <capacity_curve Capacity>
class while_theta_rises {
public:
    while_theta_rises(Capacity const& capacity, expected_step const& without_drafts) noexcept
        : capacity_(&capacity), last_(without_drafts), theta_(last_.throughput(capacity)) {}

    [[nodiscard]] bool take(expected_step const& longer) noexcept {
        double const gained = longer.throughput(*capacity_);
        if (!(gained > theta_)) return false;  // a tie would pay a row for nothing
        last_ = longer;
        theta_ = gained;
        return true;
    }

    /// Many at once, where each of them is sure to raise Theta.
    [[nodiscard]] bool pass(admission_segment const& s) noexcept {
        if (!surely_rises(*capacity_, s)) return false;
        last_ = s.to;
        theta_ = last_.throughput(*capacity_);
        return true;
    }
    void visit(expected_step const&) const noexcept {}
    [[nodiscard]] std::size_t answer() const noexcept { return last_.batch_tokens; }

private:
    Capacity const* capacity_;
    expected_step last_;
    double theta_;
};

}  // namespace detail

/// Live greedy admission with early stop. Models frontier_scheduler. O(R gamma) per round, by a few passes over the
/// table, and one question to the curve for each candidate.
template <class Capacity>
class greedy_schedule {
    static_assert(step_cost<Capacity>, SURELEAP_DETAIL_NO_COST);

public:
    using capacity_type = Capacity;

    explicit greedy_schedule(Capacity capacity) : capacity_(std::move(capacity)) {}

    void admit(causal_frontier& frontier) const noexcept {
        auto const& curve = curve_of(capacity_, frontier.load());
        detail::while_theta_rises rule{curve, frontier.without_drafts()};
        detail::frontier_access::admit_while(frontier, rule);
    }

    [[nodiscard]] Capacity const& capacity() const noexcept { return capacity_; }

private:
    Capacity capacity_;
};

SURELEAP_END_NAMESPACE
