// SPDX-License-Identifier: MIT
//
// A schedule that verifies what a test says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/schedule/frontier.hpp>

namespace support {

/// So many positions of each request, or all that were drafted; the vector may be filled until admit.
struct given_lengths {
    static constexpr bool needs_confidence = false;

    std::vector<std::uint32_t> const* lengths;

    void admit(sureleap::causal_frontier& frontier) const noexcept {
        for (std::size_t r = 0; r < frontier.requests(); ++r) {
            while (frontier.has_next(r) && frontier.length(r) < (*lengths)[r]) frontier.admit(r);
        }
    }
};

}  // namespace support
