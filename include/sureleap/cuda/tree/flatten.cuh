// SPDX-License-Identifier: MIT
//
// Puts the trees of all requests into one flat target batch, and finds what follows from their parents. In:
// trees.counts, tokens, parents, and the requests of the round. Out: the other columns of `trees`, and what attention
// kernels want.
//
//     flatten_trees(round, trees, stream);
//     flatten_trees(round, trees, {attention, captured}, masks, stream);
//
// Row offsets[r] + n is node n of request r: its token, at position positions[r] + depth. Layouts of keys are those of
// a chain of as many tokens (verify/flatten.cuh): the key of node n is number positions[r] + n of its request, whatever
// its depth. After the verdict the engine moves the keys of the accepted path together, to where a chain would have
// them: that of node paths[r, j] to number positions[r] + 1 + j.
//
// One launch, and another one for masks that are packed. A block of threads has 32 requests of its own, as in
// verify/flatten.cuh, and a warp takes a tree at a time. A lane walks from its node to the anchor, O(depth), and looks
// for its first child and next sibling among later nodes, O(N). All of that is in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/tree/masks.cuh>
#include <sureleap/cuda/verify/flatten.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Arrays for batches of trees of `nodes` drafted nodes; page_size: 0 for a cache without pages.
[[nodiscard]] inline attention_layout carve_tree_attention(workspace& ws, device_limits limits, std::uint32_t nodes,
                                                           std::uint32_t page_size) noexcept {
    limits.block_size = nodes;
    return carve_attention(ws, limits, page_size);
}

namespace detail {

struct flatten_trees_shared {
    flatten_shared flat;
    std::int32_t parents[threads_of_flatten / warp_size][tree_columns::most_nodes + 1];  ///< of a warp's tree
};

/// WARP collective: parents of a tree of `rows` nodes, in shared memory, where they come before their children and none
/// is deeper than `deepest`. Otherwise returns false, and all nodes are children of the anchor, so that rows are
/// something.
[[nodiscard]] __device__ inline bool read_parents(tree_columns const& trees, std::uint32_t r, std::uint32_t rows,
                                                  std::uint32_t deepest, std::int32_t* parents) {
    bool sound = true;
    for (std::uint32_t n = lane_index(); n < rows; n += warp_size) {
        std::int32_t const parent = n == 0 ? no_node : trees.parents[trees.cell(r, n)];
        sound &= n == 0 || (parent >= 0 && static_cast<std::uint32_t>(parent) < n);
        parents[n] = parent;
    }
    sound = __all_sync(all_lanes, sound) != 0;
    __syncwarp();
    for (std::uint32_t n = lane_index(); n < rows && sound; n += warp_size) {
        std::uint32_t depth = 0;
        for (std::int32_t m = parents[n]; m >= 0; m = parents[m]) ++depth;
        if (depth > deepest) sound = false;
    }
    sound = __all_sync(all_lanes, sound) != 0;
    if (sound) return true;
    __syncwarp();  // lanes that walked
    for (std::uint32_t n = lane_index(); n < rows; n += warp_size) parents[n] = n == 0 ? no_node : 0;
    __syncwarp();
    return false;
}

/// One node of a tree: all that is known of it, from its parents.
__device__ inline void write_node(device_round const& round, tree_columns const& trees, attention_layout const& layout,
                                  std::uint32_t r, std::uint32_t n, std::uint32_t first_row, std::uint32_t rows,
                                  std::int32_t const* parents) {
    constexpr std::uint32_t most_words = (tree_columns::most_nodes + 64) / 64;
    std::uint64_t words[most_words] = {};
    std::uint32_t depth = 0;
    for (auto m = static_cast<std::int32_t>(n);; ++depth) {
        auto const at = static_cast<std::uint32_t>(m);
#pragma unroll
        for (std::uint32_t w = 0; w < most_words; ++w) words[w] |= at / 64 == w ? std::uint64_t{1} << at % 64 : 0;
        m = parents[m];
        if (m < 0) break;
    }
    auto const self = static_cast<std::int32_t>(n);
    std::int32_t child = no_node;
    std::int32_t sibling = no_node;
    for (std::uint32_t m = n + 1; m < rows && (child < 0 || sibling < 0); ++m) {
        if (child < 0 && parents[m] == self) child = static_cast<std::int32_t>(m);
        if (sibling < 0 && parents[m] == parents[n]) sibling = static_cast<std::int32_t>(m);
    }
    std::uint32_t const cell = trees.cell(r, n);
    trees.depths[cell] = depth;
    trees.first_children[cell] = child;
    trees.next_siblings[cell] = sibling;

    std::uint32_t const row = first_row + n;
    std::uint64_t const position = round.requests.positions[r] + depth;
    trees.batch.tokens[row] = n == 0 ? round.requests.anchors[r] : trees.tokens[cell];
    trees.batch.positions[row] = position;
    trees.batch.markers[row] = r;
    trees.parent_rows[row] = n == 0 ? no_node : static_cast<std::int32_t>(first_row) + parents[n];
    if (layout.positions != nullptr) layout.positions[row] = static_cast<std::int32_t>(position);
#pragma unroll
    for (std::uint32_t w = 0; w < most_words; ++w) {
        if (w < trees.mask_words()) trees.ancestors[static_cast<std::size_t>(row) * trees.mask_words() + w] = words[w];
    }
}

/// BLOCK collective: packed_indptr of the block's own requests, and of all if it is the last.
__device__ inline void write_mask_sums(device_round const& round, tree_columns const& trees, tree_masks const& masks,
                                       std::uint32_t first, bool last, block_shared& shared) {
    std::uint32_t const limit = round.limits.requests;
    std::uint32_t const count = *round.requests.count < limit ? *round.requests.count : limit;
    std::uint64_t before = 0;
    for (std::uint32_t r = threadIdx.x; r < first && r < count; r += blockDim.x) {
        before += mask_bytes(round, trees, masks, r);
    }
    before = sum_over_block(before, shared).total;
    std::uint32_t const own = first + threadIdx.x;
    bool const owns = threadIdx.x < requests_of_flatten && own < limit;
    block_sum const sum = sum_over_block(owns && own < count ? mask_bytes(round, trees, masks, own) : 0, shared);
    if (owns) masks.packed_indptr[own] = static_cast<std::int32_t>(before + sum.before);
    if (last && threadIdx.x == 0) masks.packed_indptr[limit] = static_cast<std::int32_t>(before + sum.total);
}

/// `round` has the trees' batch and N for a block size; `deepest`: its own block size.
template <class = void>
__global__ void __launch_bounds__(threads_of_flatten)
    flatten_trees_kernel(device_round round, tree_columns trees, flat_batch flat, tree_masks masks,
                         std::uint32_t deepest) {
    auto& s = shared_memory<flatten_trees_shared>();
    std::uint32_t const first = blockIdx.x * requests_of_flatten;
    bool const last = blockIdx.x == gridDim.x - 1;
    lay_out_requests(round, flat, first, requests_of_flatten, last, s.flat);
    if (masks.packed_indptr != nullptr) write_mask_sums(round, trees, masks, first, last, s.flat.block);

    std::int32_t* const parents = s.parents[warp_index()];
    std::uint32_t const width = trees.width();
    for (std::uint32_t local = warp_index(); local < requests_of_flatten; local += threads_of_flatten / warp_size) {
        std::uint32_t const r = first + local;
        if (r >= round.limits.requests) return;
        std::uint32_t const rows = s.flat.rows[local];
        std::uint32_t const first_row = s.flat.first_row[local];
        bool const sound = read_parents(trees, r, rows, deepest, parents);
        if (!sound && lane_index() == 0) {
            status& of_tree = trees.statuses[r];
            if (of_tree == status::ok || is_draft_failure(of_tree)) of_tree = status::invalid_tree;
        }
        for (std::uint32_t n = lane_index(); n < width; n += warp_size) {
            if (n < rows) {
                write_node(round, trees, flat.attention, r, n, first_row, rows, parents);
            } else {
                trees.depths[trees.cell(r, n)] = 0;
                trees.first_children[trees.cell(r, n)] = trees.next_siblings[trees.cell(r, n)] = no_node;
            }
        }
        __syncwarp();  // ancestors of other lanes' nodes; parents of the next tree
        if (masks.allowed == nullptr) continue;
        for (std::uint32_t i = lane_index(); i < rows * width; i += warp_size) {
            std::uint32_t const n = i / width;
            std::uint32_t const m = i - n * width;
            std::size_t const row = first_row + n;
            std::uint64_t const word = trees.ancestors[row * trees.mask_words() + m / 64];
            masks.allowed[row * width + m] = static_cast<std::uint8_t>(word >> m % 64 & 1);
        }
    }
}

}  // namespace detail

/// Fills `trees` from its counts, tokens and parents, and what else `flat` and `masks` ask for. Rows that pad the batch
/// to a captured size are as in flatten. `trees` was carved for the limits of `round`. A tree whose parents are none
/// has rows like any other, and the status invalid_tree, with which nothing is emitted.
[[nodiscard]] inline cudaError_t flatten_trees(device_round const& round, tree_columns const& trees,
                                               flat_batch const& flat, tree_masks const& masks,
                                               cudaStream_t stream) noexcept {
    if (!round.ready() || !trees.ready() || !flat.valid() || !masks.valid()) return cudaErrorInvalidValue;
    device_round rows = detail::with_trees(round, trees);
    rows.limits.block_size = trees.nodes;
    unsigned const requests = round.limits.requests;
    unsigned const blocks = (requests + detail::requests_of_flatten - 1) / detail::requests_of_flatten;
    cudaError_t const error =
        launch(detail::flatten_trees_kernel<>, blocks, detail::threads_of_flatten, sizeof(detail::flatten_trees_shared),
               stream, rows, trees, flat, masks, round.limits.block_size);
    if (error != cudaSuccess || masks.packed == nullptr) return error;
    return launch(detail::pack_masks<>, dim3(requests, masks.context ? detail::blocks_of_context : 1),
                  detail::threads_of_masks, 0, stream, rows, trees, masks);
}
[[nodiscard]] inline cudaError_t flatten_trees(device_round const& round, tree_columns const& trees,
                                               cudaStream_t stream) noexcept {
    return flatten_trees(round, trees, flat_batch{}, tree_masks{}, stream);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
