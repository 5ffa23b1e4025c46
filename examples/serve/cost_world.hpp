// SPDX-License-Identifier: MIT
//
// How long a step of the simulated engine takes: f(R) + g(B), straight lines between points, plus what drafting costs.
// The same type is used for the truth, which moves the clock, and for what a schedule believes. The latter may have
// been profiled with noise or on another engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>

namespace serve {

/// Straight lines between points; the first value below the first point, the last slope beyond the last one, or the
/// last value where there is only one.
struct polyline {
    std::vector<double> at;
    std::vector<double> seconds;

    [[nodiscard]] double operator()(double x) const noexcept;
};

/// Models sureleap::cost_model.
class cost_world {
public:
    std::string name;
    std::string source;            ///< where its numbers are from
    polyline requests{{1}, {0}};   ///< f
    polyline batch_tokens{};       ///< g
    std::size_t pad_batch_to = 1;  ///< B is rounded up to a multiple
    double draft_seconds = 0;      ///< of a step in which anybody drafts,
    double draft_per_request = 0;  ///< and of each that does,
    double draft_per_token = 0;    ///< and of each position drafted
    double context_per_token = 0;  ///< of each committed token of all requests
    /// A profile's error: log of the factor that a batch size is off by, one standard deviation; straight lines between
    /// multiples of 32 tokens. 0 for a truth.
    double noise = 0;
    std::uint64_t noise_seed = 0;

    /// Throws if the lines are no lines, or a step could take no time.
    void check() const;

    [[nodiscard]] double step_seconds(sureleap::step_load const& load) const noexcept;

    /// What drafting is of step_seconds.
    [[nodiscard]] double drafting(sureleap::step_load const& load) const noexcept;

private:
    [[nodiscard]] std::size_t padded(std::size_t tokens) const noexcept;
    [[nodiscard]] double error(double tokens) const noexcept;
};

/// 20 ms and as much again for every 400 tokens, drafts of 1 ms: no engine's in particular. In stairs of `stair`
/// tokens.
[[nodiscard]] cost_world made_up_world(std::size_t stair = 1);

}  // namespace serve
