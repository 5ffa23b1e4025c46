// SPDX-License-Identifier: MIT
//
// A capacity curve as a cost model: SPS(B) says what verification takes, and what the draft takes beside it is a sum of
// three prices. For those who have a capacity_table and no more; a curve alone is accepted wherever a cost is, and then
// drafting counts as free.
//
//   auto cost = of_batch(load_capacity("capacity.json"), {.fixed = 1e-3, .token = 20e-6});
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/schedule/additive_cost.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Seconds that drafting adds to a step in which anything is drafted.
struct draft_prices {
    double fixed = 0.0;    ///< per such step
    double request = 0.0;  ///< per request that drafts
    double token = 0.0;    ///< per position drafted
};

/// 1 / SPS(B) and the draft. Models cost_model; knows what the curve knows (convex_until), since the draft does not
/// depend on B. Costs one question to the curve.
template <capacity_curve Curve>
class batch_cost {
public:
    using curve_type = Curve;

    /// Error if a price is negative or no number.
    explicit batch_cost(Curve curve, draft_prices const& draft = {}) : curve_(std::move(curve)), draft_(draft) {
        detail::check_prices(
            "of_batch: draft",
            {.fixed = 1.0, .draft_fixed = draft.fixed, .drafting_request = draft.request, .draft_token = draft.token});
    }

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        double const verify = verify_seconds(load.batch_tokens);
        if (load.draft_tokens == 0) return verify;
        double draft = std::fma(draft_.request, static_cast<double>(load.drafting), draft_.fixed);
        draft = std::fma(draft_.token, static_cast<double>(load.draft_tokens), draft);
        return verify + draft;
    }
    [[nodiscard]] std::size_t convex_until(step_load const& load) const noexcept
        requires piecewise_convex_capacity<Curve>
    {
        return curve_.convex_until(load.batch_tokens);
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
