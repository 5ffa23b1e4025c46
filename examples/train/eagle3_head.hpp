// SPDX-License-Identifier: MIT
//
// What stands on an Eagle3 drafter's hidden states in training: the frozen LM head, and the loss. That is the cross
// entropy against the target's whole law instead of a label. Row k has the weight 0.8^k. The mean is over the sum of
// weights, as everywhere here. (The reference divides by the number of positions, which is a factor that does not
// change the steps of Adam.)
//
// The target's logits come from its hidden states, a chunk at a time. Rows of all chains and steps that need the same
// law share it. Where laws were recorded, little of them is known (recorded_loss.hpp), and the cross entropy is that of
// the label, which was drawn from the law.
#pragma once

#include <algorithm>
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
    /// lm_head [drafted tokens, hidden] is frozen and must outlive the head. gamma steps a chain.
    eagle3_head(matrix_view<Real> lm_head, std::size_t gamma) : lm_head_(lm_head), gamma_(gamma) {}

    /// Of every row of hidden: [rows, V].
    void logits(matrix_view<Real> hidden, matrix_span<Real> out) const { multiply(hidden, lm_head_, out); }

    /// Losses of the chain rows into tape.losses, the gradient of tape.hidden into tape.d_hidden. `total_weight` is the
    /// weight_sum of everything the optimizer's step averages over. Without `gradients` there are losses alone.
    void backward(eagle3_batch<Real> const& batch, loss_settings const& settings, double total_weight,
                  sureleap::chunk_limits const& limits, bool gradients, eagle3_tape<Real>& tape) const {
        double const scale = 1.0 / (total_weight + sureleap::loss_epsilon);
        std::vector<std::size_t> supervised;  // chain rows
        std::vector<std::size_t> sources;     // token rows; the token after one is the chain row's label, too
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            for (std::size_t k = 0; k < chain_steps(batch.blocks[b]); ++k) {
                supervised.push_back(b * gamma_ + k);
                sources.push_back(batch.blocks[b].context.end + k);
            }
        }
        tape.losses.assign(tape.hidden.rows(), {});
        tape.d_hidden.resize_zeroed(tape.hidden.rows(), tape.hidden.cols());
        auto const weight_of = [&](std::size_t row) {
            return sureleap::position_weight(settings, row % gamma_) * scale;
        };
        if (!batch.laws.empty()) {
            for (std::size_t first = 0; first < supervised.size(); first += limits.slots) {
                std::span<std::size_t const> const chosen(supervised.data() + first,
                                                          std::min(limits.slots, supervised.size() - first));
                backward_logits(chosen, gradients, tape, [&](std::size_t i, std::span<Real> logits) {
                    std::size_t const row = chosen[i];
                    return recorded_loss(settings, weight_of(row), logits, batch.laws.of(row), batch.labels[row]);
                });
            }
            return;
        }
        std::size_t const d = tape.hidden.cols();
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
            backward_logits(chosen, gradients, tape, [&](std::size_t i, std::span<Real> logits) {
                return loss_of_row(settings, weight_of(rows[i]), logits,
                                   std::span<Real const>(chunk.logits.row(chunk.rows[i])),
                                   batch.next_tokens[sources[chunk.slots[i]]]);
            });
        });
    }

private:
    // Logits of some chain rows, which loss(i, logits) makes the gradient of, and from there to their hidden states.
    template <class Loss>
    void backward_logits(std::span<std::size_t const> chosen, bool gradients, eagle3_tape<Real>& tape,
                         Loss const& loss) const {
        auto const h = tape.chunk_hidden.resize(chosen.size(), tape.hidden.cols());
        auto const logits = tape.logits.resize(chosen.size(), lm_head_.rows);
        sureleap::gather_rows(tape.hidden.view(), chosen, h);
        multiply(h, lm_head_, logits);
        for (std::size_t i = 0; i < chosen.size(); ++i) tape.losses[chosen[i]] = loss(i, logits.row(i));
        if (!gradients) return;
        auto const d_h = tape.chunk_d_hidden.resize(chosen.size(), tape.hidden.cols());
        multiply_back(logits, lm_head_, d_h);
        sureleap::scatter_add(d_h.view(), chosen, tape.d_hidden.span());
    }

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
