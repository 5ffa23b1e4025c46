// SPDX-License-Identifier: MIT
//
// Confidence c_k, survival a_k = c_1 c_2 .. c_k, and the order candidates are admitted in, in integers.
//
// Where requests have priorities, a chain of survivals begins with the request's weight instead of with 1. a_k is then
// the expected worth of the position, which is what should be ordered and summed. It still can only fall along a
// request, so everything that is said of survivals holds of it. Rejected: a second table of worths, which nearly all
// code would read instead of the first.
//
// Lengths must come out the same on every platform and on the device. So probabilities are counts of 2^-24: products
// truncate and can only fall, sums are exact, and ties are exact, with a stated order. Floating-point products would be
// monotone too, but their sums depend on the order and exp() differs by an ulp between libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// c as a fixed_probability, rounded to nearest; false if c is NaN or outside [0, 1].
[[nodiscard]] SURELEAP_HOST_DEVICE inline bool quantise(double c, fixed_probability& out) noexcept {
    if (!(c >= 0.0 && c <= 1.0)) return false;
    out = static_cast<fixed_probability>(c * static_cast<double>(certain) + 0.5);
    return true;
}

/// a_k = a_{k-1} c_k, rounded down: never larger than a_{k-1}.
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr fixed_probability extend_survival(fixed_probability before,
                                                                               fixed_probability c) noexcept {
    return static_cast<fixed_probability>((std::uint64_t{before} * c) >> 24);
}

/// One draft position that may be verified.
struct candidate {
    std::size_t request = 0;           ///< row of the table
    std::size_t position = 0;          ///< k
    fixed_probability confidence = 0;  ///< c_k
    fixed_probability survival = 0;    ///< weight x c_1 .. c_k: no probability where requests have priorities
};

/// The order of admission: survival descending, position ascending, request ascending. The position must come second.
/// After a confidence of 1 two positions of one request tie. Admitting the later one first would let x_{k+1} decide
/// whether x_k is verified (a bias of 0.15 in total variation on a small case).
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr bool precedes(candidate const& a, candidate const& b) noexcept {
    if (a.survival != b.survival) return a.survival > b.survival;
    if (a.position != b.position) return a.position < b.position;
    return a.request < b.request;
}

/// Confidences and survivals of R requests, gamma positions each; row r has sizes[r] <= gamma entries in use. A view.
struct survival_table {
    std::size_t block_size = 0;                       ///< gamma, the row stride
    std::span<std::uint32_t const> sizes{};           ///< [R]
    std::span<fixed_probability const> confidence{};  ///< [R, gamma]
    std::span<fixed_probability const> survival{};    ///< [R, gamma] weight x c_1 .. c_k
    step_load load{};          ///< the round's, without drafts in the batch; requests 0: not told
    std::uint64_t weight = 0;  ///< sum of the requests' weights; 0: certain, all of them

    [[nodiscard]] std::size_t requests() const noexcept { return sizes.size(); }
    /// The step before any draft is admitted: one row a request, and what was known before the block was drawn.
    [[nodiscard]] step_load load_without_drafts() const noexcept {
        step_load known = load;
        known.requests = known.batch_tokens = requests();
        return known;
    }
    [[nodiscard]] candidate at(std::size_t r, std::size_t k) const noexcept {
        std::size_t const i = r * block_size + k;
        return {r, k, confidence[i], survival[i]};
    }
};

/// Everything about a drawn block, tokens included: what a table_scheduler may look at, and why one is anticipating
/// unless it proves otherwise.
struct draft_table {
    survival_table survivals{};
    std::span<token_id const> tokens{};             ///< x_k, [R, gamma]
    std::span<double const> token_probabilities{};  ///< q_k(x_k), [R, gamma]
};

SURELEAP_END_NAMESPACE
