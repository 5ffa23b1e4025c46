// SPDX-License-Identifier: MIT
//
// The product of a step (product_step.cuh): `multiply` launches it, on tensor cores where the weights and the device
// allow it. The kernel copies operands into shared memory, and product_tile.cuh computes with them.
//
// A block owns the tile [up to 128 requests, 128 tokens] of a group. The codes stay in shared memory for the whole
// launch. Everything else is read once, in chunks of 128 rows x 128 bytes through a ring of five stages: the chunks of
// W2's 128 rows, then those of the requests' base logits, then those of the next group. Copies run four chunks (64 KiB)
// ahead of the multiplication, across groups, so they go on while a group's statistics are made.
//
// For r = 256, V = 151,936, 128 requests, bf16, per group (1,187 of them, 9 for each of 132 multiprocessors):
//     copies        64 KiB of W2, 32 KiB of U; 117 MB in all, 26 us at 4.5 TB/s
//     mma           16 warps x 16 steps x 8 = 2,048, of 2,048 multiply-adds each: 4,100 cycles at 1,024 a cycle (what sm_80
//                   does), 21 us in all at 1.75 GHz
//     ldmatrix.x4   16 warps x 16 steps x (2 + 2) = 1,024, of 512 bytes: 4,096 cycles at 128 bytes a cycle, beside the mma
//     shared rest   768 cycles of copies that arrive, 256 of base logits
//     statistics    32 logits a thread, some 10 instructions each: 1,280 issue slots a scheduler, not beside the mma of
//                   the same warp
// The sum of mma and statistics, 28 us, is what a multiprocessor takes if nothing overlaps but copies. These are
// counts. An H200 takes 59 us: warps wait for ldmatrix, and for each other at every chunk (docs/performance.md). Codes
// of two terms double the mma and half of the ldmatrix.
//
// Where there are more requests than fit a tile, blocks divide into teams, one for each tile of requests. Teams walk
// over the groups side by side, so W2 comes from memory once, and from the second-level cache for the others.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/head/product_step.cuh>
#include <sureleap/cuda/head/product_tile.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Copies of one tile of requests, for all groups of tokens: codes, rows of W2 and base logits from device memory into
/// shared memory, at the places that ldmatrix reads without bank conflicts. Eight threads copy a row of a chunk, 16
/// bytes each, asynchronously. Who calls commits the copies and waits for them.
template <class W, class U, std::uint32_t requests, std::uint32_t terms>
class product_copies {
    using tile = product_tile<requests>;
    using shared = typename tile::shared;
    using chunks = product_chunks<W, U, requests>;
    static constexpr std::uint32_t base_rounds = (requests + tile::rows_at_once - 1) / tile::rows_at_once;
    static constexpr std::uint32_t weight_rounds = group_size / tile::rows_at_once;
    static_assert(tile::rows_at_once % 8 == 0);

public:
    /// BLOCK collective: begins to copy the codes of the first `count` requests of s.ids.
    __device__ product_copies(product_step<W, U> const& step, shared& s, std::uint32_t count)
        : step_(step),
          code_chunks_(tile::chunks_of_rank(step.codes.rank)),
          place_(tile::place(copy_row(), copy_unit())) {
        load_codes(s, count);
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            std::uint32_t const row = copy_row() + i * tile::rows_at_once;
            base_[i] = row < count ? step.base_row(s.ids[row]) : nullptr;
        }
        by_vectors_ =
            reinterpret_cast<std::uintptr_t>(step.base.data) % 16 == 0 && step.base.stride * sizeof(U) % 16 == 0;
    }

    /// Chunks of a group: those of W2's rows, then those of the base logits.
    [[nodiscard]] __device__ std::uint32_t code_chunks() const { return code_chunks_; }
    [[nodiscard]] __device__ std::uint32_t count() const { return code_chunks_ + chunks::base_chunks; }

    /// BLOCK collective: begins to copy a chunk of a group into a stage of the ring.
    __device__ __forceinline__ void load(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        if (chunk < code_chunks_) {
            load_weights(group, chunk, stage);
        } else {
            load_base(group, chunk - code_chunks_, stage);
        }
    }

private:
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_row() { return threadIdx.x / 8; }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_unit() { return threadIdx.x % 8; }

    static __device__ __forceinline__ void zero(unsigned char* to) {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }

    // Rows that no request has are never looked at; components behind the rank are multiplied, so they must be 0.
    __device__ void load_codes(shared& s, std::uint32_t count) {
        std::uint32_t const rank = step_.codes.rank;
        for (std::uint32_t chunk = 0; chunk < terms * code_chunks_; ++chunk) {
            std::uint32_t const term = chunk / code_chunks_;
            std::uint32_t const at = (chunk % code_chunks_) * chunks::code_numbers + copy_unit() * vector_size<W>;
            for (std::uint32_t row = copy_row(); row < requests; row += tile::rows_at_once) {
                unsigned char* const to = s.codes(chunk) + tile::place(row, copy_unit());
                if (row < count && at < rank) {
                    __pipeline_memcpy_async(to, step_.codes.row(s.ids[row], step_.k) + term * rank + at, 16);
                } else {
                    zero(to);
                }
            }
        }
    }
    // Rows behind the vocabulary only make logits that summarise() does not look at. Rows of a thread are a multiple of
    // eight apart, so the units that `place` exchanges are the same in all of them.
    __device__ __forceinline__ void load_weights(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        std::uint32_t const at = chunk * chunks::code_numbers + copy_unit() * vector_size<W>;
        unsigned char* const to = stage + place_;
        if (at >= step_.codes.rank) {
#pragma unroll
            for (std::uint32_t i = 0; i < weight_rounds; ++i) zero(to + i * tile::rows_at_once * tile::chunk_bytes);
            return;
        }
        std::uint32_t const token = group * group_size + copy_row();
        W const* from = step_.w2.data + static_cast<std::size_t>(token) * step_.w2.stride + at;
        bool const whole = (group + 1) * group_size <= step_.vocabulary();
#pragma unroll
        for (std::uint32_t i = 0; i < weight_rounds; ++i) {
            if (whole || token + i * tile::rows_at_once < step_.vocabulary()) {
                __pipeline_memcpy_async(to + i * tile::rows_at_once * tile::chunk_bytes, from, 16);
            }
            from += tile::rows_at_once * step_.w2.stride;
        }
    }
    __device__ __forceinline__ void load_base(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        std::uint32_t const at = group * group_size + chunk * chunks::base_numbers + copy_unit() * vector_size<U>;
        bool const whole = by_vectors_ && at + vector_size<U> <= step_.vocabulary();
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            if (base_[i] == nullptr) continue;
            unsigned char* const to = stage + place_ + i * tile::rows_at_once * tile::chunk_bytes;
            if (whole) {
                __pipeline_memcpy_async(to, base_[i] + at, 16);
            } else {
                for (std::uint32_t j = 0; j < vector_size<U> && at + j < step_.vocabulary(); ++j) {
                    reinterpret_cast<U*>(to)[j] = base_[i][at + j];
                }
            }
        }
    }

    product_step<W, U> const& step_;
    std::uint32_t code_chunks_;
    std::uint32_t place_;  // of this thread's first copy in a chunk
    U const* base_[base_rounds];
    bool by_vectors_;
};

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
        // For the next tile: a block that came to a group has waited already, and one that did not will compute
        // nothing.
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

/// The statistics of a step into step.statistics, for the requests of its list. `terms` is the codes' number of terms,
/// and `most` the length that the list may have. O(V r R), reads W2 and the base logits once.
template <std::uint32_t terms, class W, class U>
[[nodiscard]] cudaError_t multiply(product_step<W, U> const& step, std::uint32_t most, cudaStream_t stream) {
    if constexpr (std::is_same_v<W, float>) {
        return detail::launch_plain(step, stream);
    } else {
        int device = 0;
        int available = 0;
        unsigned multiprocessors = 0;
        cudaError_t error = cudaGetDevice(&device);
        if (error == cudaSuccess) {
            error = cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        }
        if (error == cudaSuccess) error = count_multiprocessors(multiprocessors);
        if (error != cudaSuccess) return error;
        auto const room = static_cast<std::size_t>(available);
        auto const suits = [&](std::uint32_t requests, std::size_t bytes) {
            return most > requests / 2 && bytes <= room;
        };
        std::uint32_t const rank = step.codes.rank;
        if (suits(128, detail::product_tile<128>::shared_bytes(rank, terms))) {
            return detail::launch_tile<128, terms>(step, multiprocessors, stream);
        }
        if (suits(64, detail::product_tile<64>::shared_bytes(rank, terms))) {
            return detail::launch_tile<64, terms>(step, multiprocessors, stream);
        }
        if (suits(32, detail::product_tile<32>::shared_bytes(rank, terms))) {
            return detail::launch_tile<32, terms>(step, multiprocessors, stream);
        }
        return detail::launch_tile<16, terms>(step, multiprocessors, stream);
    }
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
