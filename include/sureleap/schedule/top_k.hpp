// SPDX-License-Identifier: MIT
//
// The asynchronous scheduler of paper section 5.2: how many positions to verify is decided from survival tables N
// rounds old, which positions they are is decided live. The lag lets the budget be computed while the device drafts.
#pragma once

#include <cstddef>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Top-K admission with K from an unconstrained global search over tables `Lag` rounds old. Models planner.
/// Sees over cliffs of a capacity staircase; answers a jump in load only after Lag rounds.
template <class Capacity, std::size_t Lag = 2>
class top_k_schedule {
    static_assert(step_cost<Capacity>, SURELEAP_DETAIL_NO_COST);

public:
    using capacity_type = Capacity;
    using origin = from_rounds<Lag>;
    static constexpr std::size_t lag = origin::lag;

    /// `prior`: conditional confidence assumed for requests that have no table of that age yet.
    explicit top_k_schedule(Capacity capacity, double prior = 0.8) : capacity_(std::move(capacity)), prior_(prior) {}

    [[nodiscard]] std::size_t budget(planning_table<origin> const& past) const noexcept {
        return best_budget(past, capacity_);
    }

    [[nodiscard]] Capacity const& capacity() const noexcept { return capacity_; }
    [[nodiscard]] double prior() const noexcept { return prior_; }

private:
    Capacity capacity_;
    double prior_;
};

/// top_k_schedule with another lag: `lagged_top_k<1>(capacity)`.
template <std::size_t Lag, class Capacity>
[[nodiscard]] top_k_schedule<Capacity, Lag> lagged_top_k(Capacity capacity, double prior = 0.8) {
    return top_k_schedule<Capacity, Lag>(std::move(capacity), prior);
}

SURELEAP_END_NAMESPACE
