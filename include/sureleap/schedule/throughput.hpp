// SPDX-License-Identifier: MIT
//
// The objective of hardware-aware scheduling, Theta = tau x SPS(B): expected accepted tokens per step times steps per
// second at a batch of B tokens (paper section 3.2.2). Besides, what can be proved about Theta without looking at
// candidates one by one.
//
// The proofs are inequalities over real numbers, with room for the rounding of every double in them: they may say "not
// proved" of something true, and then it is computed. What a schedule decides is therefore always a comparison of Thetas
// as `expected_step::throughput` rounds them.
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
    /// Theta in tokens per second (weighted, where requests have priorities): one double product, so that comparisons agree everywhere.
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

/// Relative room in the proofs. The rounding of a step time, a Theta and the proof itself take some 2^-50. Step times
/// are within 2^-44 of a convex curve (piecewise_convex_capacity), and five of those can add up.
inline constexpr double proof_slack = 0x1p-41;

template <class Capacity>
[[nodiscard]] double step_seconds(Capacity const& capacity, std::size_t batch_tokens) noexcept {
    return 1.0 / static_cast<double>(capacity.steps_per_second(batch_tokens));
}

/// Every candidate of the segment raises Theta, whatever they are.
///
/// Candidate j raises Theta = S/T if a_j T_{j-1} > S_{j-1} (T_j - T_{j-1}). Where T is convex the difference of the two
/// sides can only fall along the order, because the a_j do: the last step of each convex part decides, with `least` for
/// a_j and a bound for S. O(1) for each convex part; a curve that does not know its own is asked for every B.
template <capacity_curve Capacity>
[[nodiscard]] bool surely_rises(Capacity const& capacity, admission_segment const& s) noexcept {
    double const least = static_cast<double>(s.least);
    if constexpr (piecewise_convex_capacity<Capacity>) {
        std::size_t b = s.from.batch_tokens;
        double at_start = step_seconds(capacity, b);
        while (b < s.to.batch_tokens) {
            std::size_t const end = std::clamp<std::size_t>(capacity.convex_until(b), b + 1, s.to.batch_tokens);
            double const at_end = step_seconds(capacity, end);
            double const before = end - 1 == b ? at_start : step_seconds(capacity, end - 1);
            double const accepts = static_cast<double>(s.accepts_at_most(end - 1));
            double const price = accepts * std::max(at_end - before, 0.0);
            if (!(least * before > price + proof_slack * accepts * std::max(at_start, at_end))) return false;
            b = end;
            at_start = at_end;
        }
        return true;
    } else {
        double const each = static_cast<double>(s.each);
        double const most_before = static_cast<double>(s.to.accepts) - each * least;
        double const growth = (1.0 + each * least / most_before) * (1.0 - proof_slack);
        double last = static_cast<double>(capacity.steps_per_second(s.from.batch_tokens));
        for (std::size_t b = s.from.batch_tokens + s.each; b <= s.to.batch_tokens; b += s.each) {
            double const next = static_cast<double>(capacity.steps_per_second(b));
            if (!(next * growth > last)) return false;
            last = next;
        }
        return true;
    }
}

/// Theta stays below `bar` all along the segment, both ends included.
///
/// A convex T lies above its tangents at both ends of a part, and S below two lines (accepts_at_most), one through each
/// end; a quotient of two lines is largest at one of the ends. O(1) for each convex part, as above.
template <capacity_curve Capacity>
[[nodiscard]] bool surely_below(Capacity const& capacity, admission_segment const& s, double bar) noexcept {
    double const low = bar * 0x1p24 * (1.0 - proof_slack);  // in the units of S
    double const most = static_cast<double>(s.most);
    double const least = static_cast<double>(s.least);
    if constexpr (piecewise_convex_capacity<Capacity>) {
        std::size_t b = s.from.batch_tokens;
        double at_start = step_seconds(capacity, b);
        for (;;) {
            std::size_t const end = std::clamp<std::size_t>(capacity.convex_until(b), b + 1, s.to.batch_tokens);
            double const at_end = step_seconds(capacity, end);
            double const second = b + 1 == end ? at_end : step_seconds(capacity, b + 1);
            double const before = end - 1 == b ? at_start : step_seconds(capacity, end - 1);
            double const length = static_cast<double>(end - b);
            // A slope of one token is the difference of two step times, each within 2^-44 of the convex curve.
            double const error = length * 0x1p-42 * std::max(at_start, at_end);
            double const rising = length * (second - at_start) - error;
            double const falling = length * (at_end - before) + error;
            struct line {
                double start, end;
            };
            double const ahead = static_cast<double>(b - s.from.batch_tokens);
            double const behind = static_cast<double>(s.to.batch_tokens - end);
            double const from = static_cast<double>(s.from.accepts) + ahead * most;
            double const to = static_cast<double>(s.to.accepts) - behind * least;
            line const accepts[] = {{from, from + length * most}, {to - length * least, to}};
            line const seconds[] = {{at_start, at_start + rising}, {at_end - falling, at_end}};
            bool below = false;
            for (line const& a : accepts) {
                // a / t < low, multiplied out; a tangent that reaches 0 says nothing.
                for (line const& t : seconds) below = below || (a.start < low * t.start && a.end < low * t.end);
            }
            if (!below) return false;
            if (end == s.to.batch_tokens) return true;
            b = end;
            at_start = at_end;
        }
    } else {
        for (std::size_t b = s.from.batch_tokens; b <= s.to.batch_tokens; b += s.each) {
            double const accepts = static_cast<double>(s.accepts_at_most(b));
            if (!(accepts * static_cast<double>(capacity.steps_per_second(b)) < low)) return false;
        }
        return true;
    }
}

}  // namespace detail

SURELEAP_END_NAMESPACE
