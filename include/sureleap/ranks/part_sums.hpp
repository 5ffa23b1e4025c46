// SPDX-License-Identifier: MIT
//
// Sums of a row whose parts lie on several ranks. Each part is summed relative to a logit of its own, and everybody
// adds the parts up in the order of tokens. So the total is the same bits for any number of ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// The sum of exp((logit - top) scale) over a part of a row. top: one of its logits, or the largest; NaN if a logit is
/// NaN or +inf.
template <class Real>
struct part_sum {
    Real top = -std::numeric_limits<Real>::infinity();
    double sum = 0.0;
};

/// exp((logit - top) scale), the same on all ranks.
template <class Real>
[[nodiscard]] double weight_beside(Real logit, Real top, Real scale) noexcept {
    return std::exp((static_cast<double>(logit) - static_cast<double>(top)) * static_cast<double>(scale));
}

/// The same of a whole row; the sum is 0 if there is no law. part(i) is part i, and what it has of the sum goes into
/// sums[i].
template <class Real, class OfPart>
[[nodiscard]] part_sum<Real> add_up(Real scale, std::span<double> sums, OfPart const& part) noexcept {
    part_sum<Real> row;
    bool is_law = true;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        Real const top = part(i).top;
        is_law = is_law && !std::isnan(top);
        row.top = std::max(row.top, top);
    }
    if (!is_law || !std::isfinite(row.top)) return row;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        part_sum<Real> const here = part(i);
        sums[i] = here.sum > 0.0 ? here.sum * weight_beside(here.top, row.top, scale) : 0.0;
        row.sum += sums[i];
    }
    return row;
}

}  // namespace detail
SURELEAP_END_NAMESPACE
