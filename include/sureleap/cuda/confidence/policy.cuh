// SPDX-License-Identifier: MIT
//
// The interface of confidence heads on the device. The chain that draws blocks asks for c_k before x_k is drawn, and
// x_k is in no signature. So no schedule can see ahead through it. Passed to kernels by value, like a head.
//
//     valid()               its shapes fit the kernels
//     shared_size()         floats of shared memory that a call needs
//     prepare(forward, round, stream)     whatever depends on hidden states alone, launched before the first position
//     c(r, k, previous, q, shared)        BLOCK collective, of any multiple of 32 threads, one result in all: the
//                           probability that x_k is kept if all before it are. NaN and what is outside [0, 1] end the block
//                           with status::invalid_confidence. Shared memory may be used again after the caller's next barrier.
#pragma once

#include <concepts>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/head/markov.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What is known of the distribution that x_k is about to be drawn from.
struct position_statistics {
    double peak = 0.0;  ///< max_v q(v); of a greedy distribution, that of the softmax behind it, at temperature 1
};

// clang-format off
template <class Confidence>
concept device_confidence = requires(Confidence const& c, std::uint32_t i, token_id token, position_statistics const& q,
                                     float* shared, forward_view<float> const& forward, device_round const& round,
                                     cudaStream_t stream) {
    { c.valid() } -> std::same_as<bool>;
    { c.shared_size() } -> std::same_as<std::uint32_t>;
    { c.prepare(forward, round, stream) } -> std::same_as<cudaError_t>;
    { c(i, i, token, q, shared) } -> std::same_as<double>;
};
// clang-format on

/// Every position counts as certain.
struct no_confidence {
    [[nodiscard]] bool valid() const noexcept { return true; }
    [[nodiscard]] std::uint32_t shared_size() const noexcept { return 0; }
    template <class U>
    [[nodiscard]] cudaError_t prepare(forward_view<U> const&, device_round const&, cudaStream_t) const noexcept {
        return cudaSuccess;
    }
    __device__ double operator()(std::uint32_t, std::uint32_t, token_id, position_statistics const&, float*) const {
        return 1.0;
    }
};

/// c_k = max_v q_k(v), the host's top1_confidence.
struct top1_confidence : no_confidence {
    __device__ double operator()(std::uint32_t, std::uint32_t, token_id, position_statistics const& q, float*) const {
        return q.peak;
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
