// SPDX-License-Identifier: MIT
//
// The part of a head that reads hidden states and no drafted token: b + W h_k of all requests and positions, in one
// launch before the chain. For r = 256 and d = 4,096 that is 256 outputs of a gated head (G_h), 768 of an RNN head
// (J_h).
//
// bf16 and half are multiplied on tensor cores. A block computes 64 rows x 64 outputs and copies both operands through
// a ring of four stages of 64 numbers. That is small for tensor cores, but a round has some hundred rows: larger tiles
// would leave most multiprocessors without one. 896 rows x 768 outputs are 168 blocks, each reading 1 MiB, nearly all
// of it from the second-level cache. Tensor cores cannot take floats, mixed formats or rows at odd addresses. Warps
// multiply those, eight rows for every read of a row of W.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/linear.cuh>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// out [rows, outputs] = bias + hidden W^T.
template <class W, class U>
struct hidden_product {
    matrix_view<W> weights{};  ///< [outputs, d]
    W const* bias = nullptr;   ///< [outputs]
    matrix_view<U> hidden{};   ///< [rows, d]
    float* out = nullptr;
    std::uint32_t const* requests = nullptr;  ///< [1]
    std::uint32_t block_size = 0;

    [[nodiscard]] __device__ std::uint32_t rows() const { return *requests * block_size; }
    __device__ void write(std::uint32_t row, std::uint32_t output, float sum) const {
        if (row >= rows() || output >= weights.rows) return;
        out[row * weights.rows + output] = sum + widen(bias[output]);
    }
};

// ---- tensor cores ----------------------------------------------------------------------------------------------

struct hidden_tile {
    static constexpr std::uint32_t threads = 128;  // four warps, of 32 x 32 each
    static constexpr std::uint32_t size = 64;      // rows, outputs, and numbers of a chunk
    static constexpr std::uint32_t row_bytes = 128;
    static constexpr std::uint32_t units = row_bytes / 16;
    static constexpr std::uint32_t stages = 4;

    struct shared {
        unsigned char hidden[stages][size * row_bytes];
        unsigned char weights[stages][size * row_bytes];
    };
    /// 16 bytes of a row. Rows are 128 bytes apart, so eight of them would meet in the same banks: units change places.
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t place(std::uint32_t row, std::uint32_t unit) {
        return row * row_bytes + (unit ^ (row % units)) * 16;
    }
    /// 64 numbers from column `at` on, of rows first .. first + 63; 0 for what there is not.
    template <class T>
    static __device__ __forceinline__ void copy(matrix_view<T> const& m, std::uint32_t rows, std::uint32_t first,
                                                std::uint32_t at, unsigned char* to) {
#pragma unroll
        for (std::uint32_t i = threadIdx.x; i < size * units; i += threads) {
            std::uint32_t const row = i / units;
            std::uint32_t const column = at + i % units * load_width;
            unsigned char* const here = to + place(row, i % units);
            if (first + row < rows && column < m.cols) {
                __pipeline_memcpy_async(here, m.data + (first + row) * m.stride + column, 16);
            } else {
                *reinterpret_cast<uint4*>(here) = uint4{0, 0, 0, 0};
            }
        }
    }
};

template <class T>
__global__ void __launch_bounds__(hidden_tile::threads) tensor_product_kernel(hidden_product<T, T> product) {
    using tile = hidden_tile;
    std::uint32_t const rows = product.rows();
    std::uint32_t const first_row = blockIdx.x * tile::size;
    std::uint32_t const first_output = blockIdx.y * tile::size;
    if (first_row >= rows) return;
    auto& s = shared_memory<tile::shared>();
    auto const outputs = static_cast<std::uint32_t>(product.weights.rows);
    auto const chunks = static_cast<std::uint32_t>((product.weights.cols + tile::size - 1) / tile::size);
    auto const load = [&](std::uint32_t chunk) {
        if (chunk < chunks) {
            std::uint32_t const stage = chunk % tile::stages;
            tile::copy(product.hidden, rows, first_row, chunk * tile::size, s.hidden[stage]);
            tile::copy(product.weights, outputs, first_output, chunk * tile::size, s.weights[stage]);
        }
        __pipeline_commit();
    };
    for (std::uint32_t chunk = 0; chunk + 1 < tile::stages; ++chunk) load(chunk);

    std::uint32_t const lane = lane_index();
    std::uint32_t const row = warp_index() / 2 * 32;     // of the warp, in the tile
    std::uint32_t const output = warp_index() % 2 * 32;  // likewise
    float sums[2][4][4] = {};
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
        __pipeline_wait_prior(tile::stages - 2);
        __syncthreads();  // this chunk has arrived for everyone, and everyone is done with the one before
        load(chunk + tile::stages - 1);
        unsigned char const* const hidden = s.hidden[chunk % tile::stages];
        unsigned char const* const weights = s.weights[chunk % tile::stages];
#pragma unroll
        for (std::uint32_t step = 0; step < tile::units / 2; ++step) {  // of 16 numbers
            std::uint32_t a[2][4];
            std::uint32_t b[4][2];
#pragma unroll
            for (std::uint32_t i = 0; i < 2; ++i) {
                ldmatrix_x4(a[i], hidden + tile::place(row + i * 16 + lane % 16, step * 2 + lane / 16));
            }
#pragma unroll
            for (std::uint32_t j = 0; j < 4; j += 2) {
                std::uint32_t both[4];
                ldmatrix_x4(both,
                            weights + tile::place(output + j * 8 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
                b[j][0] = both[0];
                b[j][1] = both[1];
                b[j + 1][0] = both[2];
                b[j + 1][1] = both[3];
            }
#pragma unroll
            for (std::uint32_t i = 0; i < 2; ++i) {
#pragma unroll
                for (std::uint32_t j = 0; j < 4; ++j) mma_m16n8k16<T>(sums[i][j], a[i], b[j], sums[i][j]);
            }
        }
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
#pragma unroll
            for (std::uint32_t e = 0; e < 4; ++e) {
                product.write(first_row + row + i * 16 + lane / 4 + e / 2 * 8,
                              first_output + output + j * 8 + lane % 4 * 2 + e % 2, sums[i][j][e]);
            }
        }
    }
}

/// Rows that 16-byte copies and tensor cores can take.
template <class T>
[[nodiscard]] bool feeds_tensor_cores(matrix_view<T> const& m) noexcept {
    return m.cols % load_width == 0 && m.stride % load_width == 0 && reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0;
}

// ---- everything else -------------------------------------------------------------------------------------------

inline constexpr std::uint32_t warp_product_threads = 256;
inline constexpr std::uint32_t warp_product_rows = 8;

/// A warp an output, for eight rows.
template <class W, class U>
__global__ void __launch_bounds__(warp_product_threads) warp_product_kernel(hidden_product<W, U> product) {
    std::uint32_t const first = blockIdx.x * warp_product_rows;
    std::uint32_t const rows = product.rows();
    std::uint32_t const output = blockIdx.y * (warp_product_threads / warp_size) + warp_index();
    if (first >= rows || output >= product.weights.rows) return;
    U const* row[warp_product_rows];
#pragma unroll
    for (std::uint32_t i = 0; i < warp_product_rows; ++i) {
        row[i] = first + i < rows ? product.hidden.data + (first + i) * product.hidden.stride : nullptr;
    }
    float sums[warp_product_rows];
    dot<32, warp_product_rows>(row, product.weights.data + output * product.weights.stride,
                               static_cast<unsigned>(product.weights.cols), sums);
#pragma unroll
    for (std::uint32_t i = 0; i < warp_product_rows; ++i) {
        if (lane_index() == i) product.write(first + i, output, sums[i]);
    }
}

}  // namespace detail

/// out [limits.requests * gamma, outputs] = bias + weights h_k, float, for the requests of the round. weights [outputs,
/// d] may be a part of wider rows, bias is [outputs], hidden [R gamma, d]. Any alignment; with rows at multiples of 16
/// bytes, bf16 or half on both sides and d a multiple of 8 it takes tensor cores.
template <class W, class U>
[[nodiscard]] cudaError_t hidden_terms(matrix_view<W> const& weights, W const* bias, matrix_view<U> const& hidden,
                                       float* out, device_round const& round, cudaStream_t stream) noexcept {
    static_assert(is_device_storage_v<W> && is_device_storage_v<U>,
                  "hidden_terms: weights and hidden states are float, sureleap::bf16 or sureleap::half");
    std::size_t const rows = std::size_t{round.limits.requests} * round.limits.block_size;
    constexpr std::size_t most_outputs = 65535;  // blocks of a grid in y
    if (!round.ready() || weights.data == nullptr || weights.rows == 0 || weights.rows > most_outputs ||
        weights.cols == 0 || weights.stride < weights.cols || bias == nullptr || hidden.data == nullptr ||
        hidden.rows < rows || hidden.cols != weights.cols || hidden.stride < hidden.cols || out == nullptr) {
        return cudaErrorInvalidValue;
    }
    detail::hidden_product<W, U> const product{
        weights, bias, hidden, out, round.requests.count, round.limits.block_size};
    auto const blocks = [](std::size_t count, std::size_t each) {
        return static_cast<unsigned>((count + each - 1) / each);
    };
    if constexpr (std::is_same_v<W, U> && !std::is_same_v<W, float>) {
        if (detail::feeds_tensor_cores(weights) && detail::feeds_tensor_cores(hidden)) {
            using tile = detail::hidden_tile;
            return launch(detail::tensor_product_kernel<W>,
                          dim3(blocks(rows, tile::size), blocks(weights.rows, tile::size)), dim3(tile::threads),
                          sizeof(tile::shared), stream, product);
        }
    }
    return launch(
        detail::warp_product_kernel<W, U>,
        dim3(blocks(rows, detail::warp_product_rows), blocks(weights.rows, detail::warp_product_threads / warp_size)),
        dim3(detail::warp_product_threads), 0, stream, product);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
