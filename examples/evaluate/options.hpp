// SPDX-License-Identifier: MIT
//
// The flags of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>

#include "sources.hpp"

namespace evaluate {

using sureleap::token_id;

struct options {
    std::vector<std::string> command;      ///< as it was typed
    std::vector<std::string> experiments;  ///< in the order they are to run

    std::filesystem::path target;  ///< a folder or a GGUF file
    std::vector<draft_source> drafts;
    std::string of;  ///< the drafter that is looked at closely, and that others are compared with

    std::vector<prompt_source> prompts;
    std::map<std::string, std::string> templates;  ///< by domain; {} is the question
    std::size_t texts = 100;                       ///< of a domain, at most
    std::size_t tokens = 128;                      ///< measured of each text
    std::size_t context = 0;                       ///< 0: what the longest prompt needs, if the target has it

    sureleap::transform sampling;
    std::string rule = "token";
    std::uint64_t seed = 1;
    bool ignore_eos = false;
    bool bf16 = false;  ///< activations rounded for products with bf16 weights, by all models

    std::vector<double> temperatures{0, 0.5, 0.7, 1};
    std::vector<double> thresholds{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
    std::vector<std::size_t> shortlists{16, 32, 64, 128, 256, 512, 1024};
    std::size_t rounds = 20'000;             ///< of calibration, in each half
    double cooler = 0.7;                     ///< the other sampling temperature of calibration
    std::vector<double> sharper{1.5, 2, 3};  ///< scores are made overconfident by these, position after position

    std::size_t repeats = 5;                           ///< of speed and batch
    bool fresh = false;                                ///< speed: every text meets a server that has learned nothing
    std::vector<std::size_t> at_once{1, 2, 4, 8, 16};  ///< batch and equality: requests

    std::vector<std::size_t> rows{4, 8, 16, 32};  ///< trees and costs: of the target in a round
    std::vector<std::string> costs;               ///< of costs: step times of other machines
    std::filesystem::path figures;                ///< that some of them are made of
    double draft_share = 0.05;                    ///< of a step without drafts, where nothing says what drafting takes

    std::size_t batch = 16;
    std::size_t threads = 0;  ///< 0: one per core
    std::filesystem::path json;
    bool store = false;            ///< temperatures of calibration, in the drafter's config.json
    std::filesystem::path record;  ///< rounds of calibration, a line each
    bool markdown = false;

    [[nodiscard]] draft_source const& closely() const;
};

/// Nothing if help was asked for, and printed. Throws sureleap::error for flags that make no sense, before any model is
/// touched.
[[nodiscard]] std::optional<options> parse_options(int argc, char const* const* argv);

}  // namespace evaluate
