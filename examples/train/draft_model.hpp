// SPDX-License-Identifier: MIT
//
// A DSpark or DFlash drafter in training: many blocks of many sequences in one pass, forward and backward. The maths is
// examples/engine/dspark's:
//     C = RMSNorm(F fc^T)             of every token row, from the target's features F
//     block rows                      the anchor's embedding, then mask embeddings; row k predicts token anchor+1+k
//     K, V of every layer             from C for the context before the anchor, from the block's own rows
//     h = final norm                  what the LM head and the heads read (draft_head.hpp)
// Embedding and LM head are the target's and frozen; everything else is trained.
//
// The model holds sizes and offsets only. Parameters, tape and gradients are arguments of every call. So several
// threads may train one model on batches of their own and add their gradients up afterwards, in a fixed order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <engine/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/training/packing.hpp>

#include "draft_head.hpp"
#include "elementwise.hpp"
#include "gemm.hpp"
#include "layer.hpp"
#include "parameters.hpp"

namespace train {

/// A block of a batch. Token row context.begin is the first token of its sequence, so its anchor's position is
/// context.size(). At token row context.end + k the target predicts what block row k should draft.
struct draft_block {
    row_span context{};
    std::size_t positions =
        0;  ///< supervised ones, from the first on; 0: a dummy, all masks, that sees nothing and has no loss
};

/// Everything belongs to the caller. Block b has the block rows b * gamma ... b * gamma + gamma - 1.
template <class Real>
struct draft_batch {
    matrix_view<Real> features;       ///< [token rows, m * hidden]: the target's, as in the engine
    matrix_view<Real> target_hidden;  ///< [token rows, hidden]: final-normed
    std::span<draft_block const> blocks;
    std::span<token_id const> previous;  ///< [block rows]: the token at anchor + k; the anchor itself for k = 0
    std::span<token_id const> labels;    ///< [block rows]: the token at anchor + 1 + k, as the drafter numbers it
    /// Of every block row, instead of target_hidden. Then a label may be no_token: it is none of those drafted.
    known_laws<Real> laws{};
};

/// The blocks of a packed batch.
[[nodiscard]] inline std::vector<draft_block> blocks_of(sureleap::packed_batch const& packed) {
    std::vector<draft_block> blocks;
    for (std::size_t b = 0; b < packed.blocks().size(); ++b) {
        blocks.push_back({packed.context(b * packed.block_size()), packed.blocks()[b].positions});
    }
    return blocks;
}

/// Memory from forward to backward. One a thread, kept from batch to batch.
template <class Real>
struct draft_tape {
    std::vector<visible_rows> sees;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint32_t> context_positions;
    matrix<Real> projected;  ///< F fc^T [token rows, hidden]
    matrix<Real> context;    ///< C
    matrix<Real> input;      ///< embeddings [block rows, hidden]
    std::vector<layer_tape<Real>> layers;
    matrix<Real> hidden;  ///< h
    head_tape<Real> head;
    layer_scratch<Real> scratch;
    matrix<Real> d_rows;
    matrix<Real> d_context;
    matrix<Real> d_projected;
};

template <class Real>
class draft_model {
public:
    /// The tables are frozen and must outlive the model: embeddings [V, hidden], lm_head [drafted tokens, hidden].
    /// Positions, those of blocks included, stay below max_positions. Throws sureleap::error if the tables do not fit
    /// the configuration.
    draft_model(engine::model_config const& config, matrix_view<Real> embeddings, matrix_view<Real> lm_head,
                std::size_t max_positions)
        : config_(checked(config, embeddings, lm_head)),
          embeddings_(embeddings),
          angles_(config.transformer.head_dim, config.transformer.rope_theta, max_positions),
          head_(layout_, config_, lm_head) {
        auto const& t = config_.transformer;
        fc_ = layout_.matrix("fc.weight", t.hidden_size, config_.draft->target_layer_ids.size() * t.hidden_size);
        context_norm_ = layout_.vector("hidden_norm.weight", t.hidden_size);
        for (std::size_t l = 0; l < t.layers; ++l) {
            layers_.emplace_back(layout_, "layers." + std::to_string(l) + ".", t);
        }
        final_norm_ = layout_.vector("norm.weight", t.hidden_size);
    }

    /// What is trained, in the released names.
    [[nodiscard]] parameter_layout const& layout() const noexcept { return layout_; }
    [[nodiscard]] std::size_t block_size() const noexcept { return config_.draft->block_size; }
    [[nodiscard]] bool has_confidence() const noexcept { return head_.has_confidence(); }

    /// h of every block row into tape.hidden, and the codes of the sequential head. Throws sureleap::error for a batch
    /// whose parts do not fit each other.
    void forward(std::span<Real const> values, draft_batch<Real> const& batch, draft_tape<Real>& tape) const {
        auto const& t = config_.transformer;
        check(batch);
        place_rows(batch, tape);
        std::size_t const tokens = batch.features.rows;
        std::size_t const n = batch.previous.size();
        auto const projected = tape.projected.resize(tokens, t.hidden_size);
        multiply(batch.features, fc_.of(values), projected);
        rms_norm(projected, context_norm_.values(values), t.rms_norm_eps, tape.context.resize(tokens, t.hidden_size));
        auto const x = tape.input.resize(n, t.hidden_size);
        for (std::size_t i = 0; i < n; ++i) {
            bool const anchor = i % block_size() == 0 && batch.blocks[i / block_size()].positions > 0;
            token_id const id = anchor ? batch.previous[i] : config_.draft->mask_token;
            std::ranges::copy(embeddings_.row(static_cast<std::size_t>(id)), x.row(i).begin());
        }
        tape.layers.resize(t.layers);
        for (std::size_t l = 0; l < t.layers; ++l) {
            layers_[l].forward(values, pass(tape), layer_input(tape, l), tape.layers[l]);
        }
        rms_norm(layer_input(tape, t.layers), final_norm_.values(values), t.rms_norm_eps,
                 tape.hidden.resize(n, t.hidden_size));
        head_.forward(values, tape.hidden.view(), batch.previous, tape.head);
    }

    /// U + B of every block row, after forward: [block rows, V].
    void logits(std::span<Real const> values, draft_tape<Real> const& tape, matrix_span<Real> out) const {
        head_.logits(values, tape.hidden.view(), tape.head, out);
    }
    /// The confidence logit of every block row, after forward. Precondition: has_confidence().
    void confidence(std::span<Real const> values, draft_tape<Real> const& tape, std::span<Real> out) const {
        head_.confidence(values, tape.hidden.view(), tape.head, out);
    }

    /// After forward: adds the gradient of the batch's loss to `gradients`, and its losses to `report`. The loss is
    /// averaged over `total_weight`, the weight_sum over the supervised positions of everything one optimizer step
    /// covers, this batch and others. Consumes the tape. Without `gradients` only the losses are made.
    void backward(std::span<Real const> values, draft_batch<Real> const& batch, loss_settings const& settings,
                  double total_weight, draft_tape<Real>& tape, std::span<Real> gradients, loss_report& report,
                  sureleap::chunk_limits limits = {}) const {
        auto const& t = config_.transformer;
        std::vector<std::size_t> rows;
        std::vector<std::size_t> sources;
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            for (std::size_t k = 0; k < batch.blocks[b].positions; ++k) {
                rows.push_back(b * block_size() + k);
                sources.push_back(batch.blocks[b].context.end + k);
            }
        }
        head_.backward(values, tape.hidden.view(), batch.previous,
                       {rows, sources, batch.labels, batch.target_hidden, limits, batch.laws}, settings, total_weight,
                       tape.head, gradients);
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            report.add(std::span(tape.head.losses).subspan(b * block_size(), batch.blocks[b].positions));
        }
        if (gradients.empty()) return;

        auto const dx = tape.d_rows.resize_zeroed(batch.previous.size(), t.hidden_size);
        rms_norm_backward(layer_input(tape, t.layers), final_norm_.values(values), t.rms_norm_eps,
                          tape.head.d_hidden.view(), final_norm_.values(gradients), dx);
        auto const d_context = tape.d_context.resize_zeroed(batch.features.rows, t.hidden_size);
        for (std::size_t l = t.layers; l-- > 0;) {
            layers_[l].backward(values, pass(tape), layer_input(tape, l), tape.layers[l], tape.scratch, gradients, dx,
                                d_context);
        }
        // dx would be the gradient of the embeddings, which are frozen.
        auto const d_projected = tape.d_projected.resize_zeroed(batch.features.rows, t.hidden_size);
        rms_norm_backward(tape.projected.view(), context_norm_.values(values), t.rms_norm_eps, d_context,
                          context_norm_.values(gradients), d_projected);
        add_outer(d_projected, batch.features, fc_.of(gradients));
    }

private:
    [[nodiscard]] static engine::model_config const& checked(engine::model_config const& config,
                                                             matrix_view<Real> embeddings, matrix_view<Real> lm_head) {
        if (config.kind != engine::architecture::dspark || !config.draft) {
            sureleap::fail_with("draft_model: architecture is ", name_of(config.kind), ", expected ",
                                name_of(engine::architecture::dspark));
        }
        std::size_t const V = config.transformer.vocabulary;
        auto const check_table = [&](char const* name, matrix_view<Real> table, std::size_t rows) {
            std::size_t const d = config.transformer.hidden_size;
            if (table.rows == rows && table.cols == d) return;
            sureleap::fail_with("draft_model: ", name, " is [", table.rows, ", ", table.cols, "], expected [", rows,
                                ", ", d, "] (vocabulary x hidden)");
        };
        check_table("embeddings", embeddings, V);
        check_table("lm_head", lm_head, config.draft->vocabulary > 0 ? config.draft->vocabulary : V);
        return config;
    }

    void check(draft_batch<Real> const& batch) const {
        auto const& t = config_.transformer;
        auto const expect = [](char const* what, std::size_t is, std::size_t expected) {
            if (is == expected) return;
            sureleap::fail_with("draft_batch: ", what, " is ", is, ", expected ", expected);
        };
        expect("width of features", batch.features.cols, fc_.cols);
        if (batch.laws.empty()) {
            // What a part of the tokens has of a law would have to be known, and a product with that part does not
            // tell.
            expect("draft vocabulary without laws", config_.draft->vocabulary, 0);
            expect("width of target_hidden", batch.target_hidden.cols, t.hidden_size);
            expect("rows of target_hidden", batch.target_hidden.rows, batch.features.rows);
        } else {
            expect("length of laws", batch.laws.rows(), batch.previous.size());
        }
        expect("length of previous", batch.previous.size(), batch.blocks.size() * block_size());
        expect("length of labels", batch.labels.size(), batch.previous.size());
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            draft_block const& block = batch.blocks[b];
            if (block.positions > block_size() || block.context.begin > block.context.end ||
                block.context.end + block.positions > batch.features.rows) {
                sureleap::fail_with("draft_batch: block ", b, " has ", block.positions, " positions after token rows [",
                                    block.context.begin, ", ", block.context.end, "), expected at most ", block_size(),
                                    " within ", batch.features.rows, " rows");
            }
            if (block.context.size() + block_size() > angles_.size()) {
                sureleap::fail_with("draft_batch: block ", b, " reaches position ",
                                    block.context.size() + block_size() - 1, ", expected below ", angles_.size());
            }
        }
        auto const check_tokens = [&](char const* name, std::span<token_id const> tokens, std::size_t vocabulary) {
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                if (tokens[i] >= 0 && static_cast<std::size_t>(tokens[i]) < vocabulary) continue;
                if (tokens[i] == sureleap::no_token && !batch.laws.empty() && tokens.data() == batch.labels.data())
                    continue;
                sureleap::fail_with("draft_batch: ", name, "[", i, "] is ", tokens[i], ", expected a token below ",
                                    vocabulary);
            }
        };
        check_tokens("previous", batch.previous, t.vocabulary);
        check_tokens("labels", batch.labels, head_.vocabulary());
        check_tokens("laws", batch.laws.tokens, head_.vocabulary());
    }

    // Positions, and who sees whom. A token row has its position from a block of its sequence; a row that no block's
    // context reaches is read by nobody and stays at 0.
    void place_rows(draft_batch<Real> const& batch, draft_tape<Real>& tape) const {
        tape.context_positions.assign(batch.features.rows, 0);
        tape.positions.clear();
        tape.sees.clear();
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            draft_block const& block = batch.blocks[b];
            std::size_t const first = b * block_size();
            // Contexts of one sequence are nested: what the block before has placed need not be placed again.
            bool const nested = b > 0 && batch.blocks[b - 1].context.begin == block.context.begin;
            std::size_t const placed = nested ? batch.blocks[b - 1].context.end : block.context.begin;
            for (std::size_t row = placed; row < block.context.end; ++row) {
                tape.context_positions[row] = static_cast<std::uint32_t>(row - block.context.begin);
            }
            for (std::size_t k = 0; k < block_size(); ++k) {
                tape.positions.push_back(static_cast<std::uint32_t>(block.context.size() + k));
                tape.sees.push_back(block.positions > 0 ? visible_rows{block.context, {first, first + block_size()}}
                                                        : visible_rows{});
            }
        }
    }

    [[nodiscard]] layer_pass<Real> pass(draft_tape<Real> const& tape) const {
        return {angles_, tape.sees, tape.positions, tape.context.view(), tape.context_positions};
    }
    [[nodiscard]] static matrix_view<Real> layer_input(draft_tape<Real> const& tape, std::size_t layer) {
        return layer == 0 ? tape.input.view() : tape.layers[layer - 1].output.view();
    }

    engine::model_config config_;
    matrix_view<Real> embeddings_;
    rotary<Real> angles_;
    parameter_layout layout_;
    draft_head<Real> head_;
    tensor fc_, context_norm_, final_norm_;
    std::vector<decoder_layer> layers_;
};

}  // namespace train
