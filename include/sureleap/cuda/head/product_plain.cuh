// SPDX-License-Identifier: MIT
//
// The product of a step (product_step.cuh) without tensor cores: for weights in float, which those would round, and as
// the reference of product_tensor.cuh. Simple rather than fast: it reads W2 once for every 32 requests.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/head/product_step.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// 32 requests x 128 tokens a block, 16 requests and one token a thread.
struct plain_tile {
    static constexpr std::uint32_t threads = 256;
    static constexpr std::uint32_t requests = 32;
    static constexpr std::uint32_t rows = requests / (threads / group_size);
    static constexpr std::uint32_t components = 16;

    struct shared {
        float weights[group_size][components + 1];
        float codes[requests][components];
        float logits[requests][group_size];
    };
};

template <class W, class U>
__global__ void __launch_bounds__(plain_tile::threads, 2) multiply_plainly(product_step<W, U> step) {
    using tile = plain_tile;
    auto& s = shared_memory<tile::shared>();
    std::uint32_t const drafting = *step.list.count;
    std::uint32_t const rank = step.codes.rank;
    std::uint32_t const group = blockIdx.x;
    std::uint32_t const column = threadIdx.x % group_size;
    std::uint32_t const row = threadIdx.x / group_size * tile::rows;
    std::uint32_t const token = group * group_size + column;
    for (std::uint32_t first = 0; first < drafting; first += tile::requests) {
        std::uint32_t const count = drafting - first < tile::requests ? drafting - first : tile::requests;
        float logits[tile::rows] = {};
        for (std::uint32_t at = 0; at < rank; at += tile::components) {
            __syncthreads();
            for (std::uint32_t i = threadIdx.x; i < group_size * tile::components; i += tile::threads) {
                std::uint32_t const v = group * group_size + i / tile::components;
                W const* const from = step.w2.data + static_cast<std::size_t>(v) * step.w2.stride + at;
                s.weights[i / tile::components][i % tile::components] =
                    v < step.vocabulary() ? widen(from[i % tile::components]) : 0.0f;
            }
            for (std::uint32_t i = threadIdx.x; i < count * tile::components; i += tile::threads) {
                W const* const code =
                    step.codes.row(step.list.ids[first + i / tile::components], step.k) + at + i % tile::components;
                float z = widen(code[0]);
                if (step.codes.terms == 2) z += widen(code[rank]);
                s.codes[i / tile::components][i % tile::components] = z;
            }
            __syncthreads();
            for (std::uint32_t c = 0; c < tile::components; ++c) {
                float const w = s.weights[column][c];
#pragma unroll
                for (std::uint32_t i = 0; i < tile::rows; ++i) logits[i] = fmaf(w, s.codes[row + i][c], logits[i]);
            }
        }
#pragma unroll
        for (std::uint32_t i = 0; i < tile::rows; ++i) {
            if (row + i >= count) break;
            float const base =
                token < step.vocabulary() ? widen(step.base_row(step.list.ids[first + row + i])[token]) : -infinity;
            s.logits[row + i][column] = logits[i] + base;
        }
        __syncthreads();
        for (std::uint32_t i = warp_index(); i < count; i += tile::threads / warp_size) {
            std::uint32_t const r = step.list.ids[first + i];
            if (float* const to = step.row(r); to != nullptr) {
                for (std::uint32_t j = lane_index(); j < group_size; j += warp_size) {
                    if (group * group_size + j < step.vocabulary()) to[group * group_size + j] = s.logits[i][j];
                }
            }
            float const factor = step.scale(r) * log2_e;
            float largest = -infinity;
            for (std::uint32_t j = lane_index(); j < group_size; j += warp_size)
                largest = fmaxf(largest, s.logits[i][j]);
            for (int mask = 16; mask > 0; mask /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, mask));
            }
            float const shift = largest > -infinity ? largest : 0.0f;
            float sum = 0.0f;
            for (std::uint32_t j = lane_index(); j < group_size; j += warp_size) {
                sum += quick_exp2((s.logits[i][j] - shift) * factor);
            }
            for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(all_lanes, sum, mask);
            if (lane_index() == 0) {
                step.statistics[static_cast<std::size_t>(r) * groups_of(step.vocabulary()) + group] = {largest, sum};
            }
        }
    }
}

template <class W, class U>
[[nodiscard]] cudaError_t launch_plain(product_step<W, U> const& step, cudaStream_t stream) {
    return launch(multiply_plainly<W, U>, dim3(groups_of(static_cast<std::uint32_t>(step.w2.rows))),
                  dim3(plain_tile::threads), sizeof(plain_tile::shared), stream, step);
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
