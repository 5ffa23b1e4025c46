// SPDX-License-Identifier: MIT
//
// Weights of a golden file as the heads take them, in double or in float, and what agreement means in each.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <sureleap/core/types.hpp>

#include "support/safetensors.hpp"

namespace golden {

template <class Real>
inline constexpr double tolerance = std::is_same_v<Real, double> ? 1e-12 : 1e-5;

template <class Real>
struct matrix {
    std::vector<Real> values;
    std::size_t rows = 0;
    std::size_t cols = 0;

    explicit matrix(tensor<double> const& t)
        : values(t.values.begin(), t.values.end()), rows(t.dim(0)), cols(t.shape.size() > 1 ? t.dim(1) : 1) {}
    [[nodiscard]] sureleap::matrix_view<Real> view() const { return {values.data(), rows, cols}; }
};

}  // namespace golden
