// SPDX-License-Identifier: MIT
//
// A language model as a target: Qwen3, or Llama, which has no norms on queries and keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/tree.hpp>

#include "checkpoint.hpp"
#include "kv_cache.hpp"
#include "target.hpp"
#include "thread_pool.hpp"
#include "transformer.hpp"

namespace engine {

/// A tree of drafts in a sequence.
struct placed_tree {
    std::size_t slot = 0;
    std::size_t position = 0;  ///< of the anchor, the tree's root: keys 0 .. position-1 are in the cache
    sureleap::draft_tree const* tree = nullptr;
};

/// Any number of sequences, one flat pass. Row i of a batch is computed as if it were alone (kernels.hpp). So a batch
/// gives bit for bit the logits of its requests one at a time, and a chunked prefill those of a whole one.
template <class Real>
class causal_lm final : public target<Real> {
public:
    /// `from` is a Qwen3ForCausalLM or LlamaForCausalLM; its mapped files live as long as the model. feature_layers: strictly
    /// increasing, -1 (the embedding) to layers - 2; the last layer is left out because its raw output is not what
    /// the reference code calls its hidden state. The pool must outlive the model.
    causal_lm(checkpoint from, std::vector<int> feature_layers, thread_pool& pool, serving_limits const& limits);

    [[nodiscard]] std::size_t vocabulary() const noexcept override { return config().vocabulary; }
    [[nodiscard]] std::size_t hidden_size() const noexcept override { return config().hidden_size; }
    [[nodiscard]] serving_limits const& limits() const noexcept override { return limits_; }
    [[nodiscard]] weight embeddings() const noexcept override { return embeddings_; }
    [[nodiscard]] weight output_head() const noexcept override { return output_head_; }

    void prefill(std::size_t slot, std::size_t first, std::span<sureleap::token_id const> tokens) override;
    [[nodiscard]] sureleap::logits_rows<Real> score(sureleap::verify_batch const& batch) override;
    /// Scores trees of drafts, each of another slot. Rows are the nodes, tree after tree: row n of a tree is the law behind
    /// node n and has the bits that it would have behind the same tokens in a chain. Features are those of the nodes. The
    /// cache is as before, and keep() must follow. At most limits().max_rows nodes.
    [[nodiscard]] sureleap::logits_rows<Real> score(std::span<placed_tree const> trees);
    /// Keys of the nodes of a path from the root, of a tree of the last call, into the cache: those that were accepted, and
    /// the anchor, which is path[0].
    void keep(std::size_t tree, std::span<sureleap::node_id const> path);
    [[nodiscard]] sureleap::matrix_view<Real> features() const noexcept override;
    [[nodiscard]] std::span<int const> feature_layers() const noexcept override { return feature_layers_; }

    [[nodiscard]] transformer_config const& config() const noexcept { return context_.config; }
    /// Bytes of weights that one forward pass reads: what bounds plain decoding.
    [[nodiscard]] std::size_t weight_bytes() const noexcept;

private:
    /// rows_ and tokens in; residual stream, cache and features out. Without logits the last layer ends at its keys.
    void forward(std::span<sureleap::token_id const> tokens, bool logits);
    void keep_features(int layer);
    void place_branches(placed_tree const& at, std::vector<sureleap::token_id>& tokens);
    void check_slot(std::size_t slot) const;

    checkpoint checkpoint_;
    std::vector<int> feature_layers_;
    serving_limits limits_;
    layer_context<Real> context_;
    std::vector<decoder_layer<Real>> layers_;
    norm<Real> final_norm_;
    weight embeddings_;
    weight output_head_;
    kv_cache<Real> cache_;
    std::vector<batch_row> rows_;
    std::vector<std::uint32_t> outputs_;  // [rows] of trees: the output row of each row of the pass; empty: its own
    std::vector<std::uint32_t> nodes_;    // [rows] of trees: the pass's row of each node, tree after tree
    std::vector<placed_tree> trees_;      // of the last call
    std::vector<Real> stream_;            // [max_rows, hidden_size]
    std::vector<Real> features_;          // [max_rows, feature layers * hidden_size]
    std::vector<Real> logits_;            // [rows of the largest verify batch so far, vocabulary]
};

extern template class causal_lm<float>;
extern template class causal_lm<double>;

}  // namespace engine
