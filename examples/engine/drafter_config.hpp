// SPDX-License-Identifier: MIT
//
// What config.json says of a drafter, in the layouts that are published:
//
//     Qwen3DSparkModel, Qwen3Eagle3Model, Eagle3DraftModel    DeepSpec: DSpark, DFlash and Eagle3 drafters
//     DFlashDraftModel                                        z-lab's DFlash
//     speculators_model_type: dspark, dflash, eagle3          speculators: the model nested in transformer_layer_config
//
// Layouts differ in what they count. A block has a row for the anchor. Where that row predicts nothing
// (sample_from_anchor is false, and always in z-lab's) one row more is computed than is drafted. Layers of the target
// are counted from its first one; speculators counts from the embedding, so its k is layer k - 1.
//
// Every key is read, known to be harmless, or refused by name: a drafter that is computed wrongly drafts all the same,
// and only accepts less.
#pragma once

#include <string_view>

#include "config.hpp"
#include "json_field.hpp"

namespace engine {

/// The document is of a drafter, by its architecture or its speculators_model_type.
[[nodiscard]] bool describes_drafter(json_field const& root);
/// Throws sureleap::error. Stop tokens are not read.
[[nodiscard]] model_config read_drafter(json_field const& root);

/// The part of a document that targets and drafters share. `whole`: the file states all of it; otherwise what equals
/// transformers' defaults may be left out (hidden_act, tie_word_embeddings).
[[nodiscard]] transformer_config read_transformer(json_field const& root, bool whole = true);

}  // namespace engine
