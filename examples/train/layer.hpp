// SPDX-License-Identifier: MIT
//
// A decoder layer of Qwen3, forward with what backward needs, and backward. The maths is examples/engine/transformer's:
//     y  = RMSNorm(x);   q, k, v = y Wq^T, y Wk^T, y Wv^T;   q, k normed per head and rotated
//     x1 = x + attention(q, [k of context ; k], [v of context ; v]) Wo^T
//     x2 = x1 + (silu(z Wg^T) * z Wu^T) Wd^T,   z = RMSNorm(x1)
// Context rows, if there are any, are used as they come: only their keys are normed and rotated, as in DSpark. A target
// is the same layer without context.
//
// The tape keeps what is expensive to make again or small; norms are computed again, and backward overwrites the gates
// with their gradients. Query, key and value projections are one matrix, gate and up another: fewer, larger products,
// and the gradient of what they read is one product instead of a sum of three.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <engine/config.hpp>

#include "attention.hpp"
#include "attention_columns.hpp"
#include "elementwise.hpp"
#include "gemm.hpp"
#include "parameters.hpp"

namespace train {

/// What all layers of one pass share. n rows, m context rows (m may be 0).
template <class Real>
struct layer_pass {
    rotary<Real> const& angles;
    std::span<visible_rows const> sees;                  ///< [n]
    std::span<std::uint32_t const> positions;            ///< [n]
    matrix_view<Real> context{};                         ///< [m, hidden]
    std::span<std::uint32_t const> context_positions{};  ///< [m]
};

/// What a forward of one layer leaves for its backward.
template <class Real>
struct layer_tape {
    matrix<Real> normed;             ///< y [n, hidden]
    matrix<Real> projected;          ///< [n, q | k | v] before norm and rotation
    matrix<Real> rotated;            ///< [n, q | k] after
    matrix<Real> context_projected;  ///< [m, k | v]
    matrix<Real> context_rotated;    ///< [m, k]
    matrix<Real> normalisers;        ///< [n, heads]
    matrix<Real> attended;           ///< [n, heads * head_dim]
    matrix<Real> middle;             ///< x1 [n, hidden]
    matrix<Real> middle_normed;      ///< z [n, hidden]
    matrix<Real> gate_up;            ///< [n, gate | up]
    matrix<Real> activated;          ///< [n, intermediate]
    matrix<Real> output;             ///< x2 [n, hidden]
};

/// Memory that the backward of every layer needs for a while; one for all layers.
template <class Real>
struct layer_scratch {
    matrix<Real> rows;       ///< [n, hidden]
    matrix<Real> activated;  ///< [n, intermediate]
    matrix<Real> attended;   ///< [n, heads * head_dim]
    matrix<Real> projected;  ///< [n, q | k | v]
    matrix<Real> context;    ///< [m, k | v]
};

class decoder_layer {
public:
    /// Declares its tensors: prefix + "self_attn.q_proj.weight" and so on.
    decoder_layer(parameter_layout& layout, std::string const& prefix, engine::transformer_config const& config)
        : config_(config), columns_(config) {
        std::size_t const d = config.hidden_size;
        auto const query = layout.matrix(prefix + "self_attn.q_proj.weight", columns_.queries(), d);
        auto const key = layout.matrix(prefix + "self_attn.k_proj.weight", columns_.keys(), d);
        auto const value = layout.matrix(prefix + "self_attn.v_proj.weight", columns_.keys(), d);
        key_value_ = stacked(key, value);
        query_key_value_ = stacked(query, key_value_);
        output_ = layout.matrix(prefix + "self_attn.o_proj.weight", d, columns_.queries());
        query_norm_ = layout.vector(prefix + "self_attn.q_norm.weight", config.head_dim);
        key_norm_ = layout.vector(prefix + "self_attn.k_norm.weight", config.head_dim);
        auto const gate = layout.matrix(prefix + "mlp.gate_proj.weight", config.intermediate_size, d);
        auto const up = layout.matrix(prefix + "mlp.up_proj.weight", config.intermediate_size, d);
        gate_up_ = stacked(gate, up);
        down_ = layout.matrix(prefix + "mlp.down_proj.weight", d, config.intermediate_size);
        input_norm_ = layout.vector(prefix + "input_layernorm.weight", d);
        middle_norm_ = layout.vector(prefix + "post_attention_layernorm.weight", d);
    }

    /// x [n, hidden] -> tape.output.
    template <class Real>
    void forward(std::span<Real const> values, layer_pass<Real> const& pass, matrix_view<Real> x,
                 layer_tape<Real>& tape) const {
        std::size_t const n = x.rows;
        std::size_t const m = pass.context.rows;
        double const epsilon = config_.rms_norm_eps;
        auto const y = tape.normed.resize(n, config_.hidden_size);
        rms_norm(x, input_norm_.values(values), epsilon, y);
        auto const projected = tape.projected.resize(n, query_key_value_.rows);
        multiply(y, query_key_value_.of(values), projected);
        auto const rotated = tape.rotated.resize(n, columns_.queries() + columns_.keys());
        norm_and_rotate(columns_.query_part(projected), query_norm_.values(values), epsilon, pass.angles,
                        pass.positions, columns_.query_part(rotated));
        norm_and_rotate(columns_.key_part(projected), key_norm_.values(values), epsilon, pass.angles, pass.positions,
                        columns_.rotated_key_part(rotated));
        auto const context = tape.context_projected.resize(m, key_value_.rows);
        multiply(pass.context, key_value_.of(values), context);
        auto const context_keys = tape.context_rotated.resize(m, columns_.keys());
        norm_and_rotate(columns_.key_part(context), key_norm_.values(values), epsilon, pass.angles,
                        pass.context_positions, context_keys);

        auto const attended = tape.attended.resize(n, columns_.queries());
        columns_.attending<Real>().forward(pass.sees, columns_.query_part(rotated),
                                           columns_.keys_and_values(tape.context_rotated, tape.context_projected),
                                           columns_.keys_and_values(tape.rotated, tape.projected), attended,
                                           tape.normalisers.resize(n, config_.heads));
        auto const middle = tape.middle.resize(n, config_.hidden_size);
        multiply(attended, output_.of(values), middle);
        eigen(middle) += eigen(x);

        auto const z = tape.middle_normed.resize(n, config_.hidden_size);
        rms_norm(middle, middle_norm_.values(values), epsilon, z);
        auto const gate_up = tape.gate_up.resize(n, gate_up_.rows);
        multiply(z, gate_up_.of(values), gate_up);
        auto const activated = tape.activated.resize(n, config_.intermediate_size);
        swiglu(gate_up, activated);
        auto const output = tape.output.resize(n, config_.hidden_size);
        multiply(activated, down_.of(values), output);
        eigen(output) += eigen(middle);
    }

    /// dx: in, the gradient of the output; out, that of x. Adds to `gradients` and to d_context [m, hidden]. Consumes
    /// the tape.
    template <class Real>
    void backward(std::span<Real const> values, layer_pass<Real> const& pass, matrix_view<Real> x,
                  layer_tape<Real>& tape, layer_scratch<Real>& scratch, std::span<Real> gradients, matrix_span<Real> dx,
                  matrix_span<Real> d_context) const {
        std::size_t const n = x.rows;
        std::size_t const m = pass.context.rows;
        double const epsilon = config_.rms_norm_eps;
        auto const d_rows = scratch.rows.resize(n, config_.hidden_size);

        auto const d_activated = scratch.activated.resize(n, config_.intermediate_size);
        multiply_back(dx, down_.of(values), d_activated);
        add_outer(dx, tape.activated.view(), down_.of(gradients));
        auto const d_gate_up = tape.gate_up.span();
        swiglu_backward(d_activated, d_gate_up);
        multiply_back(d_gate_up, gate_up_.of(values), d_rows);
        add_outer(d_gate_up, tape.middle_normed.view(), gate_up_.of(gradients));
        rms_norm_backward(tape.middle.view(), middle_norm_.values(values), epsilon, d_rows,
                          middle_norm_.values(gradients), dx);

        auto const d_attended = scratch.attended.resize(n, columns_.queries());
        multiply_back(dx, output_.of(values), d_attended);
        add_outer(dx, tape.attended.view(), output_.of(gradients));
        // The attention writes the queries' part and adds to the keys' and values'.
        auto const d_projected = scratch.projected.resize_zeroed(n, query_key_value_.rows);
        auto const d_key_value = scratch.context.resize_zeroed(m, key_value_.rows);
        columns_.attending<Real>().backward(pass.sees, columns_.query_part(tape.rotated.view()),
                                            columns_.keys_and_values(tape.context_rotated, tape.context_projected),
                                            columns_.keys_and_values(tape.rotated, tape.projected),
                                            tape.attended.view(), tape.normalisers.view(), d_attended,
                                            columns_.query_part(d_projected), columns_.keys_and_values(d_key_value),
                                            columns_.keys_and_values(d_projected));
        auto const projected = tape.projected.view();
        norm_and_rotate_backward(columns_.query_part(projected), query_norm_.values(values), epsilon, pass.angles,
                                 pass.positions, query_norm_.values(gradients), columns_.query_part(d_projected));
        norm_and_rotate_backward(columns_.key_part(projected), key_norm_.values(values), epsilon, pass.angles,
                                 pass.positions, key_norm_.values(gradients), columns_.key_part(d_projected));
        norm_and_rotate_backward(columns_.key_part(tape.context_projected.view()), key_norm_.values(values), epsilon,
                                 pass.angles, pass.context_positions, key_norm_.values(gradients),
                                 columns_.key_part(d_key_value));
        add_outer(d_projected, tape.normed.view(), query_key_value_.of(gradients));
        add_outer(d_key_value, pass.context, key_value_.of(gradients));
        multiply_back(d_key_value, key_value_.of(values), d_context, into::sum);
        multiply_back(d_projected, query_key_value_.of(values), d_rows);
        rms_norm_backward(x, input_norm_.values(values), epsilon, d_rows, input_norm_.values(gradients), dx);
    }

private:
    engine::transformer_config config_;
    attention_columns columns_;
    tensor query_key_value_, key_value_, output_;
    tensor query_norm_, key_norm_;
    tensor gate_up_, down_;
    tensor input_norm_, middle_norm_;
};

}  // namespace train
