// SPDX-License-Identifier: MIT
//
// The RNN head on the device (paper, eq. 6):
//     e_k = W1[x_{k-1}]     (g, c, o) = J [s_{k-1} ; e_k ; h_k] + b     z_k = tanh(o)
//     s_k = sigmoid(g) * s_{k-1} + (1 - sigmoid(g)) * tanh(c)           s_0 = 0
// (head/rnn.hpp). J_h h_k + b is computed before the chain (hidden_terms.cuh). J_s s + J_e e is computed in the chain.
// It reads 6 r^2 weights for every request and position: 786 KB of bf16 for r = 256, from the second-level cache. That
// takes a multiprocessor some 7 microseconds. States stay in memory between the launches of a chain.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/linear.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/head/hidden_terms.cuh>
#include <sureleap/cuda/head/markov.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Models device_head (head/markov.cuh). W: bf16, half or float, in device memory; `take` gives it its own.
template <class W>
struct rnn_head {
    static_assert(is_device_storage_v<W>, "cuda::rnn_head: W must be float, sureleap::bf16 or sureleap::half");

    using weight_type = W;
    static constexpr bool code_is_stored = false;

    matrix_view<W> w1{};            ///< [V_target, r]
    matrix_view<W> w2{};            ///< [V_draft, r]
    matrix_view<W> joint{};         ///< [3r, 2r + d], rows [gate ; candidate ; output], columns [s ; e ; h]
    W const* joint_bias = nullptr;  ///< [3r]
    float* terms = nullptr;         ///< [limits.requests * gamma, 3r] J_h h_k + b
    float* states = nullptr;        ///< [limits.requests, r]
    std::uint32_t block_size = 0;

    [[nodiscard]] std::size_t hidden_size() const noexcept { return joint.cols - 2 * w1.cols; }
    [[nodiscard]] bool valid() const noexcept {
        return detail::fits(w1, w2) && joint.data != nullptr && joint.rows == 3 * w1.cols && joint.cols > 2 * w1.cols &&
               joint.stride >= joint.cols && joint_bias != nullptr && terms != nullptr && states != nullptr &&
               block_size > 0;
    }
    /// Memory of its own: R r (3 gamma + 1) floats.
    void take(workspace& ws, device_limits const& limits) noexcept {
        terms = ws.take<float>(std::size_t{limits.requests} * limits.block_size * 3 * w1.cols);
        states = ws.take<float>(std::size_t{limits.requests} * w1.cols);
        block_size = limits.block_size;
    }

    [[nodiscard]] std::uint32_t shared_size() const noexcept { return static_cast<std::uint32_t>(5 * w1.cols); }
    template <class U>
    [[nodiscard]] cudaError_t prepare(forward_view<U> const& forward, device_round const& round,
                                      cudaStream_t stream) const noexcept {
        if (!valid() || block_size != round.limits.block_size) return cudaErrorInvalidValue;
        matrix_view<W> const of_hidden{joint.data + 2 * w1.cols, joint.rows, hidden_size(), joint.stride};
        return hidden_terms(of_hidden, joint_bias, forward.hidden, terms, round, stream);
    }
    __device__ void code(std::uint32_t r, std::uint32_t k, token_id previous, float* z, float* shared) const {
        auto const rank = static_cast<std::uint32_t>(w1.cols);
        float const* const known = terms + (std::size_t{r} * block_size + k) * 3 * rank;
        float* const state = states + std::size_t{r} * rank;
        float* const s = shared;  // s and e lie side by side, as columns of J do
        float* const e = shared + rank;
        float* const parts = shared + 2 * rank;
        for (std::uint32_t i = threadIdx.x; i < rank; i += blockDim.x) s[i] = k == 0 ? 0.0f : state[i];
        detail::embed(w1, previous, e);
        __syncthreads();
        each_product(
            3 * rank, [&](std::uint32_t i) { return joint.data + i * joint.stride; },
            [&](std::uint32_t i) { return known[i]; }, s, 2 * rank,
            [&](std::uint32_t i, float sum) { parts[i] = sum; });
        __syncthreads();
        for (std::uint32_t i = threadIdx.x; i < rank; i += blockDim.x) {
            float const keep = detail::sigmoid(parts[i]);
            state[i] = keep * s[i] + (1.0f - keep) * tanhf(parts[rank + i]);
            z[i] = tanhf(parts[2 * rank + i]);
        }
        __syncthreads();
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
