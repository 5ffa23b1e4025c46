// SPDX-License-Identifier: MIT
//
// A cost model: the seconds of a step as a sum of nine prices. Every step pays a fixed price, one per request, one per
// batch token and one per token of context. A step that drafts pays three more: a fixed one, one per drafting request
// and one per drafted token. Two are paid for the past: one per token that the draft has yet to read, and one per
// request that the target decodes again after a rejection. The fixed price is mostly that of reading the weights; the
// rest of the work grows in proportion to the load. So a sum extrapolates to loads that nobody measured, which a table
// of measurements does not. Models around this one add padding (padded_cost) and measured differences (cell_cost,
// refined_cost).
//
//   additive_cost cost({.fixed = 9e-3, .batch_token = 40e-6, .draft_fixed = 1e-3});
//   greedy_schedule schedule{cost};
//
// fit/cost_fit.hpp finds the nine numbers in measurements.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/sample.hpp>

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
    double unread_token = 0.0;      ///< per committed token that the draft reads before it drafts
    double replay = 0.0;            ///< per request that the target decodes tokens of again, since drafts were rejected

    [[nodiscard]] bool operator==(cost_prices const&) const = default;
};

/// The parts of a step by number, in the order of cost_prices.
inline constexpr std::size_t cost_terms = 9;
/// The first of those that only some engines have: drafts with a context of their own, targets that replay.
inline constexpr std::size_t usual_cost_terms = 7;
inline constexpr std::array<char const*, cost_terms> cost_term_names = {
    "fixed",       "request",      "batch_token", "context_token", "draft_fixed", "drafting_request",
    "draft_token", "unread_token", "replay"};

[[nodiscard]] inline std::array<double, cost_terms> in_order(cost_prices const& p) noexcept {
    return {p.fixed,       p.request,      p.batch_token, p.context_token, p.draft_fixed, p.drafting_request,
            p.draft_token, p.unread_token, p.replay};
}
[[nodiscard]] inline cost_prices prices_in_order(std::array<double, cost_terms> const& p) noexcept {
    return {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]};
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
            drafts ? static_cast<double>(load.draft_tokens) : 0.0,
            drafts ? static_cast<double>(load.unread_tokens) : 0.0,
            static_cast<double>(load.replays)};
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
            seconds = std::fma(prices_.unread_token, part[7], seconds);
        }
        seconds = std::fma(prices_.replay, part[8], seconds);
        return std::fma(prices_.batch_token, part[2], seconds);
    }

    [[nodiscard]] cost_prices const& prices() const noexcept { return prices_; }

private:
    cost_prices prices_;
};

// ---- a capacity curve, and a draft beside it --------------------------------------------------------------------

/// Seconds that drafting adds to a step in which anything is drafted, and to one behind a rejection. For those who have
/// a capacity curve and no more: a curve alone is accepted wherever a cost is, and then drafting counts as free.
///
///   auto cost = of_batch(load_capacity("capacity.json"), {.fixed = 1e-3, .token = 20e-6});
struct draft_prices {
    double fixed = 0.0;    ///< per such step
    double request = 0.0;  ///< per request that drafts
    double token = 0.0;    ///< per position drafted
    double unread = 0.0;   ///< per committed token that the draft reads before it drafts
    double replay = 0.0;   ///< per request that the target decodes tokens of again, since drafts were rejected
};

/// 1 / SPS(B) and the draft. Models cost_model. Costs one question to the curve.
template <capacity_curve Curve>
class batch_cost {
public:
    using curve_type = Curve;

    /// Error if a price is negative or no number.
    explicit batch_cost(Curve curve, draft_prices const& draft = {}) : curve_(std::move(curve)), draft_(draft) {
        detail::check_prices("of_batch: draft", {.fixed = 1.0,
                                                 .draft_fixed = draft.fixed,
                                                 .drafting_request = draft.request,
                                                 .draft_token = draft.token,
                                                 .unread_token = draft.unread,
                                                 .replay = draft.replay});
    }

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        double const verify =
            std::fma(draft_.replay, static_cast<double>(load.replays), verify_seconds(load.batch_tokens));
        if (load.draft_tokens == 0) return verify;
        double draft = std::fma(draft_.request, static_cast<double>(load.drafting), draft_.fixed);
        draft = std::fma(draft_.token, static_cast<double>(load.draft_tokens), draft);
        draft = std::fma(draft_.unread, static_cast<double>(load.unread_tokens), draft);
        return verify + draft;
    }

    [[nodiscard]] Curve const& curve() const noexcept { return curve_; }
    [[nodiscard]] draft_prices const& draft() const noexcept { return draft_; }

private:
    [[nodiscard]] double verify_seconds(std::size_t batch_tokens) const noexcept {
        // A table knows times; two inversions would round twice.
        if constexpr (requires {
                          { curve_.step_seconds(batch_tokens) } -> std::convertible_to<double>;
                      }) {
            return static_cast<double>(curve_.step_seconds(batch_tokens));
        } else {
            return 1.0 / static_cast<double>(curve_.steps_per_second(batch_tokens));
        }
    }

    Curve curve_;
    draft_prices draft_;
};

/// A cost model of a curve and a draft.
template <capacity_curve Curve>
[[nodiscard]] batch_cost<Curve> of_batch(Curve curve, draft_prices const& draft = {}) {
    return batch_cost<Curve>(std::move(curve), draft);
}

SURELEAP_END_NAMESPACE
