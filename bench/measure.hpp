// SPDX-License-Identifier: MIT
//
// What all benchmarks measure with. Medians, not means: a machine that does something else for a while moves a mean.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace measure {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class F>
[[nodiscard]] double seconds_of(F const& f) {
    auto const start = std::chrono::steady_clock::now();
    f();
    return seconds_since(start);
}

/// The upper of two middle ones. `values` is not empty.
[[nodiscard]] inline double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Median seconds of somebody whom a benchmark is held against.
template <class F>
[[nodiscard]] double rival(int calls, F const& f) {
    std::vector<double> times;
    for (int i = 0; i < calls; ++i) times.push_back(seconds_of(f));
    return median(std::move(times));
}

}  // namespace measure
