// SPDX-License-Identifier: MIT
//
// The objective of hardware-aware scheduling: Theta = tau x SPS(B), expected accepted tokens per step times steps per
// second at a batch of B tokens (paper section 3.2.2), and its unconstrained maximum.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/schedule/frontier.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Expected accepts tau as an exact sum of 2^-24, and the batch B they cost: every request brings its anchor row, which
/// yields one token for certain.
struct expected_step {
    std::uint64_t accepts = 0;
    std::size_t batch_tokens = 0;

    [[nodiscard]] static expected_step without_drafts(std::size_t requests) noexcept {
        return {static_cast<std::uint64_t>(requests) * certain, requests};
    }
    [[nodiscard]] expected_step with(candidate const& c) const noexcept {
        return {accepts + c.survival, batch_tokens + 1};
    }
    /// Theta in tokens per second: one double product, so that comparisons agree everywhere.
    template <capacity_curve Capacity>
    [[nodiscard]] double throughput(Capacity const& capacity) const noexcept {
        return (static_cast<double>(accepts) * 0x1p-24) * static_cast<double>(capacity.steps_per_second(batch_tokens));
    }
};

/// The number of candidates, taken in the order of admission, that maximises Theta over all prefixes; the smallest such
/// number. Looks at the whole table, so it is only causal on tables from before the block. O(R gamma log R).
template <capacity_curve Capacity>
[[nodiscard]] std::size_t best_budget(causal_frontier walk, Capacity const& capacity) noexcept {
    auto step = expected_step::without_drafts(walk.requests());
    double best = step.throughput(capacity);
    std::size_t budget = 0;
    while (!walk.empty()) {
        candidate const c = walk.best();
        walk.admit(c.request);
        step = step.with(c);
        if (double const theta = step.throughput(capacity); theta > best) {
            best = theta;
            budget = walk.admitted();
        }
    }
    return budget;
}

SURELEAP_END_NAMESPACE
