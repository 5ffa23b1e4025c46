// SPDX-License-Identifier: MIT
//
// Sequential heads of a tiny world, of rank 2 over hidden states of size 2, and the backbone that feeds them. All in
// double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/head/domino.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/head/shortlist.hpp>

#include "support/dice.hpp"
#include "support/small_world.hpp"

namespace small_world {

/// Weights of heads whose successors are not the target's favourites: token v follows by its own table.
struct head_weights {
    static constexpr std::size_t rank = 2, hidden_size = 2, units = 2;
    std::size_t vocabulary;
    std::vector<double> w1, w2, gate, gate_bias, joint, joint_bias, input, recurrent, projection;
    std::vector<token_id> successors;

    head_weights(std::uint64_t seed, std::size_t size) : vocabulary(size) {
        support::dice roll(seed);
        auto const fill = [&](std::vector<double>& out, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) out.push_back(2.0 * roll.real() - 1.0);
        };
        fill(w1, size * rank), fill(w2, size * rank);
        fill(joint, 3 * rank * (2 * rank + hidden_size)), fill(joint_bias, 3 * rank);
        for (std::size_t v = 0; v < size; ++v) successors.push_back(static_cast<token_id>(roll.below(size)));
        fill(gate, rank * (hidden_size + rank)), fill(gate_bias, rank);
        fill(input, 3 * units * hidden_size), fill(recurrent, 3 * units * units);
        fill(projection, rank * (hidden_size + units));
    }
    [[nodiscard]] auto markov() const { return markov_head{w1_view(), w2_view()}; }
    [[nodiscard]] auto gated() const {
        return gated_head{w1_view(), w2_view(), {gate.data(), rank, hidden_size + rank}, gate_bias};
    }
    [[nodiscard]] auto rnn() const {
        return rnn_head{w1_view(), w2_view(), {joint.data(), 3 * rank, 2 * rank + hidden_size}, joint_bias};
    }
    /// Embeddings are as wide as hidden states, and here as codes.
    [[nodiscard]] auto domino() const {
        return domino_head{w1_view(),
                           {input.data(), 3 * units, hidden_size},
                           {recurrent.data(), 3 * units, units},
                           {projection.data(), rank, hidden_size + units},
                           w2_view(),
                           1};
    }
    [[nodiscard]] matrix_view<token_id> successors_view() const { return {successors.data(), vocabulary, 1}; }

private:
    [[nodiscard]] matrix_view<double> w1_view() const { return {w1.data(), vocabulary, rank}; }
    [[nodiscard]] matrix_view<double> w2_view() const { return {w2.data(), vocabulary, rank}; }
};

/// Base logits of the world, and hidden states.
struct hidden_backbone {
    world const* w;
    std::vector<double> logits{}, hidden{};
    [[nodiscard]] block_forward<double> forward(std::span<request_view const> requests) {
        logits.clear(), hidden.clear();
        for (auto const& r : requests) {
            for (std::size_t k = 0; k < w->block_size; ++k) {
                for (std::size_t v = 0; v < w->vocabulary; ++v) logits.push_back(w->base(r.anchor, r.position, k, v));
                for (std::size_t i = 0; i < head_weights::hidden_size; ++i)
                    hidden.push_back(hash01(w->seed, 6, r.anchor, k, i));
            }
        }
        std::size_t const rows = requests.size() * w->block_size;
        return {{hidden.data(), rows, head_weights::hidden_size}, {{logits.data(), rows, w->vocabulary}, {}}};
    }
};

/// The semi-autoregressive drafter of a world with one of these heads.
template <class Head>
[[nodiscard]] auto semi_with(world const& w, Head head) {
    return semi_autoregressive{
        hidden_backbone{&w}, std::move(head), table_confidence{&w},
        drafter_options{
            .block_size = w.block_size, .vocabulary = w.vocabulary, .hidden_size = head_weights::hidden_size}};
}

}  // namespace small_world
