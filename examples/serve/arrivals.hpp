// SPDX-License-Identifier: MIT
//
// When requests come: recorded, or at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "simulation.hpp"

namespace serve {

struct trace_settings {
    double speed_up = 1;                              ///< all gaps are divided by this
    std::size_t skip = 0;                             ///< requests left out at the beginning
    std::size_t most = static_cast<std::size_t>(-1);  ///< and after so many
    std::size_t longest_context = 4096;               ///< prompts are cut to this, which changes no step's drafts
};

/// Lines "TIMESTAMP,ContextTokens,GeneratedTokens" under that header, a time as "2023-11-16 18:15:46.6805900", as the
/// Azure LLM inference trace of 2023 has them. Times begin at 0. Throws with source, line, field and value for what is
/// no trace.
[[nodiscard]] std::vector<arrival> parse_trace(std::string_view text, std::string const& source,
                                               trace_settings const& settings = {});
[[nodiscard]] std::vector<arrival> read_trace(std::filesystem::path const& file, trace_settings const& settings = {});

/// `count` requests, `rate` a second in the mean, independent of each other; lengths as those of closed_workload.
[[nodiscard]] std::vector<arrival> poisson(double rate, std::size_t count, std::size_t context, std::size_t tokens,
                                           std::uint64_t seed);

}  // namespace serve
