// SPDX-License-Identifier: MIT
//
// Eagle3: a one-layer language model over the target's features that drafts token by token.
//
// It pairs the feature of position i with the token of position i + 1:
//
//     x = F_i fc^T                                               the target's features; later its own last output
//     in = [ RMSNorm_input(E[token_{i+1}]) ; RMSNorm_hidden(x) ]     what the attention reads, twice as wide
//     x += attention(in) at position i;  x += mlp(x);  logits of token i + 2 = LM head(RMSNorm(x))
//
// so when the anchor's position is p, pair p - 1 holds the anchor and predicts x_1. Draft x_k goes with the output of
// pair p - 2 + k.
//
// A file may draft a part of the target's tokens only (draft_output.hpp). Logits then have a column for each of those.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

#include "checkpoint.hpp"
#include "draft_model.hpp"
#include "draft_output.hpp"
#include "kv_cache.hpp"
#include "target.hpp"
#include "thread_pool.hpp"
#include "transformer.hpp"

namespace engine {

/// Models sureleap::autoregressive_model. Limits as in dspark, but max_rows need only hold slots rows.
template <class Real>
class eagle3 final : public draft_model<Real> {
public:
    /// `from` is a Qwen3Eagle3Model folder. Embedding and LM head may be missing in it: then they are the target's
    /// (tied, the LM head is the embedding, as everywhere). Target and pool must outlive the model.
    eagle3(checkpoint from, target<Real> const& served, thread_pool& pool, serving_limits const& limits);

    [[nodiscard]] transformer_config const& config() const noexcept { return context_.config; }
    /// Columns of its logits.
    [[nodiscard]] std::size_t vocabulary() const noexcept { return output_head_.vocabulary(); }
    /// Which tokens they are; null: all of the target's.
    [[nodiscard]] sureleap::vocabulary_map const* map() const noexcept { return output_head_.map(); }
    /// The number of steps it was trained for.
    [[nodiscard]] std::size_t block_size() const noexcept override { return draft_.block_size; }

    /// The new pairs become context; that of the anchor is the one the next block starts from.
    void observe(std::span<batch_row const> rows, Real const* features,
                 std::span<sureleap::token_id const> next_tokens) override;
    /// Logits of the token after each request's context and drafted prefix. Before the first observe of a slot there is
    /// nothing to predict from: draft nothing for it then.
    [[nodiscard]] sureleap::logits_rows<Real> forward(std::span<sureleap::request_view const> requests,
                                                      sureleap::draft_prefixes const& prefixes);
    [[nodiscard]] std::size_t weight_bytes() const noexcept override {
        return project_.bytes() + output_head_.weights().bytes() + layer_.weight_bytes();
    }

private:
    /// input_[i] = the pair of stream row i and a token, as the attention reads it.
    void pair(std::size_t i, Real const* x, sureleap::token_id token);
    /// Output of the layer for rows whose input_ and stream_ are set and whose keys are written.
    void finish(std::span<batch_row const> rows);

    checkpoint checkpoint_;
    draft_config draft_;
    serving_limits limits_;
    layer_context<Real> context_;
    decoder_layer<Real> layer_;
    weight project_;  // fc
    norm<Real> hidden_norm_;
    norm<Real> final_norm_;
    weight embeddings_;
    draft_output output_head_;
    kv_cache<Real> cache_;
    std::vector<batch_row> rows_;
    std::vector<Real> stream_;     // [max_rows, hidden_size]
    std::vector<Real> input_;      // [max_rows, 2 * hidden_size]
    std::vector<Real> committed_;  // [slots, hidden_size]: output of the last committed pair
    std::vector<Real> drafted_;    // [slots, hidden_size]: output of the last drafted one
    std::vector<Real> logits_;     // [slots, vocabulary()]
};

extern template class eagle3<float>;
extern template class eagle3<double>;

}  // namespace engine
