// SPDX-License-Identifier: MIT
//
// The one layer of an Eagle3 drafter in training: from the features f of every token row to what chains make of them,
// and back. The maths and the pairing are examples/engine/eagle3's: the pair of position i is the target's feature
// there and the token of i + 1.
//     pair = [ RMSNorm_input(E[next token]) ; RMSNorm_hidden(f) ]    keys and values of the context
//     chain row k of an anchor at p                  at position p - 1 + k, next token that of p + k:
//         x_0 = f of p - 1;   x_k = the output of row k - 1
//         y_k = [ RMSNorm_input(E[next token]) ; RMSNorm_hidden(x_k) ]
//         output = x_k + attention(y_k) + mlp         over pairs before p - 1 and the chain's rows up to k
// Gradients flow through a chain and into every pair it sees.
//
// It is layer.hpp's layer but for what it reads, a pair, and adds to, half of one. Sharing the rest was rejected: there
// the whole batch passes at once, here a step at a time, and the gradients of the weights wait for the last.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <engine/config.hpp>
#include <sureleap/training/rows.hpp>

#include "attention_columns.hpp"
#include "eagle3_batch.hpp"
#include "eagle3_tape.hpp"
#include "elementwise.hpp"
#include "gemm.hpp"
#include "parameters.hpp"

namespace train {

template <class Real>
class eagle3_layer {
public:
    /// Declares its tensors. The table is [V, hidden], frozen, and must outlive the layer. Positions stay below
    /// max_positions.
    eagle3_layer(parameter_layout& layout, engine::model_config const& config, matrix_view<Real> embeddings,
                 std::size_t max_positions)
        : config_(config.transformer),
          gamma_(config.draft->block_size),
          columns_(config_),
          embeddings_(embeddings),
          angles_(config_.head_dim, config_.rope_theta, max_positions) {
        std::size_t const d = config_.hidden_size;
        auto const query = layout.matrix("layers.0.self_attn.q_proj.weight", columns_.queries(), 2 * d);
        auto const key = layout.matrix("layers.0.self_attn.k_proj.weight", columns_.keys(), 2 * d);
        auto const value = layout.matrix("layers.0.self_attn.v_proj.weight", columns_.keys(), 2 * d);
        key_value_ = stacked(key, value);
        query_key_value_ = stacked(query, key_value_);
        output_ = layout.matrix("layers.0.self_attn.o_proj.weight", d, columns_.queries());
        query_norm_ = layout.vector("layers.0.self_attn.q_norm.weight", config_.head_dim);
        key_norm_ = layout.vector("layers.0.self_attn.k_norm.weight", config_.head_dim);
        auto const gate = layout.matrix("layers.0.mlp.gate_proj.weight", config_.intermediate_size, d);
        auto const up = layout.matrix("layers.0.mlp.up_proj.weight", config_.intermediate_size, d);
        gate_up_ = stacked(gate, up);
        down_ = layout.matrix("layers.0.mlp.down_proj.weight", d, config_.intermediate_size);
        input_norm_ = layout.vector("layers.0.input_layernorm.weight", d);
        hidden_norm_ = layout.vector("layers.0.hidden_norm.weight", d);
        middle_norm_ = layout.vector("layers.0.post_attention_layernorm.weight", d);
    }

    [[nodiscard]] std::size_t max_positions() const noexcept { return angles_.size(); }

    /// tape.features [token rows, hidden] -> tape.output [chain rows, hidden]. Rows must have been placed.
    void forward(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape) const {
        read_pairs(values, batch, tape);
        std::size_t const d = config_.hidden_size;
        std::size_t const n = batch.blocks.size() * gamma_;
        // A product over many chains meets values of later steps, at probability 0: they must be numbers.
        tape.projected.resize_zeroed(n, query_key_value_.rows);
        tape.rotated.resize(n, columns_.queries() + columns_.keys());
        tape.input.resize(n, 2 * d);
        tape.normalisers.resize(n, config_.heads);
        tape.attended.resize(n, columns_.queries());
        tape.middle.resize(n, d);
        tape.middle_normed.resize(n, d);
        tape.gate_up.resize(n, gate_up_.rows);
        tape.activated.resize(n, config_.intermediate_size);
        tape.output.resize(n, d);
        for (std::size_t k = 0; k < gamma_; ++k) forward_step(values, {batch.blocks, gamma_, k}, tape);
    }

    /// tape.d_output -> tape.d_features. Adds to `gradients`. Consumes the tape.
    void backward(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape,
                  std::span<Real> gradients) const {
        std::size_t const d = config_.hidden_size;
        std::size_t const n = batch.blocks.size() * gamma_;
        tape.d_projected.resize_zeroed(n, query_key_value_.rows);
        tape.d_middle.resize(n, d);
        tape.d_start.resize_zeroed(batch.blocks.size(), d);
        tape.d_pairs.resize_zeroed(batch.features.rows, 2 * d);
        tape.d_context.resize_zeroed(batch.features.rows, key_value_.rows);
        for (std::size_t k = gamma_; k-- > 0;) backward_step(values, {batch.blocks, gamma_, k}, tape, gradients);
        add_outer(tape.d_output.view(), tape.activated.view(), down_.of(gradients));
        add_outer(tape.gate_up.view(), tape.middle_normed.view(), gate_up_.of(gradients));
        add_outer(tape.d_middle.view(), tape.attended.view(), output_.of(gradients));
        add_outer(tape.d_projected.view(), tape.input.view(), query_key_value_.of(gradients));
        backward_pairs(values, batch, tape, gradients);
    }

private:
    // Keys and values of the context, and where chains start.
    void read_pairs(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape) const {
        std::size_t const m = batch.features.rows;
        double const epsilon = config_.rms_norm_eps;
        auto const pairs = tape.pairs.resize(m, 2 * config_.hidden_size);
        sureleap::gather_rows(embeddings_, batch.next_tokens, token_half(pairs));
        rms_norm(token_half(pairs), input_norm_.values(values), epsilon, token_half(pairs));
        rms_norm(tape.features.view(), hidden_norm_.values(values), epsilon, hidden_half(pairs));
        auto const context = tape.context_projected.resize(m, key_value_.rows);
        multiply(pairs, key_value_.of(values), context);
        norm_and_rotate(columns_.key_part(context), key_norm_.values(values), epsilon, angles_, tape.context_positions,
                        tape.context_rotated.resize(m, columns_.keys()));

        auto const start = tape.start.resize_zeroed(batch.blocks.size(), config_.hidden_size);
        eagle3_step{batch.blocks, gamma_, 0}.for_each_pair([&](std::size_t b, std::size_t row) {
            std::ranges::copy(tape.features.view().row(row), start.row(b).begin());
        });
    }

    void forward_step(std::span<Real const> values, eagle3_step const& step, eagle3_tape<Real>& tape) const {
        double const epsilon = config_.rms_norm_eps;
        auto const x = step.before(tape.start, tape.output);
        auto const y = step.of(tape.input);
        eigen(token_half(y)).setZero();  // of rows without a token
        step.for_each_pair([&](std::size_t b, std::size_t row) {
            std::ranges::copy(token_half(tape.pairs.view()).row(row), token_half(y).row(b).begin());
        });
        rms_norm(x, hidden_norm_.values(values), epsilon, hidden_half(y));
        auto const projected = step.of(tape.projected);
        auto const rotated = step.of(tape.rotated);
        auto const positions = step.of(tape.positions);
        multiply(y, query_key_value_.of(values), projected);
        norm_and_rotate(columns_.query_part(projected), query_norm_.values(values), epsilon, angles_, positions,
                        columns_.query_part(rotated));
        norm_and_rotate(columns_.key_part(projected), key_norm_.values(values), epsilon, angles_, positions,
                        columns_.rotated_key_part(rotated));
        auto const attended = step.of(tape.attended);
        columns_.attending<Real>().forward(step.of(tape.sees), columns_.query_part(rotated),
                                           columns_.keys_and_values(tape.context_rotated, tape.context_projected),
                                           columns_.keys_and_values(tape.rotated, tape.projected), attended,
                                           step.of(tape.normalisers));
        auto const middle = step.of(tape.middle);
        multiply(attended, output_.of(values), middle);
        eigen(middle) += eigen(x);

        auto const z = step.of(tape.middle_normed);
        rms_norm(middle, middle_norm_.values(values), epsilon, z);
        auto const gate_up = step.of(tape.gate_up);
        multiply(z, gate_up_.of(values), gate_up);
        auto const activated = step.of(tape.activated);
        swiglu(gate_up, activated);
        auto const output = step.of(tape.output);
        multiply(activated, down_.of(values), output);
        eigen(output) += eigen(middle);
    }

    // From d_output of the step, which is complete, to that of the step before, the pairs and the keys that it saw.
    void backward_step(std::span<Real const> values, eagle3_step const& step, eagle3_tape<Real>& tape,
                       std::span<Real> gradients) const {
        double const epsilon = config_.rms_norm_eps;
        auto const d_output = step.of(tape.d_output);
        auto const d_activated = tape.d_activated.resize(step.chains(), config_.intermediate_size);
        auto const d_gate_up = step.of(tape.gate_up);
        auto const d_rows = tape.d_rows.resize(step.chains(), config_.hidden_size);
        auto const d_middle = step.of(tape.d_middle);
        multiply_back(d_output, down_.of(values), d_activated);
        swiglu_backward(d_activated, d_gate_up);
        multiply_back(d_gate_up, gate_up_.of(values), d_rows);
        eigen(d_middle) = eigen(d_output);
        rms_norm_backward(step.of(tape.middle), middle_norm_.values(values), epsilon, d_rows,
                          middle_norm_.values(gradients), d_middle);

        auto const d_attended = tape.d_attended.resize(step.chains(), columns_.queries());
        multiply_back(d_middle, output_.of(values), d_attended);
        // Later steps have added their part to this step's keys; its own is the last.
        auto const d_projected = step.of(tape.d_projected);
        columns_.attending<Real>().backward(
            step.of(tape.sees), columns_.query_part(step.of(tape.rotated)),
            columns_.keys_and_values(tape.context_rotated, tape.context_projected),
            columns_.keys_and_values(tape.rotated, tape.projected), step.of(tape.attended), step.of(tape.normalisers),
            d_attended, columns_.query_part(d_projected), columns_.keys_and_values(tape.d_context.span()),
            columns_.keys_and_values(tape.d_projected.span()));
        auto const projected = step.of(tape.projected);
        auto const positions = step.of(tape.positions);
        norm_and_rotate_backward(columns_.query_part(projected), query_norm_.values(values), epsilon, angles_,
                                 positions, query_norm_.values(gradients), columns_.query_part(d_projected));
        norm_and_rotate_backward(columns_.key_part(projected), key_norm_.values(values), epsilon, angles_, positions,
                                 key_norm_.values(gradients), columns_.key_part(d_projected));
        auto const d_input = tape.d_input.resize(step.chains(), 2 * config_.hidden_size);
        multiply_back(d_projected, query_key_value_.of(values), d_input);
        step.for_each_pair([&](std::size_t b, std::size_t row) {
            sureleap::axpy(Real(1), token_half(d_input).row(b), token_half(tape.d_pairs.span()).row(row));
        });
        auto const dx = step.before(tape.d_start, tape.d_output);
        eigen(dx) += eigen(d_middle);
        rms_norm_backward(step.before(tape.start, tape.output), hidden_norm_.values(values), epsilon,
                          hidden_half(d_input), hidden_norm_.values(gradients), dx);
    }

    void backward_pairs(std::span<Real const> values, eagle3_batch<Real> const& batch, eagle3_tape<Real>& tape,
                        std::span<Real> gradients) const {
        std::size_t const m = batch.features.rows;
        double const epsilon = config_.rms_norm_eps;
        auto const d_context = tape.d_context.span();
        auto const d_pairs = tape.d_pairs.span();
        norm_and_rotate_backward(columns_.key_part(tape.context_projected.view()), key_norm_.values(values), epsilon,
                                 angles_, tape.context_positions, key_norm_.values(gradients),
                                 columns_.key_part(d_context));
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
        eagle3_step{batch.blocks, gamma_, 0}.for_each_pair([&](std::size_t b, std::size_t row) {
            sureleap::axpy(Real(1), tape.d_start.view().row(b), d_features.row(row));
        });
        rms_norm_backward(tape.features.view(), hidden_norm_.values(values), epsilon, hidden_half(d_pairs),
                          hidden_norm_.values(gradients), d_features);
    }

    // Columns of a pair.
    template <class Matrix>
    [[nodiscard]] Matrix token_half(Matrix const& pairs) const {
        return sureleap::column_range(pairs, 0, config_.hidden_size);
    }
    template <class Matrix>
    [[nodiscard]] Matrix hidden_half(Matrix const& pairs) const {
        return sureleap::column_range(pairs, config_.hidden_size, config_.hidden_size);
    }

    engine::transformer_config config_;
    std::size_t gamma_;
    attention_columns columns_;
    matrix_view<Real> embeddings_;
    rotary<Real> angles_;
    tensor query_key_value_, key_value_, output_;
    tensor query_norm_, key_norm_;
    tensor gate_up_, down_;
    tensor input_norm_, hidden_norm_, middle_norm_;
};

}  // namespace train
