// SPDX-License-Identifier: MIT
//
// The same verify length for every request in every round: the baseline, and the choice when no capacity is known.
#pragma once

#include <cstddef>
#include <limits>

#include <sureleap/config.hpp>
#include <sureleap/schedule/frontier.hpp>

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

SURELEAP_END_NAMESPACE
