// SPDX-License-Identifier: MIT
//
// What the engine asks of a target: prompts in chunks, flat verification batches, and the features of chosen layers
// that drafters feed on.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include "kernels.hpp"
#include "ranks.hpp"

namespace engine {

/// Sizes of a model that serves several sequences, fixed when it is made.
struct serving_limits {
    std::size_t slots = 1;              ///< sequences at a time
    std::size_t context_length = 2048;  ///< positions a slot holds
    std::size_t max_rows = 256;         ///< tokens in one forward pass: a prefill chunk or a whole verify batch
};

/// Models sureleap::target_model. A virtual interface is right here and would be wrong in the library: an engine learns
/// from a file what its target is, and a call per forward pass costs nothing.
///
/// A batch may have trees. Sequences live in slots. Nothing has to be reset or rolled back: positions say what is valid
/// (kv_cache.hpp).
template <class Real>
class target {
public:
    static constexpr bool scores_trees = true;

    target() = default;
    target(target const&) = delete;
    target& operator=(target const&) = delete;
    virtual ~target() = default;

    [[nodiscard]] virtual std::size_t vocabulary() const noexcept = 0;
    [[nodiscard]] virtual std::size_t hidden_size() const noexcept = 0;
    [[nodiscard]] virtual serving_limits const& limits() const noexcept = 0;
    /// [vocabulary, hidden_size]: drafters whose file leaves them out use the target's own.
    [[nodiscard]] virtual weight embeddings() const noexcept = 0;
    [[nodiscard]] virtual weight output_head() const noexcept = 0;

    /// Runs `tokens` at positions first, first + 1, ... of a slot through the model, for the cache and the features; no
    /// logits. At most limits().max_rows tokens.
    virtual void prefill(std::size_t slot, std::size_t first, std::span<sureleap::token_id const> tokens) = 0;
    /// Row i: logits of the token after row i of the batch, with ranks those of this rank's slice. Valid until the next
    /// call.
    [[nodiscard]] virtual sureleap::logits_rows<Real> score(sureleap::verify_batch const& batch) = 0;
    /// Of that batch, before the next call. Chains need none: positions say what is valid.
    virtual void commit(std::span<sureleap::verdict const> /*verdicts*/) noexcept {}

    /// Of the rows of the last call: outputs of the feature layers side by side, [rows, layers * hidden_size].
    [[nodiscard]] virtual sureleap::matrix_view<Real> features() const noexcept = 0;
    /// The ranks that compute the target together; null: this process does.
    [[nodiscard]] virtual any_ranks* ranks() const noexcept { return nullptr; }
    /// With ranks: whose slice of a row is what.
    [[nodiscard]] sureleap::vocabulary_slices slices() const {
        return sureleap::vocabulary_slices::even(vocabulary(), ranks()->size());
    }
    /// Whether a row's logits depend, in their last digits, on the rows that are computed beside it. Texts of batches
    /// and of plain decoding may part then where two tokens are nearly level.
    [[nodiscard]] virtual bool rows_depend_on_batch() const noexcept { return false; }
    /// Which layers those are; -1 is the embedding.
    [[nodiscard]] virtual std::span<int const> feature_layers() const noexcept = 0;
};

}  // namespace engine
