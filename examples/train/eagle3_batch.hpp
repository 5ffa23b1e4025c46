// SPDX-License-Identifier: MIT
//
// What an Eagle3 drafter is trained on at once: rows of tokens with what the target makes of them, and chains that
// start in them.
//
// Chains start at the sampled anchors of block drafters: all kinds of drafters then learn from equal data. The
// reference starts one at every position, which costs as many passes over all tokens as a chain has steps, and was
// rejected.
#pragma once

#include <cstddef>
#include <span>

#include <engine/config.hpp>
#include <sureleap/core/error.hpp>

#include "draft_model.hpp"  // draft_block
#include "parameters.hpp"
#include "recorded_loss.hpp"

namespace train {

using sureleap::token_id;

/// Steps of a block's chain that have a loss. An anchor that is the first token of its sequence has none: there is no
/// feature before it to start from, and the engine drafts nothing there either. total_weight is to count these.
[[nodiscard]] inline std::size_t chain_steps(draft_block const& block) {
    return block.context.size() == 0 ? 0 : block.positions;
}

/// Everything belongs to the caller. A chain needs no tokens of its own, as a draft_batch has them: they are those of
/// the token rows from its anchor on.
template <class Real>
struct eagle3_batch {
    matrix_view<Real> features;               ///< [token rows, m * hidden]: the target's, as in the engine
    matrix_view<Real> target_hidden;          ///< [token rows, hidden]: final-normed
    std::span<draft_block const> blocks;      ///< one chain each
    std::span<token_id const> next_tokens{};  ///< [token rows]: the token after each
    /// Instead of target_hidden, what is known of the law of every chain row, and its label as the drafter numbers
    /// tokens, or no_token: [blocks * gamma].
    known_laws<Real> laws{};
    std::span<token_id const> labels{};
};

/// Throws sureleap::error for a batch whose parts do not fit each other or a drafter of that configuration, which has
/// angles for max_positions.
template <class Real>
void check_batch(eagle3_batch<Real> const& batch, engine::model_config const& config, std::size_t max_positions) {
    using sureleap::fail_with;
    auto const expect = [](char const* what, std::size_t is, std::size_t expected) {
        if (is != expected) fail_with("eagle3_batch: ", what, " is ", is, ", expected ", expected);
    };
    auto const& t = config.transformer;
    std::size_t const gamma = config.draft->block_size;
    std::size_t const rows = batch.features.rows;
    expect("width of features", batch.features.cols, config.draft->target_layer_ids.size() * t.hidden_size);
    if (batch.laws.empty()) {
        expect("draft vocabulary without laws", config.draft->vocabulary, 0);
        expect("width of target_hidden", batch.target_hidden.cols, t.hidden_size);
        expect("rows of target_hidden", batch.target_hidden.rows, rows);
    } else {
        expect("length of laws", batch.laws.rows(), batch.blocks.size() * gamma);
        expect("length of labels", batch.labels.size(), batch.blocks.size() * gamma);
    }
    expect("length of next_tokens", batch.next_tokens.size(), rows);
    for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
        draft_block const& block = batch.blocks[b];
        if (block.positions > gamma || block.context.begin > block.context.end ||
            block.context.end + block.positions > rows) {
            fail_with("eagle3_batch: block ", b, " has ", block.positions, " positions after token rows [",
                      block.context.begin, ", ", block.context.end, "), expected at most ", gamma, " within ", rows,
                      " rows");
        }
        if (block.context.size() + gamma > max_positions) {
            fail_with("eagle3_batch: block ", b, " reaches position ", block.context.size() + gamma - 1,
                      ", expected below ", max_positions);
        }
    }
    auto const check_tokens = [](char const* name, std::span<token_id const> tokens, std::size_t vocabulary,
                                 bool none) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (tokens[i] >= 0 && static_cast<std::size_t>(tokens[i]) < vocabulary) continue;
            if (none && tokens[i] == sureleap::no_token) continue;
            fail_with("eagle3_batch: ", name, "[", i, "] is ", tokens[i], ", expected a token below ", vocabulary);
        }
    };
    std::size_t const drafted = config.draft->vocabulary > 0 ? config.draft->vocabulary : t.vocabulary;
    check_tokens("next_tokens", batch.next_tokens, t.vocabulary, false);
    check_tokens("labels", batch.labels, drafted, true);
    check_tokens("laws", batch.laws.tokens, drafted, false);
}

}  // namespace train
