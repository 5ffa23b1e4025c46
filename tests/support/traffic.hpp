// SPDX-License-Identifier: MIT
//
// Rounds of a synthetic engine whose truth is known: confidences and acceptance are drawn, lengths are decided by the
// library's own schedules, records are what a decoder would leave.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/verify/verdict.hpp>

#include "support/dice.hpp"
#include "support/survival_tables.hpp"

namespace support {

/// The truth about a kind of text. Let z be the raw logit of position k. If x_k is reached, it is accepted with
/// probability sigmoid(offset - decay k + slope z + noise). The head does not know the noise.
struct domain {
    double offset = 0.0;
    double decay = 0.0;
    double slope = 1.0;
    double noise = 0.0;   ///< its scale
    double mean = 1.2;    ///< of z
    double spread = 2.0;  ///< scale of z

    struct token {
        double z;
        bool accepted;
    };
    [[nodiscard]] token draw(dice& roll, std::size_t k, double ease = 0.0) const {
        double const z = mean + spread * roll.bell();
        double const argument = offset - decay * static_cast<double>(k) + slope * z + noise * roll.bell() + ease;
        return {z, roll.chance(1.0 / (1.0 + std::exp(-argument)))};
    }
};

[[nodiscard]] inline double sigmoid_of(double z) {
    return 1.0 / (1.0 + std::exp(-z));
}

/// R requests that draft gamma tokens in every round, and a schedule that trims them.
template <class Schedule>
class traffic {
public:
    traffic(std::size_t requests, std::size_t gamma, Schedule schedule, std::uint64_t seed)
        : schedule_(std::move(schedule)),
          roll_(seed),
          table_(requests, gamma),
          memory_(requests),
          settings_(requests),
          views_(requests),
          verdicts_(requests),
          raw_(requests * gamma),
          ease_(requests) {
        for (std::size_t r = 0; r < requests; ++r) {
            views_[r] = {.id = r + 1, .slot = r, .remaining = 1000, .settings = &settings_[r]};
        }
    }

    [[nodiscard]] dice& roll() { return roll_; }
    /// For changing a request between rounds.
    [[nodiscard]] sureleap::request_settings& settings(std::size_t r) { return settings_[r]; }
    [[nodiscard]] double& ease(std::size_t r) { return ease_[r]; }
    [[nodiscard]] sureleap::request_view& view(std::size_t r) { return views_[r]; }

    /// One round, with the truth of request r as truth_of(r) says.
    template <class Truth>
    sureleap::round_record round(sureleap::calibration_ref calibration, Truth const& truth_of) {
        std::size_t const gamma = table_.block_size;
        std::vector<std::size_t> good(views_.size());
        for (std::size_t r = 0; r < views_.size(); ++r) {
            bool alive = true;
            for (std::size_t k = 0; k < gamma; ++k) {
                auto const token = truth_of(r).draw(roll_, k, ease_[r]);
                double const c = sigmoid_of(token.z);
                raw_[r * gamma + k] = c;
                sureleap::fixed_probability fixed = 0;
                if (!sureleap::quantise(calibration(views_[r], k, c), fixed)) std::abort();
                table_.set(r, k, fixed);
                alive = alive && token.accepted;
                if (alive) good[r] = k + 1;
            }
            table_.sizes[r] = static_cast<std::uint32_t>(gamma);
        }
        auto const walk = memory_.view();
        sureleap::causal_frontier frontier{table_.view(), walk};
        schedule_.admit(frontier);
        for (std::size_t r = 0; r < views_.size(); ++r) {
            std::size_t const verified = walk.lengths[r];
            verdicts_[r] = {.id = views_[r].id,
                            .slot = r,
                            .drafted = gamma,
                            .verified = verified,
                            .accepted = std::min(verified, good[r])};
        }
        return {.requests = views_, .verdicts = verdicts_, .survivals = table_.view(), .raw_confidences = raw_};
    }

private:
    Schedule schedule_;
    dice roll_;
    owned_table table_;
    admission_memory memory_;
    std::vector<sureleap::request_settings> settings_;
    std::vector<sureleap::request_view> views_;
    std::vector<sureleap::verdict> verdicts_;
    std::vector<double> raw_;
    std::vector<double> ease_;
};

}  // namespace support
