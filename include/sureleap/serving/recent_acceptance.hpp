// SPDX-License-Identifier: MIT
//
// How often drafted tokens of a request were accepted of late: a term of online calibrations.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// By slot, the last sixteen tokens or so of the request that is there. All memory is taken at construction. Asking is
/// concurrently callable, adding is not.
class recent_acceptance {
public:
    /// Of a slot beyond `slots` nothing is known.
    explicit recent_acceptance(std::size_t slots) : slots_(slots) {}

    [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }

    /// A token of the request was verified and reached, and accepted or not.
    void add(request_view const& request, bool accepted) noexcept {
        if (request.slot >= slots_.size()) return;
        seen& recent = slots_[request.slot];
        if (recent.id != request.id) recent = {.id = request.id};
        recent.accepted = fade * recent.accepted + (accepted ? 1.0 : 0.0);
        recent.observed = fade * recent.observed + 1.0;
    }
    /// In logits against the `mean` of all, which counts as four tokens; 0 for a request of which nothing is known, as
    /// in a slot that served another. O(1).
    [[nodiscard]] double history(request_view const& request, double mean) const noexcept {
        if (request.slot >= slots_.size() || slots_[request.slot].id != request.id) return 0.0;
        constexpr double pseudo = 4.0;
        seen const& recent = slots_[request.slot];
        double const rate = (recent.accepted + pseudo * mean) / (recent.observed + pseudo);
        return std::log(rate / (1.0 - rate)) - std::log(mean / (1.0 - mean));
    }

private:
    static constexpr double fade = 0.9375;
    struct seen {
        request_id id = 0;
        double accepted = 0.0;
        double observed = 0.0;
    };
    std::vector<seen> slots_;
};

SURELEAP_END_NAMESPACE
