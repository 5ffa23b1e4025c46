// SPDX-License-Identifier: MIT
//
// The unconstrained maximum of Theta over the prefixes of the order of admission. Planners search it in tables from
// before the block. On this round's own table it is a yardstick for other schedules.
#pragma once

#include <algorithm>
#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/schedule/throughput.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// Goes through all prefixes and keeps the first of the best.
template <capacity_curve Capacity>
class best_theta {
public:
    best_theta(Capacity const& capacity, expected_step const& without_drafts) noexcept
        : capacity_(&capacity), best_(without_drafts), theta_(best_.throughput(capacity)), bar_(theta_) {}

    [[nodiscard]] bool take(expected_step const& longer) noexcept {
        if (double const theta = longer.throughput(*capacity_); theta > theta_) {
            best_ = longer;
            theta_ = theta;
            bar_ = std::max(bar_, theta);
        }
        return true;
    }

    /// Many at once, where none of them can be the best.
    [[nodiscard]] bool pass(admission_segment const& s) noexcept {
        visit(s.to);
        return surely_below(*capacity_, s, bar_);
    }
    /// The best is at least as good as any prefix there is. Only `take` finds it: another may be as good and come
    /// before.
    void visit(expected_step const& some) noexcept { bar_ = std::max(bar_, some.throughput(*capacity_)); }
    [[nodiscard]] std::size_t answer() const noexcept { return best_.batch_tokens; }

private:
    Capacity const* capacity_;
    expected_step best_;
    double theta_;
    double bar_;
};

}  // namespace detail

/// The number of candidates, taken in the order of admission, that maximises Theta over all prefixes of `table`; the
/// smallest such number. The search sees the whole table, so a live schedule has none to give it. A few passes over the
/// table, and one question to the curve for each candidate.
template <step_cost Capacity>
[[nodiscard]] std::size_t best_budget(survival_table const& table, frontier_memory const& memory,
                                      Capacity const& capacity) noexcept {
    auto const& curve = curve_of(capacity, table.load_without_drafts());
    detail::best_theta rule{curve, expected_step::without_drafts(table)};
    detail::frontier_access::walk(table, memory, rule);
    return rule.answer() - table.requests();
}

/// The best budget of a planner: its table is from before the block.
template <class Origin, step_cost Capacity>
[[nodiscard]] std::size_t best_budget(planning_table<Origin> const& table, Capacity const& capacity) noexcept {
    return best_budget(table.survivals(), table.memory(), capacity);
}

/// Says why a live schedule cannot have it.
template <class Capacity>
std::size_t best_budget(causal_frontier const&, Capacity const&) noexcept {
    static_assert(
        sizeof(Capacity) == 0,
        "best_budget: a live schedule sees one candidate a request, and this search sees the whole block: it would "
        "decide about drafted tokens by confidences that depend on them. Stop where Theta falls (greedy_schedule), or "
        "plan the budget before the block is drawn (planned_schedule, top_k_schedule)");
    return 0;
}

SURELEAP_END_NAMESPACE
