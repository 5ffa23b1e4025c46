// SPDX-License-Identifier: MIT
//
// The backbone of DSpark and DFlash: a few layers that draft a whole block in one pass. What the target computed for
// the committed past is injected as keys and values (paper eq. 2 and 3).
//
//     C = RMSNorm(F fc^T)             of every committed position, from the target's features F
//     K, V of every layer             from C for the past, from the block's own rows for the block
//     block rows                      the anchor, then masks; row k predicts x_{k+1}, so the anchor's predicts x_1
//
// DFlash drafters as z-lab and speculators publish them (sample_from_anchor is false) have one row more: row k predicts
// x_k, and the anchor's nothing.
//
// Nothing here reads a drafted token: the sequential head does that, in the library. DFlash is the same backbone
// without a head (markov_rank 0), Domino with a head of its own.
//
// A file may draft a part of the target's tokens only (draft_output.hpp). U then has a column for each of those.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

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

/// Models sureleap::backbone. Limits: slots and context_length as the target's, max_rows at least slots x rows of a
/// block.
template <class Real>
class dspark final : public draft_model<Real> {
public:
    /// `from` is a Qwen3DSparkModel folder. Embedding and LM head may be missing in it: then they are the target's
    /// (tied, the LM head is the embedding, as everywhere). The target's features must be those of the file's
    /// target_layer_ids. Target and pool must outlive the model.
    dspark(checkpoint from, target<Real> const& served, thread_pool& pool, serving_limits const& limits);

    [[nodiscard]] checkpoint const& source() const noexcept { return checkpoint_; }
    [[nodiscard]] transformer_config const& config() const noexcept { return context_.config; }
    [[nodiscard]] std::size_t block_size() const noexcept override { return draft_.block_size; }
    /// The file's, or the target's where it has none.
    [[nodiscard]] weight const& embeddings() const noexcept { return embeddings_; }
    /// Columns of U.
    [[nodiscard]] std::size_t vocabulary() const noexcept { return output_head_.vocabulary(); }
    /// Which tokens they are; null: all of the target's.
    [[nodiscard]] sureleap::vocabulary_map const* map() const noexcept { return output_head_.map(); }

    /// The new positions become context of later blocks. The tokens are not read.
    void observe(std::span<batch_row const> rows, Real const* features,
                 std::span<sureleap::token_id const> next_tokens = {}) override;
    /// h and U of a block for every request, of the positions that it may draft (request_view::draft_cap); every
    /// position before the anchor must have been observed. Valid until the next call.
    [[nodiscard]] sureleap::block_forward<Real> forward(std::span<sureleap::request_view const> requests);

    /// What the last forward returned; observing leaves it as it is.
    [[nodiscard]] sureleap::block_forward<Real> const& last_forward() const noexcept { return last_forward_; }
    /// Of the last observe: C [rows, hidden_size].
    [[nodiscard]] std::span<Real const> context_features() const noexcept { return injected_; }
    [[nodiscard]] kv_cache<Real> const& cache() const noexcept { return cache_; }
    [[nodiscard]] std::size_t weight_bytes() const noexcept override;

private:
    checkpoint checkpoint_;
    draft_config draft_;
    serving_limits limits_;
    layer_context<Real> context_;
    std::vector<decoder_layer<Real>> layers_;
    weight project_;  // fc
    norm<Real> context_norm_;
    norm<Real> final_norm_;
    weight embeddings_;
    draft_output output_head_;
    kv_cache<Real> cache_;
    std::vector<batch_row> rows_;
    struct wanted_row {
        std::size_t row = 0;
        std::size_t place = 0;  // of its output
    };
    std::vector<wanted_row> wanted_;  // rows that tokens will be drafted from
    std::vector<Real> injected_;      // C
    std::vector<Real> hidden_;        // [requests * rows of a block, hidden_size]
    std::vector<Real> logits_;        // [requests * gamma, vocabulary()]
    sureleap::pass_counter passes_;
    sureleap::block_forward<Real> last_forward_;
};

extern template class dspark<float>;
extern template class dspark<double>;

}  // namespace engine
