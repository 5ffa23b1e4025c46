// SPDX-License-Identifier: MIT
//
// Anchor-bounded packing (paper, section 5.1). A sequence is cut behind the last supervised position of its last block:
// a block attends to what lies before its anchor, so nothing behind is ever read. What is left is packed into
// batches of at most a budget of rows, back to back and without padding.
//
// A batch has rows of two kinds. Token rows are the packed tokens of all sequences (features of the target, keys of
// every block). Block rows are the gamma slots of every block (queries, and keys of their own block). What a block row
// sees is two ranges:
//     its context      token rows [first row of its sequence, row of its anchor)   strictly before the anchor
//     its own block    block rows [b gamma, (b + 1) gamma)                         all of it, also to the right
// Both are ranges because the tokens of a sequence are contiguous. They are found in O(1) from three numbers a block.
// Rejected: a mask of [block rows, token rows + block rows], which is far larger than the batch. 512 blocks of 7 over
// 4,096 tokens take 12 KB here and 27 MB as bytes of a mask.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/training/anchors.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Tokens of a sequence that training its blocks needs: 0 .. the last position whose target logits are a label's,
/// which is the one before the last label. At most the sequence's length - 1; 0 without a supervised block.
[[nodiscard]] inline std::size_t bounded_rows(std::span<anchored_block const> blocks) noexcept {
    std::size_t rows = 0;
    for (anchored_block const& b : blocks) {
        if (b.positions > 0) rows = std::max(rows, b.anchor + b.positions);
    }
    return rows;
}

/// Divides sequences into batches of at most `budget` rows; batches and their members are indices into `rows`. rows[i]
/// is what sequence i takes of the budget: bounded_rows, or that plus gamma per block if blocks are to count. Best fit
/// decreasing: the longest first (the earlier among equals), each into the fullest batch that still takes it. At most
/// 11/9 of the fewest possible batches, plus a constant; O(n log n), deterministic. Sequences without rows are left
/// out. Throws sureleap::error if one exceeds the budget: only its owner knows where to cut it.
///
/// Batches come out ordered by length. So a trainer packs a shuffled window of sequences at a time (say, those of one
/// optimizer step) rather than a whole epoch.
[[nodiscard]] inline std::vector<std::vector<std::size_t>> pack_sequences(std::span<std::size_t const> rows,
                                                                          std::size_t budget) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] > budget) {
            fail_with("pack_sequences: sequence ", i, " takes ", rows[i], " rows, expected at most the budget ",
                      budget);
        }
        if (rows[i] > 0) order.push_back(i);
    }
    std::ranges::sort(order,
                      [&](std::size_t i, std::size_t j) { return rows[i] > rows[j] || (rows[i] == rows[j] && i < j); });

    std::vector<std::vector<std::size_t>> batches;
    std::set<std::pair<std::size_t, std::size_t>> room;  // (rows left, batch)
    for (std::size_t const i : order) {
        auto const fullest = room.lower_bound({rows[i], 0});
        bool const fits = fullest != room.end();
        auto const [left, batch] = fits ? *fullest : std::pair(budget, batches.size());
        if (fits) {
            room.erase(fullest);
        } else {
            batches.emplace_back();
        }
        batches[batch].push_back(i);
        room.emplace(left - rows[i], batch);
    }
    return batches;
}

/// Half-open range of rows.
struct row_span {
    std::size_t begin = 0;
    std::size_t end = 0;

    [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
    [[nodiscard]] bool contains(std::size_t row) const noexcept { return begin <= row && row < end; }
    [[nodiscard]] bool operator==(row_span const&) const = default;
};

/// The indices of one packed batch.
class packed_batch {
public:
    struct sequence {
        std::size_t index = 0;  ///< the caller's number of it
        row_span rows{};        ///< its token rows; row rows.begin + t is token t
    };
    struct block {
        std::size_t sequence = 0;   ///< index into sequences()
        std::size_t anchor = 0;     ///< token position within its sequence
        std::size_t positions = 0;  ///< supervised ones
    };

    explicit packed_batch(std::size_t block_size) : block_size_(block_size) {
        if (block_size == 0) fail_with("packed_batch: block size (gamma) is 0, expected at least 1");
    }

    /// Appends bounded_rows(blocks) token rows of sequence `index` and its supervised blocks; dummies are dropped, for
    /// nothing here has a fixed shape. Throws sureleap::error if a block has more than gamma positions.
    void add(std::size_t index, std::span<anchored_block const> blocks) {
        for (anchored_block const& b : blocks) {
            if (b.positions > block_size_) {
                fail_with("packed_batch: the block at ", b.anchor, " of sequence ", index, " has ", b.positions,
                          " positions, expected at most the block size ", block_size_);
            }
        }
        sequences_.push_back({index, {rows(), rows() + bounded_rows(blocks)}});
        for (anchored_block const& b : blocks) {
            if (b.positions > 0) blocks_.push_back({sequences_.size() - 1, b.anchor, b.positions});
        }
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }
    [[nodiscard]] std::vector<sequence> const& sequences() const noexcept { return sequences_; }
    [[nodiscard]] std::vector<block> const& blocks() const noexcept { return blocks_; }
    /// Token rows.
    [[nodiscard]] std::size_t rows() const noexcept { return sequences_.empty() ? 0 : sequences_.back().rows.end; }
    [[nodiscard]] std::size_t block_rows() const noexcept { return blocks_.size() * block_size_; }

    /// The token rows that block row i attends to.
    [[nodiscard]] row_span context(std::size_t i) const noexcept {
        block const& b = block_of(i);
        std::size_t const first = sequences_[b.sequence].rows.begin;
        return {first, first + b.anchor};
    }
    /// The block rows that block row i attends to: its own block.
    [[nodiscard]] row_span own_block(std::size_t i) const noexcept {
        std::size_t const first = i - i % block_size_;
        return {first, first + block_size_};
    }
    /// Absolute position of block row i in its sequence: anchor + k.
    [[nodiscard]] std::size_t position(std::size_t i) const noexcept { return block_of(i).anchor + i % block_size_; }
    /// The token row whose final hidden state of the target gives p for block row i: the one at anchor + k, which
    /// predicts the token at anchor + 1 + k. Precondition: block row i is supervised.
    [[nodiscard]] std::size_t target_row(std::size_t i) const noexcept {
        SURELEAP_EXPECTS(i % block_size_ < block_of(i).positions);
        return sequences_[block_of(i).sequence].rows.begin + position(i);
    }
    /// The block rows that have a loss, ascending.
    [[nodiscard]] std::vector<std::size_t> supervised_rows() const {
        std::vector<std::size_t> rows;
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            for (std::size_t k = 0; k < blocks_[b].positions; ++k) rows.push_back(b * block_size_ + k);
        }
        return rows;
    }

private:
    [[nodiscard]] block const& block_of(std::size_t i) const noexcept {
        SURELEAP_EXPECTS(i < block_rows());
        return blocks_[i / block_size_];
    }

    std::size_t block_size_;
    std::vector<sequence> sequences_;
    std::vector<block> blocks_;
};

SURELEAP_END_NAMESPACE
