// SPDX-License-Identifier: MIT
//
// Parts that learn from past rounds, as wildly as the library allows: every choice is a hash of everything that the
// records of past rounds hold, drafts that were rejected or never verified included. If rounds are exact under these,
// they are under any controller, gate, calibration and priority of the same kind.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <sureleap/core/types.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/verify/verdict.hpp>

namespace adaptive {

using namespace sureleap;

/// A number that depends on all that was seen.
class past_rounds {
public:
    explicit past_rounds(std::uint64_t seed) : state_(seed) {}

    void observe(round_record const& round) noexcept {
        for (std::size_t r = 0; r < round.size(); ++r) {
            verdict const& v = round.verdicts[r];
            mix(v.id, v.drafted, v.verified, v.accepted);
            for (token_id const x : v.emitted) mix(x);
            for (std::size_t k = 0; k < v.drafted; ++k) mix(round.survivals.at(r, k).survival);
        }
        mix(round.load.batch_tokens);
    }
    /// One of `options`, for `what` of whom.
    template <class T, std::size_t N>
    [[nodiscard]] T choice(std::array<T, N> const& options, std::uint64_t what, std::uint64_t whom = 0) const noexcept {
        past_rounds asked = *this;
        asked.mix(what, whom);
        return options[(asked.state_ >> 32) % N];
    }

private:
    template <class... Parts>
    void mix(Parts... parts) noexcept {
        ((state_ = (state_ ^ static_cast<std::uint64_t>(parts)) * 0x9e3779b97f4a7c15u, state_ ^= state_ >> 29), ...);
    }

    std::uint64_t state_;
};

/// What a schedule may do besides scheduling.
struct freedom {
    bool limits = false;   ///< of drafts, down to none
    bool floors = false;   ///< of survivals, below which a chain ends
    bool weights = false;  ///< in place of the priorities
    std::uint64_t seed = 1;
};

/// A schedule that takes them.
template <class Schedule>
class free_schedule : public Schedule {
public:
    free_schedule(Schedule schedule, freedom const& may) : Schedule(std::move(schedule)), may_(may), past_(may.seed) {}

    void limit_drafts(std::span<request_view> requests) const noexcept {
        for (request_view& r : requests) {
            if (may_.limits) r.draft_limit = past_.choice(std::array<std::size_t, 4>{0, 1, 2, 9}, 1, r.id);
            if (may_.weights) r.weight = past_.choice(std::array{certain, certain / 3, certain / 40}, 2, r.id);
        }
    }
    [[nodiscard]] fixed_probability draft_floor() const noexcept {
        return may_.floors ? past_.choice(std::array{fixed_probability{0}, certain / 20, certain / 5, certain / 2}, 3)
                           : 0;
    }
    void observe(round_record const& round) noexcept { past_.observe(round); }

private:
    freedom may_;
    past_rounds past_;
};

/// A calibration of each tenant's own that bends anew after every round.
class free_calibration {
public:
    explicit free_calibration(std::uint64_t seed) : past_(seed) {}

    [[nodiscard]] double operator()(request_view const& request, std::size_t k, double c) const noexcept {
        return std::pow(c, past_.choice(std::array{0.4, 1.0, 2.5}, k, request.settings->tenant));
    }
    void observe(round_record const& round) noexcept { past_.observe(round); }

private:
    past_rounds past_;
};

/// Depends on everything that a cost model may depend on, with cliffs that move with the context.
struct whole_step_cost {
    double pair = 0.5;  ///< seconds of two batch tokens

    [[nodiscard]] double step_seconds(step_load const& l) const noexcept {
        std::size_t const shift = l.context_tokens % 2;
        return 1.0 + pair * static_cast<double>((l.batch_tokens + shift) / 2) + 0.1 * static_cast<double>(l.requests) +
               0.02 * static_cast<double>(l.draft_tokens) + 0.05 * static_cast<double>(l.drafting);
    }
};

}  // namespace adaptive
