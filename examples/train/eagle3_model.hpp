// SPDX-License-Identifier: MIT
//
// An Eagle3 drafter in training: many chains of many sequences in one pass, forward and backward. The maths and the
// pairing are examples/engine/eagle3's: the pair of position i is the target's feature there and the token of i + 1.
//     f = F fc^T                                     of every token row, from the target's features F
//     pair = [ RMSNorm_input(E[next token]) ; RMSNorm_hidden(f) ]    keys and values of the context
//     chain row k of an anchor at p                  at position p - 1 + k, next token that of p + k:
//         x_0 = f of p - 1;   x_k = the output of row k - 1
//         y_k = [ RMSNorm_input(E[next token]) ; RMSNorm_hidden(x_k) ]
//         output = x_k + attention(y_k) + mlp         over pairs before p - 1 and the chain's rows up to k
//         LM head(RMSNorm(output))                    predicts token p + 1 + k
// So a chain is what the drafter does in a round of decoding that drafts the text's own tokens, and training it through
// its own outputs is the reference's "training-time test". Gradients flow through a chain and into every pair it sees.
//
// Chains start at the sampled anchors of block drafters: all kinds of drafters then learn from equal data. The reference
// starts one at every position, which costs as many passes over all tokens as a chain has steps, and was rejected.
//
// The loss is the cross entropy against the target's whole law instead of a label, row k weighted by 0.8^k, averaged as
// everywhere here over the sum of weights (the reference divides by the number of positions; a factor that an optimizer
// like Adam does not see). The target's logits come from its hidden states, a chunk at a time, and rows of all chains
// and steps that ask for the same law share it.
//
// Only steps depend on each other, so a step is one batch of all chains: rows lie [chain, step], and a step is every
// gamma-th row. What no step waits for is done once for all of them: LM head, losses, gradients of the weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <engine/config.hpp>
#include <sureleap/error.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/rows.hpp>
#include <sureleap/training/supervision.hpp>

#include "attention.hpp"
#include "draft_model.hpp"  // draft_block
#include "elementwise.hpp"
#include "gemm.hpp"
#include "parameters.hpp"

namespace train {

/// What the reference minimises. cross_entropy is that against the target's law; total_variation means what it does
/// elsewhere and may be given a weight as well; there is no confidence.
[[nodiscard]] inline loss_settings eagle3_losses() {
    return {.cross_entropy = 1.0, .total_variation = 0.0, .confidence = 0.0, .decay = -1.0 / std::log(0.8)};
}

/// Steps of a block's chain that have a loss. An anchor that is the first token of its sequence has none: there is no
/// feature before it to start from, and the engine drafts nothing there either. total_weight is to count these.
[[nodiscard]] inline std::size_t chain_steps(draft_block const& block) {
    return block.context.size() == 0 ? 0 : block.positions;
}

/// Everything belongs to the caller. A chain needs no tokens of its own, as a draft_batch has them: they are those of
/// the token rows from its anchor on.
template <class Real>
struct eagle3_batch {
    matrix_view<Real> features;               ///< [token rows, m * hidden]: the target's, as in the engine
    matrix_view<Real> target_hidden;          ///< [token rows, hidden]: final-normed
    std::span<draft_block const> blocks;      ///< one chain each
    std::span<token_id const> next_tokens{};  ///< [token rows]: the token after each
};

/// Memory from forward to backward. One a thread, kept from batch to batch. m token rows, n = blocks * gamma chain rows.
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

template <class Real>
class eagle3_model {
public:
    /// The tables are [V, hidden], frozen, and must outlive the model. Positions stay below max_positions. Throws
    /// sureleap::error if the tables do not fit the configuration.
    eagle3_model(engine::model_config const& config, matrix_view<Real> embeddings, matrix_view<Real> lm_head,
                 std::size_t max_positions)
        : config_(checked(config, embeddings, lm_head).transformer),
          gamma_(config.draft->block_size),
          embeddings_(embeddings),
          lm_head_(lm_head),
          angles_(config_.head_dim, config_.rope_theta, max_positions) {
        std::size_t const d = config_.hidden_size;
        fc_ = layout_.matrix("fc.weight", d, config.draft->target_layer_ids.size() * d);
        auto const query = layout_.matrix("layers.0.self_attn.q_proj.weight", queries(), 2 * d);
        auto const key = layout_.matrix("layers.0.self_attn.k_proj.weight", keys(), 2 * d);
        auto const value = layout_.matrix("layers.0.self_attn.v_proj.weight", keys(), 2 * d);
        key_value_ = stacked(key, value);
        query_key_value_ = stacked(query, key_value_);
        output_ = layout_.matrix("layers.0.self_attn.o_proj.weight", d, queries());
        query_norm_ = layout_.vector("layers.0.self_attn.q_norm.weight", config_.head_dim);
        key_norm_ = layout_.vector("layers.0.self_attn.k_norm.weight", config_.head_dim);
        auto const gate = layout_.matrix("layers.0.mlp.gate_proj.weight", config_.intermediate_size, d);
        auto const up = layout_.matrix("layers.0.mlp.up_proj.weight", config_.intermediate_size, d);
        gate_up_ = stacked(gate, up);
        down_ = layout_.matrix("layers.0.mlp.down_proj.weight", d, config_.intermediate_size);
        input_norm_ = layout_.vector("layers.0.input_layernorm.weight", d);
        hidden_norm_ = layout_.vector("layers.0.hidden_norm.weight", d);
        middle_norm_ = layout_.vector("layers.0.post_attention_layernorm.weight", d);
        final_norm_ = layout_.vector("norm.weight", d);
    }

    /// What is trained, in the released names.
    [[nodiscard]] parameter_layout const& layout() const noexcept { return layout_; }
    /// Steps of a chain.
    [[nodiscard]] std::size_t block_size() const noexcept { return gamma_; }

    /// The final-normed hidden state of every chain row into tape.hidden. Rows without a loss come after those with one
    /// and mean nothing. Throws sureleap::error for a batch whose parts do not fit each other.
    void forward(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape) const {
        check(batch);
        place_rows(batch, tape);
        read_pairs(values, batch, tape);
        std::size_t const d = config_.hidden_size;
        std::size_t const n = batch.blocks.size() * gamma_;
        // A product over many chains meets values of later steps, at probability 0: they must be numbers.
        tape.projected.resize_zeroed(n, query_key_value_.rows);
        tape.rotated.resize(n, queries() + keys());
        tape.input.resize(n, 2 * d);
        tape.normalisers.resize(n, config_.heads);
        tape.attended.resize(n, queries());
        tape.middle.resize(n, d);
        tape.middle_normed.resize(n, d);
        tape.gate_up.resize(n, gate_up_.rows);
        tape.activated.resize(n, config_.intermediate_size);
        tape.output.resize(n, d);
        for (std::size_t k = 0; k < gamma_; ++k) forward_step(values, batch, k, tape);
        rms_norm(tape.output.view(), final_norm_.values(values), config_.rms_norm_eps, tape.hidden.resize(n, d));
    }

    /// Logits of every chain row, after forward: [n, V].
    void logits(eagle3_tape<Real> const& tape, matrix_span<Real> out) const {
        multiply(tape.hidden.view(), lm_head_, out);
    }

    /// After forward: adds the gradient of the batch's loss to `gradients`, and its losses to `report`, where
    /// cross_entropy is that against the target's law. The loss is averaged over `total_weight`, the weight_sum over
    /// the chain_steps of everything one optimizer step covers, this batch and others. Consumes the tape.
    void backward(std::span<Real const> values, eagle3_batch<Real> const& batch, loss_settings const& settings,
                  double total_weight, eagle3_tape<Real>& tape, std::span<Real> gradients, loss_report& report,
                  sureleap::chunk_limits limits = {}) const {
        std::size_t const d = config_.hidden_size;
        std::size_t const n = batch.blocks.size() * gamma_;
        double const epsilon = config_.rms_norm_eps;
        backward_losses(batch, settings, 1.0 / (total_weight + sureleap::loss_epsilon), limits, tape);
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            report.add(std::span(tape.losses).subspan(b * gamma_, chain_steps(batch.blocks[b])));
        }
        rms_norm_backward(tape.output.view(), final_norm_.values(values), epsilon, tape.d_hidden.view(),
                          final_norm_.values(gradients), tape.d_output.resize_zeroed(n, d));
        tape.d_projected.resize_zeroed(n, query_key_value_.rows);
        tape.d_middle.resize(n, d);
        tape.d_start.resize_zeroed(batch.blocks.size(), d);
        tape.d_pairs.resize_zeroed(batch.features.rows, 2 * d);
        tape.d_context.resize_zeroed(batch.features.rows, key_value_.rows);
        for (std::size_t k = gamma_; k-- > 0;) backward_step(values, batch, k, tape, gradients);
        add_outer(tape.d_output.view(), tape.activated.view(), down_.of(gradients));
        add_outer(tape.gate_up.view(), tape.middle_normed.view(), gate_up_.of(gradients));
        add_outer(tape.d_middle.view(), tape.attended.view(), output_.of(gradients));
        add_outer(tape.d_projected.view(), tape.input.view(), query_key_value_.of(gradients));
        backward_pairs(values, batch, tape, gradients);
    }

private:
    [[nodiscard]] static engine::model_config const& checked(engine::model_config const& config,
                                                             matrix_view<Real> embeddings, matrix_view<Real> lm_head) {
        if (config.kind != engine::architecture::eagle3 || !config.draft) {
            sureleap::detail::fail_with("eagle3_model: architecture is ", name_of(config.kind), ", expected ",
                                        name_of(engine::architecture::eagle3));
        }
        auto const check_table = [&](char const* name, matrix_view<Real> table) {
            auto const& t = config.transformer;
            if (table.rows == t.vocabulary && table.cols == t.hidden_size) return;
            sureleap::detail::fail_with("eagle3_model: ", name, " is [", table.rows, ", ", table.cols, "], expected [",
                                        t.vocabulary, ", ", t.hidden_size, "] (vocabulary x hidden)");
        };
        check_table("embeddings", embeddings);
        check_table("lm_head", lm_head);
        return config;
    }

    void check(eagle3_batch<Real> const& batch) const {
        using sureleap::detail::fail_with;
        auto const expect = [](char const* what, std::size_t is, std::size_t expected) {
            if (is != expected) fail_with("eagle3_batch: ", what, " is ", is, ", expected ", expected);
        };
        std::size_t const rows = batch.features.rows;
        expect("width of features", batch.features.cols, fc_.cols);
        expect("width of target_hidden", batch.target_hidden.cols, config_.hidden_size);
        expect("rows of target_hidden", batch.target_hidden.rows, rows);
        expect("length of next_tokens", batch.next_tokens.size(), rows);
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            draft_block const& block = batch.blocks[b];
            if (block.positions > gamma_ || block.context.begin > block.context.end ||
                block.context.end + block.positions > rows) {
                fail_with("eagle3_batch: block ", b, " has ", block.positions, " positions after token rows [",
                          block.context.begin, ", ", block.context.end, "), expected at most ", gamma_, " within ",
                          rows, " rows");
            }
            if (block.context.size() + gamma_ > angles_.size()) {
                fail_with("eagle3_batch: block ", b, " reaches position ", block.context.size() + gamma_ - 1,
                          ", expected below ", angles_.size());
            }
        }
        for (std::size_t i = 0; i < rows; ++i) {
            if (batch.next_tokens[i] >= 0 && static_cast<std::size_t>(batch.next_tokens[i]) < config_.vocabulary)
                continue;
            fail_with("eagle3_batch: next_tokens[", i, "] is ", batch.next_tokens[i], ", expected a token below ",
                      config_.vocabulary);
        }
    }

    // Positions, and who sees whom. Row 0 of a chain brings the key of its pair itself, like every row after it. A row
    // without a loss sees nothing.
    void place_rows(eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape) const {
        std::size_t const chains = batch.blocks.size();
        tape.context_positions.assign(batch.features.rows, 0);
        tape.positions.resize(chains * gamma_);
        tape.sees.resize(chains * gamma_);
        for (std::size_t b = 0; b < chains; ++b) {
            row_span const context = batch.blocks[b].context;
            // Contexts of one sequence are nested: what the block before has placed need not be placed again.
            bool const nested = b > 0 && batch.blocks[b - 1].context.begin == context.begin;
            for (std::size_t row = nested ? batch.blocks[b - 1].context.end : context.begin; row < context.end; ++row) {
                tape.context_positions[row] = static_cast<std::uint32_t>(row - context.begin);
            }
            std::size_t const pair = std::max<std::size_t>(context.size(), 1) - 1;
            for (std::size_t k = 0; k < gamma_; ++k) {
                std::size_t const first = b * gamma_;
                bool const dead = k >= chain_steps(batch.blocks[b]);
                tape.positions[k * chains + b] = static_cast<std::uint32_t>(pair + k);
                tape.sees[k * chains + b] = {{context.begin, context.begin + (dead ? 0 : pair)},
                                             {first, first + (dead ? 0 : k + 1)}};
            }
        }
    }

    void read_pairs(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape) const {
        std::size_t const m = batch.features.rows;
        double const epsilon = config_.rms_norm_eps;
        auto const f = tape.features.resize(m, config_.hidden_size);
        multiply(batch.features, fc_.of(values), f);
        auto const pairs = tape.pairs.resize(m, 2 * config_.hidden_size);
        sureleap::gather_rows(embeddings_, batch.next_tokens, token_half(pairs));
        rms_norm(token_half(pairs), input_norm_.values(values), epsilon, token_half(pairs));
        rms_norm(f, hidden_norm_.values(values), epsilon, hidden_half(pairs));
        auto const context = tape.context_projected.resize(m, key_value_.rows);
        multiply(pairs, key_value_.of(values), context);
        norm_and_rotate(first_keys(context), key_norm_.values(values), epsilon, angles_, tape.context_positions,
                        tape.context_rotated.resize(m, keys()));

        auto const start = tape.start.resize_zeroed(batch.blocks.size(), config_.hidden_size);
        for_each_row(batch, 0, [&](std::size_t b, std::size_t row) {
            std::ranges::copy(tape.features.view().row(row), start.row(b).begin());
        });
    }

    void forward_step(std::span<Real const> values, eagle3_batch<Real> const& batch, std::size_t k,
                      eagle3_tape<Real>& tape) const {
        double const epsilon = config_.rms_norm_eps;
        auto const x = step_input(tape, k);
        auto const y = step(tape.input.span(), k);
        eigen(token_half(y)).setZero();  // of rows without a token
        for_each_row(batch, k, [&](std::size_t b, std::size_t row) {
            std::ranges::copy(token_half(tape.pairs.view()).row(row), token_half(y).row(b).begin());
        });
        rms_norm(x, hidden_norm_.values(values), epsilon, hidden_half(y));
        auto const projected = step(tape.projected.span(), k);
        auto const rotated = step(tape.rotated.span(), k);
        auto const positions = of_step(tape.positions, k);
        multiply(y, query_key_value_.of(values), projected);
        norm_and_rotate(query_part(projected), query_norm_.values(values), epsilon, angles_, positions,
                        query_part(rotated));
        norm_and_rotate(key_part(projected), key_norm_.values(values), epsilon, angles_, positions, key_part(rotated));
        auto const attended = step(tape.attended.span(), k);
        attending().forward(of_step(tape.sees, k), query_part(rotated), context_views(tape), own_views(tape), attended,
                            step(tape.normalisers.span(), k));
        auto const middle = step(tape.middle.span(), k);
        multiply(attended, output_.of(values), middle);
        eigen(middle) += eigen(x);

        auto const z = step(tape.middle_normed.span(), k);
        rms_norm(middle, middle_norm_.values(values), epsilon, z);
        auto const gate_up = step(tape.gate_up.span(), k);
        multiply(z, gate_up_.of(values), gate_up);
        auto const activated = step(tape.activated.span(), k);
        swiglu(gate_up, activated);
        auto const output = step(tape.output.span(), k);
        multiply(activated, down_.of(values), output);
        eigen(output) += eigen(middle);
    }

    // From d_output of step k, which is complete, to that of step k - 1, the pairs and the keys that step k saw.
    void backward_step(std::span<Real const> values, eagle3_batch<Real> const& batch, std::size_t k,
                       eagle3_tape<Real>& tape, std::span<Real> gradients) const {
        std::size_t const chains = batch.blocks.size();
        double const epsilon = config_.rms_norm_eps;
        auto const d_output = step(tape.d_output.span(), k);
        auto const d_activated = tape.d_activated.resize(chains, config_.intermediate_size);
        auto const d_gate_up = step(tape.gate_up.span(), k);
        auto const d_rows = tape.d_rows.resize(chains, config_.hidden_size);
        auto const d_middle = step(tape.d_middle.span(), k);
        multiply_back(d_output, down_.of(values), d_activated);
        swiglu_backward(d_activated, d_gate_up);
        multiply_back(d_gate_up, gate_up_.of(values), d_rows);
        eigen(d_middle) = eigen(d_output);
        rms_norm_backward(step(tape.middle.span(), k), middle_norm_.values(values), epsilon, d_rows,
                          middle_norm_.values(gradients), d_middle);

        auto const d_attended = tape.d_attended.resize(chains, queries());
        multiply_back(d_middle, output_.of(values), d_attended);
        // Later steps have added their part to this step's keys; its own is the last.
        auto const d_all = tape.d_projected.span();
        auto const d_projected = step(d_all, k);
        attending().backward(
            of_step(tape.sees, k), query_part(step(tape.rotated.span(), k)), context_views(tape), own_views(tape),
            step(tape.attended.span(), k), step(tape.normalisers.span(), k), d_attended, query_part(d_projected),
            {first_keys(tape.d_context.span()), last_keys(tape.d_context.span())}, {key_part(d_all), last_keys(d_all)});
        auto const projected = step(tape.projected.span(), k);
        auto const positions = of_step(tape.positions, k);
        norm_and_rotate_backward(query_part(projected), query_norm_.values(values), epsilon, angles_, positions,
                                 query_norm_.values(gradients), query_part(d_projected));
        norm_and_rotate_backward(key_part(projected), key_norm_.values(values), epsilon, angles_, positions,
                                 key_norm_.values(gradients), key_part(d_projected));
        auto const d_input = tape.d_input.resize(chains, 2 * config_.hidden_size);
        multiply_back(d_projected, query_key_value_.of(values), d_input);
        for_each_row(batch, k, [&](std::size_t b, std::size_t row) {
            sureleap::detail::axpy(Real(1), token_half(d_input).row(b), token_half(tape.d_pairs.span()).row(row));
        });
        auto const dx = k == 0 ? tape.d_start.span() : step(tape.d_output.span(), k - 1);
        eigen(dx) += eigen(d_middle);
        rms_norm_backward(step_input(tape, k), hidden_norm_.values(values), epsilon, hidden_half(d_input),
                          hidden_norm_.values(gradients), dx);
    }

    void backward_pairs(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape,
                        std::span<Real> gradients) const {
        std::size_t const m = batch.features.rows;
        double const epsilon = config_.rms_norm_eps;
        auto const d_context = tape.d_context.span();
        auto const d_pairs = tape.d_pairs.span();
        norm_and_rotate_backward(first_keys(tape.context_projected.view()), key_norm_.values(values), epsilon, angles_,
                                 tape.context_positions, key_norm_.values(gradients), first_keys(d_context));
        add_outer(d_context, tape.pairs.view(), key_value_.of(gradients));
        multiply_back(d_context, key_value_.of(values), d_pairs, into::sum);
        // Of the embeddings' norm its scale alone: the embeddings are frozen.
        auto const d_scale = input_norm_.values(gradients);
        for (std::size_t i = 0; i < m; ++i) {
            auto const e = embeddings_.row(static_cast<std::size_t>(batch.next_tokens[i]));
            Real const inverse = detail::inverse_rms(e, static_cast<Real>(epsilon));
            auto const dy = token_half(d_pairs).row(i);
            for (std::size_t j = 0; j < e.size(); ++j) d_scale[j] += dy[j] * e[j] * inverse;
        }
        auto const d_features = tape.d_features.resize_zeroed(m, config_.hidden_size);
        for_each_row(batch, 0, [&](std::size_t b, std::size_t row) {
            sureleap::detail::axpy(Real(1), tape.d_start.view().row(b), d_features.row(row));
        });
        rms_norm_backward(tape.features.view(), hidden_norm_.values(values), epsilon, hidden_half(d_pairs),
                          hidden_norm_.values(gradients), d_features);
        add_outer(d_features, batch.features, fc_.of(gradients));
    }

    // Into tape.losses and tape.d_hidden.
    void backward_losses(eagle3_batch<Real> const& batch, loss_settings const& settings, double scale,
                         sureleap::chunk_limits const& limits, eagle3_tape<Real>& tape) const {
        std::size_t const d = config_.hidden_size;
        std::size_t const n = tape.hidden.rows();
        std::vector<std::size_t> supervised;  // chain rows
        std::vector<std::size_t> sources;     // token rows; the token after one is the chain row's label, too
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            for (std::size_t k = 0; k < chain_steps(batch.blocks[b]); ++k) {
                supervised.push_back(b * gamma_ + k);
                sources.push_back(batch.blocks[b].context.end + k);
            }
        }
        tape.losses.assign(n, {});
        tape.d_hidden.resize_zeroed(n, d);
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
        sureleap::detail::axpy(-a, law, logits);
        return loss;
    }

    // f(chain, token row of its pair) for the chains whose step k has a loss.
    template <class F>
    static void for_each_row(eagle3_batch<Real> const& batch, std::size_t k, F const& f) {
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            if (k < chain_steps(batch.blocks[b])) f(b, batch.blocks[b].context.end - 1 + k);
        }
    }

    // Step k of all chains: every gamma-th row.
    [[nodiscard]] matrix_span<Real> step(matrix_span<Real> m, std::size_t k) const {
        return {m.data + k * m.stride, m.rows / gamma_, m.cols, gamma_ * m.stride};
    }
    template <class T>
    [[nodiscard]] std::span<T const> of_step(std::vector<T> const& all, std::size_t k) const {
        std::size_t const chains = all.size() / gamma_;
        return std::span(all).subspan(k * chains, chains);
    }
    [[nodiscard]] matrix_span<Real> step_input(eagle3_tape<Real>& tape, std::size_t k) const {
        return k == 0 ? tape.start.span() : step(tape.output.span(), k - 1);
    }

    [[nodiscard]] std::size_t queries() const noexcept { return config_.heads * config_.head_dim; }
    [[nodiscard]] std::size_t keys() const noexcept { return config_.kv_heads * config_.head_dim; }
    [[nodiscard]] attention<Real> attending() const noexcept {
        return {config_.heads, config_.kv_heads, config_.head_dim};
    }

    // Columns of a pair, of [q | k | v] or [q | k], and of [k | v].
    template <class Matrix>
    [[nodiscard]] Matrix token_half(Matrix const& m) const {
        return sureleap::detail::columns(m, 0, config_.hidden_size);
    }
    template <class Matrix>
    [[nodiscard]] Matrix hidden_half(Matrix const& m) const {
        return sureleap::detail::columns(m, config_.hidden_size, config_.hidden_size);
    }
    template <class Matrix>
    [[nodiscard]] Matrix query_part(Matrix const& m) const {
        return sureleap::detail::columns(m, 0, queries());
    }
    template <class Matrix>
    [[nodiscard]] Matrix key_part(Matrix const& m) const {
        return sureleap::detail::columns(m, queries(), keys());
    }
    template <class Matrix>
    [[nodiscard]] Matrix first_keys(Matrix const& m) const {
        return sureleap::detail::columns(m, 0, keys());
    }
    template <class Matrix>
    [[nodiscard]] Matrix last_keys(Matrix const& m) const {
        return sureleap::detail::columns(m, m.cols - keys(), keys());
    }
    [[nodiscard]] key_rows<matrix_view<Real>> context_views(eagle3_tape<Real> const& tape) const {
        return {tape.context_rotated.view(), last_keys(tape.context_projected.view())};
    }
    [[nodiscard]] key_rows<matrix_view<Real>> own_views(eagle3_tape<Real> const& tape) const {
        return {key_part(tape.rotated.view()), last_keys(tape.projected.view())};
    }

    engine::transformer_config config_;
    std::size_t gamma_;
    matrix_view<Real> embeddings_;
    matrix_view<Real> lm_head_;
    rotary<Real> angles_;
    parameter_layout layout_;
    tensor fc_;
    tensor query_key_value_, key_value_, output_;
    tensor query_norm_, key_norm_;
    tensor gate_up_, down_;
    tensor input_norm_, hidden_norm_, middle_norm_, final_norm_;
};

}  // namespace train
