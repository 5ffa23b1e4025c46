// SPDX-License-Identifier: MIT
//
// Every number of never_lose, with its reason. "Worlds" is what simulated worlds lose without it: some thousand cells
// of the kinds in tests/property/never_lose.test.cpp (grid, texts, passages, replays, published curves, shifts).
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

struct never_lose_tuning {
    // ---- throughput_forecast
    static constexpr double prior_requests = 2.0;    ///< the prior weighs as two requests; worlds: 16 loses 0.4 %
    static constexpr std::size_t looks = 64;         ///< a stair's end is missed by at most 1/64 of the drafts
    static constexpr double batch_deviations = 2.0;  ///< of a batch that nobody sizes; worlds: 0 loses 18 % in groups
    static constexpr double margin = 0.002;          ///< of the throughput, less than a static choice may be better by
    static constexpr std::size_t group_rows = 8;     ///< that kernels serve at once; worlds: 0 loses 8 % in groups of 4
    static constexpr double step_of_curve = 0.98;    ///< of a rate: measured curves wobble by less than a fiftieth
    static constexpr double ranked_floor = 0.5;  ///< a place may be worth less next round; worlds: 1 loses 0.2 to 1.4 %
    static constexpr double probe_floor = 0.25;  ///< of the floor; worlds: 0 loses 1.1 % of lagged texts

    // ---- draft_trust, schedule_yield
    /// Tokens. A drafter that is never right is found out within some five rounds. One that is right by half is
    /// mistaken for it once in thirty times, until the next probe.
    static constexpr double believed = 4.0;
    static constexpr double yield_rounds = 10.0;  ///< so that one poor first round is chance; worlds: 3 loses 0.2 %
    static constexpr double same_load = 0.25;     ///< of the requests: a server's load changes a little all the time
    static constexpr double forgiven = 0.0005;    ///< a round, so half in 1386; worlds: 0 loses 0.6 % of passages

    // ---- how far evidence goes back, in requests or tokens
    static constexpr double memory_rounds = 8.0;   ///< worlds: 0 loses 0.6 % without confidences
    static constexpr double least_memory = 48.0;   ///< tells a share to 7 %
    static constexpr double most_memory = 1024.0;  ///< tells a share to 1.6 %: more would only be older
    static constexpr double trust_probes = 4.0;    ///< of probes while off; worlds: 1 loses 0.5 % on published curves
    static constexpr double profile_probes = 0.5;  ///< the last probe counts most; worlds: 1 loses 0.4 % of passages

    // ---- probe_schedule
    static constexpr std::size_t probing_part = 4;    ///< a quarter of the requests: the round goes on for the others
    static constexpr std::size_t least_probers = 16;  ///< tell a share to 12 %
    static constexpr std::size_t most_probers = 64;   ///< tell a share to 6 %; worlds do not tell 16 from 64 or more
    static constexpr std::size_t steps_ahead = 2;     ///< worlds: drafting all loses 1.9 % where all is verified
    static constexpr double least_period = 16.0;      ///< rounds; worlds: 64 loses 1 to 2 %, 4 gains as much
    static constexpr double longest_period = 1024.0;  ///< rounds: about a text, however dear a probe is
    static constexpr double near_plain = 0.97;    ///< one probe may mistake so much; worlds do not tell 0.9 from 0.99
    static constexpr std::size_t most_again = 2;  ///< probes that follow; worlds: 0 loses 0.5 % of passages
    static constexpr double waits = 2.0;  ///< periods until few probe; worlds: 1 loses a quarter where reading is dear
    static constexpr double first_share = 16.0;  ///< of arrears at first; worlds: 1 loses 1.1 % on published curves

    // ---- request_gate
    static constexpr double gate_window = 32.0;  ///< rounds of a request: some hundred tokens
    static constexpr double gate_rounds = 16.0;  ///< before that it is bad luck; worlds: 0 loses a third of one cell
    static constexpr double gate_prior = 8.0;    ///< tokens: a quarter of one in the mean of a window
    static constexpr double shuts_below = 0.75;  ///< of the price: bad luck shuts nothing that pays
    static constexpr double opens_above = 0.9;   ///< of the price: a request near it does not swing
    static constexpr double shut_rate = 0.25;    ///< a shut request is seen rarely, so four looks decide
    static constexpr std::uint64_t shut_period = 64;  ///< rounds, two windows; worlds do not tell 16 from 64
};

}  // namespace detail
SURELEAP_END_NAMESPACE
