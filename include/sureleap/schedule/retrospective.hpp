// SPDX-License-Identifier: MIT
//
// The global search over this round's own confidences: the best lengths one could have chosen in hindsight. It decides
// about x_k by c_{k+1}, which depends on x_k, so with token rejection or block verification it biases the output
// (Appendix A). It is here as the yardstick of the causal schedulers, and for rules that are exact under any schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/frontier.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Global maximum of Theta over this round's table. Models table_scheduler and is anticipating.
template <step_cost Capacity>
class retrospective_schedule {
public:
    using capacity_type = Capacity;

    explicit retrospective_schedule(Capacity capacity) : capacity_(std::move(capacity)) {}

    /// Leaves the chosen lengths in memory.lengths.
    void admit(draft_table const& table, frontier_memory const& memory) const noexcept {
        std::size_t const budget = best_budget(causal_frontier{table.survivals, memory}, capacity_);
        causal_frontier frontier{table.survivals, memory};
        frontier.admit_best(budget);
    }

    [[nodiscard]] Capacity const& capacity() const noexcept { return capacity_; }

private:
    Capacity capacity_;
};

SURELEAP_END_NAMESPACE
