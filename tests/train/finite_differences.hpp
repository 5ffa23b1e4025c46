// SPDX-License-Identifier: MIT
//
// Gradients against finite differences: what proves a backward pass that has no stored values to be compared with.
#pragma once

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include <train/parameters.hpp>

#include "support/dice.hpp"
#include "support/slope.hpp"

namespace support {

/// Two slopes of which the errors cancel: what is left falls with h^4, and h may be as large as rounding wants it.
template <class F>
[[nodiscard]] double derivative(double& x, F const& f) {
    constexpr double h = 2e-4;
    return (4 * slope(x, h, f) - slope(x, 2 * h, f)) / 3;
}

/// Checks the gradients of loss(), which reads `values`, at `samples` random elements of every tensor, so that none is
/// left out. Errors count relative to the tensor's own largest gradient: some are small.
template <class F>
void check_gradients(train::parameter_layout const& layout, std::span<double> values, std::span<double const> gradients,
                     dice& roll, int samples, F const& loss) {
    for (auto const& entry : layout.entries()) {
        CAPTURE(entry.name);
        double largest = 0;
        for (double const g : entry.place.values(gradients)) largest = std::max(largest, std::abs(g));
        CHECK(largest > 0);
        for (int n = 0; n < samples; ++n) {
            std::size_t const i = entry.place.offset + roll.below(entry.place.size());
            double const found = derivative(values[i], loss);
            CAPTURE(i, found, gradients[i]);
            CHECK(std::abs(found - gradients[i]) < 1e-7 * std::max(largest, 1e-2));
        }
    }
}

}  // namespace support
