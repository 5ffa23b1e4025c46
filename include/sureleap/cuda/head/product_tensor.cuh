// SPDX-License-Identifier: MIT
//
// The product of a step (product_step.cuh) on tensor cores: how a block divides and orders it, and what that costs.
//
// A block owns the tile [up to 128 requests, 128 tokens] of a group. The codes stay in shared memory for the whole launch.
// Everything else is read once, in chunks of 128 rows x 128 bytes through a ring of five stages: the chunks of W2's 128
// rows, then those of the requests' base logits, then those of the next group. Copies run four chunks (64 KiB) ahead of the
// multiplication, across groups, so they go on while a group's statistics are made. Base logits are added after the
// product, not before: tensor cores do not round sums to nearest, and the sum of the product is small.
//
// For r = 256, V = 151,936, 128 requests, bf16, per group (1,187 of them, 9 for each of 132 multiprocessors):
//     copies        64 KiB of W2, 32 KiB of U; 117 MB in all, 26 us at 4.5 TB/s
//     mma           8 warps x 16 steps x 16 = 2,048, of 2,048 multiply-adds each: 4,100 cycles at 1,024 a cycle (what sm_80
//                   does), 21 us in all at 1.75 GHz
//     ldmatrix.x4   8 warps x 16 steps x (4 + 2) = 768, of 512 bytes: 3,072 cycles at 128 bytes a cycle, beside the mma
//     shared rest   768 cycles of copies that arrive, 256 of base logits
//     statistics    64 logits a thread, some 10 instructions each: 1,280 issue slots a scheduler, not beside the mma of
//                   the same warp
// The sum of mma and statistics, 28 us, is what a multiprocessor takes if nothing overlaps but copies. These are counts,
// not measurements. Codes of two terms double the mma and two thirds of the ldmatrix.
//
// Warps own 64 requests x 32 tokens, since that reads the fewest bytes of shared memory for the registers at hand: 384 KiB.
// With 16 x 128 (each warp all tokens of few requests, codes in registers) it would be 512 KiB.
//
// Where there are more requests than fit a tile, blocks divide into teams, one for each tile of requests. Teams walk over
// the groups side by side, so W2 comes from memory once, and from the second-level cache for the others.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/head/product_step.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// How a block of 256 threads divides `requests` x 128 tokens among its warps.
template <std::uint32_t requests>
struct product_tile {
    static constexpr std::uint32_t threads = 256;
    static constexpr std::uint32_t warps = threads / warp_size;
    static constexpr std::uint32_t warps_down = requests >= 64 ? 2 : 1;  // over requests
    static constexpr std::uint32_t warps_across = warps / warps_down;    // over tokens
    static constexpr std::uint32_t rows = requests / warps_down;         // of a warp
    static constexpr std::uint32_t columns = group_size / warps_across;
    static constexpr std::uint32_t row_tiles = rows / 16;
    static constexpr std::uint32_t column_tiles = columns / 8;
    static_assert(rows % 16 == 0 && columns % 16 == 0);

    static constexpr std::uint32_t stages = 5;
    static constexpr std::uint32_t chunk_bytes = 128;  // of a row
    static constexpr std::uint32_t stage_bytes = group_size * chunk_bytes;
    static constexpr std::uint32_t rows_at_once = threads / 8;  // that a copy of 16 bytes a thread covers

    struct shared {
        unsigned char ring[stages][stage_bytes];
        group_statistics parts[warps_across][requests];
        float* rows[requests];
        float factors[requests];
        std::uint32_t ids[requests];
        // and then the codes: chunks of [requests, 128 bytes]
        [[nodiscard]] __device__ unsigned char* codes(std::uint32_t chunk) {
            return reinterpret_cast<unsigned char*>(this + 1) + chunk * (requests * chunk_bytes);
        }
    };
    static_assert(sizeof(shared) % 16 == 0);

    [[nodiscard]] static SURELEAP_HOST_DEVICE constexpr std::uint32_t chunks_of_rank(std::uint32_t rank) {
        return (rank + 63) / 64;
    }
    [[nodiscard]] static constexpr std::size_t shared_bytes(std::uint32_t rank, std::uint32_t terms) {
        return sizeof(shared) + std::size_t{terms} * chunks_of_rank(rank) * requests * chunk_bytes;
    }
    /// Bytes 16 unit .. of a row of a chunk. Rows are 128 bytes apart, so eight of them would meet in the same banks: units
    /// change places by the row.
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t place(std::uint32_t row, std::uint32_t unit) {
        return row * chunk_bytes + ((unit ^ (row & 7)) * 16);
    }
};

/// One block's walk over groups of tokens, for one tile of requests.
template <class W, class U, std::uint32_t requests, std::uint32_t terms>
class product_walk {
    using tile = product_tile<requests>;
    using shared = typename tile::shared;
    static constexpr std::uint32_t base_numbers = tile::chunk_bytes / sizeof(U);
    static constexpr std::uint32_t base_chunks = group_size / base_numbers;
    static constexpr std::uint32_t base_rounds = (requests + tile::rows_at_once - 1) / tile::rows_at_once;
    static constexpr std::uint32_t code_numbers = tile::chunk_bytes / sizeof(W);  // 64
    static constexpr std::uint32_t steps = code_numbers / 16;

public:
    __device__ product_walk(product_step<W, U> const& step, shared& s, std::uint32_t first, std::uint32_t count)
        : step_(step), s_(s), count_(count), code_chunks_(tile::chunks_of_rank(step.codes.rank)) {
        for (std::uint32_t i = threadIdx.x; i < count; i += tile::threads) {
            std::uint32_t const r = step.list.ids[first + i];
            s_.ids[i] = r;
            s_.factors[i] = step.scale(r) * log2_e;
            s_.rows[i] = step.row(r);
            has_rows_ = has_rows_ || s_.rows[i] != nullptr;
        }
        has_rows_ = __syncthreads_or(has_rows_) != 0;
        load_codes();
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            std::uint32_t const row = copy_row() + i * tile::rows_at_once;
            base_[i] = row < count ? step.base_row(s_.ids[row]) : nullptr;
        }
        by_vectors_ =
            reinterpret_cast<std::uintptr_t>(step.base.data) % 16 == 0 && step.base.stride * sizeof(U) % 16 == 0;
    }

    /// Groups first, first + by ...
    __device__ void run(std::uint32_t first, std::uint32_t by) {
        std::uint32_t const groups = groups_of(step_.vocabulary());
        std::uint32_t const chunks = code_chunks_ + base_chunks;
        std::uint32_t ahead_group = first;
        std::uint32_t ahead_chunk = 0;
        std::uint32_t ahead_stage = 0;
        auto const load_next = [&] {
            if (ahead_group < groups) load(ahead_group, ahead_chunk, s_.ring[ahead_stage]);
            __pipeline_commit();
            ahead_stage = ahead_stage + 1 == tile::stages ? 0 : ahead_stage + 1;
            if (++ahead_chunk == chunks) {
                ahead_chunk = 0;
                ahead_group += by;
            }
        };
        for (std::uint32_t i = 0; i + 1 < tile::stages; ++i) load_next();

        std::uint32_t stage = 0;
        for (std::uint32_t group = first; group < groups; group += by) {
            clear();
            for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
                __pipeline_wait_prior(tile::stages - 2);
                __syncthreads();  // this chunk has arrived for everyone, and everyone is done with the one before
                load_next();
                if (chunk < code_chunks_) {
                    multiply(s_.ring[stage], chunk);
                } else {
                    add_base(s_.ring[stage], chunk - code_chunks_);
                }
                stage = stage + 1 == tile::stages ? 0 : stage + 1;
            }
            summarise(group);
        }
        // For the next tile: a block that came to a group has waited already, and one that did not will compute nothing.
        __pipeline_wait_prior(0);  // no mutant
        __syncthreads();           // no mutant
    }

private:
    // ---- copies: eight threads a row, 16 bytes each ----
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_row() { return threadIdx.x / 8; }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t copy_unit() { return threadIdx.x % 8; }

    static __device__ __forceinline__ void zero(unsigned char* to) {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }

    // Rows that no request has are never looked at; components behind the rank are multiplied, so they must be 0.
    __device__ void load_codes() {
        std::uint32_t const rank = step_.codes.rank;
        for (std::uint32_t chunk = 0; chunk < terms * code_chunks_; ++chunk) {
            std::uint32_t const term = chunk / code_chunks_;
            std::uint32_t const at = (chunk % code_chunks_) * code_numbers + copy_unit() * vector_size<W>;
            for (std::uint32_t row = copy_row(); row < requests; row += tile::rows_at_once) {
                unsigned char* const to = s_.codes(chunk) + tile::place(row, copy_unit());
                if (row < count_ && at < rank) {
                    __pipeline_memcpy_async(to, step_.codes.row(s_.ids[row], step_.k) + term * rank + at, 16);
                } else {
                    zero(to);
                }
            }
        }
    }
    __device__ __forceinline__ void load(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        if (chunk < code_chunks_) {
            load_weights(group, chunk, stage);
        } else {
            load_base(group, chunk - code_chunks_, stage);
        }
    }
    // Rows behind the vocabulary only make logits that summarise() does not look at.
    __device__ __forceinline__ void load_weights(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        std::uint32_t const at = chunk * code_numbers + copy_unit() * vector_size<W>;
        std::uint32_t const token = group * group_size + copy_row();
        W const* from = step_.w2.data + static_cast<std::size_t>(token) * step_.w2.stride + at;
#pragma unroll
        for (std::uint32_t i = 0; i < group_size / tile::rows_at_once; ++i) {
            std::uint32_t const row = copy_row() + i * tile::rows_at_once;
            unsigned char* const to = stage + tile::place(row, copy_unit());
            if (at >= step_.codes.rank) {
                zero(to);
            } else if (token + i * tile::rows_at_once < step_.vocabulary()) {
                __pipeline_memcpy_async(to, from, 16);
            }
            from += tile::rows_at_once * step_.w2.stride;
        }
    }
    __device__ __forceinline__ void load_base(std::uint32_t group, std::uint32_t chunk, unsigned char* stage) {
        std::uint32_t const at = group * group_size + chunk * base_numbers + copy_unit() * vector_size<U>;
#pragma unroll
        for (std::uint32_t i = 0; i < base_rounds; ++i) {
            if (base_[i] == nullptr) continue;
            unsigned char* const to = stage + tile::place(copy_row() + i * tile::rows_at_once, copy_unit());
            if (by_vectors_ && at + vector_size<U> <= step_.vocabulary()) {
                __pipeline_memcpy_async(to, base_[i] + at, 16);
            } else {
                for (std::uint32_t j = 0; j < vector_size<U> && at + j < step_.vocabulary(); ++j) {
                    reinterpret_cast<U*>(to)[j] = base_[i][at + j];
                }
            }
        }
    }

    // ---- the product ----
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t first_row() {
        return warp_index() / tile::warps_across * tile::rows;
    }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t first_column() {
        return warp_index() % tile::warps_across * tile::columns;
    }
    [[nodiscard]] __device__ __forceinline__ bool idle() const { return first_row() >= count_; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (auto& row : logits_) {
#pragma unroll
            for (auto& square : row) {
#pragma unroll
                for (float& l : square) l = 0.0f;
            }
        }
    }
    __device__ __forceinline__ void multiply(unsigned char const* weights, std::uint32_t chunk) {
        if (idle()) return;
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t step = 0; step < steps; ++step) {
            std::uint32_t b[tile::column_tiles][2];
#pragma unroll
            for (std::uint32_t j = 0; j < tile::column_tiles; j += 2) {
                std::uint32_t both[4];
                std::uint32_t const row = first_column() + j * 8 + lane / 16 * 8 + lane % 8;
                ldmatrix_x4(both, weights + tile::place(row, 2 * step + lane / 8 % 2));
                b[j][0] = both[0];
                b[j][1] = both[1];
                b[j + 1][0] = both[2];
                b[j + 1][1] = both[3];
            }
#pragma unroll
            for (std::uint32_t term = 0; term < terms; ++term) {
                unsigned char const* const codes = s_.codes(term * code_chunks_ + chunk);
#pragma unroll
                for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
                    std::uint32_t a[4];
                    ldmatrix_x4(a, codes + tile::place(first_row() + i * 16 + lane % 16, 2 * step + lane / 16));
#pragma unroll
                    for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
                        mma_m16n8k16<W>(logits_[i][j], a, b[j], logits_[i][j]);
                    }
                }
            }
        }
    }
    // A chunk holds the base logits of some warps' tokens.
    __device__ __forceinline__ void add_base(unsigned char const* base, std::uint32_t chunk) {
        if (idle() || first_column() / base_numbers != chunk) return;
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                std::uint32_t const row = first_row() + i * 16 + half * 8 + lane / 4;
#pragma unroll
                for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
                    std::uint32_t const byte = (first_column() % base_numbers + j * 8 + lane % 4 * 2) * sizeof(U);
                    unsigned char const* const at = base + tile::place(row, byte / 16) + byte % 16;
                    float two[2];
                    load_two(at, two);
                    logits_[i][j][2 * half] += two[0];
                    logits_[i][j][2 * half + 1] += two[1];
                }
            }
        }
    }
    static __device__ __forceinline__ void load_two(unsigned char const* at, float (&out)[2]) {
        if constexpr (std::is_same_v<U, float>) {
            float2 const two = *reinterpret_cast<float2 const*>(at);
            out[0] = two.x;
            out[1] = two.y;
        } else {
            std::uint32_t const word = *reinterpret_cast<std::uint32_t const*>(at);
            out[0] = widen_from<U>(word, 0);
            out[1] = widen_from<U>(word, 1);
        }
    }

    // ---- statistics: of a warp's tokens, four lanes a row, then of the warps beside it ----
    __device__ __forceinline__ void summarise(std::uint32_t group) {
        if (!idle()) {
            if (has_rows_) write(group);
            if ((group + 1) * group_size > step_.vocabulary()) mask(group);
#pragma unroll
            for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
                for (std::uint32_t half = 0; half < 2; ++half) summarise_row(i, half);
            }
        }
        __syncthreads();
        for (std::uint32_t row = threadIdx.x; row < count_; row += tile::threads) {
            group_statistics all = s_.parts[0][row];
#pragma unroll
            for (std::uint32_t w = 1; w < tile::warps_across; ++w) all = merge(all, s_.parts[w][row], s_.factors[row]);
            step_.statistics[static_cast<std::size_t>(s_.ids[row]) * groups_of(step_.vocabulary()) + group] = all;
        }
    }
    __device__ void write(std::uint32_t group) {
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                std::uint32_t const row = first_row() + i * 16 + half * 8 + lane / 4;
                float* const to = row < count_ ? s_.rows[row] : nullptr;
                if (to == nullptr) continue;
#pragma unroll
                for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
                    std::uint32_t const token = group * group_size + first_column() + j * 8 + lane % 4 * 2;
                    float2 const two{logits_[i][j][2 * half], logits_[i][j][2 * half + 1]};
                    if (token + 1 < step_.vocabulary()) {
                        *reinterpret_cast<float2*>(to + token) = two;
                    } else if (token < step_.vocabulary()) {
                        to[token] = two.x;
                    }
                }
            }
        }
    }
    __device__ __forceinline__ void mask(std::uint32_t group) {
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
            for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
#pragma unroll
                for (std::uint32_t c = 0; c < 4; ++c) {
                    std::uint32_t const token = group * group_size + first_column() + j * 8 + lane % 4 * 2 + c % 2;
                    if (token >= step_.vocabulary()) logits_[i][j][c] = -infinity;
                }
            }
        }
    }
    __device__ __forceinline__ void summarise_row(std::uint32_t i, std::uint32_t half) {
        std::uint32_t const row = first_row() + i * 16 + half * 8 + lane_index() / 4;
        float largest = -infinity;
#pragma unroll
        for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
            largest = fmaxf(largest, fmaxf(logits_[i][j][2 * half], logits_[i][j][2 * half + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
        float const shift = largest > -infinity ? largest : 0.0f;
        float const factor = row < count_ ? s_.factors[row] : 0.0f;
        float sum = 0.0f;
#pragma unroll
        for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
            sum += power((logits_[i][j][2 * half] - shift) * factor) +
                   power((logits_[i][j][2 * half + 1] - shift) * factor);
        }
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
        if (lane_index() % 4 == 0) s_.parts[warp_index() % tile::warps_across][row] = {largest, sum};
    }

    product_step<W, U> const& step_;
    shared& s_;
    std::uint32_t count_;
    std::uint32_t code_chunks_;
    U const* base_[base_rounds];
    bool by_vectors_;
    bool has_rows_ = false;
    float logits_[tile::row_tiles][tile::column_tiles][4];
};

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
