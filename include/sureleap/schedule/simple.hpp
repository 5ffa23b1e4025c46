// SPDX-License-Identifier: MIT
//
// Schedules of a few lines: a fixed length, two thresholds, and the search in hindsight. The first three know nothing
// of the hardware; with a capacity curve at hand greedy_schedule, top_k_schedule or planned_schedule replace the
// constant.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/schedule/budget.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Verifies the first `length` positions of each block (default: all). Models frontier_scheduler. Needs no confidence.
class fixed_schedule {
public:
    static constexpr bool needs_confidence = false;

    explicit constexpr fixed_schedule(std::size_t length = std::numeric_limits<std::size_t>::max()) noexcept
        : length_(length) {}

    void admit(causal_frontier& frontier) const noexcept {
        for (std::size_t r = 0; r < frontier.requests(); ++r) {
            while (frontier.has_next(r) && frontier.length(r) < length_) frontier.admit(r);
        }
    }

    [[nodiscard]] constexpr std::size_t length() const noexcept { return length_; }

private:
    std::size_t length_;
};

namespace detail {
[[nodiscard]] inline fixed_probability checked_threshold(char const* owner, double threshold) {
    fixed_probability fixed = 0;
    if (!quantise(threshold, fixed)) {
        fail_with(owner, ": threshold is ", threshold, ", expected a number in [0, 1]");
    }
    return fixed;
}
}  // namespace detail

/// Thresholds stop a block before the first position that looks too weak. They are on probabilities, so priorities and
/// speed_targets change nothing here: what a request is worth decides who comes first where places are scarce, and a
/// constant knows of no places.
///
/// Verifies the prefix before the first conditional confidence below the threshold: the reference code's rule (on c_k,
/// not on the product). 0 verifies everything. Models frontier_scheduler.
class threshold_schedule {
public:
    explicit threshold_schedule(double threshold)
        : threshold_(detail::checked_threshold("threshold_schedule", threshold)) {}

    void admit(causal_frontier& frontier) const noexcept {
        for (std::size_t r = 0; r < frontier.requests(); ++r) {
            while (frontier.has_next(r) && frontier.next(r).confidence >= threshold_) frontier.admit(r);
        }
    }

private:
    fixed_probability threshold_;
};

/// Verifies the prefix whose joint survival a_k = c_1 .. c_k is at least the threshold. With top1_confidence and
/// one-hot drafts a_k is the running product of the draft's top-1 probabilities. 0 verifies everything. Models
/// frontier_scheduler.
class survival_threshold_schedule {
public:
    explicit survival_threshold_schedule(double threshold)
        : threshold_(detail::checked_threshold("survival_threshold_schedule", threshold)) {}

    void admit(causal_frontier& frontier) const noexcept {
        for (std::size_t r = 0; r < frontier.requests(); ++r) {
            // Not the candidate's survival, which begins with the request's weight: beside a request of priority 10 one
            // of priority 1 would verify nothing.
            fixed_probability survival = frontier.survival(r);
            while (frontier.has_next(r)) {
                survival = extend_survival(survival, frontier.next(r).confidence);
                if (survival < threshold_) break;
                frontier.admit(r);
            }
        }
    }

private:
    fixed_probability threshold_;
};

/// Global maximum of Theta over this round's table: the best lengths one could have chosen in hindsight. It decides
/// about x_k by c_{k+1}, which depends on x_k. So with token rejection or block verification it biases the output
/// (Appendix A). It is the yardstick of the causal schedules, and for rules that are exact under any schedule. Models
/// table_scheduler and is anticipating.
template <class Capacity>
class retrospective_schedule {
    static_assert(step_cost<Capacity>, SURELEAP_DETAIL_NO_COST);

public:
    using capacity_type = Capacity;

    explicit retrospective_schedule(Capacity capacity) : capacity_(std::move(capacity)) {}

    /// Leaves the chosen lengths in memory.lengths.
    void admit(draft_table const& table, frontier_memory const& memory) const noexcept {
        std::size_t const budget = best_budget(table.survivals, memory, capacity_);
        causal_frontier frontier{table.survivals, memory};
        frontier.admit_best(budget);
    }

    [[nodiscard]] Capacity const& capacity() const noexcept { return capacity_; }

private:
    Capacity capacity_;
};

SURELEAP_END_NAMESPACE
