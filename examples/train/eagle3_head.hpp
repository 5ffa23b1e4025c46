// SPDX-License-Identifier: MIT
//
// What stands on an Eagle3 drafter's hidden states in training: the frozen LM head, and the loss. That is the cross
// entropy against the target's whole law instead of a label. Row k has the weight 0.8^k. The mean is over the sum of
// weights, as everywhere here. (The reference divides by the number of positions, which is a factor that does not
// change the steps of Adam.)
//
// The target's logits come from its hidden states, a chunk at a time. Rows of all chains and steps that need the same
// law share it.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/training/losses.hpp>
#include <sureleap/training/rows.hpp>
#include <sureleap/training/supervision.hpp>

#include "eagle3_batch.hpp"
#include "eagle3_tape.hpp"
#include "elementwise.hpp"
#include "gemm.hpp"

namespace train {

using sureleap::loss_settings;

/// What the reference minimises. cross_entropy is that against the target's law; total_variation means what it does
/// elsewhere and may be given a weight as well; there is no confidence.
[[nodiscard]] inline loss_settings eagle3_losses() {
    return {.cross_entropy = 1.0, .total_variation = 0.0, .confidence = 0.0, .decay = -1.0 / std::log(0.8)};
}

template <class Real>
class eagle3_head {
public:
    /// lm_head [V, hidden] is frozen and must outlive the head. gamma steps a chain.
    eagle3_head(matrix_view<Real> lm_head, std::size_t gamma) : lm_head_(lm_head), gamma_(gamma) {}

    /// Of every row of hidden: [rows, V].
    void logits(matrix_view<Real> hidden, matrix_span<Real> out) const { multiply(hidden, lm_head_, out); }

    /// Losses of the chain rows into tape.losses, the gradient of tape.hidden into tape.d_hidden. `total_weight` is the
    /// weight_sum of everything the optimizer's step averages over.
    void backward(eagle3_batch<Real> const& batch, loss_settings const& settings, double total_weight,
                  sureleap::chunk_limits const& limits, eagle3_tape<Real>& tape) const {
        double const scale = 1.0 / (total_weight + sureleap::loss_epsilon);
        std::size_t const d = tape.hidden.cols();
        std::vector<std::size_t> supervised;  // chain rows
        std::vector<std::size_t> sources;     // token rows; the token after one is the chain row's label, too
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            for (std::size_t k = 0; k < chain_steps(batch.blocks[b]); ++k) {
                supervised.push_back(b * gamma_ + k);
                sources.push_back(batch.blocks[b].context.end + k);
            }
        }
        tape.losses.assign(tape.hidden.rows(), {});
        tape.d_hidden.resize_zeroed(tape.hidden.rows(), d);
        sureleap::target_supervision const plan(sources, limits);
        sureleap::supervision_memory<Real> const memory{tape.target_rows.resize(limits.rows, d),
                                                        tape.target_logits.resize(limits.rows, lm_head_.rows)};
        std::vector<std::size_t> rows;  // the chunk's chain rows
        auto const product = [&](matrix_view<Real> x, matrix_span<Real> y) { multiply(x, lm_head_, y); };
        plan.for_each_chunk(batch.target_hidden, memory, product, [&](auto const& chunk) {
            rows.clear();
            for (std::size_t const slot : chunk.slots) rows.push_back(supervised[slot]);
            std::span<std::size_t const> const chosen(rows);
            for (std::size_t i = 0; i < chunk.logits.rows; ++i) {
                fast_softmax{}(std::span<Real const>(chunk.logits.row(i)), chunk.logits.row(i));
            }
            auto const h = tape.chunk_hidden.resize(rows.size(), d);
            auto const logits = tape.logits.resize(rows.size(), lm_head_.rows);
            sureleap::gather_rows(tape.hidden.view(), chosen, h);
            multiply(h, lm_head_, logits);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                double const weight = sureleap::position_weight(settings, rows[i] % gamma_) * scale;
                tape.losses[rows[i]] =
                    loss_of_row(settings, weight, logits.row(i), std::span<Real const>(chunk.logits.row(chunk.rows[i])),
                                batch.next_tokens[sources[chunk.slots[i]]]);
            }
            auto const d_h = tape.chunk_d_hidden.resize(rows.size(), d);
            multiply_back(logits, lm_head_, d_h);
            sureleap::scatter_add(d_h.view(), chosen, tape.d_hidden.span());
        });
    }

private:
    // sureleap::draft_loss with the target's law p instead of the label y in the cross entropy: the loss differs by
    // l_y - p . l, with l the logits, and its gradient by [v = y] - p_v. Takes logits, leaves their gradient.
    [[nodiscard]] static sureleap::position_loss loss_of_row(loss_settings const& settings, double weight,
                                                             std::span<Real> logits, std::span<Real const> law,
                                                             token_id label) {
        auto const y = static_cast<std::size_t>(label);
        Real const difference = logits[y] - sureleap::scalar_backend::dot(law, std::span<Real const>(logits));
        auto loss = sureleap::draft_loss(settings, weight, logits, {law}, label, fast_softmax{});
        loss.cross_entropy += static_cast<double>(difference);
        auto const a = static_cast<Real>(weight * settings.cross_entropy);
        logits[y] += a;
        sureleap::axpy(-a, law, logits);
        return loss;
    }

    matrix_view<Real> lm_head_;
    std::size_t gamma_;
};

}  // namespace train
