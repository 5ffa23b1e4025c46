// SPDX-License-Identifier: MIT
//
// A cost model that lives elsewhere. Schedules hold their cost by value; one that learns while serving (refined_cost),
// or that several schedules share, is owned by the engine and lent to them.
//
//   refined_cost cost{model};
//   decoder dec{target, drafter, greedy_schedule{cost_ref{cost}}, rule};
//   while (dec.step()) cost.observe(dec.round());
#pragma once

#include <cstddef>

#include <sureleap/concepts.hpp>
#include <sureleap/config.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A view of a model that must outlive it and must not change during a round. Models cost_model; knows what the model
/// knows.
template <cost_model Model>
class cost_ref {
public:
    using model_type = Model;

    explicit cost_ref(Model const& model) noexcept : model_(&model) {}
    cost_ref(Model const&&) = delete;  // would dangle

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return static_cast<double>(model_->step_seconds(load));
    }
    [[nodiscard]] std::size_t convex_until(step_load const& load) const noexcept
        requires requires(Model const& m) { m.convex_until(load); }
    {
        return model_->convex_until(load);
    }

    [[nodiscard]] Model const& model() const noexcept { return *model_; }

private:
    Model const* model_;
};

SURELEAP_END_NAMESPACE
