// SPDX-License-Identifier: MIT
//
// Which requests' drafts are worth their time: difficulty-aware early exit, decided for each request from its own past.
//
// The gain of drafting is what the request's candidates are worth above the price of a place in the batch. Survivals
// give it, corrected by this request's past ratio of accepted drafts to predicted ones. The cost is the drafter's time
// for the request, from the cost model. A scheduler that only sees the block cannot do this: by then it was drafted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/serving/never_lose_tuning.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// What is known of every slot's request. Memory is allocated at construction. It learns by observe() alone: asked
/// before, as often as one likes, it answers alike. A slot that is not below max_requests is open, and nothing is
/// learned of it.
class request_gate {
    using tuning = never_lose_tuning;

public:
    request_gate() = default;
    explicit request_gate(std::size_t max_requests) : places_(max_requests) {}

    /// Whether the request's drafts were not worth `before` (weighted tokens a round) and, once that is remembered, are
    /// not worth `price`. A slot that was given to another request starts anew, open.
    [[nodiscard]] bool shuts(request_view const& request, double before, double price) const noexcept {
        if (request.slot >= places_.size()) return false;
        place const& p = places_[request.slot];
        return p.is_of(request) && p.shuts(before, price);
    }
    [[nodiscard]] bool shuts(request_view const& request, double price) const noexcept {
        return shuts(request, price, price);
    }
    /// A request that is shut drafts in this round to be looked at again. Slots side by side do so in rounds of their
    /// own.
    [[nodiscard]] static constexpr bool looks_again(std::size_t slot, std::uint64_t round) noexcept {
        return (round + slot) % tuning::shut_period == 0;
    }

    /// Takes in a round. `before`, `price`: as it was asked with them. `worth`: of a place in the batch. `trust[k]`:
    /// tokens that were accepted at position k for each that survivals promise, over all requests.
    void observe(round_record const& record, double before, double price, fixed_probability worth,
                 std::span<double const> trust) noexcept {
        constexpr double one = static_cast<double>(certain);
        double const bar = static_cast<double>(worth);
        for (std::size_t r = 0; r < record.requests.size(); ++r) {
            request_view const& request = record.requests[r];
            if (request.slot >= places_.size()) continue;
            place& p = places_[request.slot];
            if (!p.is_of(request)) p = {.id = request.id, .used = true};
            p.shut = p.shuts(before, price);
            if (!record.tells_of_model(r) || request.draft_cap(1) == 0) continue;
            fixed_probability const* const survival =
                record.survivals.survival.data() + r * record.survivals.block_size;
            double const rounds = std::min(p.rounds + 1.0, tuning::gate_window);
            double const rate = p.shut ? tuning::shut_rate : 1.0 / rounds;
            double expected = 0.0;
            for (std::size_t k = 0; k < record.verdicts[r].verified; ++k) {
                expected += trust[k] * static_cast<double>(survival[k]);
            }
            // In tokens, not multiplied by weights. Evidence of a request of little weight would count for nothing
            // beside that of all requests. A place's weight may change from round to round, too.
            double const whole = one / static_cast<double>(request.weight);
            p.expected += rate * (whole * expected - p.expected);
            p.accepted += rate * (static_cast<double>(record.verdicts[r].accepted) * one - p.accepted);
            // As of all requests, until this one has shown something else. The means count tokens by rounds.
            double const strength = tuning::gate_prior * one / rounds;
            double const own = (p.accepted + strength) / (p.expected + strength);
            double earned = 0.0;
            for (std::size_t k = 0; k < record.survivals.sizes[r]; ++k) {
                earned += std::max(own * trust[k] * static_cast<double>(survival[k]) - bar, 0.0);
            }
            p.earned += rate * (earned * 0x1p-24 - p.earned);
            p.rounds += 1.0;
        }
    }

private:
    struct place {
        request_id id = 0;
        bool used = false;
        bool shut = false;
        double rounds = 0.0;    // in which it drafted
        double expected = 0.0;  // tokens of a round, of 2^-24; means over about a window
        double accepted = 0.0;
        double earned = 0.0;  // weighted tokens

        /// Otherwise it is of the one who had the slot before.
        [[nodiscard]] bool is_of(request_view const& r) const noexcept { return used && id == r.id; }
        [[nodiscard]] bool shuts(double before, double price) const noexcept {
            bool now = shut;
            for (double const p : {before, price}) {
                if (!now && rounds >= tuning::gate_rounds && tuning::shuts_below * p > earned) now = true;
                if (now && earned > tuning::opens_above * p) now = false;
            }
            return now;
        }
    };

    std::vector<place> places_;
};

}  // namespace detail
SURELEAP_END_NAMESPACE
