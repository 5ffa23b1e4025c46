// SPDX-License-Identifier: MIT
//
// The losses of one drafted position (sureleap/training/losses.hpp) where little of the target's law is known: some
// tokens with their probabilities, and that the rest is elsewhere. That is what recordings have of a law, and what is
// left of one when the drafter speaks a part of the vocabulary.
//
// S are the known tokens, p their probabilities, q those of the draft. What p lacks of 1 is m.
//
//     L1 = sum over S |q - p| + (1 - sum over S q) + m       the draft wins nothing outside of S, and none of m
//     c* = 1 - L1 / 2 = sum over S min(p, q)
//
// Tokens outside of S differ in nothing but q, so that a row takes its exponentials and one factor; only those in S are
// looked at one by one.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/training/losses.hpp>

#include "gemm.hpp"

namespace train {

using sureleap::loss_settings;
using sureleap::position_loss;
using sureleap::token_id;

/// Some tokens of a law, each once, and their probabilities.
template <class Real>
struct known_law {
    std::span<token_id const> tokens;
    std::span<Real const> shares;
};

/// The laws of several rows: row i has the tokens begins[i] .. begins[i + 1] - 1.
template <class Real>
struct known_laws {
    std::span<std::size_t const> begins;  ///< [rows + 1]
    std::span<token_id const> tokens;     ///< as the drafter numbers them
    std::span<Real const> shares;

    /// There are none: nothing is known this way. (A law without tokens is one.)
    [[nodiscard]] bool empty() const noexcept { return begins.empty(); }
    [[nodiscard]] std::size_t rows() const noexcept { return begins.empty() ? 0 : begins.size() - 1; }
    [[nodiscard]] known_law<Real> of(std::size_t row) const noexcept {
        std::size_t const first = begins[row];
        std::size_t const count = begins[row + 1] - first;
        return {tokens.subspan(first, count), shares.subspan(first, count)};
    }
};

/// As sureleap::draft_loss: `draft` holds the logits, and then the gradient of weight * (a CE + b L1) with respect to
/// them. Without a label (no_token) there is no cross entropy, neither in the gradient nor in what is reported. A law
/// has at most 64 tokens. For finite logits.
template <class Real>
[[nodiscard]] position_loss recorded_loss(loss_settings const& settings, double weight, std::span<Real> draft,
                                          known_law<Real> const& law, token_id label) {
    constexpr std::size_t most = 64;
    constexpr std::size_t segment = 1024;  // of a sum in Real; the segments' sums are added in double
    SURELEAP_EXPECTS(law.tokens.size() <= most);
    bool const labelled = label != sureleap::no_token;
    auto const y = static_cast<std::size_t>(labelled ? label : 0);
    Real const logit = draft[y];

    Real const top = eigen_array(draft).maxCoeff();
    double total = 0.0;
    for (std::size_t first = 0; first < draft.size(); first += segment) {
        auto some = eigen_array(draft.subspan(first, std::min(segment, draft.size() - first)));
        some = (some - top).exp();
        total += static_cast<double>(some.sum());
    }

    std::array<Real, most> q;
    double inside = 0.0;  // sum of q over S
    double distance = 0.0;
    double known = 0.0;  // sum of p over S
    double signed_draft = 0.0;
    for (std::size_t i = 0; i < law.tokens.size(); ++i) {
        double const p = static_cast<double>(law.shares[i]);
        double const drafted = static_cast<double>(draft[static_cast<std::size_t>(law.tokens[i])]) / total;
        q[i] = static_cast<Real>(drafted);
        inside += drafted;
        known += p;
        distance += std::abs(drafted - p);
        signed_draft += drafted > p ? drafted : drafted < p ? -drafted : 0.0;
    }
    distance += (1.0 - inside) + (1.0 - known);
    signed_draft += 1.0 - inside;

    double const a = labelled ? weight * settings.cross_entropy : 0.0;
    double const b = weight * settings.total_variation;
    double const base = a - b * signed_draft;
    eigen_array(draft) *= static_cast<Real>((base + b) / total);
    for (std::size_t i = 0; i < law.tokens.size(); ++i) {
        auto const v = static_cast<std::size_t>(law.tokens[i]);
        double const sign = static_cast<double>(q[i] > law.shares[i]) - static_cast<double>(q[i] < law.shares[i]);
        draft[v] = q[i] * static_cast<Real>(base + b * sign);
    }
    if (labelled) draft[y] -= static_cast<Real>(a);

    position_loss loss;
    if (labelled) loss.cross_entropy = static_cast<double>(top) + std::log(total) - static_cast<double>(logit);
    loss.distance = distance;
    loss.acceptance = std::clamp(1.0 - 0.5 * distance, 0.0, 1.0);
    return loss;
}

}  // namespace train
