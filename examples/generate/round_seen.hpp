// SPDX-License-Identifier: MIT
//
// A round of one request, kept for whoever shows it later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/core/types.hpp>

namespace generate {

struct round_seen {
    std::vector<sureleap::token_id> drafted;
    std::vector<double> confidences;  ///< of each draft, calibrated; 1 from a drafter without
    std::size_t verified = 0;         ///< drafts that the target scored
    std::size_t accepted = 0;
    std::vector<sureleap::token_id> emitted;

    /// The emitted tokens in their two parts. A stop token that was drafted ends the round without one of the target's own.
    [[nodiscard]] std::span<sureleap::token_id const> from_draft() const noexcept {
        return std::span(emitted).first(std::min(accepted, emitted.size()));
    }
    [[nodiscard]] std::span<sureleap::token_id const> from_target() const noexcept {
        return std::span(emitted).subspan(from_draft().size());
    }
};

}  // namespace generate
