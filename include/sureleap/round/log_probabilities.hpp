// SPDX-License-Identifier: MIT
//
// The log-probabilities that requests ask for: of emitted tokens, and of the likeliest ones beside them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/distribution.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// The likeliest tokens of a law, the likeliest first, the lower id first of equals; no_token behind its last one.
/// Tokens whose weight is 0 as the row's compute type has it are none. O(size x best.size()) at worst, and O(size)
/// where few rows rise to their end.
template <class Law>
void find_likeliest(Law const& law, std::span<token_log_probability> best) noexcept {
    std::fill(best.begin(), best.end(), token_log_probability{});
    if (best.empty() || !law.valid()) return;
    if (law.is_one_hot()) {
        best[0] = {law.mode(), law.log_probability(law.mode())};
        return;
    }
    std::array<typename Law::weight_type, 256> weights;
    for (std::size_t first = 0; first < law.size(); first += weights.size()) {
        auto const some = std::span(weights).first(std::min(weights.size(), law.size() - first));
        law.evaluate(static_cast<token_id>(first), some);
        for (std::size_t i = 0; i < some.size(); ++i) {
            auto const weight = static_cast<double>(some[i]);
            if (!(weight > 0.0) || !(weight > best.back().log_probability)) continue;
            std::size_t at = best.size() - 1;  // weights stand where log-probabilities will
            for (; at > 0 && best[at - 1].log_probability < weight; --at) best[at] = best[at - 1];
            best[at] = {static_cast<token_id>(first + i), weight};
        }
    }
    for (token_log_probability& b : best) {
        if (b.token != no_token) b.log_probability = law.log_probability(b.token);
    }
}

/// Tokens that are at least as likely as x, itself included; 0 where there is no law. O(size).
template <class Law>
[[nodiscard]] std::uint32_t rank_of(Law const& law, token_id x) noexcept {
    if (!law.valid()) return 0;
    if (law.is_one_hot()) return x == law.mode() ? 1u : static_cast<std::uint32_t>(law.size());
    std::array<typename Law::weight_type, 256> weights;
    law.evaluate(x, std::span(weights).first(1));
    auto const own = weights[0];
    std::size_t rank = 0;
    for (std::size_t first = 0; first < law.size(); first += weights.size()) {
        auto const some = std::span(weights).first(std::min(weights.size(), law.size() - first));
        law.evaluate(static_cast<token_id>(first), some);
        rank += static_cast<std::size_t>(std::ranges::count_if(some, [&](auto w) { return w >= own; }));
    }
    return static_cast<std::uint32_t>(rank);
}

/// Log p of x, its rank, and the likeliest tokens beside it, as the settings ask: of the law p, at temperature 0 of its
/// row at temperature 1, or of the row that the target gave. NaN and 0 where that row has no law.
template <class Law, class T>
[[nodiscard]] double log_probabilities_of(request_settings const& settings, Law const& p, std::span<T const> target_row,
                                          token_id x, row_kernels const& kernels, std::span<token_log_probability> best,
                                          std::uint32_t& rank) noexcept {
    auto const report = [&](auto const& asked) {
        find_likeliest(asked, best);
        if (settings.ranks) rank = rank_of(asked, x);
        return asked.valid() ? asked.log_probability(x) : std::numeric_limits<double>::quiet_NaN();
    };
    if (settings.raw_log_probabilities) {
        return report(distribution<T>({target_row}, transform{}, {}, {}, kernels));
    }
    bool const is_greedy = settings.target_transform().greedy();  // such a law is one-hot
    if (!is_greedy || p.is_without_row()) return report(p);
    if (best.empty() && !settings.ranks) return std::log(p.peak());
    return report(distribution<typename Law::value_type>({p.logits()}, transform{}, {}, {}, kernels));
}

}  // namespace detail
SURELEAP_END_NAMESPACE
