// SPDX-License-Identifier: MIT
//
// The product of a step (product_step.cuh) on tensor cores: the kernel and its launch, and what it costs. Its parts are the
// tile (product_tile.cuh), copies into shared memory (product_copies.cuh), and logits in registers (product_logits.cuh).
//
// A block owns the tile [up to 128 requests, 128 tokens] of a group. The codes stay in shared memory for the whole launch.
// Everything else is read once, in chunks of 128 rows x 128 bytes through a ring of five stages: the chunks of W2's 128
// rows, then those of the requests' base logits, then those of the next group. Copies run four chunks (64 KiB) ahead of the
// multiplication, across groups, so they go on while a group's statistics are made.
//
// For r = 256, V = 151,936, 128 requests, bf16, per group (1,187 of them, 9 for each of 132 multiprocessors):
//     copies        64 KiB of W2, 32 KiB of U; 117 MB in all, 26 us at 4.5 TB/s
//     mma           16 warps x 16 steps x 8 = 2,048, of 2,048 multiply-adds each: 4,100 cycles at 1,024 a cycle (what sm_80
//                   does), 21 us in all at 1.75 GHz
//     ldmatrix.x4   16 warps x 16 steps x (2 + 2) = 1,024, of 512 bytes: 4,096 cycles at 128 bytes a cycle, beside the mma
//     shared rest   768 cycles of copies that arrive, 256 of base logits
//     statistics    32 logits a thread, some 10 instructions each: 1,280 issue slots a scheduler, not beside the mma of
//                   the same warp
// The sum of mma and statistics, 28 us, is what a multiprocessor takes if nothing overlaps but copies. These are counts.
// An H200 takes 59 us: warps wait for ldmatrix, and for each other at every chunk (docs/performance.md). Codes of two terms
// double the mma and half of the ldmatrix.
//
// Where there are more requests than fit a tile, blocks divide into teams, one for each tile of requests. Teams walk over
// the groups side by side, so W2 comes from memory once, and from the second-level cache for the others.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/head/product_copies.cuh>
#include <sureleap/cuda/head/product_logits.cuh>
#include <sureleap/cuda/head/product_step.cuh>
#include <sureleap/cuda/head/product_tile.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// One block's walk over groups of tokens, for one tile of requests.
template <class W, class U, std::uint32_t requests, std::uint32_t terms>
class product_walk {
    using tile = product_tile<requests>;
    using shared = typename tile::shared;

public:
    __device__ product_walk(product_step<W, U> const& step, shared& s, std::uint32_t first, std::uint32_t count)
        : groups_(groups_of(step.vocabulary())),
          s_(s),
          logits_(step, s, count, list_requests(step, s, first, count)),
          copies_(step, s, count) {}

    /// Groups first, first + by ...
    __device__ void run(std::uint32_t first, std::uint32_t by) {
        std::uint32_t const chunks = copies_.count();
        std::uint32_t ahead_group = first;
        std::uint32_t ahead_chunk = 0;
        std::uint32_t ahead_stage = 0;
        auto const load_next = [&] {
            if (ahead_group < groups_) copies_.load(ahead_group, ahead_chunk, s_.ring[ahead_stage]);
            __pipeline_commit();
            ahead_stage = ahead_stage + 1 == tile::stages ? 0 : ahead_stage + 1;
            if (++ahead_chunk == chunks) {
                ahead_chunk = 0;
                ahead_group += by;
            }
        };
        for (std::uint32_t i = 0; i + 1 < tile::stages; ++i) load_next();

        std::uint32_t stage = 0;
        for (std::uint32_t group = first; group < groups_; group += by) {
            logits_.clear();
            for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
                __pipeline_wait_prior(tile::stages - 2);
                __syncthreads();  // this chunk has arrived for everyone, and everyone is done with the one before
                load_next();
                if (chunk < copies_.code_chunks()) {
                    logits_.multiply(s_.ring[stage], chunk);
                } else {
                    logits_.add_base(s_.ring[stage], chunk - copies_.code_chunks());
                }
                stage = stage + 1 == tile::stages ? 0 : stage + 1;
            }
            logits_.summarise(group);
        }
        // For the next tile: a block that came to a group has waited already, and one that did not will compute nothing.
        __pipeline_wait_prior(0);  // no mutant
        __syncthreads();           // no mutant
    }

private:
    /// What everyone will ask of requests first .. of the step's list. True if one of them asks for its row.
    [[nodiscard]] static __device__ bool list_requests(product_step<W, U> const& step, shared& s, std::uint32_t first,
                                                       std::uint32_t count) {
        bool has_rows = false;
        for (std::uint32_t i = threadIdx.x; i < count; i += tile::threads) {
            std::uint32_t const r = step.list.ids[first + i];
            s.ids[i] = r;
            s.factors[i] = step.scale(r) * log2_e;
            s.rows[i] = step.row(r);
            has_rows = has_rows || s.rows[i] != nullptr;
        }
        return __syncthreads_or(has_rows) != 0;
    }

    std::uint32_t groups_;
    shared& s_;
    product_logits<W, U, requests, terms> logits_;  // before the copies, which look for the requests that are listed
    product_copies<W, U, requests, terms> copies_;
};

/// Teams of blocks take tiles of requests; the blocks of a team walk over the groups side by side.
template <class W, class U, std::uint32_t requests, std::uint32_t terms>
__global__ void __launch_bounds__(product_tile<requests>::threads) multiply_on_tensor_cores(product_step<W, U> step) {
    auto& s = shared_memory<typename product_tile<requests>::shared>();
    std::uint32_t const drafting = *step.list.count;
    std::uint32_t const tiles = (drafting + requests - 1) / requests;
    std::uint32_t const teams = tiles < gridDim.x ? tiles : gridDim.x;
    if (teams == 0) return;
    std::uint32_t const size = (drafting + tiles - 1) / tiles;  // all tiles alike
    std::uint32_t const team = blockIdx.x % teams;
    std::uint32_t const members = (gridDim.x - team + teams - 1) / teams;
    for (std::uint32_t t = team; t < tiles; t += teams) {
        std::uint32_t const first = t * size;
        std::uint32_t const end = first + size < drafting ? first + size : drafting;
        if (first >= end) break;
        product_walk<W, U, requests, terms>(step, s, first, end - first).run(blockIdx.x / teams, members);
    }
}

/// Launches it for tiles of `requests`.
template <std::uint32_t requests, std::uint32_t terms, class W, class U>
[[nodiscard]] cudaError_t launch_tile(product_step<W, U> const& step, unsigned multiprocessors, cudaStream_t stream) {
    using tile = product_tile<requests>;
    std::size_t const bytes = tile::shared_bytes(step.codes.rank, terms);
    // Blocks that are resident at once, and no more: each loads the codes once.
    unsigned const together = bytes <= 112 * 1024 ? 2 : 1;
    return launch(multiply_on_tensor_cores<W, U, requests, terms>, dim3(together * multiprocessors),
                  dim3(tile::threads), bytes, stream, step);
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
