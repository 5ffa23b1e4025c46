// SPDX-License-Identifier: MIT
//
// Where the blocks of a training sequence start, and what they predict. A block anchored at position t drafts the
// tokens at t+1 .. t+gamma from a context that ends before t, exactly as in decoding, where the anchor has not been
// through the target yet. One sequence carries many blocks, since a forward of its context is paid once.
//
// The rule is the released code's: a position may be an anchor if it and the next one are part of what the model should
// learn to say (loss mask 1). So the first token of a response is never predicted from the last token of a prompt:
// in decoding the target itself emits that one. Every candidate is equally likely to be chosen.
//
// Draws are named by (seed, sequence, position) as everywhere in the library. Which anchors a sequence gets does not
// depend on the batch it is in, on the order of batches or on threads. So a run that is resumed draws the same ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A block: its anchor, and how many of its positions, from the first on, have a label that counts.
struct anchored_block {
    std::size_t anchor = 0;
    /// 0 for a dummy, which exists to fill a fixed shape: it attends to nothing and has no loss.
    std::size_t positions = 0;

    [[nodiscard]] bool operator==(anchored_block const&) const = default;
};

/// Whether position t of a sequence may be an anchor. loss_mask has one entry a token, 0 or 1.
[[nodiscard]] inline bool is_anchor_candidate(std::span<std::uint8_t const> loss_mask, std::size_t t) noexcept {
    return t + 1 < loss_mask.size() && loss_mask[t] != 0 && loss_mask[t + 1] != 0;
}

/// Leading positions of the block at `anchor` that count: up to the first label outside the sequence or the loss mask.
/// What follows a gap in the mask is left out although it has labels, since the draft cannot get there in decoding.
[[nodiscard]] inline std::size_t supervised_positions(std::span<std::uint8_t const> loss_mask, std::size_t anchor,
                                                      std::size_t block_size) noexcept {
    std::size_t n = 0;
    while (n < block_size && anchor + 1 + n < loss_mask.size() && loss_mask[anchor + 1 + n] != 0) ++n;
    return n;
}

/// labels[k] = the token at anchor + 1 + k: what position k should draft. Behind the end of the sequence the last token
/// is repeated, which no loss reads.
inline void block_labels(std::span<token_id const> tokens, std::size_t anchor, std::span<token_id> labels) noexcept {
    SURELEAP_EXPECTS(anchor < tokens.size());
    for (std::size_t k = 0; k < labels.size(); ++k) labels[k] = tokens[std::min(anchor + 1 + k, tokens.size() - 1)];
}

/// previous[k] = the token at anchor + k: what a head reads at position k (the anchor at k = 0), the label of the
/// position before it.
inline void block_previous(std::span<token_id const> tokens, std::size_t anchor,
                           std::span<token_id> previous) noexcept {
    SURELEAP_EXPECTS(anchor < tokens.size());
    for (std::size_t k = 0; k < previous.size(); ++k) previous[k] = tokens[std::min(anchor + k, tokens.size() - 1)];
}

/// The draw that candidate t of a sequence owns, on [0, 1). Number sequences so that every visit has one of its own
/// (epoch * sequences + index): otherwise each epoch trains the same anchors.
[[nodiscard]] inline double anchor_uniform(std::uint64_t seed, std::uint64_t sequence, std::size_t t) noexcept {
    auto const bits = random_bits({seed, sequence, 0, purpose::anchor}, static_cast<std::uint32_t>(t));
    return static_cast<double>(((std::uint64_t{bits[0]} << 32) | bits[1]) >> 11) * 0x1p-53;
}

/// At most `count` blocks of a sequence, ascending by anchor: those of the candidates with the smallest uniform(t), the
/// earlier one among equals. Fewer if the sequence has fewer candidates. uniform(t) is asked for candidates only.
/// O(S log S) for S tokens. Throws sureleap::error if block_size is 0.
///
/// Nothing is padded here. Who needs `count` blocks of a fixed shape appends dummies: blocks.resize(count).
template <class Uniform>
[[nodiscard]] std::vector<anchored_block> sample_blocks(std::span<std::uint8_t const> loss_mask, std::size_t count,
                                                        std::size_t block_size, Uniform const& uniform) {
    if (block_size == 0) fail_with("sample_blocks: block size (gamma) is 0, expected at least 1");
    struct drawn {
        double draw;
        std::size_t position;
    };
    std::vector<drawn> candidates;
    for (std::size_t t = 0; t + 1 < loss_mask.size(); ++t) {
        if (is_anchor_candidate(loss_mask, t)) candidates.push_back({uniform(t), t});
    }
    std::ranges::sort(candidates, [](drawn const& a, drawn const& b) {
        return a.draw < b.draw || (a.draw == b.draw && a.position < b.position);
    });
    if (candidates.size() > count) candidates.resize(count);
    std::ranges::sort(candidates, {}, &drawn::position);

    std::vector<anchored_block> blocks;
    blocks.reserve(candidates.size());
    for (drawn const& c : candidates) {
        blocks.push_back({c.position, supervised_positions(loss_mask, c.position, block_size)});
    }
    return blocks;
}

SURELEAP_END_NAMESPACE
