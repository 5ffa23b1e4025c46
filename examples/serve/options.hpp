// SPDX-License-Identifier: MIT
//
// The flags of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace serve {

/// Domains in proportions, "chat=2,math=1".
struct named_mix {
    std::string name;  ///< as it was given
    std::vector<std::string> domains;
    std::vector<double> weights;
};

struct options {
    std::vector<std::string> command;  ///< as it was typed
    std::string experiment;

    // Texts
    std::filesystem::path figures;
    std::vector<named_mix> mixes;
    std::vector<double> acceptance{0.8};
    std::filesystem::path recorded;
    std::optional<double> request_sd, token_sd;
    double anchor_share = 0.5;
    double live_share = 1.0;
    double sharpness = 1.0;
    double bias = 0.0;

    // The engine
    std::vector<std::string> worlds{"smooth"};
    std::string model = "same";
    std::optional<std::size_t> block_size;
    std::size_t places = 256;
    double prefill = 0;

    // The load
    std::vector<std::size_t> concurrency;
    std::size_t tokens = 256;
    std::size_t context = 256;
    std::uint64_t rounds = 100'000;
    std::filesystem::path trace;
    double speed_up = 1;
    std::size_t skip = 0;
    std::size_t requests = 1000;
    double rate = 0;
    std::vector<std::size_t> replicas{8};
    std::vector<std::string> join{"round-robin", "requests", "two"};
    std::vector<std::size_t> in_step{1};
    double deaths = 0;  ///< share of the replicas
    std::size_t burst = 8;
    double period = 0.5;
    std::optional<named_mix> after;  ///< the mix that a drift ends in
    double drifted_sharpness = 2.0;
    double drifted_bias = 0.0;
    std::uint64_t window = 50;

    std::vector<std::string> policies;
    std::uint64_t seed = 1;
    std::filesystem::path json;
    bool markdown = false;

    [[nodiscard]] bool given(std::string const& flag) const;  ///< on the command line
};

/// Nothing if help was asked for, and printed. Throws sureleap::error for flags that make no sense.
[[nodiscard]] std::optional<options> parse_options(int argc, char const* const* argv);

}  // namespace serve
