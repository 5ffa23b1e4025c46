// SPDX-License-Identifier: MIT
//
// Where training starts: matrices normally distributed, norms at one, biases at zero. Every number is a function of the
// seed, the tensor's name and its index. So a model that gets one more tensor starts with the others unchanged, and
// drafters that are compared start with equal backbones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string>
#include <string_view>

#include <sureleap/sampling/random.hpp>

#include "parameters.hpp"

namespace train {

/// Standard deviation of matrices that layers write to the residual stream with is 0.02 / sqrt(2 layers) (GPT-2), so
/// that the stream does not grow with depth; of all others 0.02. What a confidence head and a sequential head's output
/// W2 start from is zero: q begins as the backbone's, and a head adds what helps.
template <class Real>
void initialise(parameter_layout const& layout, std::size_t layers, std::uint64_t seed, std::span<Real> values) {
    for (auto const& e : layout.entries()) {
        auto const out = e.place.values(values);
        auto const named = [&](std::string_view part) { return e.name.find(part) != std::string::npos; };
        bool const zero = named("confidence_head") || named("markov_w2") || named(".bias");
        if (e.vector || zero) {
            std::ranges::fill(out, zero ? Real(0) : Real(1));
            continue;
        }
        bool const writes = named("o_proj") || named("down_proj");
        double const deviation = writes ? 0.02 / std::sqrt(2.0 * static_cast<double>(layers)) : 0.02;
        std::uint32_t name = 2166136261u;  // FNV-1a
        for (char const c : e.name) name = (name ^ static_cast<unsigned char>(c)) * 16777619u;
        for (std::size_t i = 0; i < out.size(); ++i) {
            auto const bits = sureleap::philox4x32({static_cast<std::uint32_t>(i), name, 0, 2}, seed);
            double const u = (static_cast<double>(bits[0]) + 0.5) * 0x1p-32;
            double const v = (static_cast<double>(bits[1]) + 0.5) * 0x1p-32;
            double const normal = std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
            out[i] = static_cast<Real>(deviation * normal);
        }
    }
}

}  // namespace train
