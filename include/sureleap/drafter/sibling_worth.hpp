// SPDX-License-Identifier: MIT
//
// What a confidence is worth for a child of some rank. A confidence says how likely a token that was drawn from q is
// accepted. Of siblings it says that of the eldest. The others are reached where their elders were rejected, so they
// are drawn from what is left of q, and judged by what is left of p. How often they are accepted is learned, as a ratio
// to the confidence.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

SURELEAP_BEGIN_NAMESPACE

struct sibling_worth_settings {
    double eldest = 1.0;          ///< assumed of eldest children before any was seen
    double younger = 0.5;         ///< of the others
    double assumed_weight = 8.0;  ///< how many children that were seen outweigh it
    double memory = 4000.0;       ///< children of a rank that a mean goes back
};

/// Ratios by rank; ranks from `ranks` - 1 on share one. What it says changes by observe() alone.
class sibling_worth {
public:
    static constexpr std::size_t ranks = 8;

    explicit sibling_worth(sibling_worth_settings const& s = {}) : keep_(1.0 - 1.0 / s.memory) {
        if (!(s.assumed_weight > 0.0) || !(s.memory >= 1.0) || !(s.eldest >= 0.0) || !(s.younger >= 0.0)) {
            fail_with("sibling_worth_settings: eldest ", s.eldest, ", younger ", s.younger, ", assumed_weight ",
                      s.assumed_weight, ", memory ", s.memory,
                      "; expected ratios of at least 0, a weight above 0, and a memory of at least 1");
        }
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            seen_[rank] = {s.assumed_weight * (rank == 0 ? s.eldest : s.younger), s.assumed_weight};
        }
    }

    /// Accepted children of that rank for each that their confidences promise, given that their elders were rejected.
    [[nodiscard]] double operator()(std::size_t rank) const noexcept {
        counts const& at = seen_[place(rank)];
        return at.accepted / at.promised;
    }
    /// A child was judged, whose elders had been rejected. `confidence`: behind its parent.
    void observe(std::size_t rank, double confidence, bool accepted) noexcept {
        counts& at = seen_[place(rank)];
        at.accepted = at.accepted * keep_ + (accepted ? 1.0 : 0.0);
        at.promised = at.promised * keep_ + confidence;
    }

private:
    struct counts {
        double accepted = 0.0;
        double promised = 0.0;
    };
    [[nodiscard]] static std::size_t place(std::size_t rank) noexcept { return std::min(rank, ranks - 1); }

    double keep_;
    std::array<counts, ranks> seen_{};
};

SURELEAP_END_NAMESPACE
