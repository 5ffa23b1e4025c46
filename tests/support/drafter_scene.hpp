// SPDX-License-Identifier: MIT
//
// What tests of drafters share: requests of random contexts, settings and caps that a drafter drafts for, and the
// softmax that a recorded q should be.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/dice.hpp"
#include "support/drafted.hpp"

namespace drafter_scene {

using namespace sureleap;
using tokens = std::vector<token_id>;
using reals = std::vector<double>;

inline reals widened(auto const& values) {
    reals out;
    for (auto const& x : values) out.push_back(static_cast<double>(load(x)));
    return out;
}

inline reals part(reals const& all, std::size_t first, std::size_t count) {
    auto const begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

inline reals softmax(reals logits, double temperature) {
    double const largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (double& x : logits) sum += x = std::exp((x - largest) / temperature);
    for (double& x : logits) x /= sum;
    return logits;
}

/// The requests of one round and the memory they are drafted into.
template <class Real>
struct scene {
    std::vector<request_settings> settings;
    std::vector<tokens> contexts;
    std::vector<request_view> views;

    scene(support::dice& roll, std::size_t requests, std::size_t gamma, std::size_t vocabulary) : settings(requests) {
        for (std::size_t r = 0; r < requests; ++r) {
            contexts.emplace_back(1 + roll.below(4));
            for (token_id& x : contexts.back()) x = static_cast<token_id>(roll.below(vocabulary));
            settings[r].temperature = roll.between(0.5, 1.5);
            if (roll.chance(0.3)) settings[r].max_draft_tokens = roll.below(gamma + 2);
        }
        for (std::size_t r = 0; r < requests; ++r) {
            views.push_back({.id = r + 1,
                             .slot = r,
                             .anchor = contexts[r].back(),
                             .position = contexts[r].size() - 1,
                             .context = contexts[r],
                             .seed = roll.bits(),
                             .remaining = roll.chance(0.3) ? 1 + roll.below(gamma) : gamma + 1,
                             .settings = &settings[r]});
        }
    }

    template <class Drafter, class DraftRule = categorical_draft>
    [[nodiscard]] support::drafted<Real> draw(Drafter& drafter, DraftRule = {}) {
        return support::draft<Real>(drafter, token_rejection<DraftRule>{}, views);
    }
};

/// A draft row in target ids.
inline reals scattered(reals const& p, vocabulary_map const* map) {
    if (map == nullptr) return p;
    reals out(map->target_size());
    for (std::size_t d = 0; d < p.size(); ++d)
        out[static_cast<std::size_t>(map->to_target(static_cast<token_id>(d)))] = p[d];
    return out;
}

template <class Q>
bool has_law(distribution<Q> const& law, reals const& expected, double tolerance) {
    bool good = law.valid() && law.size() == expected.size();
    for (std::size_t v = 0; v < expected.size() && good; ++v) {
        good = std::abs(law.probability(static_cast<token_id>(v)) - expected[v]) <= tolerance;
    }
    return good;
}

/// A random injective map of `draft` ids into `target` ids.
inline vocabulary_map random_map(support::dice& roll, std::size_t draft, std::size_t target) {
    tokens ids(target);
    std::iota(ids.begin(), ids.end(), 0);
    for (std::size_t i = target; i-- > 1;) std::swap(ids[i], ids[roll.below(i + 1)]);
    ids.resize(draft);
    return {ids, target};
}

}  // namespace drafter_scene
