// SPDX-License-Identifier: MIT
//
// Static thresholds: stop a block before the first position that looks too weak. They know nothing of the hardware;
// with a capacity curve at hand greedy_schedule, top_k_schedule or planned_schedule replace the constant.
//
// Thresholds are on probabilities, so priorities and speed_targets change nothing here: what a request is worth decides who
// comes first where places are scarce, and a constant knows of no places.
#pragma once

#include <cstddef>

#include <sureleap/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
[[nodiscard]] inline fixed_probability checked_threshold(char const* owner, double threshold) {
    fixed_probability fixed = 0;
    if (!quantise(threshold, fixed)) {
        fail_with(owner, ": threshold is ", threshold, ", expected a number in [0, 1]");
    }
    return fixed;
}
}  // namespace detail

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
            // Not the candidate's survival, which begins with the request's weight: beside a request of priority 10 one of
            // priority 1 would verify nothing.
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

SURELEAP_END_NAMESPACE
