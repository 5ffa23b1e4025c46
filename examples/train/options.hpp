// SPDX-License-Identifier: MIT
//
// The flags of the program's five commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <engine/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/training/losses.hpp>

#include "optimizer.hpp"

namespace train {

/// train tokenizer
struct tokenizer_options {
    std::filesystem::path corpus;
    std::filesystem::path out;
    std::size_t vocabulary = 2048;
    std::size_t domain_bytes = 0;  ///< of every domain so much text is read; 0: all
};

/// What the two commands that train a model have in common.
struct run_options {
    std::filesystem::path out;
    std::size_t steps = 0;
    std::size_t batch_tokens = 8192;
    std::size_t shards = 2;
    std::uint64_t seed = 1;
    optimizer_settings optimizer;
    std::size_t threads = 0;
};

/// train target
struct target_options {
    std::filesystem::path corpus;
    std::filesystem::path validation;  ///< may be empty
    std::filesystem::path tokenizer;
    std::map<std::string, std::size_t> repeats;
    engine::transformer_config shape;
    run_options run;
};

/// train texts
struct texts_options {
    std::filesystem::path target;
    std::filesystem::path corpus;
    std::filesystem::path out;  ///< a .safetensors file of tokens, or a folder of recorded texts
    std::map<std::string, std::size_t> repeats;
    std::vector<int> features;  ///< recorded layers; none: three, spread
    std::size_t texts = 0;      ///< 0: one for every prompt
    std::size_t at_once = 16;
    std::size_t longest = 0;         ///< 0: the target's positions, but at most 1,024
    std::size_t max_new_tokens = 0;  ///< 0: as far as `longest` goes
    std::uint64_t seed = 1;
    sureleap::transform sampling;
    std::size_t threads = 0;
};

/// train vocabulary
struct vocabulary_options {
    std::filesystem::path recorded;
    std::filesystem::path out;
    std::size_t tokens = 0;
};

/// train draft
struct draft_options {
    std::filesystem::path target;
    std::filesystem::path data;  ///< tokens that `train texts` wrote, or a corpus; empty: recorded texts
    std::vector<std::filesystem::path> recorded;  ///< folders that `train texts` wrote
    std::filesystem::path validation;             ///< another one; may be empty
    std::filesystem::path start_from;             ///< an earlier drafter; may be empty
    std::filesystem::path vocabulary;             ///< what `train vocabulary` wrote; empty: all tokens of the target
    std::string mask_token = "<|mask|>";
    std::optional<std::size_t> start_layer;  ///< of the target
    std::size_t validate_steps = 500;
    bool bf16 = false;  ///< products, see gemm_bf16.hpp
    std::string kind = "dspark";
    engine::draft_config draft;
    std::size_t layers = 1;
    std::size_t intermediate = 0;  ///< 0: the target's
    sureleap::loss_settings losses;
    double anchors_per_token = 0.125;
    run_options run;
};

using options = std::variant<tokenizer_options, target_options, texts_options, vocabulary_options, draft_options>;

/// Nothing if help was asked for, and printed. Throws sureleap::error for flags that make no sense.
[[nodiscard]] std::optional<options> parse_options(int argc, char const* const* argv);

}  // namespace train
