// SPDX-License-Identifier: MIT
//
// The LM head of a drafter: a row for every token that it drafts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <sureleap/sampling/vocabulary_map.hpp>

#include "checkpoint.hpp"
#include "draft_model.hpp"
#include "quantised.hpp"

namespace engine {

/// The file's own LM head, or the target's (tied, that is the embedding, as everywhere). A file may draft a part of the
/// target's tokens only (draft_vocab_size, d2t). Then its own LM head may have rows for these alone. Other rows are
/// copied when the model is made, since they are what a pass reads most of.
class draft_output {
public:
    /// Checkpoint and weights must outlive it.
    draft_output(checkpoint const& from, weight const& embeddings, weight const& served) {
        transformer_config const& c = from.config().transformer;
        auto const drafted = drafted_tokens(from);
        if (!drafted.empty()) map_.emplace(drafted, c.vocabulary);
        std::string const own = "lm_head.weight";
        bool const is_own = !c.tied_embeddings && from.contains(own);
        bool const is_gathered = is_own && map_ && from.rows_of(own) == drafted.size();
        weights_ = is_own              ? from.matrix(own, is_gathered ? drafted.size() : c.vocabulary, c.hidden_size)
                   : c.tied_embeddings ? embeddings
                                       : served;
        if (!map_ || is_gathered) return;
        // In 8 bits they would be most of what a draft reads. Rounding them costs a little acceptance, and no
        // exactness.
        gathered_ = weights_.type == storage::q8 ? gathered_rows::in_4_bits(weights_, drafted)
                                                 : gathered_rows(weights_, drafted);
        weights_ = gathered_.view();
    }
    draft_output(draft_output const&) = delete;  // views would stay with the other's rows
    draft_output& operator=(draft_output const&) = delete;

    /// [vocabulary(), hidden_size]
    [[nodiscard]] weight const& weights() const noexcept { return weights_; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return weights_.rows; }
    /// Which tokens they are; null: all of the target's.
    [[nodiscard]] sureleap::vocabulary_map const* map() const noexcept { return map_ ? &*map_ : nullptr; }

private:
    std::optional<sureleap::vocabulary_map> map_;
    gathered_rows gathered_;
    weight weights_;
};

}  // namespace engine
