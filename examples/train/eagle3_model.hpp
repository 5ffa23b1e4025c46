// SPDX-License-Identifier: MIT
//
// An Eagle3 drafter in training: many chains of many sequences in one pass, forward and backward.
//     f = F fc^T                            of every token row, from the target's features F
//     outputs of the chains                 from f and the tokens of the text (eagle3_layer.hpp)
//     LM head(RMSNorm(output))              row k of an anchor at p predicts token p + 1 + k (eagle3_head.hpp)
// So a chain is what the drafter does in a round of decoding that drafts the text's own tokens, and training it through
// its own outputs is the reference's "training-time test".
//
// As in draft_model.hpp, the model knows sizes and offsets only: parameters, tape and gradients come with every call.
#pragma once

#include <cstddef>
#include <span>

#include <engine/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/training/anchors.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/supervision.hpp>

#include "draft_model.hpp"
#include "eagle3_batch.hpp"
#include "eagle3_head.hpp"
#include "eagle3_layer.hpp"
#include "eagle3_tape.hpp"
#include "elementwise.hpp"
#include "gemm.hpp"
#include "parameters.hpp"

namespace train {

using sureleap::loss_report;

template <class Real>
class eagle3_model {
public:
    /// The tables are [V, hidden], of the LM head the rows of the drafted tokens. They are frozen and must outlive the
    /// model. Positions stay below max_positions. Throws sureleap::error if the tables do not fit the configuration.
    eagle3_model(engine::model_config const& config, matrix_view<Real> embeddings, matrix_view<Real> lm_head,
                 std::size_t max_positions)
        : config_(checked(config, embeddings, lm_head)),
          fc_(layout_.matrix("fc.weight", hidden_size(), config_.draft->target_layer_ids.size() * hidden_size())),
          layer_(layout_, config_, embeddings, max_positions),
          final_norm_(layout_.vector("norm.weight", hidden_size())),
          head_(lm_head, block_size()) {}

    /// What is trained, in the released names.
    [[nodiscard]] parameter_layout const& layout() const noexcept { return layout_; }
    /// Steps of a chain.
    [[nodiscard]] std::size_t block_size() const noexcept { return config_.draft->block_size; }

    /// The final-normed hidden state of every chain row into tape.hidden. Rows without a loss come after those with one
    /// and mean nothing. Throws sureleap::error for a batch whose parts do not fit each other.
    void forward(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape) const {
        check_batch(batch, config_, layer_.max_positions());
        place_rows(batch, block_size(), tape);
        multiply(batch.features, fc_.of(values), tape.features.resize(batch.features.rows, hidden_size()));
        layer_.forward(values, batch, tape);
        rms_norm(tape.output.view(), final_norm_.values(values), config_.transformer.rms_norm_eps,
                 tape.hidden.resize(tape.output.rows(), hidden_size()));
    }

    /// Logits of every chain row, after forward: [n, V].
    void logits(eagle3_tape<Real> const& tape, matrix_span<Real> out) const { head_.logits(tape.hidden.view(), out); }

    /// After forward: adds the gradient of the batch's loss to `gradients`, and its losses to `report`, where
    /// cross_entropy is that against the target's law. The loss is averaged over `total_weight`, the weight_sum over
    /// the chain_steps of everything one optimizer step covers, this batch and others. Without gradients there is the
    /// report alone. Consumes the tape.
    void backward(std::span<Real const> values, eagle3_batch<Real> const& batch, loss_settings const& settings,
                  double total_weight, eagle3_tape<Real>& tape, std::span<Real> gradients, loss_report& report,
                  sureleap::chunk_limits limits = {}) const {
        head_.backward(batch, settings, total_weight, limits, !gradients.empty(), tape);
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            report.add(std::span(tape.losses).subspan(b * block_size(), chain_steps(batch.blocks[b])));
        }
        if (gradients.empty()) return;
        rms_norm_backward(tape.output.view(), final_norm_.values(values), config_.transformer.rms_norm_eps,
                          tape.d_hidden.view(), final_norm_.values(gradients),
                          tape.d_output.resize_zeroed(tape.output.rows(), hidden_size()));
        layer_.backward(values, batch, tape, gradients);
        add_outer(tape.d_features.view(), batch.features, fc_.of(gradients));
    }

private:
    [[nodiscard]] static engine::model_config const& checked(engine::model_config const& config,
                                                             matrix_view<Real> embeddings, matrix_view<Real> lm_head) {
        if (config.kind != engine::architecture::eagle3 || !config.draft) {
            sureleap::fail_with("eagle3_model: architecture is ", name_of(config.kind), ", expected ",
                                name_of(engine::architecture::eagle3));
        }
        auto const& t = config.transformer;
        auto const check_table = [&](char const* name, matrix_view<Real> table, std::size_t rows) {
            if (table.rows == rows && table.cols == t.hidden_size) return;
            sureleap::fail_with("eagle3_model: ", name, " is [", table.rows, ", ", table.cols, "], expected [", rows,
                                ", ", t.hidden_size, "] (vocabulary x hidden)");
        };
        check_table("embeddings", embeddings, t.vocabulary);
        check_table("lm_head", lm_head, config.draft->vocabulary > 0 ? config.draft->vocabulary : t.vocabulary);
        return config;
    }

    [[nodiscard]] std::size_t hidden_size() const noexcept { return config_.transformer.hidden_size; }

    engine::model_config config_;
    // In the order in which their tensors lie.
    parameter_layout layout_;
    tensor fc_;
    eagle3_layer<Real> layer_;
    tensor final_norm_;
    eagle3_head<Real> head_;
};

/// Positions of a block that have a loss.
[[nodiscard]] inline std::size_t supervised(draft_model<float> const&, sureleap::anchored_block const& block) {
    return block.positions;
}
[[nodiscard]] inline std::size_t supervised(eagle3_model<float> const&, sureleap::anchored_block const& block) {
    return chain_steps({{0, block.anchor}, block.positions});
}

}  // namespace train
