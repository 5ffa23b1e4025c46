// SPDX-License-Identifier: MIT
//
// A language model as a target: Qwen3, or Llama, which has no norms on queries and keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/verify/verify_batch.hpp>

#include "checkpoint.hpp"
#include "kv_cache.hpp"
#include "target.hpp"
#include "thread_pool.hpp"
#include "transformer.hpp"

namespace engine {

/// Any number of sequences, one flat pass. Row i of a batch is computed as if it were alone (kernels.hpp). So a batch
/// gives bit for bit the logits of its requests one at a time, and a chunked prefill those of a whole one. In a batch
/// with trees a row attends to the cache up to its anchor, and then to its own path. It has the bits that it would have
/// behind the same tokens in a chain. The cache gets the keys of a tree's first branch at once, and those of another
/// one with commit().
template <class Real>
class causal_lm final : public target<Real> {
public:
    /// `from` is a Qwen3ForCausalLM or LlamaForCausalLM; its mapped files live as long as the model. feature_layers:
    /// strictly increasing, -1 (the embedding) to layers - 2; the last layer is left out because its raw output is not
    /// what the reference code calls its hidden state. ranks: more than one, which hold the same files and compute it
    /// together; null: none. Ranks and pool must outlive the model.
    causal_lm(checkpoint from, std::vector<int> feature_layers, thread_pool& pool, serving_limits const& limits,
              any_ranks* ranks = nullptr);

    [[nodiscard]] std::size_t vocabulary() const noexcept override { return config().vocabulary; }
    [[nodiscard]] std::size_t hidden_size() const noexcept override { return config().hidden_size; }
    [[nodiscard]] serving_limits const& limits() const noexcept override { return limits_; }
    [[nodiscard]] weight embeddings() const noexcept override { return embeddings_; }
    [[nodiscard]] weight output_head() const noexcept override { return output_head_; }
    [[nodiscard]] any_ranks* ranks() const noexcept override { return context_.multiply.ranks(); }

    void prefill(std::size_t slot, std::size_t first, std::span<sureleap::token_id const> tokens) override;
    [[nodiscard]] sureleap::logits_rows<Real> score(sureleap::verify_batch const& batch) override;
    void commit(std::span<sureleap::verdict const> verdicts) noexcept override;
    [[nodiscard]] sureleap::matrix_view<Real> features() const noexcept override;
    [[nodiscard]] std::span<int const> feature_layers() const noexcept override { return feature_layers_; }

    [[nodiscard]] transformer_config const& config() const noexcept { return context_.config; }
    /// Bytes of weights that one forward pass reads, on all ranks together: what bounds plain decoding.
    [[nodiscard]] std::size_t weight_bytes() const noexcept;

private:
    /// rows_ and tokens in; residual stream, cache and features out. Without logits the last layer ends at its keys.
    void forward(std::span<sureleap::token_id const> tokens, bool logits);
    void keep_features(int layer);
    void place_branches(sureleap::verify_batch const& batch, std::size_t r, std::vector<sureleap::token_id>& tokens);
    [[nodiscard]] batch_row row_at(sureleap::verify_batch const& batch, std::size_t i, std::uint32_t branch) const;
    void keep(std::size_t slot, std::size_t position, std::size_t row);
    void check_slot(std::size_t slot) const;

    checkpoint checkpoint_;
    std::vector<int> feature_layers_;
    serving_limits limits_;
    layer_context<Real> context_;
    std::vector<decoder_layer<Real>> layers_;
    norm<Real> final_norm_;
    weight embeddings_;
    weight output_head_;
    weight own_head_;  // rows of the rank's slice
    kv_cache<Real> cache_;
    std::vector<batch_row> rows_;
    // Of a pass with trees, whose rows lie branch by branch; empty of others:
    std::vector<std::uint32_t> outputs_;  // [rows] the batch's row of each row of the pass,
    std::vector<std::uint32_t> inputs_;   // [rows] and the other way
    struct anchored {
        std::size_t slot, position, first_row;
    };
    sureleap::pass_counter passes_;
    sureleap::pass_stamp pass_;       // the last one, that what stands above and below is of
    std::uint64_t lost_ = 0;          // a pass whose tree was committed too late; 0: none
    std::vector<anchored> requests_;  // of that batch
    std::vector<Real> stream_;        // [max_rows, hidden_size]
    std::vector<Real> features_;      // [max_rows, feature layers * hidden_size]
    std::vector<Real> logits_;        // [rows of the largest verify batch so far, rows of own_head_]
};

extern template class causal_lm<float>;
extern template class causal_lm<double>;

}  // namespace engine
