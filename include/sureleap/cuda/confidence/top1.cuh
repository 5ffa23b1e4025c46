// SPDX-License-Identifier: MIT
//
// The probability of the mode, max_v softmax(U_k)(v), of all requests and positions, before anything is drawn. Drafters
// without a confidence head can plan by it (planned_top1_confidence), because U_k depends on no drafted token. One
// block a row reads it once, and again where the draft's transform truncates.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

inline constexpr unsigned base_top1_threads = 256;
inline constexpr unsigned base_top1_warps = base_top1_threads / warp_size;

struct base_top1_shared {
    double sums[base_top1_warps];
    float largest[base_top1_warps];
    truncate_shared truncation;
};

/// BLOCK collective: 1 / (the sum of weights relative to the largest) under `how`, NaN if the row holds no
/// distribution.
template <class U>
[[nodiscard]] __device__ double peak_of(U const* row, std::uint32_t size, transform const& how, base_top1_shared& s) {
    float const scale = how.greedy() ? 1.0f : static_cast<float>(1.0 / how.temperature);
    float const rate = rate_of(scale);
    std::uint32_t const blocks = count_blocks(size);
    float largest = -infinity;  // of the warp's blocks, and their sum relative to it
    double sum = 0.0;
    for (std::uint32_t b = warp_index(); b < blocks; b += base_top1_warps) {
        row_lanes<U> logits;
        read_block(row, size, b, logits);
        block_weight const here = weigh_block(logits, rate);
        float const top = fmaxf(largest, here.largest);
        if (!(top > -infinity)) {
            sum += static_cast<double>(here.sum);  // 0, or NaN
            continue;
        }
        double const reference = reference_of(top, rate);
        double const before = largest > -infinity ? sum * exp2(reference_of(largest, rate) - reference) : sum;
        double const added = static_cast<double>(here.sum);
        sum = before + (here.largest > -infinity ? added * exp2(reference_of(here.largest, rate) - reference) : added);
        largest = top;
    }
    if (lane_index() == 0) {
        s.largest[warp_index()] = largest;
        s.sums[warp_index()] = sum;
    }
    __syncthreads();
    float top = -infinity;
    for (unsigned w = 0; w < base_top1_warps; ++w) top = fmaxf(top, s.largest[w]);
    double total = 0.0;
    for (unsigned w = 0; w < base_top1_warps; ++w) {
        bool const any = s.largest[w] > -infinity;
        total += any ? s.sums[w] * exp2(reference_of(s.largest[w], rate) - reference_of(top, rate)) : s.sums[w];
    }
    constexpr double none = __builtin_nan("");
    if (!(top > -infinity && top < infinity && total < __builtin_inf())) return none;
    if (how.greedy() || !how.truncates()) return 1.0 / total;

    row_statistics statistics{};
    statistics.top = top;
    statistics.total = total;
    cutoff const least = truncate(row, size, how, statistics, s.truncation);
    distribution const kept{top, scale, 0.0, least.logit, least.id, no_token, distribution_kind::dense};
    double own = 0.0;
    for (std::uint32_t b = warp_index(); b < blocks; b += base_top1_warps) own += sum_block(row, size, b, kept);
    __syncthreads();  // no mutant: truncate has barriers as well, but promises none
    if (lane_index() == 0) s.sums[warp_index()] = own;
    __syncthreads();
    total = 0.0;
    for (unsigned w = 0; w < base_top1_warps; ++w) total += s.sums[w];
    return 1.0 / total;
}

template <class U>
__global__ void __launch_bounds__(base_top1_threads, 2)
    base_top1_kernel(matrix_view<U> base, device_round round, double* peaks) {
    std::uint32_t const r = blockIdx.x / round.limits.block_size;
    std::uint32_t const k = blockIdx.x % round.limits.block_size;
    if (r >= *round.requests.count || k >= round.requests.draft_cap(r, round.limits.block_size)) return;
    auto& s = shared_memory<base_top1_shared>();
    double const peak = peak_of(base.data + blockIdx.x * base.stride, static_cast<std::uint32_t>(base.cols),
                                round.requests.drafts[r], s);
    if (threadIdx.x == 0) peaks[blockIdx.x] = peak < 1.0 || peak != peak ? peak : 1.0;  // of two roundings
}

}  // namespace detail

/// peaks [limits.requests * gamma] of the rows `base` [R * gamma, V] under the requests' draft transforms, where a
/// request may draft; NaN of a row that holds no distribution. Of a greedy request that of the softmax at temperature
/// 1. U: float, bf16 or half.
template <class U>
[[nodiscard]] cudaError_t base_top1(matrix_view<U> const& base, double* peaks, device_round const& round,
                                    cudaStream_t stream) noexcept {
    static_assert(is_device_storage_v<U>, "base_top1: logits are float, sureleap::bf16 or sureleap::half");
    std::uint32_t const rows = round.limits.requests * round.limits.block_size;
    if (!round.ready() || base.data == nullptr || base.cols == 0 || base.cols > 0x7fffffffu ||
        base.stride < base.cols || base.rows < rows || peaks == nullptr) {
        return cudaErrorInvalidValue;
    }
    return launch(detail::base_top1_kernel<U>, dim3(rows), dim3(detail::base_top1_threads),
                  sizeof(detail::base_top1_shared), stream, base, round, peaks);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
