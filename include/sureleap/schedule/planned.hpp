// SPDX-License-Identifier: MIT
//
// Planning at the anchor. A parallel backbone has all hidden states before any token of the block is drawn. So
// confidences that use no drafted token may feed a global search for the budget, over any capacity curve and without a
// lag. Live confidences then choose which positions fill it.
#pragma once

#include <cstddef>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Top-K admission with K from a global search over confidences computed at the anchor. Models planner. Needs a drafter
/// whose backbone consumes no drafted token and a confidence that can be asked at the anchor.
template <class Capacity>
class planned_schedule {
    static_assert(step_cost<Capacity>, SURELEAP_DETAIL_NO_COST);

public:
    using capacity_type = Capacity;
    using origin = from_anchor;

    explicit planned_schedule(Capacity capacity) : capacity_(std::move(capacity)) {}

    [[nodiscard]] std::size_t budget(planning_table<from_anchor> const& anchors) const noexcept {
        return best_budget(anchors, capacity_);
    }

    [[nodiscard]] Capacity const& capacity() const noexcept { return capacity_; }

private:
    Capacity capacity_;
};

SURELEAP_END_NAMESPACE
