// SPDX-License-Identifier: MIT
//
// Which keys a row of a tree attends to, in the forms of attention kernels. In: the ancestors that flatten_trees found.
// Out, each where it is asked for:
//
//     packed, packed_indptr     FlashInfer: custom_mask and mask_indptr of its prefill kernels
//     allowed                   kernels that take a Boolean mask of a tree's own columns, a byte each
//     trees.ancestors           the same as bits, for kernels of one's own; always there
//     trees.first_children, trees.next_siblings
//                               SGLang: retrive_next_token, retrive_next_sibling, which are int64 there
//
// FlashInfer keeps a matrix of bits for each request: a row for each query, a column for each key. Query i sees key j
// if bit (i kv_len + j) % 8 of byte (i kv_len + j) / 8 is set, counted from the byte packed_indptr[r] (its
// variants.cuh). The keys of a request are its committed tokens up to the anchor's predecessor, and then its nodes in
// their own order. Every row sees all of the former. kv_len is position + 1 + count then, and a mask takes rows
// (context + rows) / 8 bytes.
//
// With `context` false the columns are the tree's alone, kv_len is 1 + count, and the size does not depend on the
// context. An engine calls attention twice then: over the context without a mask, over the tree with one. It merges the
// two by their log-sum-exp (FlashInfer's merge_state).
//
// plan(packed_custom_mask=...) of FlashInfer counts mask_indptr in bits where it did not pack the mask itself. So the
// two arrays are for custom_mask_buf and mask_indptr_buf, after plan().
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/tree/columns.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What an attention kernel wants of trees beside attention_layout. Members that are null are left out.
struct tree_masks {
    std::uint8_t* packed = nullptr;         ///< [packed_room] bits of all requests, each from a byte of its own on
    std::int32_t* packed_indptr = nullptr;  ///< [limits.requests + 1] bytes of all requests before; beyond R, of all
    std::size_t packed_room = 0;  ///< bytes; what does not fit is not written. It did if packed_indptr[R] is no more
    bool context = true;          ///< columns of committed tokens come first
    std::uint8_t* allowed = nullptr;  ///< [limits.requests (N + 1), N + 1] of each row: 1 if it attends to node m

    /// Both of a pair, or none.
    [[nodiscard]] bool valid() const noexcept {
        return (packed == nullptr) == (packed_indptr == nullptr) && (packed == nullptr || packed_room > 0);
    }
};

/// Bytes of `packed` that trees can take whose anchors stand before `most_context`; 0 committed tokens where they are
/// left out.
[[nodiscard]] inline std::size_t packed_mask_bytes(device_limits const& limits, std::uint32_t nodes,
                                                   std::size_t most_context) noexcept {
    std::size_t const width = std::size_t{nodes} + 1;
    return limits.requests * ((width * (most_context + width) + 7) / 8);
}

/// All of it, with masks that are packed for contexts of up to `most_context` tokens, or for no context if that is 0.
[[nodiscard]] inline tree_masks carve_tree_masks(workspace& ws, device_limits const& limits, std::uint32_t nodes,
                                                 std::size_t most_context) noexcept {
    std::size_t const width = std::size_t{nodes} + 1;
    std::size_t const bytes = packed_mask_bytes(limits, nodes, most_context);
    return {ws.take<std::uint8_t>(bytes), ws.take<std::int32_t>(limits.requests + std::size_t{1}), bytes,
            most_context > 0, ws.take<std::uint8_t>(limits.requests * width * width)};
}

namespace detail {

inline constexpr unsigned threads_of_masks = 128;
inline constexpr unsigned blocks_of_context = 8;  ///< of threads, for a request whose mask has its context

/// Columns of a request's mask that come before the tree's.
[[nodiscard]] __device__ __forceinline__ std::uint64_t context_columns(device_round const& round,
                                                                       tree_masks const& masks, std::uint32_t r) {
    return masks.context ? round.requests.positions[r] : 0;
}
/// Bytes of a request's mask.
[[nodiscard]] __device__ __forceinline__ std::uint64_t mask_bytes(device_round const& round, tree_columns const& trees,
                                                                  tree_masks const& masks, std::uint32_t r) {
    std::uint64_t const rows = trees.counts[r] + 1;
    return (rows * (context_columns(round, masks, r) + rows) + 7) / 8;
}

/// A request each blockIdx.x; its bytes are divided among blockIdx.y and threads. A byte may hold the end of one row
/// and the beginning of the next, or several rows.
template <class = void>
__global__ void __launch_bounds__(threads_of_masks)
    pack_masks(device_round round, tree_columns trees, tree_masks masks) {
    std::uint32_t const r = blockIdx.x;
    std::uint32_t const count = *round.requests.count;
    if (r >= count) return;
    std::uint64_t const before = context_columns(round, masks, r);
    std::uint32_t const rows = trees.counts[r] + 1;
    std::uint64_t const columns = before + rows;
    std::uint64_t const bytes = (columns * rows + 7) / 8;
    auto const begin = static_cast<std::uint64_t>(masks.packed_indptr[r]);
    auto const first_row = static_cast<std::uint32_t>(trees.batch.offsets[r]);
    std::uint64_t const* const ancestors = trees.ancestors + static_cast<std::size_t>(first_row) * trees.mask_words();
    for (std::uint64_t b = blockIdx.y * blockDim.x + threadIdx.x; b < bytes; b += gridDim.y * blockDim.x) {
        if (begin + b >= masks.packed_room) return;
        std::uint64_t const first = b * 8;
        auto row = static_cast<std::uint32_t>(first / columns);
        std::uint64_t column = first - row * columns;
        unsigned byte = 0;
        if (column + 8 <= before) {
            byte = 0xff;
        } else {
            for (unsigned i = 0; i < 8 && row < rows; ++i) {
                bool sees = true;
                if (column >= before) {
                    auto const m = static_cast<std::uint32_t>(column - before);
                    sees = (ancestors[row * trees.mask_words() + m / 64] >> m % 64 & 1) != 0;
                }
                byte |= sees ? 1u << i : 0u;
                if (++column == columns) {
                    column = 0;
                    ++row;
                }
            }
        }
        masks.packed[begin + b] = static_cast<std::uint8_t>(byte);
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
