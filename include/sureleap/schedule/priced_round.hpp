// SPDX-License-Identifier: MIT
//
// What the tokens of one round cost: a cost model with everything fixed that is known before the batch is decided, which
// leaves a curve of B. So schedules search curves, and what else a step costs (drafting, contexts, the number of requests) has
// no second form in them.
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// SPS(B) of a round of this load. Models capacity_curve, and piecewise_convex_capacity if the model does. A view.
template <cost_model Cost>
class priced_round {
public:
    priced_round(Cost const& cost, step_load const& load) noexcept : cost_(&cost), load_(load) {}

    [[nodiscard]] double steps_per_second(std::size_t batch_tokens) const noexcept {
        return 1.0 / static_cast<double>(cost_->step_seconds(with(batch_tokens)));
    }
    [[nodiscard]] std::size_t convex_until(std::size_t batch_tokens) const noexcept
        requires requires(Cost const& c, step_load const& load) { c.convex_until(load); }
    {
        return cost_->convex_until(with(batch_tokens));
    }

private:
    [[nodiscard]] step_load with(std::size_t batch_tokens) const noexcept {
        step_load load = load_;
        load.batch_tokens = batch_tokens;
        return load;
    }

    Cost const* cost_;
    step_load load_;
};

/// The curve of a round: a capacity curve as it is, a cost model with the round's load. `auto const& curve = curve_of(..)`.
template <step_cost Cost>
[[nodiscard]] decltype(auto) curve_of(Cost const& cost, step_load const& load) noexcept {
    if constexpr (cost_model<Cost>) {
        return priced_round<Cost>{cost, load};
    } else {
        return (cost);
    }
}

SURELEAP_END_NAMESPACE
