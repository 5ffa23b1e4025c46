// SPDX-License-Identifier: MIT
//
// Target supervision as hidden states (paper, section 5.1). The target's final-normed hidden states, d numbers a
// token, are what is stored or sent; its LM head is applied here, to the rows that some position is supervised by, a
// chunk of rows at a time. Logits never exist for more rows than a chunk has:
//     a chunk of C rows     C x V numbers        128 rows of a vocabulary of 151,936 in float:   78 MB
//     all supervised rows   slots x V numbers    512 blocks of 7 in one sequence:              2,178 MB
// and a token costs V / d times less to store or to send (59 at V = 151,936 and d = 2,560).
//
// Blocks overlap, so one token's target law supervises up to gamma positions. The slots (supervised positions of the
// batch, in the caller's numbering) are therefore visited in order of their target row: each law is computed and
// normalised once, not once for every slot. With anchors at a quarter of the tokens that halves the target's share.
//
// One step of training, where `product` stands for a GEMM the trainer brings:
//     draft backbone -> h of all block rows; codes forward -> z of all supervised positions
//     for_each_chunk(target_hidden, memory, product, [&](chunk) {
//         chunk.logits: softmax each row in place
//         U = h[chunk.slots] lm_head^T + z[chunk.slots] W2^T            (product, product)
//         for each slot: draft_loss(...) turns its row of U into dU; confidence_loss(...)
//         dh[chunk.slots] += dU lm_head;  dz[chunk.slots] = dU W2;  dW2 += dU^T z[chunk.slots]
//     })
//     codes and confidence backward -> parameter gradients, de, dh; scatter_add(de) -> dW1; backbone backward from dh
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/training/rows.hpp>

SURELEAP_BEGIN_NAMESPACE

/// How large a chunk gets. Both at least 1. More slots make better matrix products; fewer, less memory.
struct chunk_limits {
    std::size_t rows = 128;   ///< distinct target rows: bounds the target's logits, rows x V
    std::size_t slots = 256;  ///< slots: bounds the draft's logits, which the caller has beside them, slots x V
};

/// What the consumer of a chunk gets.
template <std::floating_point Real>
struct supervised_chunk {
    std::span<std::size_t const> slots;  ///< the slots of this chunk, ascending within a row
    std::span<std::size_t const> rows;   ///< slots[i] is supervised by row rows[i] of `logits`; ascending
    matrix_span<Real> logits;            ///< [distinct rows, V]; the consumer may overwrite it
};

/// Memory of one chunk. Carve it with a counting workspace first to learn its size.
template <std::floating_point Real>
struct supervision_memory {
    matrix_span<Real> hidden;  ///< [limits.rows, d]: the rows, brought together for the product
    matrix_span<Real> logits;  ///< [limits.rows, V]
};

/// Memory of target_supervision for chunks of these limits, hidden states of hidden_size numbers and V logits.
template <std::floating_point Real>
[[nodiscard]] supervision_memory<Real> carve_supervision(workspace& ws, chunk_limits limits, std::size_t hidden_size,
                                                         std::size_t vocabulary) noexcept {
    auto const hidden = ws.take<Real>(limits.rows * hidden_size);
    auto const logits = ws.take<Real>(limits.rows * vocabulary);
    return {{hidden.data(), limits.rows, hidden_size}, {logits.data(), limits.rows, vocabulary}};
}

/// Which slot is supervised by which target row, divided into chunks.
class target_supervision {
public:
    /// sources[s] is the target row of slot s: packed_batch::target_row of a supervised block row. O(n log n).
    /// Throws sureleap::error if a limit is 0.
    target_supervision(std::span<std::size_t const> sources, chunk_limits limits) {
        if (limits.rows == 0) fail_with("target_supervision: rows of a chunk is 0, expected at least 1");
        if (limits.slots == 0) fail_with("target_supervision: slots of a chunk is 0, expected at least 1");
        slots_.resize(sources.size());
        std::iota(slots_.begin(), slots_.end(), std::size_t{0});
        std::ranges::sort(slots_, [&](std::size_t s, std::size_t t) {
            return sources[s] < sources[t] || (sources[s] == sources[t] && s < t);
        });
        rows_.reserve(slots_.size());
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            std::size_t const source = sources[slots_[i]];
            bool const full = chunks_.empty() || chunks_.back().slots == limits.slots;
            bool const known = !full && sources_.back() == source;
            if (full || (!known && chunks_.back().rows == limits.rows)) chunks_.push_back({i, 0, sources_.size(), 0});
            chunk& c = chunks_.back();
            if (!known) {
                sources_.push_back(source);
                ++c.rows;
            }
            ++c.slots;
            rows_.push_back(c.rows - 1);
        }
    }

    [[nodiscard]] std::size_t slots() const noexcept { return slots_.size(); }
    [[nodiscard]] std::size_t chunks() const noexcept { return chunks_.size(); }
    /// Target logits that are computed, in rows: the distinct sources, and one more wherever a chunk ends among the
    /// slots of one source.
    [[nodiscard]] std::size_t rows() const noexcept { return sources_.size(); }

    /// For every chunk, product(hidden [n, d], logits [n, V]) must write logits = hidden lm_head^T, then
    /// use(supervised_chunk) consumes them. hidden: the target's final-normed states [token rows, d]. `memory` from
    /// carve_supervision with the same limits. Every slot is visited exactly once. Throws sureleap::error if a source
    /// is no row of `hidden`; allocates nothing.
    template <std::floating_point Real, class Product, class Use>
    void for_each_chunk(matrix_view<Real> hidden, supervision_memory<Real> const& memory, Product&& product,
                        Use&& use) const {
        SURELEAP_EXPECTS(memory.hidden.cols == hidden.cols);
        for (chunk const& c : chunks_) {
            SURELEAP_EXPECTS(c.rows <= memory.logits.rows);
            auto const sources = std::span(sources_).subspan(c.first_row, c.rows);
            if (sources.back() >= hidden.rows) {  // ascending, so the last is the largest
                fail_with("target_supervision: a slot reads target row ", sources.back(), ", but there are ",
                          hidden.rows, " rows");
            }
            auto const gathered = row_range(memory.hidden, 0, c.rows);
            auto const logits = row_range(memory.logits, 0, c.rows);
            gather_rows(hidden, sources, gathered);
            product(gathered.view(), logits);
            use(supervised_chunk<Real>{std::span(slots_).subspan(c.first_slot, c.slots),
                                       std::span(rows_).subspan(c.first_slot, c.slots), logits});
        }
    }

private:
    struct chunk {
        std::size_t first_slot = 0;
        std::size_t slots = 0;
        std::size_t first_row = 0;
        std::size_t rows = 0;
    };

    std::vector<std::size_t> slots_;    // in order of their source
    std::vector<std::size_t> rows_;     // beside it: the row within the chunk
    std::vector<std::size_t> sources_;  // of the rows of all chunks
    std::vector<chunk> chunks_;
};

SURELEAP_END_NAMESPACE
