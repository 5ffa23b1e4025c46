// SPDX-License-Identifier: MIT
//
// Sizes and configurations of small models of every kind the engine loads.
#pragma once

#include <cstddef>
#include <ostream>
#include <vector>

#include <engine/config.hpp>
#include <sureleap/core/types.hpp>

#include "support/dice.hpp"

namespace tiny {

using sureleap::token_id;

/// What varies from target to target.
struct shape {
    std::size_t layers = 2;
    std::size_t hidden = 32;
    std::size_t intermediate = 48;
    std::size_t heads = 4;
    std::size_t kv_heads = 2;
    std::size_t head_dim = 8;
    std::size_t vocabulary = 61;
    bool tied = false;
    double theta = 1e4;
    double epsilon = 1e-6;
};

inline std::ostream& operator<<(std::ostream& out, shape const& s) {
    return out << s.layers << " layers, hidden " << s.hidden << ", intermediate " << s.intermediate << ", " << s.heads
               << "/" << s.kv_heads << " heads of " << s.head_dim << ", V = " << s.vocabulary
               << (s.tied ? ", tied" : ", untied") << ", theta " << s.theta << ", epsilon " << s.epsilon;
}

[[nodiscard]] inline engine::model_config target_config(shape const& s) {
    engine::model_config config;
    config.transformer = {.vocabulary = s.vocabulary,
                          .hidden_size = s.hidden,
                          .intermediate_size = s.intermediate,
                          .layers = s.layers,
                          .heads = s.heads,
                          .kv_heads = s.kv_heads,
                          .head_dim = s.head_dim,
                          .max_positions = 4096,
                          .rope_theta = s.theta,
                          .rms_norm_eps = s.epsilon,
                          .tied_embeddings = s.tied};
    return config;
}

/// Layers of a target whose outputs a drafter reads: the embedding, and up to two more.
[[nodiscard]] inline std::vector<int> feature_layers(shape const& s) {
    std::vector<int> layers{-1};
    int const last = static_cast<int>(s.layers) - 2;
    if (last >= 0) layers.push_back(0);
    if (last >= 1) layers.push_back(last);
    return layers;
}

/// Where a drafter's LM head comes from: its file, its own embedding, or the target's, as a file may leave it out.
enum class lm_head { own, tied, shared };

struct drafter_shape {
    std::size_t block_size = 4;
    std::size_t layers = 2;  ///< 1 for Eagle3
    std::size_t rank = 6;    ///< of the Markov head
    lm_head output = lm_head::own;
    engine::head_kind head = engine::head_kind::vanilla;
    bool confidence = true;
};

/// A drafter for a target of that shape, with attention of its own shape.
[[nodiscard]] inline engine::model_config dspark_config(shape const& s, drafter_shape const& d) {
    engine::model_config config = target_config(s);
    config.kind = engine::architecture::dspark;
    config.transformer.layers = d.layers;
    config.transformer.intermediate_size = s.intermediate / 2 + 3;
    config.transformer.tied_embeddings = d.output == lm_head::tied;
    bool const has_head = d.head != engine::head_kind::none;
    bool const domino = d.head == engine::head_kind::domino;
    bool const confidence = d.confidence && !domino;  // which has none
    config.draft = engine::draft_config{.block_size = d.block_size,
                                        .target_layer_ids = feature_layers(s),
                                        .num_target_layers = s.layers,
                                        .mask_token = static_cast<token_id>(s.vocabulary - 1),
                                        .markov_rank = has_head ? d.rank : 0,
                                        .head = d.head,
                                        .gru_units = domino ? d.rank + 2 : 0,
                                        .uncorrected = domino ? 1u : 0u,
                                        .confidence = confidence,
                                        .confidence_with_markov = confidence && has_head};
    return config;
}
[[nodiscard]] inline engine::model_config eagle3_config(shape const& s, drafter_shape const& d) {
    engine::model_config config = target_config(s);
    config.kind = engine::architecture::eagle3;
    config.transformer.layers = 1;
    config.transformer.tied_embeddings = d.output == lm_head::tied;
    config.draft = engine::draft_config{
        .block_size = d.block_size, .target_layer_ids = feature_layers(s), .num_target_layers = s.layers};
    return config;
}

[[nodiscard]] inline std::vector<token_id> random_tokens(support::dice& roll, std::size_t n, std::size_t vocabulary) {
    std::vector<token_id> out(n);
    for (token_id& x : out) x = static_cast<token_id>(roll.below(vocabulary));
    return out;
}

}  // namespace tiny
