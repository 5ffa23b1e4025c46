// SPDX-License-Identifier: MIT
//
// A run of replicas: requests arrive at one queue, every replica decodes round after round in its own virtual time, and
// some of them die. Events are arrivals, deaths and ends of rounds, in the order of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "measures.hpp"
#include "replica_queue.hpp"
#include "simulation.hpp"

namespace serve {

struct death {
    double seconds = 0;
    std::size_t replica = 0;
};

struct replicated_settings {
    std::size_t replicas = 1;
    std::size_t places = 32;  ///< of each
    joining how = joining::fewest_requests;
    /// So many begin their rounds together and wait for the slowest, as those do that share experts. 1: each goes its
    /// own way.
    std::size_t in_step = 1;
    std::vector<death> deaths{};  ///< in order
    // What is measured lies between so many of the arrivals at the beginning and at the end, in part.
    double warm_up = 0.5;
    double cool_down = 0.1;
};

/// `count` deaths of different replicas, spread evenly over `seconds`; whom they meet is random. Throws if nobody would
/// be left.
[[nodiscard]] std::vector<death> spread_deaths(std::size_t count, std::size_t replicas, double seconds,
                                               std::uint64_t seed);

struct replicated_outcome {
    std::vector<served_request> served;   ///< arrived while it was measured
    double seconds = 0;                   ///< that were measured,
    double tokens = 0;                    ///< emitted in them, those of a round evenly over it,
    round_sums sums;                      ///< of rounds that ended in them; its seconds are summed over the replicas
    double busiest = 0;                   ///< requests of the busiest replica over the mean, at moments of arrival
    std::vector<double> ends;             ///< [arrivals] when each was finished
    std::vector<std::uint64_t> returned;  ///< requests that a death gave back, once for each time
    std::uint64_t read_again = 0;         ///< tokens that they brought to their next replica: prompts, and emitted ones
    std::uint64_t rounds_lost = 0;        ///< of requests whose replica died in them

    [[nodiscard]] double tokens_per_second() const noexcept { return tokens / seconds; }
};

/// Until all requests are done. O(replicas) at most for each request, O(log replicas) for each round.
[[nodiscard]] replicated_outcome run_replicated(policy const& how, scenario const& where, open_workload const& load,
                                                replicated_settings const& settings,
                                                progress_observer const& progress = {});

}  // namespace serve
