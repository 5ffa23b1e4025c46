// SPDX-License-Identifier: MIT
//
// A tile of a product on tensor cores (product.cuh): its layout in shared memory, how a block of threads divides it
// among its warps, and the logits of a warp's part in registers. In: chunks of codes, of W2's rows and of base logits
// in shared memory. Out: statistics of a group for each request, and rows of logits for those that ask for them.
//
// Of 128 requests a warp owns 32 x 32 tokens. Eight warps of 64 x 32 read fewer bytes of shared memory, 384 KiB for
// 512, but are too few to hide its latency: 64 us for 59 on an H200.
//
// Base logits are added after the product, not before: tensor cores do not round sums to nearest, and the sum of the
// product is small. Statistics are made of a warp's tokens, four lanes a row, then of the warps beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/head/product_step.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// How a block of threads divides `requests` x 128 tokens among its warps.
template <std::uint32_t requests>
struct product_tile {
    static constexpr std::uint32_t threads = requests >= 128 ? 512 : 256;
    static constexpr std::uint32_t warps = threads / warp_size;
    static constexpr std::uint32_t warps_down = requests >= 128 ? 4 : requests >= 64 ? 2 : 1;  // over requests
    static constexpr std::uint32_t warps_across = warps / warps_down;                          // over tokens
    static constexpr std::uint32_t rows = requests / warps_down;                               // of a warp
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
    /// Bytes 16 unit .. of a row of a chunk. Rows are 128 bytes apart, so eight of them would meet in the same banks:
    /// units change places by the row.
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t place(std::uint32_t row, std::uint32_t unit) {
        return row * chunk_bytes + ((unit ^ (row & 7)) * 16);
    }
};

/// How rows of weights W and base logits U are cut into chunks.
template <class W, class U, std::uint32_t requests>
struct product_chunks {
    using tile = product_tile<requests>;
    static constexpr std::uint32_t base_numbers = tile::chunk_bytes / sizeof(U);
    static constexpr std::uint32_t base_chunks = group_size / base_numbers;
    static constexpr std::uint32_t code_numbers = tile::chunk_bytes / sizeof(W);  // 64
    static constexpr std::uint32_t steps = code_numbers / 16;
};

/// Of one tile of requests and one group of tokens after the other.
template <class W, class U, std::uint32_t requests, std::uint32_t terms>
class product_logits {
    using tile = product_tile<requests>;
    using shared = typename tile::shared;
    using chunks = product_chunks<W, U, requests>;

public:
    /// `has_rows`: some of the first `count` requests of s.ids asks for its row.
    __device__ product_logits(product_step<W, U> const& step, shared& s, std::uint32_t count, bool has_rows)
        : step_(step), s_(s), count_(count), code_chunks_(tile::chunks_of_rank(step.codes.rank)), has_rows_(has_rows) {}

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
    /// Adds the product of a chunk. The operands of a step are on their way while those of the one before are
    /// multiplied.
    __device__ __forceinline__ void multiply(unsigned char const* weights, std::uint32_t chunk) {
        if (idle()) return;
        operands now;
        load(now, weights, chunk, 0);
#pragma unroll
        for (std::uint32_t step = 0; step < chunks::steps; ++step) {
            operands next;
            if (step + 1 < chunks::steps) load(next, weights, chunk, step + 1);
#pragma unroll
            for (std::uint32_t term = 0; term < terms; ++term) {
#pragma unroll
                for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
                    for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
                        mma_m16n8k16<W>(logits_[i][j], now.a[term][i], now.b[j], logits_[i][j]);
                    }
                }
            }
            if (step + 1 < chunks::steps) now = next;
        }
    }
    // A chunk holds the base logits of some warps' tokens.
    __device__ __forceinline__ void add_base(unsigned char const* base, std::uint32_t chunk) {
        if (idle() || first_column() / chunks::base_numbers != chunk) return;
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                std::uint32_t const row = first_row() + i * 16 + half * 8 + lane / 4;
#pragma unroll
                for (std::uint32_t j = 0; j < tile::column_tiles; ++j) {
                    std::uint32_t const byte =
                        (first_column() % chunks::base_numbers + j * 8 + lane % 4 * 2) * sizeof(U);
                    unsigned char const* const at = base + tile::place(row, byte / 16) + byte % 16;
                    float two[2];
                    load_two(at, two);
                    logits_[i][j][2 * half] += two[0];
                    logits_[i][j][2 * half + 1] += two[1];
                }
            }
        }
    }
    /// BLOCK collective: the statistics of the group that was multiplied, and its part of rows.
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

private:
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t first_row() {
        return warp_index() / tile::warps_across * tile::rows;
    }
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t first_column() {
        return warp_index() % tile::warps_across * tile::columns;
    }
    [[nodiscard]] __device__ __forceinline__ bool idle() const { return first_row() >= count_; }

    /// Of a step of 16 components: codes and weights, as fragments.
    struct operands {
        std::uint32_t a[terms][tile::row_tiles][4];
        std::uint32_t b[tile::column_tiles][2];
    };
    __device__ __forceinline__ void load(operands& to, unsigned char const* weights, std::uint32_t chunk,
                                         std::uint32_t step) {
        std::uint32_t const lane = lane_index();
#pragma unroll
        for (std::uint32_t j = 0; j < tile::column_tiles; j += 2) {
            std::uint32_t both[4];
            std::uint32_t const row = first_column() + j * 8 + lane / 16 * 8 + lane % 8;
            ldmatrix_x4(both, weights + tile::place(row, 2 * step + lane / 8 % 2));
            to.b[j][0] = both[0];
            to.b[j][1] = both[1];
            to.b[j + 1][0] = both[2];
            to.b[j + 1][1] = both[3];
        }
#pragma unroll
        for (std::uint32_t term = 0; term < terms; ++term) {
            unsigned char const* const codes = s_.codes(term * code_chunks_ + chunk);
#pragma unroll
            for (std::uint32_t i = 0; i < tile::row_tiles; ++i) {
                ldmatrix_x4(to.a[term][i], codes + tile::place(first_row() + i * 16 + lane % 16, 2 * step + lane / 16));
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
            sum += quick_exp2((logits_[i][j][2 * half] - shift) * factor) +
                   quick_exp2((logits_[i][j][2 * half + 1] - shift) * factor);
        }
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
        if (lane_index() % 4 == 0) s_.parts[warp_index() % tile::warps_across][row] = {largest, sum};
    }

    product_step<W, U> const& step_;
    shared& s_;
    std::uint32_t count_;
    std::uint32_t code_chunks_;
    bool has_rows_;
    float logits_[tile::row_tiles][tile::column_tiles][4];
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
