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

#include <engine/thread_pool.hpp>

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

namespace detail {

/// A part of a tensor, so small that its five arrays fit a cache.
struct piece {
    std::size_t offset;
    std::size_t size;
    bool decays;
};
[[nodiscard]] inline std::vector<piece> pieces_of(parameter_layout const& layout) {
    constexpr std::size_t most = 1 << 14;
    std::vector<piece> pieces;
    for (auto const& e : layout.entries()) {
        for (std::size_t first = 0; first < e.place.size(); first += most) {
            pieces.push_back({e.place.offset + first, std::min(most, e.place.size() - first), !e.vector});
        }
    }
    return pieces;
}

}  // namespace detail

/// One step of AdamW; returns the norm of the gradients before clipping. Throws sureleap::error if that is not finite,
/// with the state as it was. The threads of a pool share the work, which reads and writes more than it computes; what
/// comes out does not depend on them.
inline double update(optimizer_settings const& settings, std::size_t steps, parameter_layout const& layout,
                     std::span<float const> gradients, training_state& state, engine::thread_pool* pool = nullptr) {
    auto const pieces = detail::pieces_of(layout);
    auto const for_each_piece = [&](auto const& f) {
        if (pool != nullptr) return pool->run(pieces.size(), f);
        for (std::size_t i = 0; i < pieces.size(); ++i) f(i);
    };
    std::vector<double> squares(pieces.size());
    for_each_piece([&](std::size_t i) {
        auto const g = eigen_array(gradients.subspan(pieces[i].offset, pieces[i].size));
        squares[i] = static_cast<double>(g.square().sum());
    });
    double square = 0;
    for (double const s : squares) square += s;
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
    for_each_piece([&](std::size_t i) {
        auto const& p = pieces[i];
        float const keep = p.decays ? static_cast<float>(1.0 - rate * settings.weight_decay) : 1.0f;
        auto const g = eigen_array(gradients.subspan(p.offset, p.size));
        auto values = eigen_array(std::span(state.values).subspan(p.offset, p.size));
        auto first = eigen_array(std::span(state.first).subspan(p.offset, p.size));
        auto second = eigen_array(std::span(state.second).subspan(p.offset, p.size));
        first = b1 * first + (1.0f - b1) * clip * g;
        second = b2 * second + (1.0f - b2) * clip * clip * g.square();
        values = keep * values - move * first / (root * second.sqrt() + epsilon);
    });
    ++state.step;
    return norm;
}

}  // namespace train
