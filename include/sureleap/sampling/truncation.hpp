// SPDX-License-Identifier: MIT
//
// Top-k, top-p and min-p as one threshold. Each filter keeps a prefix of the same order (logit descending, id ascending),
// so what they keep together is a prefix too. One logit and one id say which. Nothing of the size of a row is kept, and
// ties truncate alike everywhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// The last token kept of a row in storage format T. By default everything is kept.
template <class T>
struct cutoff {
    using real = compute_t<T>;

    real logit = -std::numeric_limits<real>::infinity();
    token_id id = std::numeric_limits<token_id>::max();

    [[nodiscard]] bool keeps_all() const noexcept { return !(logit > -std::numeric_limits<real>::infinity()); }
    /// Token i of the row.
    [[nodiscard]] bool keeps(std::span<T const> row, std::size_t i) const noexcept {
        real const l = load(row[i]);
        return l > logit || (l == logit && static_cast<token_id>(i) <= id);
    }
};

/// What `how` keeps of `row`, whose most probable token is `mode`. `scratch` needs an entry for every logit. O(size), plus
/// O(m log size) for a top-p that keeps m tokens: it pops a heap, where sorting would cost O(size log size) for the usual
/// small nucleus.
template <class T>
[[nodiscard]] cutoff<T> truncate(std::span<T const> row, transform const& how, token_id mode,
                                 std::span<token_id> scratch) noexcept {
    using real = compute_t<T>;
    SURELEAP_EXPECTS(scratch.size() >= row.size());
    auto const logit = [row](token_id i) { return load(row[static_cast<std::size_t>(i)]); };
    auto const earlier = [&](token_id a, token_id b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); };
    real const scale = static_cast<real>(1.0 / how.temperature);
    auto const weight = [&, top = logit(mode)](token_id i) {
        return static_cast<double>(std::exp((logit(i) - top) * scale));
    };

    auto const first = scratch.begin();
    auto last = first;
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (load(row[i]) > -std::numeric_limits<real>::infinity()) *last++ = static_cast<token_id>(i);
    }
    if (how.top_k > 0 && how.top_k < last - first) {
        std::nth_element(first, first + (how.top_k - 1), last, earlier);
        last = first + how.top_k;
    }
    if (how.top_p < 1.0) {
        double mass = 0.0;
        for (auto it = first; it != last; ++it) mass += weight(*it);
        auto const later = [&](token_id a, token_id b) { return earlier(b, a); };
        std::make_heap(first, last, later);
        double kept = 0.0;
        auto heap_end = last;
        do {
            std::pop_heap(first, heap_end, later);
            --heap_end;
            kept += weight(*heap_end);
        } while (heap_end != first && kept < how.top_p * mass);
        std::move(heap_end, last, first);
        last = first + (last - heap_end);
    }
    if (how.min_p > 0.0) {
        last = std::partition(first, last, [&](token_id i) {
            return i == mode || weight(i) >= how.min_p;  // the mode's weight is 1
        });
    }
    token_id const least = *std::max_element(first, last, earlier);
    return {logit(least), least};
}

}  // namespace detail
SURELEAP_END_NAMESPACE
