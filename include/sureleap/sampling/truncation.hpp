// SPDX-License-Identifier: MIT
//
// Top-k, top-p and min-p as one threshold. Each filter keeps a prefix of the same order (logit descending, id
// ascending), so what they keep together is a prefix too. One logit and one id say which. Nothing of the size of a row
// is kept, and ties truncate alike everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/sampling/quantile.hpp>

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

/// What is kept of a row.
template <class T>
struct kept_tokens {
    cutoff<T> last{};
    std::span<token_id> tokens{};  ///< each once, in no particular order
};

/// What `how` keeps of `row`, whose most probable token is `mode`. `scratch` needs an entry for every logit. O(size),
/// plus O(m log c) for a top-p that keeps m tokens of c candidates, some more than m. It pops a heap of these: sorting
/// the row, or making a heap of it, would take longer than everything else for the usual small nucleus. Of a whole row
/// a top-p takes its mass and its candidates by two of `passes`. Where the rounding of that mass leaves open which
/// token is the last, a pass that adds up in double says so.
///
/// Precondition: `passes` give the mode a weight near 1 (weighted_row::cut).
template <class T>
[[nodiscard]] kept_tokens<T> truncate(std::span<T const> row, transform const& how, token_id mode,
                                      std::span<token_id> scratch, row_functions<T> const& passes) noexcept {
    using real = compute_t<T>;
    SURELEAP_EXPECTS(scratch.size() >= row.size());
    constexpr real lowest = -std::numeric_limits<real>::infinity();
    auto const logit = [row](token_id i) { return load(row[static_cast<std::size_t>(i)]); };
    auto const earlier = [&](token_id a, token_id b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); };
    auto const later = [&](token_id a, token_id b) { return earlier(b, a); };
    real const scale = static_cast<real>(1.0 / how.temperature);
    real const top = logit(mode);
    auto const weigh = [&](std::size_t i, std::span<real> out) {
        passes.weights(row.data() + i, out.size(), top, scale, out.data());
    };

    auto const first = scratch.begin();
    auto last = first;
    auto const collect = [&](real least) {
        last = first;
        for (std::size_t i = 0; i < row.size(); ++i) {
            real const l = load(row[i]);
            if (l >= least && l > lowest) *last++ = static_cast<token_id>(i);
        }
    };
    auto const collect_heavy = [&](double least) {
        constexpr std::size_t groups = 64;
        std::array<double, groups> same;
        same.fill(least);
        last = first;
        for (std::size_t at = 0; at < row.size(); at += groups * row_group) {
            std::size_t const here = std::min(groups * row_group, row.size() - at);
            // token_id and what a pass writes differ by their sign alone.
            auto* const out = reinterpret_cast<std::make_unsigned_t<token_id>*>(std::to_address(last));
            auto const end =
                last + static_cast<std::ptrdiff_t>(passes.above(row.data() + at, here, top, scale, same.data(), out));
            for (; last != end; ++last) *last += static_cast<token_id>(at);
        }
    };
    bool const whole = how.top_k == 0;
    if (!whole || how.top_p >= 1.0) collect(lowest);
    if (how.top_k > 0 && how.top_k < last - first) {
        std::nth_element(first, first + (how.top_k - 1), last, earlier);
        last = first + how.top_k;
    }
    if (how.top_p < 1.0) {
        // All by the same weights: the mode's is only near 1, and what is left out may be less than that is off by.
        auto const weight = [&](token_id i) {
            real one = 0;
            weigh(static_cast<std::size_t>(i), {&one, 1});
            return static_cast<double>(one);
        };
        auto heap_end = last;
        double kept = 0.0;
        auto const begin = [&] {
            std::make_heap(first, last, later);
            heap_end = last;
            kept = 0.0;
        };
        auto const keep_until = [&](double least) {  // one token at least
            while (heap_end != first && (heap_end == last || kept < least)) {
                std::pop_heap(first, heap_end, later);
                --heap_end;
                kept += weight(*heap_end);
            }
        };
        if (whole) {
            double const sum = passes.sum(row.data(), row.size(), top, scale, nullptr);
            double const unsure = sum_rounding_of<real>(row.size()) * sum;
            // Tokens so unlikely that all of them together are half of what may be left out.
            collect_heavy((1.0 - how.top_p) * sum / (2.0 * static_cast<double>(row.size())));
            begin();
            keep_until(how.top_p * sum - unsure);
            if (kept < how.top_p * sum + unsure) {
                double const mass = sum_of_part<real>(0, row.size(), weigh);
                keep_until(how.top_p * mass);
                if (kept < how.top_p * mass) {  // a top-p within rounding of 1
                    collect(lowest);
                    begin();
                    keep_until(how.top_p * mass);
                }
            }
        } else {
            double mass = 0.0;
            for (auto it = first; it != last; ++it) mass += weight(*it);
            begin();
            keep_until(how.top_p * mass);
        }
        std::move(heap_end, last, first);
        last = first + (last - heap_end);
    }
    if (how.min_p > 0.0) {
        last = std::partition(first, last, [&](token_id i) {  // relative to the mode's weight, which is 1
            return i == mode || static_cast<double>(std::exp((logit(i) - top) * scale)) >= how.min_p;
        });
    }
    token_id const least = *std::max_element(first, last, earlier);
    return {{logit(least), least}, {first, last}};
}

}  // namespace detail
SURELEAP_END_NAMESPACE
