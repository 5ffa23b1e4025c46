// SPDX-License-Identifier: MIT
//
// A Qwen3 target in training: next-token cross entropy over packed documents, forward and backward. Without its
// backward it also is the frozen target of a drafter's training, where its features and hidden states are wanted.
//
// Documents lie back to back without padding. Each row sees its own document up to itself; that is a range of rows, so
// a document's length costs what it costs and nothing is masked. A gradient of logits exists for a chunk of rows at a
// time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <engine/config.hpp>
#include <sureleap/core/error.hpp>

#include "elementwise.hpp"
#include "gemm.hpp"
#include "layer.hpp"
#include "parameters.hpp"

namespace train {

using sureleap::token_id;

/// Documents, one after the other. They belong to the caller.
struct token_batch {
    std::span<token_id const> tokens;      ///< [rows]
    std::span<std::size_t const> lengths;  ///< of the documents; they add up to rows
};

/// Memory from forward to backward. One a thread, kept from batch to batch.
template <class Real>
struct causal_tape {
    std::vector<visible_rows> sees;
    std::vector<std::uint32_t> positions;
    matrix<Real> input;  ///< embeddings [rows, hidden]
    std::vector<layer_tape<Real>> layers;
    matrix<Real> hidden;  ///< after the final norm [rows, hidden]
    layer_scratch<Real> scratch;
    matrix<Real> d_hidden;
    matrix<Real> d_rows;
    matrix<Real> no_context;
    matrix<Real> logits;  ///< of a chunk
};

template <class Real>
class causal_lm {
public:
    /// Throws sureleap::error unless the configuration is a target's.
    explicit causal_lm(engine::model_config const& config)
        : config_(checked(config)),
          angles_(config.transformer.head_dim, config.transformer.rope_theta, config.transformer.max_positions) {
        auto const& t = config_.transformer;
        embeddings_ = layout_.matrix("model.embed_tokens.weight", t.vocabulary, t.hidden_size);
        lm_head_ = t.tied_embeddings ? embeddings_ : layout_.matrix("lm_head.weight", t.vocabulary, t.hidden_size);
        for (std::size_t l = 0; l < t.layers; ++l) {
            layers_.emplace_back(layout_, "model.layers." + std::to_string(l) + ".", t);
        }
        final_norm_ = layout_.vector("model.norm.weight", t.hidden_size);
    }

    /// What is trained, in the released names.
    [[nodiscard]] parameter_layout const& layout() const noexcept { return layout_; }
    [[nodiscard]] engine::model_config const& config() const noexcept { return config_; }
    [[nodiscard]] tensor embeddings() const noexcept { return embeddings_; }
    [[nodiscard]] tensor lm_head() const noexcept { return lm_head_; }

    /// Final-normed hidden states of every row, into tape.hidden. Throws sureleap::error for a token outside the
    /// vocabulary and a document longer than the model's positions.
    void forward(std::span<Real const> values, token_batch const& batch, causal_tape<Real>& tape) const {
        auto const& t = config_.transformer;
        place_rows(batch, tape);
        std::size_t const n = batch.tokens.size();
        sureleap::gather_rows(embeddings_.of(values), batch.tokens, tape.input.resize(n, t.hidden_size));
        tape.layers.resize(t.layers);
        for (std::size_t l = 0; l < t.layers; ++l) {
            layers_[l].forward(values, pass(tape), layer_input(tape, l), tape.layers[l]);
        }
        rms_norm(layer_input(tape, t.layers), final_norm_.values(values), t.rms_norm_eps,
                 tape.hidden.resize(n, t.hidden_size));
    }

    /// After forward: outputs of the given layers side by side, -1 the embedding, as engine::target::features.
    void features(causal_tape<Real> const& tape, std::span<int const> layers, matrix_span<Real> out) const {
        std::size_t const d = config_.transformer.hidden_size;
        for (std::size_t i = 0; i < layers.size(); ++i) {
            auto const from = layer_input(tape, static_cast<std::size_t>(layers[i] + 1));
            eigen(sureleap::column_range(out, i * d, d)) = eigen(from);
        }
    }

    /// After forward: the sum of -log p(next token) over all rows but the last of every document. With `gradients`,
    /// adds to them the gradient of that sum times `scale` and consumes the tape.
    [[nodiscard]] double loss(std::span<Real const> values, token_batch const& batch, causal_tape<Real>& tape,
                              double scale, std::span<Real> gradients = {}) const {
        auto const& t = config_.transformer;
        std::size_t const n = batch.tokens.size();
        bool const wanted = !gradients.empty();
        auto const d_hidden = tape.d_hidden.resize(wanted ? n : 0, t.hidden_size);
        double total = 0;
        std::size_t document = 0;
        std::size_t last = batch.lengths.empty() ? 0 : batch.lengths[0] - 1;  // the document's last row
        for (std::size_t first = 0; first < n; first += chunk_rows) {
            std::size_t const count = std::min(chunk_rows, n - first);
            auto const h = sureleap::row_range(tape.hidden.view(), first, count);
            auto const logits = tape.logits.resize(count, t.vocabulary);
            multiply(h, lm_head_.of(values), logits);
            for (std::size_t i = 0; i < count; ++i) {
                auto const row = logits.row(i);
                if (first + i == last) {  // nothing follows
                    std::ranges::fill(row, Real(0));
                    if (++document < batch.lengths.size()) last += batch.lengths[document];
                    continue;
                }
                auto const label = static_cast<std::size_t>(batch.tokens[first + i + 1]);
                Real const logit = row[label];
                total += static_cast<double>(fast_softmax{}(std::span<Real const>(row), row) - logit);
                row[label] -= Real(1);
                eigen_array(row) *= static_cast<Real>(scale);
            }
            if (!wanted) continue;
            multiply_back(logits, lm_head_.of(values), sureleap::row_range(d_hidden, first, count));
            add_outer(logits, h, lm_head_.of(gradients));
        }
        if (wanted) backward(values, batch, tape, gradients);
        return total;
    }

private:
    static constexpr std::size_t chunk_rows = 256;

    [[nodiscard]] static engine::model_config const& checked(engine::model_config const& config) {
        if (config.kind != engine::architecture::qwen3) {
            sureleap::fail_with("causal_lm: architecture is ", name_of(config.kind), ", expected ",
                                name_of(engine::architecture::qwen3));
        }
        return config;
    }

    void place_rows(token_batch const& batch, causal_tape<Real>& tape) const {
        tape.sees.clear();
        tape.positions.clear();
        for (std::size_t d = 0; d < batch.lengths.size(); ++d) {
            if (batch.lengths[d] == 0 || batch.lengths[d] > angles_.size()) {
                sureleap::fail_with("token_batch: document ", d, " has ", batch.lengths[d], " tokens, expected 1 .. ",
                                    angles_.size());
            }
            std::size_t const begin = tape.sees.size();
            for (std::size_t i = 0; i < batch.lengths[d]; ++i) {
                tape.sees.push_back({{}, {begin, begin + i + 1}});
                tape.positions.push_back(static_cast<std::uint32_t>(i));
            }
        }
        if (tape.sees.size() != batch.tokens.size()) {
            sureleap::fail_with("token_batch: lengths add up to ", tape.sees.size(), ", expected the ",
                                batch.tokens.size(), " tokens");
        }
        for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
            auto const token = batch.tokens[i];
            if (token >= 0 && static_cast<std::size_t>(token) < config_.transformer.vocabulary) continue;
            sureleap::fail_with("token_batch: tokens[", i, "] is ", token, ", expected a token below ",
                                config_.transformer.vocabulary);
        }
    }

    void backward(std::span<Real const> values, token_batch const& batch, causal_tape<Real>& tape,
                  std::span<Real> gradients) const {
        auto const& t = config_.transformer;
        auto const dx = tape.d_rows.resize_zeroed(batch.tokens.size(), t.hidden_size);
        rms_norm_backward(layer_input(tape, t.layers), final_norm_.values(values), t.rms_norm_eps, tape.d_hidden.view(),
                          final_norm_.values(gradients), dx);
        auto const none = tape.no_context.resize(0, t.hidden_size);
        for (std::size_t l = t.layers; l-- > 0;) {
            layers_[l].backward(values, pass(tape), layer_input(tape, l), tape.layers[l], tape.scratch, gradients, dx,
                                none);
        }
        sureleap::scatter_add(dx.view(), batch.tokens, embeddings_.of(gradients));
    }

    [[nodiscard]] layer_pass<Real> pass(causal_tape<Real> const& tape) const {
        return {.angles = angles_, .sees = tape.sees, .positions = tape.positions};
    }
    // What layer l reads: the output of the one before.
    [[nodiscard]] static matrix_view<Real> layer_input(causal_tape<Real> const& tape, std::size_t l) {
        return l == 0 ? tape.input.view() : tape.layers[l - 1].output.view();
    }

    engine::model_config config_;
    rotary<Real> angles_;
    parameter_layout layout_;
    tensor embeddings_, lm_head_, final_norm_;
    std::vector<decoder_layer> layers_;
};

}  // namespace train
