// SPDX-License-Identifier: MIT
//
// Parts that learn from past rounds, as wildly as the library allows: every choice is a hash of everything that the records
// of past rounds hold, drafts that were rejected or never verified included. If rounds are exact under these, they are
// under any controller, gate, calibration and priority of the same kind.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <sureleap/calibration_ref.hpp>
#include <sureleap/round_record.hpp>

#include "support/exactness.hpp"

namespace adaptive {

using namespace exactness;

/// A number that depends on all that was seen.
class past_rounds {
public:
    explicit past_rounds(std::uint64_t seed = 1) : state_(seed) {}

    void learn(round_record const& round) {
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
    [[nodiscard]] T choice(std::array<T, N> const& options, std::uint64_t what, std::uint64_t whom = 0) const {
        past_rounds asked = *this;
        asked.mix(what, whom);
        return options[(asked.state_ >> 32) % N];
    }

private:
    template <class... Parts>
    void mix(Parts... parts) {
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
    void observe(round_record const& round) noexcept { past_.learn(round); }

private:
    freedom may_;
    past_rounds past_;
};

/// A calibration of each tenant's own that bends anew after every round.
class free_calibration {
public:
    [[nodiscard]] double operator()(request_view const& request, std::size_t k, double c) const noexcept {
        return std::pow(c, past_.choice(std::array{0.4, 1.0, 2.5}, k, request.settings->tenant));
    }
    void learn(round_record const& round) { past_.learn(round); }

private:
    past_rounds past_{7};
};

/// A decoder, and the calibration that was lent to it and learns from its rounds. What small_world::play plays.
template <class Target, class Drafter, class Schedule, class Rule, class Rng>
class learning_decoder {
public:
    learning_decoder(std::size_t requests, bool calibrated, Target& target, Drafter drafter, Schedule const& schedule,
                     Rule const& rule, Rng rng)
        : decoder_(target, std::move(drafter), schedule, rule, allow_lossy,
                   decoder_options{.max_requests = requests,
                                   .seed = 1,
                                   .calibration = calibrated ? calibration_ref{calibration_} : calibration_ref{}},
                   no_logits_hook{}, rng) {}

    request_id join(std::span<token_id const> prompt, request_settings const& settings) {
        return decoder_.join(prompt, settings);
    }
    void leave(request_id id) { decoder_.leave(id); }
    bool step() {
        bool const any = decoder_.step();
        if (any) calibration_.learn(decoder_.round());
        return any;
    }
    [[nodiscard]] std::span<request_event const> events() const { return decoder_.events(); }

private:
    free_calibration calibration_{};
    decoder<Target&, Drafter, Schedule, Rule, no_logits_hook, Rng, true> decoder_;
};

/// The law of all this over a scene.
template <class MakeDrafter, class Schedule, class Rule>
[[nodiscard]] law law_of(enumerator::noise kind, world const& w, scene const& s, MakeDrafter const& make_drafter,
                         Schedule const& schedule, Rule const& rule, bool calibrated) {
    auto target = target_of(w);
    using drafter_type = std::invoke_result_t<MakeDrafter const&>;
    return decoder_law(kind, s, [&](auto rng) {
        return learning_decoder<decltype(target), drafter_type, Schedule, Rule, decltype(rng)>(
            s.requests.size(), calibrated, target, make_drafter(), schedule, rule, rng);
    });
}

}  // namespace adaptive
