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

namespace evaluate {

using sureleap::token_id;

/// A drafter under the name it has in the tables.
struct draft_source {
    std::string name;
    std::string folder;                      ///< of a DSpark, DFlash or Eagle3 model; or "lookup"
    bool zero_bias = false;                  ///< its sequential head left out: what the backbone is worth alone
    std::string schedule = "fixed";          ///< of speed; other experiments verify whole blocks, or vary it themselves
    std::optional<std::size_t> max_draft{};  ///< of a block, drafted and verified; all of it if not given
};

/// A file of prompts. Without a domain its lines name theirs.
struct prompt_source {
    std::optional<std::string> domain;
    std::filesystem::path file;
};

struct options {
    std::vector<std::string> command;      ///< as it was typed
    std::vector<std::string> experiments;  ///< in the order they are to run

    std::filesystem::path target;
    std::vector<draft_source> drafts;
    std::string of;  ///< the drafter that is looked at closely, and that others are compared with

    std::vector<prompt_source> prompts;
    std::map<std::string, std::string> templates;  ///< by domain; {} is the question
    std::size_t texts = 100;                       ///< of a domain, at most
    std::size_t tokens = 128;                      ///< measured of each text
    std::size_t context = 0;                       ///< 0: what the longest prompt needs, if the target has it

    double temperature = 1.0;
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

    std::size_t batch = 16;
    std::size_t threads = 0;  ///< 0: one per core
    std::filesystem::path json;
    std::filesystem::path record;  ///< rounds of calibration, a line each
    bool markdown = false;

    [[nodiscard]] draft_source const& closely() const;
};

/// Nothing if help was asked for, and printed. Throws sureleap::error for flags that make no sense, before any model is
/// touched.
[[nodiscard]] std::optional<options> parse_options(int argc, char const* const* argv);

}  // namespace evaluate
