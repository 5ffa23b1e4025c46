// SPDX-License-Identifier: MIT
//
// Algorithm 1 of the paper: admit the likeliest survivor while that raises Theta = tau x SPS(B), stop at the first that
// does not. The early stop is the causality guard: going on to a later maximum would decide about x_k by confidences
// that depend on x_k (Appendix A). It is also its weakness: on a capacity staircase the first cliff stops it, where
// planned_schedule and top_k_schedule see beyond.
#pragma once

#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/throughput.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Live greedy admission with early stop. Models frontier_scheduler. O(R + admitted log R) per round.
template <capacity_curve Capacity>
class greedy_schedule {
public:
    using capacity_type = Capacity;

    explicit greedy_schedule(Capacity capacity) : capacity_(std::move(capacity)) {}

    void admit(causal_frontier& frontier) const noexcept {
        auto step = expected_step::without_drafts(frontier.requests());
        double theta = step.throughput(capacity_);
        while (!frontier.empty()) {
            candidate const c = frontier.best();
            auto const longer = step.with(c);
            double const gained = longer.throughput(capacity_);
            if (!(gained > theta)) return;  // a tie would pay a row for nothing
            frontier.admit(c.request);
            step = longer;
            theta = gained;
        }
    }

    [[nodiscard]] Capacity const& capacity() const noexcept { return capacity_; }

private:
    Capacity capacity_;
};

SURELEAP_END_NAMESPACE
