// SPDX-License-Identifier: MIT
//
// One measured step: what all cost models are made from, whether a profile at start-up or a log of rounds gave it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <sureleap/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/types.hpp>

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

/// A load that a step can have; `what` names it in messages.
inline void check_load(std::string const& what, step_load const& load) {
    if (load.requests == 0) fail_with(what, ": requests is 0, expected at least 1");
    if (load.batch_tokens < load.requests) {
        fail_with(what, ": batch_tokens is ", load.batch_tokens, " with ", load.requests,
                  " requests, expected at least one token (the anchor) a request");
    }
    if (load.drafting > load.requests) {
        fail_with(what, ": drafting is ", load.drafting, " of ", load.requests, " requests");
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
