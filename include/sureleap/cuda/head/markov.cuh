// SPDX-License-Identifier: MIT
//
// The interface of sequential heads on the device (concept device_head), and the Markov head (paper, eq. 5). A head
// computes a code z_k [r] for each position and owns the output matrix W2 [V_draft, r]. The transition bias is W2 z_k.
// The product, the draw and the recomputation of rows are common to all heads. A head is passed to kernels by value.
// Its views point to device memory that outlives every launch. The members:
//
//     weight_type       storage of W1 and W2: bf16, half or float
//     code_is_stored    true: codes are numbers of weight_type. false: codes are floats. Then every use takes the sum of two
//                       numbers of weight_type: the nearest to the code, and the nearest to the rest. So a row is the same
//                       whenever it is computed. Together they have 16 bits in bf16, 22 in half; tensor cores multiply
//                       them.
//     w2                matrix_view [V_draft, r]: a row per draft token
//     valid()           the shapes fit each other and what the kernels can do (fits() below)
//     shared_size()     floats of shared memory that code() needs beside z
//     prepare(forward, round, stream)     whatever depends on hidden states alone, launched before the first position
//     code(r, k, previous, z, shared)     BLOCK collective, of any multiple of 32 threads: z_k of request r into z [r],
//                       which is shared. Called once per position in order, k = 0 first (where recurrent states begin
//                       anew); ends with a barrier. A head that keeps states or terms per request carries pointers to
//                       memory of its own.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What the backbone left of a round: row r * gamma + k belongs to request r, position k.
template <class U>
struct forward_view {
    matrix_view<U> base_logits{};  ///< [R gamma, V_draft]
    matrix_view<U> hidden{};       ///< [R gamma, d]; empty if nobody reads it
};

inline constexpr std::uint32_t most_rank = 512;

namespace detail {

/// What is required of any head's W1 [V_target, r] and W2 [V_draft, r]: one rank, a multiple of 16 and at most
/// most_rank, and rows that begin at multiples of 16 bytes.
template <class W>
[[nodiscard]] bool fits(matrix_view<W> const& w1, matrix_view<W> const& w2) noexcept {
    return loads_by_vectors(w1) && loads_by_vectors(w2) && w1.cols == w2.cols && w1.cols % 16 == 0 &&
           w1.cols <= most_rank && w1.rows <= 0x7fffffffu && w2.rows <= 0x7fffffffu;
}

/// BLOCK collective: out [r] = W1[previous] in shared memory. No barrier.
template <class W>
__device__ __forceinline__ void embed(matrix_view<W> const& w1, token_id previous, float* out) {
    W const* const row = w1.data + static_cast<std::size_t>(previous) * w1.stride;
    auto const rank = static_cast<std::uint32_t>(w1.cols);
    for (std::uint32_t i = threadIdx.x; i < rank; i += blockDim.x) out[i] = widen(row[i]);
}

}  // namespace detail

// clang-format off
template <class Head>
concept device_head = requires(Head const& head, std::uint32_t i, token_id token, float* shared,
                               forward_view<float> const& forward, device_round const& round, cudaStream_t stream) {
    typename Head::weight_type;
    requires is_device_storage_v<typename Head::weight_type>;
    requires std::is_same_v<decltype(Head::code_is_stored), bool const>;
    { head.w2.stride } -> std::convertible_to<std::size_t>;
    { head.valid() } -> std::same_as<bool>;
    { head.shared_size() } -> std::same_as<std::uint32_t>;
    { head.prepare(forward, round, stream) } -> std::same_as<cudaError_t>;
    { head.code(i, i, token, shared, shared) } -> std::same_as<void>;
};
// clang-format on

/// The Markov head (paper, eq. 5): z_k = W1[x_{k-1}].
template <class W>
struct markov_head {
    static_assert(is_device_storage_v<W>, "cuda::markov_head: W must be float, sureleap::bf16 or sureleap::half");

    using weight_type = W;
    static constexpr bool code_is_stored = true;

    matrix_view<W> w1{};  ///< [V_target, r]
    matrix_view<W> w2{};  ///< [V_draft, r]

    [[nodiscard]] bool valid() const noexcept { return detail::fits(w1, w2); }
    [[nodiscard]] std::uint32_t shared_size() const noexcept { return 0; }
    template <class U>
    [[nodiscard]] cudaError_t prepare(forward_view<U> const&, device_round const&, cudaStream_t) const noexcept {
        return cudaSuccess;
    }
    __device__ void code(std::uint32_t /*r*/, std::uint32_t /*k*/, token_id previous, float* z,
                         float* /*shared*/) const {
        detail::embed(w1, previous, z);
        __syncthreads();
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
