// SPDX-License-Identifier: MIT
//
// What the tests of all drafters in training share: a drafter with its numbers, the laws of a target by their
// definition, and that batches add up.
#pragma once

#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/kernels.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/supervision.hpp>
#include <train/gemm.hpp>

#include "support/dice.hpp"
#include "support/golden_engine.hpp"

namespace drafters {

template <class Real>
constexpr double tolerance = std::is_same_v<Real, double> ? 1e-12 : 2e-5;

template <class Real>
train::matrix<Real> table(engine::weight const& stored) {
    train::matrix<Real> out(stored.rows, stored.cols);
    for (std::size_t i = 0; i < out.rows(); ++i) engine::load_row(stored, i, out.span().row(i).data());
    return out;
}

template <class Real>
train::matrix<Real> random_matrix(support::dice& roll, std::size_t rows, std::size_t cols, double size) {
    train::matrix<Real> out(rows, cols);
    for (std::size_t i = 0; i < rows * cols; ++i) out.span().data[i] = static_cast<Real>(size * roll.bell());
    return out;
}

/// What a backward pass leaves.
template <class Real>
struct outcome {
    std::vector<Real> gradients;
    double loss = 0;
};

/// Everything an optimizer's step averages over.
struct averaging {
    sureleap::loss_settings const& settings;
    double total_weight = 0;
};

/// A drafter with its parameters and the tables it shares with its target.
template <template <class> class Model, class Real>
struct drafter {
    drafter(engine::checkpoint const& from, engine::weight const& embedding_table, engine::weight const& output_head)
        : embeddings(table<Real>(embedding_table)),
          lm_head(table<Real>(output_head)),
          model(from.config(), embeddings.view(), lm_head.view(), from.config().transformer.max_positions),
          values(model.layout().size()) {
        model.layout().load(from, std::span(values));
    }
    /// With the tables of its own file.
    explicit drafter(engine::checkpoint const& from) : drafter(from, own(from, "embed_tokens"), own(from, "lm_head")) {}

    [[nodiscard]] std::span<Real const> parameters() const { return values; }

    /// Forward and backward of a batch.
    template <class Batch, class Tape>
    outcome<Real> run(Batch const& batch, averaging const& over, Tape& tape, sureleap::chunk_limits chunks = {}) const {
        outcome<Real> out;
        out.gradients.resize(values.size());
        model.forward(parameters(), batch, tape);
        sureleap::loss_report report(over.settings, model.block_size());
        model.backward(parameters(), batch, over.settings, over.total_weight, tape, std::span(out.gradients), report,
                       chunks);
        out.loss = report.loss();
        return out;
    }

    train::matrix<Real> embeddings;
    train::matrix<Real> lm_head;
    Model<Real> model;
    std::vector<Real> values;

private:
    static engine::weight own(engine::checkpoint const& from, std::string const& name) {
        auto const& t = from.config().transformer;
        return from.matrix(name + ".weight", t.vocabulary, t.hidden_size);
    }
};

/// A transformer that is small enough for finite differences of everything.
[[nodiscard]] inline engine::transformer_config small_transformer(std::size_t layers) {
    return {.vocabulary = 23,
            .hidden_size = 12,
            .intermediate_size = 10,
            .layers = layers,
            .heads = 4,
            .kv_heads = 2,
            .head_dim = 6,
            .max_positions = 256,
            .rope_theta = 1e3,
            .rms_norm_eps = 1e-5,
            .tied_embeddings = false};
}

[[nodiscard]] inline std::vector<double> softmax(std::span<double const> logits) {
    std::vector<double> out;
    double total = 0;
    for (double const x : logits) total += out.emplace_back(std::exp(x));
    for (double& x : out) x /= total;
    return out;
}

/// The law that an LM head makes of a hidden state.
[[nodiscard]] inline std::vector<double> law_of(train::matrix<double> const& lm_head, std::span<double const> hidden) {
    std::vector<double> logits(lm_head.rows());
    for (std::size_t v = 0; v < logits.size(); ++v) {
        for (std::size_t j = 0; j < hidden.size(); ++j) logits[v] += hidden[j] * lm_head.view().row(v)[j];
    }
    return softmax(logits);
}

/// Equal up to rounding.
inline void check_same(outcome<double> const& got, outcome<double> const& expected) {
    CHECK(golden::difference(got.gradients, expected.gradients) < 1e-13);
    CHECK(std::abs(got.loss - expected.loss) < 1e-13);
}

/// Gradients and losses of single blocks are together those of all blocks: run(b) that of block b alone, of which
/// positions[b] have a loss.
template <class Run>
void check_blocks_add_up(outcome<double> const& all, averaging const& over, std::span<std::size_t const> positions,
                         Run const& run) {
    outcome<double> sum{std::vector<double>(all.gradients.size())};
    for (std::size_t b = 0; b < positions.size(); ++b) {
        outcome<double> const one = run(b);
        for (std::size_t i = 0; i < sum.gradients.size(); ++i) sum.gradients[i] += one.gradients[i];
        double const weight = sureleap::weight_sum(over.settings, positions[b]);
        sum.loss += one.loss * (weight + sureleap::loss_epsilon) / (over.total_weight + sureleap::loss_epsilon);
    }
    check_same(sum, all);
}

}  // namespace drafters
