// SPDX-License-Identifier: MIT
//
// What verifications of trees share. In: the columns of trees. Out: the memory of a verification whose rows are nodes,
// and the answers to what a verification asks of a row: how deep it is, what its first child is, which row comes next
// on the accepted path.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/tree/columns.cuh>
#include <sureleap/cuda/verify/memory.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Memory of a verification of trees, out of `ws`. Not ready() if that only counts or is too small.
/// About 32 bytes for every 1,024 logits of a full batch.
[[nodiscard]] inline verify_memory carve_tree_verification(workspace& ws, device_limits const& limits,
                                                           std::uint32_t nodes) noexcept {
    if (!limits.valid() || nodes == 0 || nodes > tree_columns::most_nodes) return {};
    device_limits of_trees = limits;
    of_trees.block_size = nodes;
    return detail::carve_verification(ws, of_trees, false);
}

/// Trees as a verification sees drafts. DraftRows is that of verify/draft_rows.cuh; it is asked for the distribution of
/// node n as for position n of a block. Rows of draft logits in memory are dense_draft_rows of block_size N + 1.
template <class DraftRows>
struct tree_drafts {
    tree_columns trees;
    std::uint32_t block_size;  ///< of the round
    DraftRows rows;

    /// As of a chain (verify/draft_rows.cuh).
    [[nodiscard]] __device__ float weight(std::uint32_t r, std::uint32_t n, distribution const& q, token_id v) const {
        return rows.weight(r, n, q, v);
    }
    __device__ void weights(std::uint32_t r, std::uint32_t n, distribution const& q, std::uint32_t block,
                            float* out) const {
        rows.weights(r, n, q, block, out);
    }

    [[nodiscard]] __device__ std::uint32_t depth(std::uint32_t r, std::uint32_t n) const {
        return trees.depths[trees.cell(r, n)];
    }
    [[nodiscard]] __device__ std::int32_t first_child(std::uint32_t r, std::uint32_t n) const {
        return trees.first_children[trees.cell(r, n)];
    }
    /// The node behind j accepted tokens.
    [[nodiscard]] __device__ std::uint32_t on_path(std::uint32_t r, std::uint32_t j) const {
        return j == 0 ? 0 : static_cast<std::uint32_t>(trees.paths[r * block_size + j - 1]);
    }
    /// One thread: the path goes on from j accepted tokens to node n.
    __device__ void follow(std::uint32_t r, std::uint32_t j, std::uint32_t n) const {
        trees.paths[r * block_size + j] = static_cast<std::int32_t>(n);
    }
    /// WARP collective: the first child of node n, of the tree of request r with `size` nodes, that has token y; 0 if
    /// none has.
    [[nodiscard]] __device__ std::uint32_t child(std::uint32_t r, std::uint32_t size, std::uint32_t n,
                                                 token_id y) const {
        for (std::uint32_t first = n + 1; first < size; first += warp_size) {
            std::uint32_t const m = first + lane_index();
            bool const found = m < size && trees.parents[trees.cell(r, m)] == static_cast<std::int32_t>(n) &&
                               trees.tokens[trees.cell(r, m)] == y;
            int const lane = first_lane(found);
            if (lane >= 0) return first + static_cast<std::uint32_t>(lane);
        }
        return 0;
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
