// SPDX-License-Identifier: MIT
//
// Views of a cost model: a reference to one, and the step time of one round as a function of its batch tokens B. In the
// latter everything is fixed that is known before the batch is decided. So schedules search curves, and need no code of
// their own for the rest of a step's cost (drafting, contexts, the number of requests).
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

#define SURELEAP_DETAIL_NO_COST                                                                              \
    "sureleap: the schedule's cost is neither a cost_model nor a capacity_curve; give it `double "           \
    "step_seconds(step_load const&) const`, the seconds of a step, or `double steps_per_second(std::size_t " \
    "batch_tokens) const` (concepts.hpp, examples/own_cost.cpp)"

SURELEAP_BEGIN_NAMESPACE

/// SPS(B) of a round of this load. Models capacity_curve. A view.
template <cost_model Cost>
class priced_round {
public:
    priced_round(Cost const& cost, step_load const& load) noexcept : cost_(&cost), load_(load) {}

    [[nodiscard]] double steps_per_second(std::size_t batch_tokens) const noexcept {
        return 1.0 / static_cast<double>(cost_->step_seconds(with(batch_tokens)));
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

/// The curve of a round: a capacity curve as it is, a cost model with the round's load. `auto const& curve =
/// curve_of(..)`.
template <step_cost Cost>
[[nodiscard]] decltype(auto) curve_of(Cost const& cost, step_load const& load) noexcept {
    if constexpr (cost_model<Cost>) {
        return priced_round<Cost>{cost, load};
    } else {
        return (cost);
    }
}

/// A view of a model that must outlive it and must not change during a round. Schedules hold their cost by value; one
/// that learns while serving (refined_cost), or that several schedules share, is owned by the engine and lent to them.
/// Models cost_model.
///
///   refined_cost cost{model};
///   decoder dec{target, drafter, greedy_schedule{cost_ref{cost}}, rule};
///   while (dec.step()) cost.observe(dec.round());
template <cost_model Model>
class cost_ref {
public:
    using model_type = Model;

    explicit cost_ref(Model const& model) noexcept : model_(&model) {}
    cost_ref(Model const&&) = delete;  // would dangle

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return static_cast<double>(model_->step_seconds(load));
    }

    [[nodiscard]] Model const& model() const noexcept { return *model_; }

private:
    Model const* model_;
};

SURELEAP_END_NAMESPACE
