// SPDX-License-Identifier: MIT
//
// One measured step, from a profile at start-up or a log of rounds. All cost models are made from such steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A step of this load took this long.
struct cost_sample {
    step_load load{};
    double seconds = 0.0;

    [[nodiscard]] bool operator==(cost_sample const&) const = default;
};

namespace detail {

/// Bounds that keep sums of times, and their inverses, finite at any load.
inline constexpr double most_seconds = 1e9;
inline constexpr double least_seconds = 1e-15;
/// Of tokens, requests and other things that are counted: three times as many fit std::size_t.
inline constexpr std::size_t most_tokens = std::size_t{1} << (std::numeric_limits<std::size_t>::digits - 2);
inline constexpr char const* most_tokens_text =
    sizeof(std::size_t) == 8 ? "at most 2^62 = 4611686018427387904" : "at most 2^30 = 1073741824";

/// A load that a step can have; `what` names it in messages.
inline void check_load(std::string const& what, step_load const& load) {
    auto const check_count = [&](char const* name, std::uint64_t n) {
        if (n > most_tokens) fail_with(what, ": ", name, " is ", n, ", expected ", most_tokens_text);
    };
    check_count("requests", load.requests);
    check_count("batch_tokens", load.batch_tokens);
    check_count("drafting", load.drafting);
    check_count("draft_tokens", load.draft_tokens);
    auto const check_tokens = [&](char const* name, std::uint64_t n) {
        if (n > std::uint64_t{1} << 62) {
            fail_with(what, ": ", name, " is ", n, ", expected at most 2^62 = 4611686018427387904");
        }
    };
    check_tokens("context_tokens", load.context_tokens);
    check_tokens("unread_tokens", load.unread_tokens);
    if (load.requests == 0) fail_with(what, ": requests is 0, expected at least 1");
    if (load.batch_tokens < load.requests) {
        fail_with(what, ": batch_tokens is ", load.batch_tokens, " with ", load.requests,
                  " requests, expected at least one token (the anchor) a request");
    }
    if (load.drafting > load.requests) {
        fail_with(what, ": drafting is ", load.drafting, " of ", load.requests, " requests");
    }
    if (load.replays > load.requests) {
        fail_with(what, ": replays is ", load.replays, " of ", load.requests, " requests");
    }
    if (load.draft_tokens < load.drafting || (load.drafting == 0 && load.draft_tokens > 0)) {
        fail_with(what, ": draft_tokens is ", load.draft_tokens, " with ", load.drafting,
                  " requests drafting, expected at least one for each, and none without");
    }
}

/// Loads of steps and times that steps can take.
inline void check_samples(std::string const& who, std::span<cost_sample const> samples) {
    if (samples.empty()) fail_with(who, ": no samples, expected at least one");
    for (std::size_t i = 0; i < samples.size(); ++i) {
        check_load(who + ": sample " + std::to_string(i), samples[i].load);
        if (!(samples[i].seconds >= least_seconds && samples[i].seconds <= most_seconds)) {
            fail_with(who, ": sample ", i, ": seconds is ", samples[i].seconds, ", expected a number in [1e-15, 1e9]");
        }
    }
}

}  // namespace detail

SURELEAP_END_NAMESPACE
