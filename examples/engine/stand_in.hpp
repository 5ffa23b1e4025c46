// SPDX-License-Identifier: MIT
//
// A target without attention, small enough for a test file: reference values of whole decoding loops were computed with
// it, and it lets a drafter run where no target of its size is at hand.
//
//     h_0 = E[x]      h_{l+1} = tanh(A_l h_l + P[position mod rows of P])      logits = W h_L  (+ W2 W1[x])
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>

#include "target.hpp"

namespace engine {

/// Layer l's output is h_{l+1}, as in a transformer; it reads the current token only, so it keeps no cache.
template <class Real>
class stand_in final : public target<Real> {
public:
    struct weights {
        weight embeddings;           ///< E [V, d]
        std::vector<weight> layers;  ///< A_l [d, d]
        weight positions;            ///< P [any, d]
        weight output;               ///< W [V, d]
        weight bigram_in{};          ///< W1 [V, r] and
        weight bigram_out{};         ///< W2 [V, r], or both empty
    };

    /// What the weights view must outlive the model.
    stand_in(weights const& w, std::vector<int> feature_layers, thread_pool& pool, serving_limits const& limits)
        : weights_(w), feature_layers_(std::move(feature_layers)), pool_(pool), limits_(limits) {
        using sureleap::fail_with;
        auto const check = [&](char const* name, weight const& m, std::size_t rows, std::size_t cols) {
            if (m.empty() || m.rows != rows || m.cols != cols) {
                fail_with("stand_in: ", name, " is [", m.rows, ", ", m.cols, "], expected [", rows, ", ", cols, "]");
            }
        };
        check("the output head", w.output, w.embeddings.rows, w.embeddings.cols);
        check("the position table", w.positions, w.positions.rows, hidden_size());
        for (weight const& layer : w.layers) check("a layer", layer, hidden_size(), hidden_size());
        if (!w.bigram_in.empty()) {
            check("the bigram input table", w.bigram_in, vocabulary(), w.bigram_in.cols);
            check("the bigram output table", w.bigram_out, vocabulary(), w.bigram_in.cols);
        }
        for (int const layer : feature_layers_) {
            if (layer < -1 || layer >= static_cast<int>(w.layers.size())) {
                fail_with("stand_in: a feature layer is ", layer, ", expected -1 .. ", w.layers.size() - 1);
            }
        }
        features_.resize(limits.max_rows * width());
    }

    [[nodiscard]] std::size_t vocabulary() const noexcept override { return weights_.embeddings.rows; }
    [[nodiscard]] std::size_t hidden_size() const noexcept override { return weights_.embeddings.cols; }
    [[nodiscard]] serving_limits const& limits() const noexcept override { return limits_; }
    [[nodiscard]] weight embeddings() const noexcept override { return weights_.embeddings; }
    [[nodiscard]] weight output_head() const noexcept override { return weights_.output; }

    void prefill(std::size_t, std::size_t first, std::span<sureleap::token_id const> tokens) override {
        begin(tokens.size());
        for (std::size_t i = 0; i < tokens.size(); ++i) run(i, tokens[i], first + i);
    }
    [[nodiscard]] sureleap::logits_rows<Real> score(sureleap::verify_batch const& batch) override {
        sureleap::pass_stamp const pass = passes_.begin(sureleap::fingerprint_of(batch.requests()));
        begin(batch.rows());
        logits_.resize(rows_ * vocabulary());
        for (std::size_t i = 0; i < rows_; ++i) {
            sureleap::token_id const x = batch.tokens()[i];
            auto const h = run(i, x, batch.positions()[i]);
            Real* const logits = logits_.data() + i * vocabulary();
            matmul(pool_, h.data(), 1, weights_.output, logits);
            if (weights_.bigram_in.empty()) continue;
            std::vector<Real> e(weights_.bigram_in.cols);
            load_row(weights_.bigram_in, static_cast<std::size_t>(x), e.data());
            matmul_add(pool_, e.data(), 1, weights_.bigram_out, logits);
        }
        return {.values = {logits_.data(), rows_, vocabulary()}, .pass = pass};
    }
    [[nodiscard]] sureleap::matrix_view<Real> features() const noexcept override {
        return {features_.data(), rows_, width()};
    }
    [[nodiscard]] std::span<int const> feature_layers() const noexcept override { return feature_layers_; }

private:
    [[nodiscard]] std::size_t width() const noexcept { return feature_layers_.size() * hidden_size(); }

    void begin(std::size_t rows) {
        if (rows > limits_.max_rows) {
            sureleap::fail_with("stand_in: ", rows, " rows, expected at most ", limits_.max_rows);
        }
        rows_ = rows;
    }
    // h_L of one token; its features on the way.
    std::vector<Real> run(std::size_t row, sureleap::token_id x, std::size_t position) {
        std::size_t const d = hidden_size();
        std::vector<Real> h(d);
        std::vector<Real> next(d);
        load_row(weights_.embeddings, static_cast<std::size_t>(x), h.data());
        keep(row, -1, h);
        for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
            load_row(weights_.positions, position % weights_.positions.rows, next.data());
            matmul_add(pool_, h.data(), 1, weights_.layers[l], next.data());
            for (std::size_t j = 0; j < d; ++j) h[j] = std::tanh(next[j]);
            keep(row, static_cast<int>(l), h);
        }
        return h;
    }
    void keep(std::size_t row, int layer, std::vector<Real> const& h) {
        for (std::size_t f = 0; f < feature_layers_.size(); ++f) {
            if (feature_layers_[f] != layer) continue;
            Real* const out = features_.data() + row * width() + f * h.size();
            for (std::size_t j = 0; j < h.size(); ++j) out[j] = h[j];
        }
    }

    weights weights_;
    std::vector<int> feature_layers_;
    thread_pool& pool_;
    serving_limits limits_;
    std::size_t rows_ = 0;
    sureleap::pass_counter passes_;
    std::vector<Real> features_;
    std::vector<Real> logits_;
};

}  // namespace engine
