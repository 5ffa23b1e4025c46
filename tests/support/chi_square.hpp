// SPDX-License-Identifier: MIT
//
// Counts of draws against the law that they should have.
#pragma once

#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <span>

namespace support {

/// Pearson's chi-square of `counts` of so many draws, within five standard deviations: tokens of at least that share
/// one by one, the others together. A token without weight is never drawn. Both are [V].
inline void check_counts(std::span<double const> expected, std::span<double const> counts, int draws, double least) {
    double rest = 0.0, rest_seen = 0.0, chi2 = 0.0;
    int cells = 0;
    auto const add = [&](double share, double seen) {
        chi2 += (seen - draws * share) * (seen - draws * share) / (draws * share);
        ++cells;
    };
    for (std::size_t v = 0; v < expected.size(); ++v) {
        if (expected[v] == 0.0 && counts[v] > 0.0) FAIL("token " << v << " has no weight, and was drawn");
        if (expected[v] >= least) {
            add(expected[v], counts[v]);
        } else {
            rest += expected[v];
            rest_seen += counts[v];
        }
    }
    if (rest > 1e-3) add(rest, rest_seen);
    CAPTURE(chi2, cells);
    CHECK(chi2 < cells + 5.0 * std::sqrt(2.0 * cells));  // draws are fixed by the seed
}

}  // namespace support
