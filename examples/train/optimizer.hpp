// SPDX-License-Identifier: MIT
//
// AdamW (Loshchilov and Hutter 2019) with clipping by the global norm, and a learning rate that warms up linearly and
// falls along a cosine. Loops over flat arrays: what a parameter is called only matters for weight decay, which norms
// and biases are spared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <vector>

#include "gemm.hpp"
#include "parameters.hpp"

namespace train {

struct optimizer_settings {
    double learning_rate = 2e-3;  ///< the highest
    double final_share = 0.05;    ///< of it, at the last step
    std::size_t warm_up = 100;    ///< steps
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip = 1.0;  ///< largest norm of all gradients together
};

/// Of step 0 .. steps-1.
[[nodiscard]] inline double learning_rate(optimizer_settings const& settings, std::size_t step, std::size_t steps) {
    if (step < settings.warm_up) {
        return settings.learning_rate * static_cast<double>(step + 1) / static_cast<double>(settings.warm_up);
    }
    double const length = static_cast<double>(std::max<std::size_t>(steps, settings.warm_up + 1) - settings.warm_up);
    double const done = std::min(1.0, static_cast<double>(step + 1 - settings.warm_up) / length);
    double const cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    return settings.learning_rate * (settings.final_share + (1.0 - settings.final_share) * cosine);
}

/// What a run has come to. Everything else about a step follows from its number and the settings, so this is all that
/// has to be kept to go on later.
struct training_state {
    explicit training_state(std::size_t parameters) : values(parameters), first(parameters), second(parameters) {}

    std::size_t step = 0;          ///< steps done
    aligned_vector<float> values;  ///< the parameters
    aligned_vector<float> first;   ///< AdamW's moments
    aligned_vector<float> second;
};

/// One step of AdamW; returns the norm of the gradients before clipping. Throws sureleap::error if that is not finite,
/// with the state as it was.
inline double update(optimizer_settings const& settings, std::size_t steps, parameter_layout const& layout,
                     std::span<float const> gradients, training_state& state) {
    double square = 0;
    for (auto const& e : layout.entries()) {
        square += static_cast<double>(eigen_array(e.place.values(gradients)).square().sum());
    }
    double const norm = std::sqrt(square);
    if (!std::isfinite(norm)) {
        sureleap::fail_with("optimizer: the norm of the gradients of step ", state.step, " is ", norm,
                            ", expected a finite number; lower the learning rate");
    }
    double const rate = learning_rate(settings, state.step, steps);
    double const count = static_cast<double>(state.step + 1);
    auto const clip = static_cast<float>(norm > settings.clip ? settings.clip / norm : 1.0);
    auto const b1 = static_cast<float>(settings.beta1);
    auto const b2 = static_cast<float>(settings.beta2);
    auto const move = static_cast<float>(rate / (1.0 - std::pow(settings.beta1, count)));
    auto const root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, count)));
    auto const epsilon = static_cast<float>(settings.epsilon);
    for (auto const& e : layout.entries()) {
        float const keep = e.vector ? 1.0f : static_cast<float>(1.0 - rate * settings.weight_decay);
        auto const g = eigen_array(e.place.values(gradients));
        auto values = eigen_array(e.place.values(std::span(state.values)));
        auto first = eigen_array(e.place.values(std::span(state.first)));
        auto second = eigen_array(e.place.values(std::span(state.second)));
        first = b1 * first + (1.0f - b1) * clip * g;
        second = b2 * second + (1.0f - b2) * clip * clip * g.square();
        values = keep * values - move * first / (root * second.sqrt() + epsilon);
    }
    ++state.step;
    return norm;
}

}  // namespace train
