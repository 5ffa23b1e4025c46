// SPDX-License-Identifier: MIT
//
// The price list of a step: so much for being launched, for every request, batch token and token of context, and, if
// anything is drafted, for the draft. It is the plainest cost model, and close to the truth: a step at low load reads
// the weights, which no load changes, and beyond that works in proportion to what it is given. Seven numbers
// extrapolate sanely to loads that nobody measured, which a table does not; what they miss, padding (padded_cost) and
// the odd shape of a machine (cell_cost, refined_cost), is laid around them.
//
//   additive_cost cost({.fixed = 9e-3, .batch_token = 40e-6, .draft_fixed = 1e-3});
//   greedy_schedule schedule{cost};
//
// cost_fit.hpp finds the seven numbers in measurements.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/schedule/cost_sample.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Seconds of each part of a step, none negative. An autoregressive drafter's passes count per drafted token.
struct cost_prices {
    double fixed = 0.0;             ///< per step
    double request = 0.0;           ///< per request
    double batch_token = 0.0;       ///< per token the target scores, anchors included
    double context_token = 0.0;     ///< per committed token of all requests
    double draft_fixed = 0.0;       ///< per step in which anything is drafted
    double drafting_request = 0.0;  ///< per request that drafts
    double draft_token = 0.0;       ///< per position drafted

    [[nodiscard]] bool operator==(cost_prices const&) const = default;
};

/// The parts of a step by number, in the order of cost_prices.
inline constexpr std::size_t cost_terms = 7;
inline constexpr std::array<char const*, cost_terms> cost_term_names = {
    "fixed", "request", "batch_token", "context_token", "draft_fixed", "drafting_request", "draft_token"};

[[nodiscard]] inline std::array<double, cost_terms> in_order(cost_prices const& p) noexcept {
    return {p.fixed, p.request, p.batch_token, p.context_token, p.draft_fixed, p.drafting_request, p.draft_token};
}
[[nodiscard]] inline cost_prices prices_in_order(std::array<double, cost_terms> const& p) noexcept {
    return {p[0], p[1], p[2], p[3], p[4], p[5], p[6]};
}

/// How much of each part a load has. A step without requests or tokens counts as one of each: no step is empty, and
/// times stay positive.
[[nodiscard]] inline std::array<double, cost_terms> parts_of(step_load const& load) noexcept {
    bool const drafts = load.draft_tokens > 0;
    return {1.0,
            static_cast<double>(std::max<std::size_t>(load.requests, 1)),
            static_cast<double>(std::max<std::size_t>(load.batch_tokens, 1)),
            static_cast<double>(load.context_tokens),
            drafts ? 1.0 : 0.0,
            drafts ? static_cast<double>(load.drafting) : 0.0,
            drafts ? static_cast<double>(load.draft_tokens) : 0.0};
}

namespace detail {

inline void check_prices(char const* who, cost_prices const& prices) {
    auto const p = in_order(prices);
    for (std::size_t i = 0; i < cost_terms; ++i) {
        if (!(p[i] >= 0.0 && p[i] <= most_seconds)) {
            fail_with(who, ": ", cost_term_names[i], " is ", p[i], " seconds, expected a number in [0, 1e9]");
        }
    }
    if (!(prices.fixed + prices.request + prices.batch_token >= least_seconds)) {
        fail_with(who, ": fixed, request and batch_token are ", prices.fixed, ", ", prices.request, " and ",
                  prices.batch_token, " seconds, expected at least one of them to be positive: no step is free");
    }
}

}  // namespace detail

/// The sum of a load's parts at their prices. Models cost_model. Immutable, concurrently callable. O(1).
class additive_cost {
public:
    /// Error if a price is negative, no number, or all that every step pays is 0.
    explicit additive_cost(cost_prices const& prices) : prices_(prices) {
        detail::check_prices("additive_cost", prices);
    }

    /// Summed by fused multiply-adds, which round in one way only, and batch tokens last: what comes before them does
    /// not depend on B, so times in B are a line of which every point is rounded once.
    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        auto const part = parts_of(load);
        double seconds = std::fma(prices_.request, part[1], prices_.fixed);
        seconds = std::fma(prices_.context_token, part[3], seconds);
        if (load.draft_tokens > 0) {
            seconds += prices_.draft_fixed;
            seconds = std::fma(prices_.drafting_request, part[5], seconds);
            seconds = std::fma(prices_.draft_token, part[6], seconds);
        }
        return std::fma(prices_.batch_token, part[2], seconds);
    }
    /// A line in B is convex for good.
    [[nodiscard]] std::size_t convex_until(step_load const&) const noexcept {
        return std::numeric_limits<std::size_t>::max();
    }

    [[nodiscard]] cost_prices const& prices() const noexcept { return prices_; }

private:
    cost_prices prices_;
};

SURELEAP_END_NAMESPACE
