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

#include <sureleap/core/types.hpp>

namespace generate {

using sureleap::token_id;

struct options {
    std::filesystem::path target;              ///< a folder or a GGUF file; empty: the tiny models (tiny.hpp)
    std::string draft;                         ///< a folder, "lookup" or "none"
    bool joined = false;                       ///< lookup in front of the folder's drafter, or of none
    std::vector<std::filesystem::path> texts;  ///< that lookup finds drafts in, beside the context

    std::optional<std::string> prompt;
    std::vector<token_id> tokens;  ///< the prompt as ids; the output is ids then
    bool chat = false;
    bool think = false;

    std::string schedule;  ///< empty: auto, for the tiny models fixed
    std::string rule;
    std::size_t block_size = 0;               ///< 0: the file's
    std::size_t tree = 0;                     ///< drafted tokens of a tree; 0: chains
    std::size_t shortlist = 0;                ///< tokens that q may choose from, successors included; 0: all
    std::optional<std::size_t> successors{};  ///< so many of these by the bias; none: a quarter

    /// Everything but the seed, which differs from copy to copy, and stop tokens, which come from the models.
    sureleap::request_settings settings{.max_new_tokens = 200};
    std::uint64_t seed = 1;
    bool ignore_eos = false;
    std::vector<std::string> stops;  ///< texts that end the output
    std::string regex;               ///< what the output matches; empty: anything

    std::size_t copies = 1;
    std::size_t context = 0;  ///< 0: what prompt and output need; for a conversation see chat.hpp
    std::size_t prefill_chunk = 256;
    std::size_t threads = 0;   ///< of a rank; 0: one per core, which ranks on one machine share
    double rank_seconds = 60;  ///< that a rank waits for the others
    bool bf16 = false;         ///< activations rounded for products with bf16 weights
    bool plain = true;
    bool verbose = false;
    std::filesystem::path json;   ///< empty: no report
    std::filesystem::path trace;  ///< empty: no page

    [[nodiscard]] bool tiny() const noexcept { return target.empty(); }
    [[nodiscard]] bool converses() const noexcept { return chat && !prompt; }
    [[nodiscard]] bool speculates() const noexcept { return draft != "none"; }
    [[nodiscard]] std::size_t listed_successors() const noexcept { return successors.value_or(shortlist / 4); }
    [[nodiscard]] bool drafts_by_lookup() const noexcept { return draft == "lookup"; }
    [[nodiscard]] bool drafts_by_model() const noexcept { return speculates() && !drafts_by_lookup(); }
};

/// How reports name the arithmetic of a run with or without --bf16.
[[nodiscard]] constexpr char const* arithmetic_name(bool bf16) noexcept {
    return bf16 ? "bf16" : "fp32";
}

/// Nothing if help was asked for, and printed. Throws sureleap::error for flags that make no sense, before any model is
/// touched.
[[nodiscard]] std::optional<options> parse_options(int argc, char const* const* argv);

}  // namespace generate
