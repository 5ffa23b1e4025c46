// SPDX-License-Identifier: MIT
//
// Slopes by differences, which gradients are held against.
#pragma once

namespace support {

/// (f(x + h) - f(x - h)) / 2h: the error falls with h^2. Afterwards x is what it was.
template <class F>
[[nodiscard]] double slope(double& x, double h, F const& f) {
    double const at = x;
    x = at + h;
    double const above = f();
    x = at - h;
    double const below = f();
    x = at;
    return (above - below) / (2 * h);
}

}  // namespace support
