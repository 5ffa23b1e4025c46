// SPDX-License-Identifier: MIT
//
// A tile of a product on tensor cores (product.cuh): its layout in shared memory, how the eight warps of a consumer
// divide it, and the logits of a warp's part in registers. In: chunks of codes, of W2's rows and of base logits in
// shared memory. Out: statistics of a group for each request, and rows of logits for those that ask for them.
//
// Of 128 requests a warp owns 64 x 32 tokens, which reads 384 KiB of shared memory a group; 32 x 32 would read 512. Its
// logits take 64 of the 96 registers that twenty warps leave to a thread, so operands are loaded when they are needed;
// four warps a scheduler hide that. By wgmma it owns 16 x 128, as the instruction has it.
//
// Base logits are added after the product, not before: tensor cores do not round sums to nearest, and the sum of the
// product is small. Statistics are made of a warp's tokens, four lanes a row, then of the warps beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/barrier.cuh>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/core/wgmma.cuh>
#include <sureleap/cuda/head/product_step.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What multiplies: mma.sync, which every device has, or wgmma, which sm_90a has (core/wgmma.cuh).
struct by_mma {};
struct by_wgmma {};

namespace detail {

/// How a block of threads is made up, and how eight warps divide `requests` x 128 tokens.
template <std::uint32_t requests, class Instruction = by_mma>
struct product_tile {
    static constexpr bool is_wgmma = std::is_same_v<Instruction, by_wgmma>;
    static constexpr std::uint32_t consumers = 2;
    static constexpr std::uint32_t warps = 8;  // of a consumer
    static constexpr std::uint32_t producers = 4;
    static constexpr std::uint32_t threads = (consumers * warps + producers) * warp_size;
    static constexpr std::uint32_t warps_down = is_wgmma ? warps : requests >= 64 ? 2 : 1;  // over requests
    static constexpr std::uint32_t warps_across = warps / warps_down;                       // over tokens
    static constexpr std::uint32_t rows = requests / warps_down;                            // of a warp
    static constexpr std::uint32_t columns = group_size / warps_across;
    static constexpr std::uint32_t row_tiles = rows / 16;
    static constexpr std::uint32_t column_tiles = columns / 8;
    static constexpr std::uint32_t rows_together = is_wgmma ? 4 * rows : rows;  // that one instruction multiplies
    static_assert(rows % 16 == 0 && columns % 16 == 0 && (!is_wgmma || rows == 16));

    static constexpr std::uint32_t least_stages = 4;
    static constexpr std::uint32_t most_stages = 12;
    static constexpr std::uint32_t chunk_bytes = 128;  // of a row
    static constexpr std::uint32_t stage_bytes = group_size * chunk_bytes;

    struct shared {
        warp_barrier full[most_stages];
        warp_barrier empty[most_stages];
        struct {
            warp_barrier summed;
            group_statistics parts[2][warps_across][requests];  // of a group and of the next
        } of[consumers];
        float* rows[requests];
        float factors[requests];
        std::uint32_t ids[requests];
        // and then the codes, chunks of [requests, 128 bytes], and the ring of stages
        [[nodiscard]] __device__ unsigned char* codes(std::uint32_t chunk) {
            auto* first = reinterpret_cast<unsigned char*>(this + 1);
            if constexpr (is_wgmma) first += -reinterpret_cast<std::uintptr_t>(first) % wgmma_alignment;
            return first + chunk * (requests * chunk_bytes);
        }
    };
    static_assert(sizeof(shared) % 16 == 0);

    [[nodiscard]] static SURELEAP_HOST_DEVICE constexpr std::uint32_t chunks_of_rank(std::uint32_t rank) {
        return (rank + 63) / 64;
    }
    [[nodiscard]] static constexpr std::size_t shared_bytes(std::uint32_t rank, std::uint32_t terms,
                                                            std::uint32_t stages) {
        return sizeof(shared) + (is_wgmma ? wgmma_alignment : 0) +
               std::size_t{terms} * chunks_of_rank(rank) * requests * chunk_bytes + std::size_t{stages} * stage_bytes;
    }
};

/// How rows of weights W and base logits U are cut into chunks.
template <class W, class U>
struct product_chunks {
    static constexpr std::uint32_t row_bytes = 128;
    static constexpr std::uint32_t base_numbers = row_bytes / sizeof(U);
    static constexpr std::uint32_t base_chunks = group_size / base_numbers;
    static constexpr std::uint32_t code_numbers = row_bytes / sizeof(W);  // 64
    static constexpr std::uint32_t steps = code_numbers / 16;
};

/// Of one tile of requests and one group of tokens after the other.
template <class W, class U, std::uint32_t requests, std::uint32_t terms, class Instruction>
class product_logits {
    using tile = product_tile<requests, Instruction>;
    using shared = typename tile::shared;
    using chunks = product_chunks<W, U>;

public:
    /// `has_rows`: some of the first `count` requests of s.ids asks for its row.
    __device__ product_logits(product_step<W, U> const& step, shared& s, std::uint32_t count, bool has_rows)
        : step_(step),
          s_(s),
          own_(s.of[warp_index() / tile::warps]),
          count_(count),
          code_chunks_(tile::chunks_of_rank(step.codes.rank)),
          has_rows_(has_rows) {}

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
    /// Adds the product of a chunk.
    __device__ __forceinline__ void multiply(unsigned char const* weights, std::uint32_t chunk) {
        if (idle()) return;
        if constexpr (tile::is_wgmma) {
            multiply_by_wgmma(weights, chunk);
        } else {
            multiply_by_mma(weights, chunk);
        }
    }
    // A chunk holds the base logits of some tokens.
    __device__ __forceinline__ void add_base(unsigned char const* base, std::uint32_t chunk) {
        if (idle()) return;
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
            std::uint32_t const column = first_column() + j * 8;
            if (column / chunks::base_numbers != chunk) continue;
            std::uint32_t const byte = (column % chunks::base_numbers + lane % 4 * 2) * sizeof(U);
#pragma unroll
            for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
                for (std::uint32_t half = 0; half < 2; ++half) {
                    std::uint32_t const row = first_row() + i * 16 + half * 8 + lane / 4;
                    float two[2];
                    load_two(base + swizzled(row, byte / 16) + byte % 16, two);
                    logits_[i][j][2 * half] += two[0];
                    logits_[i][j][2 * half + 1] += two[1];
                }
            }
        }
    }
    /// CONSUMER collective: the statistics of the group that was multiplied, its `turn`-th, and its part of rows.
    __device__ __forceinline__ void summarise(std::uint32_t group, std::uint32_t turn) {
        auto& parts = own_.parts[turn % 2];
        if (!idle()) {
            if (has_rows_) write(group);
            if ((group + 1) * group_size > step_.vocabulary()) mask(group);
#pragma unroll
            for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
                for (std::uint32_t half = 0; half < 2; ++half) summarise_row(i, half, parts);
            }
        }
        own_.summed.arrive();
        own_.summed.wait(turn);
        std::uint32_t const row = threadIdx.x % (tile::warps * warp_size);
        if (row >= count_) return;
        group_statistics all = parts[0][row];
#pragma unroll
        for (std::uint32_t w = 1; w < tile::warps_across; ++w) all = merge(all, parts[w][row], s_.factors[row]);
        step_.statistics[static_cast<std::size_t>(s_.ids[row]) * groups_of(step_.vocabulary()) + group] = all;
    }

private:
    __device__ __forceinline__ void multiply_by_mma(unsigned char const* weights, std::uint32_t chunk) {
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t step = 0; step < chunks::steps; ++step) {
            std::uint32_t b[tile::column_tiles / 2][4];
#pragma unroll
            for (std::uint32_t j = 0; j < tile::column_tiles / 2; ++j) {
                std::uint32_t const row = first_column() + j * 16 + lane / 16 * 8 + lane % 8;
                ldmatrix_x4(b[j], weights + swizzled(row, 2 * step + lane / 8 % 2));
            }
#pragma unroll 1
            for (std::uint32_t term = 0; term < terms; ++term) {
                unsigned char const* const codes = s_.codes(term * code_chunks_ + chunk);
#pragma unroll
                for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
                    std::uint32_t a[4];
                    ldmatrix_x4(a, codes + swizzled(first_row() + i * 16 + lane % 16, 2 * step + lane / 16));
#pragma unroll
                    for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
                        std::uint32_t const column[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                        mma_m16n8k16<W>(logits_[i][j], a, column, logits_[i][j]);
                    }
                }
            }
        }
    }
    __device__ __forceinline__ void multiply_by_wgmma(unsigned char const* weights, std::uint32_t chunk) {
#pragma unroll 1
        for (std::uint32_t term = 0; term < terms; ++term) {
            unsigned char const* const codes = s_.codes(term * code_chunks_ + chunk);
            wgmma_m64n128k64<W>(logits_[0], codes + swizzled(first_row_together(), 0), weights);
        }
    }

    [[nodiscard]] static __device__ __forceinline__ std::uint32_t first_row() {
        return warp_index() % tile::warps / tile::warps_across * tile::rows;
    }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t first_row_together() {
        return first_row() / tile::rows_together * tile::rows_together;
    }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t first_column() {
        return warp_index() % tile::warps_across * tile::columns;
    }
    [[nodiscard]] __device__ __forceinline__ bool idle() const { return first_row_together() >= count_; }

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
    __device__ __forceinline__ void summarise_row(std::uint32_t i, std::uint32_t half,
                                                  group_statistics (&parts)[tile::warps_across][requests]) {
        std::uint32_t const row = first_row() + i * 16 + half * 8 + lane_index() / 4;
        float largest = -infinity;
#pragma unroll
        for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
            largest = fmaxf(largest, fmaxf(logits_[i][j][2 * half], logits_[i][j][2 * half + 1]));
        }
        largest = largest_of_lanes<4>(largest);
        float const shift = largest > -infinity ? largest : 0.0f;
        float const factor = row < count_ ? s_.factors[row] : 0.0f;
        float sum = 0.0f;
#pragma unroll
        for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
            sum += quick_exp2((logits_[i][j][2 * half] - shift) * factor) +
                   quick_exp2((logits_[i][j][2 * half + 1] - shift) * factor);
        }
        sum = sum_over_lanes<4>(sum);
        if (lane_index() % 4 == 0) parts[warp_index() % tile::warps_across][row] = {largest, sum};
    }

    product_step<W, U> const& step_;
    shared& s_;
    decltype(shared::of[0])& own_;  // of this consumer
    std::uint32_t count_;
    std::uint32_t code_chunks_;
    bool has_rows_;
    float logits_[tile::row_tiles][tile::column_tiles][4];
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
