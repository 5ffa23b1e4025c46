// SPDX-License-Identifier: MIT
//
// A round of one request, kept for whoever shows it later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/verify/verdict.hpp>

namespace generate {

struct round_seen {
    std::vector<sureleap::token_id> drafted;
    /// Of each draft, calibrated: that it is accepted if what is before it is; 1 from a drafter without. In a tree:
    /// that it is.
    std::vector<double> confidences;
    std::size_t verified = 0;  ///< drafts that the target scored
    std::size_t accepted = 0;
    std::vector<sureleap::token_id> emitted;
    std::vector<std::int32_t> parents{};  ///< as verdict::parents, of a tree
    std::vector<std::int32_t> path{};     ///< as verdict::path

    /// What the verdict said of each draft.
    [[nodiscard]] bool kept(std::size_t k) const noexcept { return as_verdict().kept(k); }
    [[nodiscard]] bool reached(std::size_t k) const noexcept { return as_verdict().reached(k); }
    /// The emitted tokens in their two parts. A stop token that was drafted ends the round without one of the target's
    /// own.
    [[nodiscard]] std::span<sureleap::token_id const> from_draft() const noexcept {
        return std::span(emitted).first(std::min(accepted, emitted.size()));
    }
    [[nodiscard]] std::span<sureleap::token_id const> from_target() const noexcept {
        return std::span(emitted).subspan(from_draft().size());
    }

private:
    [[nodiscard]] sureleap::verdict as_verdict() const noexcept {
        return {.verified = verified, .accepted = accepted, .parents = parents, .path = path};
    }
};

}  // namespace generate
