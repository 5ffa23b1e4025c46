// SPDX-License-Identifier: MIT
//
// The objective of hardware-aware scheduling, Theta = tau x SPS(B): expected accepted tokens per step times steps per
// second at a batch of B tokens (paper section 3.2.2). Besides, what can be proved about Theta without looking at
// candidates one by one.
//
// The proofs are inequalities over real numbers, with room for the rounding of every double in them: they may say "not
// proved" of something true, and then it is computed. What a schedule decides is therefore always a comparison of
// Thetas as `expected_step::throughput` rounds them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Expected accepts tau as an exact sum of 2^-24, and the batch B they cost: every request brings its anchor row, which
/// yields one token for certain.
struct expected_step {
    std::uint64_t accepts = 0;
    std::size_t batch_tokens = 0;

    [[nodiscard]] static expected_step without_drafts(std::size_t requests) noexcept {
        return {static_cast<std::uint64_t>(requests) * certain, requests};
    }
    [[nodiscard]] static expected_step without_drafts(survival_table const& table) noexcept {
        return table.weight == 0 ? without_drafts(table.requests()) : expected_step{table.weight, table.requests()};
    }
    [[nodiscard]] expected_step with(candidate const& c) const noexcept { return with(1, c.survival); }
    /// With `count` more candidates that survive with `sum` in all.
    [[nodiscard]] expected_step with(std::size_t count, std::uint64_t sum) const noexcept {
        return {accepts + sum, batch_tokens + count};
    }
    /// Theta in tokens per second (weighted, where requests have priorities): one double product, so that comparisons
    /// agree everywhere.
    template <capacity_curve Capacity>
    [[nodiscard]] double throughput(Capacity const& capacity) const noexcept {
        return (static_cast<double>(accepts) * 0x1p-24) * static_cast<double>(capacity.steps_per_second(batch_tokens));
    }
};

/// Neighbours in the order of admission, of which nothing is known but their number, their sum and between which values
/// they lie: all candidates that come after `from`, up to and including `to`.
struct admission_segment {
    expected_step from{};
    expected_step to{};
    fixed_probability least = 0;
    fixed_probability most = 0;
    std::size_t each = 1;  ///< batch tokens of a candidate: more than one where they stand for others

    [[nodiscard]] std::size_t size() const noexcept { return to.batch_tokens - from.batch_tokens; }
    /// A bound on tau at `batch_tokens` within the segment: those before it are at most `most`, those behind at least
    /// `least`.
    [[nodiscard]] std::uint64_t accepts_at_most(std::size_t batch_tokens) const noexcept {
        return std::min(from.accepts + (batch_tokens - from.batch_tokens) * std::uint64_t{most},
                        to.accepts - (to.batch_tokens - batch_tokens) * std::uint64_t{least});
    }
};

namespace detail {

/// Relative room in the proofs, for the rounding of two Thetas and of the proof itself: less than sixteen operations.
inline constexpr double proof_slack = 0x1p-48;

/// Every candidate of the segment raises Theta, whatever they are: each has at least `least`, and S before it is at
/// most what it is before the last one. One question to the curve for each candidate.
template <capacity_curve Capacity>
[[nodiscard]] bool surely_rises(Capacity const& capacity, admission_segment const& s) noexcept {
    double const gain = static_cast<double>(s.each) * static_cast<double>(s.least);
    double const growth = (1.0 + gain / (static_cast<double>(s.to.accepts) - gain)) * (1.0 - proof_slack);
    double last = static_cast<double>(capacity.steps_per_second(s.from.batch_tokens));
    for (std::size_t b = s.from.batch_tokens + s.each; b <= s.to.batch_tokens; b += s.each) {
        double const next = static_cast<double>(capacity.steps_per_second(b));
        if (!(next * growth > last)) return false;
        last = next;
    }
    return true;
}

/// Theta stays below `bar` all along the segment, both ends included. One question to the curve for each candidate.
template <capacity_curve Capacity>
[[nodiscard]] bool surely_below(Capacity const& capacity, admission_segment const& s, double bar) noexcept {
    double const low = bar * 0x1p24 * (1.0 - proof_slack);  // in the units of S
    for (std::size_t b = s.from.batch_tokens; b <= s.to.batch_tokens; b += s.each) {
        double const accepts = static_cast<double>(s.accepts_at_most(b));
        if (!(accepts * static_cast<double>(capacity.steps_per_second(b)) < low)) return false;
    }
    return true;
}

}  // namespace detail

SURELEAP_END_NAMESPACE
