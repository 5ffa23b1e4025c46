// SPDX-License-Identifier: MIT
//
// Models of which each rank has its own columns alone: a target, a backbone and heads of random weights. Base logits
// depend on the anchor and the position in the block, hidden states likewise.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

#include "support/dice.hpp"
#include "support/placed_logits.hpp"

namespace support {

/// A target of which this rank scores its own columns. T: what Target's rows are stored in.
template <class T, class Target, class Ranks>
struct sliced_target {
    Target whole;
    sureleap::row_shards<T, Ranks>* shards;

    [[nodiscard]] auto score(sureleap::verify_batch const& batch) {
        auto const rows = whole.score(batch);
        std::size_t const rank = shards->rank();
        sureleap::logits_rows<T> own{};
        own.values = {rows.values.data + shards->slices().first(rank), rows.values.rows, shards->slices().size(rank),
                      rows.values.cols};
        return shards->of(own);
    }
};

/// Weights of heads, and shapes of a drafter. T: storage, of base logits and hidden states too.
template <class T>
struct sliced_world {
    static constexpr std::size_t rank = 4, hidden_size = 3;
    std::size_t vocabulary;
    std::size_t block_size;
    std::vector<T> w1, w2, gate, gate_bias, joint, joint_bias;

    sliced_world(std::uint64_t seed, std::size_t size, std::size_t gamma) : vocabulary(size), block_size(gamma) {
        dice roll(seed);
        w1 = random_values<T>(roll, size * rank, 1.0);
        w2 = random_values<T>(roll, size * rank, 1.0);
        gate = random_values<T>(roll, rank * (hidden_size + rank), 1.0);
        gate_bias = random_values<T>(roll, rank, 1.0);
        joint = random_values<T>(roll, 3 * rank * (2 * rank + hidden_size), 1.0);
        joint_bias = random_values<T>(roll, 3 * rank, 1.0);
    }
    [[nodiscard]] sureleap::matrix_view<T> w1_view() const { return {w1.data(), vocabulary, rank}; }
    /// Rows of W2 that a slice has.
    [[nodiscard]] sureleap::matrix_view<T> own_w2(sureleap::vocabulary_view own) const {
        return {w2.data() + static_cast<std::size_t>(own.to_target(0)) * rank, own.draft_size(), rank};
    }
    [[nodiscard]] auto markov(sureleap::vocabulary_view own) const {
        return sureleap::markov_head{w1_view(), own_w2(own)};
    }
    [[nodiscard]] auto gated(sureleap::vocabulary_view own) const {
        return sureleap::gated_head{w1_view(), own_w2(own), {gate.data(), rank, hidden_size + rank}, gate_bias};
    }
    [[nodiscard]] auto rnn(sureleap::vocabulary_view own) const {
        return sureleap::rnn_head{w1_view(), own_w2(own), {joint.data(), 3 * rank, 2 * rank + hidden_size}, joint_bias};
    }
    [[nodiscard]] double base(sureleap::token_id anchor, std::uint64_t position, std::size_t k, std::size_t v) const {
        sureleap::token_id const place[]{anchor, static_cast<sureleap::token_id>(position % 7),
                                         static_cast<sureleap::token_id>(k)};
        return logit(3, place, v);
    }
};

/// Base logits of some tokens.
template <class T>
struct sliced_backbone {
    using real = sureleap::compute_t<T>;
    sliced_world<T> const* w;
    sureleap::vocabulary_view own;
    bool is_coarse = false;  // some logits are equal
    std::vector<T> logits{}, hidden{};

    [[nodiscard]] sureleap::block_forward<T> forward(std::span<sureleap::request_view const> requests) {
        logits.clear(), hidden.clear();
        for (auto const& r : requests) {
            for (std::size_t k = 0; k < w->block_size; ++k) {
                for (std::size_t i = 0; i < own.draft_size(); ++i) {
                    auto const v = static_cast<std::size_t>(own.to_target(static_cast<sureleap::token_id>(i)));
                    double const l = w->base(r.anchor, r.position, k, v);
                    logits.push_back(T(static_cast<real>(is_coarse ? std::round(4.0 * l) / 4.0 : l)));
                }
                for (std::size_t i = 0; i < w->hidden_size; ++i) {
                    hidden.push_back(T(static_cast<real>(w->base(r.anchor, r.position + 1, k, i))));
                }
            }
        }
        std::size_t const rows = requests.size() * w->block_size;
        return {{hidden.data(), rows, w->hidden_size}, {{logits.data(), rows, own.draft_size()}, {}}};
    }
};

/// Between a quarter and three quarters.
struct hidden_confidence {
    template <class Real>
    [[nodiscard]] double operator()(std::span<Real const> hidden, sureleap::token_id previous, std::size_t k) const {
        return 0.25 + 0.25 * std::abs(static_cast<double>(hidden[0])) / 1.5 + 0.01 * static_cast<double>(k) +
               0.1 * static_cast<double>(previous % 3);
    }
};

}  // namespace support
