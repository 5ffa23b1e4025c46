// SPDX-License-Identifier: MIT
//
// Every number of never_lose, with its reason. "Measured" means: by the simulated worlds of tests/property/never_lose.test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

struct never_lose_tuning {
    // ---- survival_profile, throughput_forecast: which limit pays
    static constexpr double prior_requests = 2.0;
    static constexpr std::size_t looks = 64;
    static constexpr double batch_deviations = 2.0;
    static constexpr double margin = 0.002;
    static constexpr std::size_t group_rows = 8;
    static constexpr double step_of_curve = 0.98;
    static constexpr double ranked_floor = 0.5;
    static constexpr double probe_floor = 0.25;

    // ---- draft_trust, schedule_yield
    static constexpr double believed = 4.0;
    static constexpr double most_trust = 2.0;
    static constexpr double yield_rounds = 10.0;
    static constexpr double least_yield = 0.25;
    static constexpr double same_load = 0.25;
    static constexpr double forgiven = 0.0005;

    // ---- how far evidence goes back
    static constexpr double memory_rounds = 8.0;
    static constexpr double least_memory = 48.0;
    static constexpr double most_memory = 1024.0;
    static constexpr double trust_probes = 4.0;
    static constexpr double profile_probes = 0.5;

    // ---- probe_schedule, probe_line
    static constexpr std::size_t probing_part = 4;
    static constexpr std::size_t least_probers = 16;
    static constexpr std::size_t most_probers = 64;
    static constexpr std::size_t steps_ahead = 2;
    static constexpr double least_period = 16.0;
    static constexpr double longest_period = 1024.0;
    static constexpr double near_plain = 0.97;
    static constexpr std::size_t most_again = 2;
    static constexpr double waits = 2.0;
    static constexpr double first_share = 16.0;

    // ---- request_gate
    static constexpr double gate_window = 32.0;
    static constexpr double gate_rounds = 16.0;
    static constexpr double gate_prior = 8.0;
    static constexpr double shuts_below = 0.75;
    static constexpr double opens_above = 0.9;
    static constexpr double shut_rate = 0.25;
    static constexpr std::uint64_t shut_period = 64;
    static constexpr std::uint64_t slot_stride = 7;

    // ---- draft_return
    static constexpr int most_doublings = 10;
};

}  // namespace detail
SURELEAP_END_NAMESPACE
