// SPDX-License-Identifier: MIT
//
// Numbers that are known by bounds.
#pragma once

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What is known of a number: it is at least `low` and at most `high`.
struct interval {
    double low = 0.0;
    double high = 0.0;

    /// Nothing more can be known. So it is with NaN, of a row that has no law.
    [[nodiscard]] constexpr bool exact() const noexcept { return !(low < high); }
};

/// A probability of min(1, num/den); den > 0.
struct odds {
    double num;
    double den;
};

/// What is known of the odds of a decision.
struct odds_interval {
    odds low;
    odds high;

    [[nodiscard]] static constexpr odds_interval of(odds exact) noexcept { return {exact, exact}; }
    [[nodiscard]] constexpr bool exact() const noexcept { return !(low.num * high.den < high.num * low.den); }
};

SURELEAP_END_NAMESPACE
