// SPDX-License-Identifier: MIT
//
// One position of the chain for all requests at once: logits = U_k + W2 z_k. In: codes z_k [requests, r] and base
// logits U_k [requests, V_draft]. Out: statistics per request and group of 128 tokens, the largest logit and the sum of
// exp((logit - largest) / T). The logits themselves are not written: a row would be 0.3 to 0.6 MB each way. For V =
// 151,936 the statistics are 1,187 pairs of numbers, enough to find the group of a draw. The draw computes that group's
// logits again.
//
// Truncated distributions and Gumbel-max draws look at logits one by one. For their requests the rows are written, too,
// into `rows`.
//
// launch_plain computes it without tensor cores: for weights in float, which those would round, and as the reference of
// product.cuh. Simple rather than fast: it reads W2 once for every 32 requests.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>
#include <sureleap/detail/kernel/rows.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Of a group of tokens of one row.
struct group_statistics {
    float largest = 0.0f;  ///< -inf if no logit is larger; anything if one is NaN
    float sum = 0.0f;      ///< of exp((logit - largest) scale); 0 if there is none, NaN if a logit is NaN or +inf
};

inline constexpr std::uint32_t group_size = static_cast<std::uint32_t>(row_group);

[[nodiscard]] SURELEAP_HOST_DEVICE constexpr std::uint32_t groups_of(std::uint32_t vocabulary) noexcept {
    return (vocabulary + group_size - 1) / group_size;
}

/// The requests that draft a position, in any order.
struct request_list {
    std::uint32_t* ids = nullptr;    ///< [limits.requests]
    std::uint32_t* count = nullptr;  ///< [1]
};

/// Rows of logits [R, stride] in float, for requests that ask for theirs; stride is a multiple of 4.
struct logit_rows {
    float* data = nullptr;  ///< null: nobody has one
    std::size_t stride = 0;
    bool all = false;  ///< everybody has one; else those whose draft distribution is truncated

    [[nodiscard]] __device__ float* row(std::uint32_t r, transform const& how) const {
        bool const asked = all || (how.truncates() && !how.greedy());
        return data != nullptr && asked ? data + r * stride : nullptr;
    }
};

/// A step: U_k[r] + W2 z_k[r] for the requests of `list`.
template <class W, class U>
struct product_step {
    matrix_view<W> w2{};
    matrix_view<U> base{};
    code_rows<W> codes{};
    request_list list{};
    transform const* transforms = nullptr;   ///< [R] of the draft
    group_statistics* statistics = nullptr;  ///< [R, groups]
    logit_rows rows{};
    std::uint32_t k = 0;

    [[nodiscard]] __device__ float* row(std::uint32_t r) const { return rows.row(r, transforms[r]); }
    [[nodiscard]] __device__ std::uint32_t vocabulary() const { return static_cast<std::uint32_t>(w2.rows); }
    [[nodiscard]] __device__ U const* base_row(std::uint32_t r) const {
        return base.data + (static_cast<std::size_t>(r) * codes.block_size + k) * base.stride;
    }
    /// Greedy rows have no scale of their own; 1 makes the sum that of their softmax.
    [[nodiscard]] __device__ float scale(std::uint32_t r) const {
        return transforms[r].greedy() ? 1.0f : static_cast<float>(1.0 / transforms[r].temperature);
    }
};

namespace detail {

inline constexpr float log2_e = 1.44269504f;

/// The statistics of two parts of a group as those of both. `factor` is scale * log2_e.
[[nodiscard]] __device__ __forceinline__ group_statistics merge(group_statistics const& a, group_statistics const& b,
                                                                float factor) {
    float const largest = fmaxf(a.largest, b.largest);
    if (!(largest > -infinity)) return {largest, a.sum + b.sum};  // nothing but -inf: 0, or NaN
    return {largest,
            a.sum * quick_exp2((a.largest - largest) * factor) + b.sum * quick_exp2((b.largest - largest) * factor)};
}

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
            largest = largest_of_lanes(largest);
            float const shift = largest > -infinity ? largest : 0.0f;
            float sum = 0.0f;
            for (std::uint32_t j = lane_index(); j < group_size; j += warp_size) {
                sum += quick_exp2((s.logits[i][j] - shift) * factor);
            }
            sum = sum_over_lanes(sum);
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
