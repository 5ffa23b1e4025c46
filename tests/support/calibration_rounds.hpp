// SPDX-License-Identifier: MIT
//
// Rounds whose confidences are wrong in known ways, to fit calibrations on.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <sureleap/fit/calibration_data.hpp>

namespace support {

/// Of tests whose bounds were measured on other seeds: any will do, as long as it stays.
inline constexpr unsigned calibration_seed = 20240611;

inline double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

// Owning twin of calibration_data.
struct rounds {
    std::size_t gamma = 0;
    std::vector<double> logits;
    std::vector<std::uint8_t> labels;
    std::vector<std::uint32_t> observed;

    [[nodiscard]] sureleap::calibration_data view() const { return {gamma, logits, labels, observed}; }
};

// Prefixes survive with probability prod sigmoid(z_i); the head reports what `distortion` k undoes: the logit z' with
// z = z' / T_k + b_k.
inline rounds synthetic(std::size_t n, std::vector<sureleap::logit_scaling> const& distortion, std::mt19937_64& draw) {
    rounds out{distortion.size(), {}, {}, {}};
    std::normal_distribution<double> logit(1.0, 1.5);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    for (std::size_t i = 0; i < n; ++i) {
        bool alive = true;
        for (auto const& [temperature, offset] : distortion) {
            double const z = logit(draw);
            alive = uniform(draw) < sigmoid(z) && alive;
            out.logits.push_back((z - offset) * temperature);
            out.labels.push_back(alive ? 1 : 0);
        }
        out.observed.push_back(static_cast<std::uint32_t>(distortion.size()));
    }
    return out;
}

inline rounds synthetic(std::size_t n, std::vector<double> const& temperatures, std::mt19937_64& draw) {
    std::vector<sureleap::logit_scaling> distortion;
    for (double const t : temperatures) distortion.push_back({t});
    return synthetic(n, distortion, draw);
}

}  // namespace support
