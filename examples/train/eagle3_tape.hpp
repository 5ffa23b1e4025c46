// SPDX-License-Identifier: MIT
//
// The memory of Eagle3's training, from forward to backward, and where the rows of chains lie in it.
//
// Only steps depend on each other, so a step is one batch of all chains: rows lie [chain, step], and a step is every
// gamma-th row. What no step waits for is then done once for all of them: LM head, losses, gradients of the weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/training/losses.hpp>

#include "attention.hpp"
#include "eagle3_batch.hpp"
#include "gemm.hpp"

namespace train {

/// One a thread, kept from batch to batch. m token rows, n = blocks * gamma chain rows.
template <class Real>
struct eagle3_tape {
    // [step, chain]: a step's are neighbours
    std::vector<visible_rows> sees;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint32_t> context_positions;  ///< [m]

    matrix<Real> features;           ///< f [m, hidden]
    matrix<Real> pairs;              ///< [m, 2 hidden]
    matrix<Real> context_projected;  ///< [m, k | v] before norm and rotation
    matrix<Real> context_rotated;    ///< [m, k] after

    // [chain, step]
    matrix<Real> start;          ///< x_0 [chains, hidden]
    matrix<Real> input;          ///< y [n, 2 hidden]
    matrix<Real> projected;      ///< [n, q | k | v]
    matrix<Real> rotated;        ///< [n, q | k]
    matrix<Real> normalisers;    ///< [n, heads]
    matrix<Real> attended;       ///< [n, heads * head_dim]
    matrix<Real> middle;         ///< [n, hidden], after the attention
    matrix<Real> middle_normed;  ///< the same, normed
    matrix<Real> gate_up;        ///< [n, gate | up]
    matrix<Real> activated;      ///< [n, intermediate]
    matrix<Real> output;         ///< [n, hidden]
    matrix<Real> hidden;         ///< [n, hidden], final-normed

    std::vector<sureleap::position_loss> losses;  ///< [n]

    // of backward
    matrix<Real> d_features, d_pairs, d_context;
    matrix<Real> d_start, d_projected, d_middle, d_output, d_hidden;
    matrix<Real> d_rows, d_input, d_activated, d_attended;  // of a step
    matrix<Real> target_rows, target_logits, chunk_hidden, logits, chunk_d_hidden;
};

/// Step k of all chains: which rows of a tape it has.
struct eagle3_step {
    std::span<draft_block const> blocks;
    std::size_t gamma = 0;
    std::size_t k = 0;

    [[nodiscard]] std::size_t chains() const noexcept { return blocks.size(); }

    /// Of chain rows.
    template <class Real>
    [[nodiscard]] matrix_span<Real> of(matrix<Real>& rows) const {
        return of(rows, k);
    }
    /// Of what lies [step, chain].
    template <class T>
    [[nodiscard]] std::span<T const> of(std::vector<T> const& all) const {
        return std::span(all).subspan(k * chains(), chains());
    }
    /// Where the step reads from: the step before it, or the start of the chains.
    template <class Real>
    [[nodiscard]] matrix_span<Real> before(matrix<Real>& start, matrix<Real>& rows) const {
        return k == 0 ? start.span() : of(rows, k - 1);
    }
    /// f(chain, token row of its pair) for the chains whose step k has a loss.
    template <class F>
    void for_each_pair(F const& f) const {
        for (std::size_t b = 0; b < chains(); ++b) {
            if (k < chain_steps(blocks[b])) f(b, blocks[b].context.end - 1 + k);
        }
    }

private:
    template <class Real>
    [[nodiscard]] matrix_span<Real> of(matrix<Real>& rows, std::size_t step) const {
        auto const all = rows.span();
        return {all.data + step * all.stride, chains(), all.cols, gamma * all.stride};
    }
};

/// Positions, and who sees whom. Row 0 of a chain brings the key of its pair itself, like every row after it. A row
/// without a loss sees nothing.
template <class Real>
void place_rows(eagle3_batch<Real> const& batch, std::size_t gamma, eagle3_tape<Real>& tape) {
    std::size_t const chains = batch.blocks.size();
    tape.context_positions.assign(batch.features.rows, 0);
    tape.positions.resize(chains * gamma);
    tape.sees.resize(chains * gamma);
    for (std::size_t b = 0; b < chains; ++b) {
        row_span const context = batch.blocks[b].context;
        // Contexts of one sequence are nested: what the block before has placed need not be placed again.
        bool const nested = b > 0 && batch.blocks[b - 1].context.begin == context.begin;
        for (std::size_t row = nested ? batch.blocks[b - 1].context.end : context.begin; row < context.end; ++row) {
            tape.context_positions[row] = static_cast<std::uint32_t>(row - context.begin);
        }
        std::size_t const pair = std::max<std::size_t>(context.size(), 1) - 1;
        for (std::size_t k = 0; k < gamma; ++k) {
            std::size_t const first = b * gamma;
            bool const dead = k >= chain_steps(batch.blocks[b]);
            tape.positions[k * chains + b] = static_cast<std::uint32_t>(pair + k);
            tape.sees[k * chains + b] = {{context.begin, context.begin + (dead ? 0 : pair)},
                                         {first, first + (dead ? 0 : k + 1)}};
        }
    }
}

}  // namespace train
