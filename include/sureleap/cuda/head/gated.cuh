// SPDX-License-Identifier: MIT
//
// The gated Markov head on the device:  e_k = W1[x_{k-1}]   g_k = sigmoid(G [h_k ; e_k] + b)   z_k = g_k * e_k
// (head/gated.hpp). G_h h_k + b is computed before the chain (hidden_terms.cuh). G_e e_k is computed in the chain. It
// reads r^2 weights for every request and position: 128 KB of bf16 for r = 256, from the second-level cache.
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
struct gated_head {
    static_assert(is_device_storage_v<W>, "cuda::gated_head: W must be float, sureleap::bf16 or sureleap::half");

    using weight_type = W;
    static constexpr bool code_is_stored = false;

    matrix_view<W> w1{};           ///< [V_target, r]
    matrix_view<W> w2{};           ///< [V_draft, r]
    matrix_view<W> gate{};         ///< [r, d + r], columns [h ; e]
    W const* gate_bias = nullptr;  ///< [r]
    float* terms = nullptr;        ///< [limits.requests * gamma, r] G_h h_k + b
    std::uint32_t block_size = 0;

    [[nodiscard]] std::size_t hidden_size() const noexcept { return gate.cols - w1.cols; }
    [[nodiscard]] bool valid() const noexcept {
        return detail::fits(w1, w2) && gate.data != nullptr && gate.rows == w1.cols && gate.cols > w1.cols &&
               gate.stride >= gate.cols && gate_bias != nullptr && terms != nullptr && block_size > 0;
    }
    /// Memory of its own: R gamma r floats.
    void take(workspace& ws, device_limits const& limits) noexcept {
        terms = ws.take<float>(std::size_t{limits.requests} * limits.block_size * w1.cols);
        block_size = limits.block_size;
    }

    [[nodiscard]] std::uint32_t shared_size() const noexcept { return static_cast<std::uint32_t>(w1.cols); }
    template <class U>
    [[nodiscard]] cudaError_t prepare(forward_view<U> const& forward, device_round const& round,
                                      cudaStream_t stream) const noexcept {
        if (!valid() || block_size != round.limits.block_size) return cudaErrorInvalidValue;
        matrix_view<W> const of_hidden{gate.data, gate.rows, hidden_size(), gate.stride};
        return hidden_terms(of_hidden, gate_bias, forward.hidden, terms, round, stream);
    }
    __device__ void code(std::uint32_t r, std::uint32_t k, token_id previous, float* z, float* shared) const {
        auto const rank = static_cast<std::uint32_t>(w1.cols);
        float const* const known = terms + (std::size_t{r} * block_size + k) * rank;
        W const* const of_embedding = gate.data + (gate.cols - rank);
        float* const e = shared;
        detail::embed(w1, previous, e);
        __syncthreads();
        each_product(
            rank, [&](std::uint32_t i) { return of_embedding + i * gate.stride; },
            [&](std::uint32_t i) { return known[i]; }, e, rank,
            [&](std::uint32_t i, float g) { z[i] = detail::sigmoid(g) * e[i]; });
        __syncthreads();
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
