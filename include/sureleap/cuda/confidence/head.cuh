// SPDX-License-Identifier: MIT
//
// Confidences c_k on the device (paper, eq. 7), before and without x_k.
//
// Most of a confidence head is known before the chain begins: w_h . h_k + b reads no drafted token. It is computed for
// all requests and positions in one launch. What is left for the chain is w_e . W1[x_{k-1}], one row of r numbers. The
// chain asks for c_k before x_k is drawn (confidence/policy.cuh).
//
// Every warp of a block computes that by itself, which costs no barrier. A row of 256 numbers in 16 bits is one load a
// lane, from the cache after the first warp's.
//
// A confidence that is known at the anchor has members besides, for plans:
//     c.plans()                       it has what it needs for that
//     c.at_anchor(r, k, anchor)       WARP collective: c_k as far as it is known before anything of the block is drawn
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/confidence/policy.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/linear.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/survivals.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// c_k = sigmoid(w . [h_k ; e_k] + b), the device's sureleap::confidence_head. W: float, bf16 or half. Pointers are to
/// device memory; what `hidden_terms` and `mean_term` point to is filled by the functions below.
template <class W>
struct confidence_head {
    static_assert(is_device_storage_v<W>, "cuda::confidence_head: W must be float, sureleap::bf16 or sureleap::half");

    W const* weight = nullptr;      ///< [d + r] in the order [h ; e], or [d] without Markov embedding
    std::uint32_t hidden_size = 0;  ///< d
    float bias = 0.0f;
    matrix_view<W> w1{};            ///< [V_target, r] of the sequential head; empty: without Markov embedding
    std::uint32_t block_size = 0;   ///< gamma
    float* hidden_terms = nullptr;  ///< [limits.requests, gamma] memory for w_h . h_k + b
    float* mean_term = nullptr;     ///< [1] w_e . mean(W1) (mean_confidence_term); null if nobody plans

    [[nodiscard]] bool with_markov() const noexcept { return w1.data != nullptr; }
    [[nodiscard]] bool valid() const noexcept {
        return weight != nullptr && hidden_size > 0 && hidden_terms != nullptr && block_size > 0 &&
               (!with_markov() || (w1.cols > 0 && w1.rows > 0 && w1.stride >= w1.cols));
    }
    [[nodiscard]] bool plans() const noexcept { return valid() && (!with_markov() || mean_term != nullptr); }
    /// Memory of its own: R gamma floats, and one that mean_confidence_term fills.
    void take(workspace& ws, device_limits const& limits) noexcept {
        hidden_terms = ws.take<float>(std::size_t{limits.requests} * limits.block_size);
        mean_term = ws.take<float>(1);
        block_size = limits.block_size;
    }

    [[nodiscard]] std::uint32_t shared_size() const noexcept { return 0; }
    /// hidden_terms of the requests of the round. Reads the hidden states once: a warp a row.
    template <class U>
    [[nodiscard]] cudaError_t prepare(forward_view<U> const& forward, device_round const& round,
                                      cudaStream_t stream) const noexcept;

    __device__ double operator()(std::uint32_t r, std::uint32_t k, token_id previous, position_statistics const&,
                                 float*) const {
        return static_cast<double>(detail::sigmoid(logit(r, k, previous)));
    }
    __device__ double at_anchor(std::uint32_t r, std::uint32_t k, token_id anchor) const {
        float const exact_or_mean = k == 0 || w1.data == nullptr ? logit(r, k, anchor) : hidden_term(r, k) + *mean_term;
        return static_cast<double>(detail::sigmoid(exact_or_mean));
    }

    // WARP collectives.
    __device__ float logit(std::uint32_t r, std::uint32_t k, token_id previous) const {
        return w1.data == nullptr ? hidden_term(r, k) : hidden_term(r, k) + embedding_term(previous);
    }
    __device__ float embedding_term(token_id previous) const {
        return dot(w1.data + static_cast<std::size_t>(previous) * w1.stride, weight + hidden_size,
                   static_cast<unsigned>(w1.cols));
    }
    __device__ float hidden_term(std::uint32_t r, std::uint32_t k) const {
        return hidden_terms[std::size_t{r} * block_size + k];
    }
};

/// c_k = max_v q_k(v), for drafters without a learned head, with what it needs in order to be planned by.
struct planned_top1_confidence : top1_confidence {
    double const* base_top1 = nullptr;  ///< [R, gamma] max_v softmax(U_k)(v) (confidence/top1.cuh)
    std::uint32_t block_size = 0;       ///< gamma

    [[nodiscard]] bool plans() const noexcept { return base_top1 != nullptr && block_size > 0; }
    __device__ double at_anchor(std::uint32_t r, std::uint32_t k, token_id) const {
        return base_top1[std::size_t{r} * block_size + k];
    }
};

/// A confidence followed by the maps of a calibration: of position k, and of request r if they differ among requests.
template <class Confidence>
struct calibrated {
    Confidence confidence{};
    logit_scaling const* maps = nullptr;  ///< [gamma], or [R, stride]; of sequential_temperature_scaling: offsets 0
    std::uint32_t stride = 0;             ///< from request to request; 0: they share one row

    [[nodiscard]] bool valid() const noexcept { return confidence.valid() && maps != nullptr; }
    [[nodiscard]] bool plans() const noexcept { return confidence.plans() && maps != nullptr; }
    [[nodiscard]] std::uint32_t shared_size() const noexcept { return confidence.shared_size(); }
    template <class U>
    [[nodiscard]] cudaError_t prepare(forward_view<U> const& forward, device_round const& round,
                                      cudaStream_t stream) const noexcept {
        return confidence.prepare(forward, round, stream);
    }

    __device__ double operator()(std::uint32_t r, std::uint32_t k, token_id previous, position_statistics const& q,
                                 float* shared) const {
        return maps[std::size_t{r} * stride + k].of_confidence(confidence(r, k, previous, q, shared));
    }
    __device__ double at_anchor(std::uint32_t r, std::uint32_t k, token_id anchor) const {
        return maps[std::size_t{r} * stride + k].of_confidence(confidence.at_anchor(r, k, anchor));
    }
};
template <class Confidence>
calibrated(Confidence, logit_scaling const*) -> calibrated<Confidence>;
template <class Confidence>
calibrated(Confidence, logit_scaling const*, std::uint32_t) -> calibrated<Confidence>;

namespace detail {

inline constexpr unsigned confidence_threads = 128;

template <class W, class T>
__global__ void __launch_bounds__(confidence_threads)
    hidden_confidence_kernel(confidence_head<W> head, T const* hidden, std::size_t stride,
                             std::uint32_t const* requests) {
    unsigned const rows = *requests * head.block_size;
    unsigned const warps = gridDim.x * (confidence_threads / warp_size);
    for (unsigned i = blockIdx.x * (confidence_threads / warp_size) + warp_index(); i < rows; i += warps) {
        float const sum = dot(hidden + i * stride, head.weight, head.hidden_size);
        if (lane_index() == 0) head.hidden_terms[i] = sum + head.bias;
    }
}

struct mean_term_shared {
    double sums[32];
};
/// One block: this is set-up, and the sum is to come out the same on every device.
template <class W>
__global__ void __launch_bounds__(1024) mean_term_kernel(confidence_head<W> head, std::uint32_t vocabulary) {
    auto& s = shared_memory<mean_term_shared>();
    unsigned const warps = blockDim.x / warp_size;
    double sum = 0.0;
    for (std::uint32_t v = warp_index(); v < vocabulary; v += warps) {
        sum += static_cast<double>(head.embedding_term(static_cast<token_id>(v)));
    }
    if (lane_index() == 0) s.sums[warp_index()] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (unsigned w = 1; w < warps; ++w) sum += s.sums[w];
    *head.mean_term = static_cast<float>(sum / static_cast<double>(vocabulary));
}

template <class Confidence>
__global__ void __launch_bounds__(confidence_threads)
    plan_at_anchor_kernel(Confidence confidence, device_round round, survival_columns plan) {
    std::uint32_t const r = blockIdx.x * (confidence_threads / warp_size) + warp_index();
    if (r >= *round.requests.count) return;
    std::uint32_t const gamma = round.limits.block_size;
    std::uint32_t const cap = round.chain_cap(r);
    token_id const anchor = round.requests.anchors[r];
    fixed_probability survival = round.requests.weights[r];
    std::uint32_t size = 0;
    for (; size < cap; ++size) {
        fixed_probability c = 0;
        if (!quantise(confidence.at_anchor(r, size, anchor), c)) break;  // nothing is known beyond it
        survival = extend_survival(survival, c);
        if (lane_index() == 0) plan.survival[r * gamma + size] = survival;
    }
    if (lane_index() == 0) plan.sizes[r] = size;
}

}  // namespace detail

template <class W>
template <class U>
cudaError_t confidence_head<W>::prepare(forward_view<U> const& forward, device_round const& round,
                                        cudaStream_t stream) const noexcept {
    std::size_t const rows = std::size_t{round.limits.requests} * round.limits.block_size;
    if (!round.ready() || !valid() || block_size != round.limits.block_size || forward.hidden.data == nullptr ||
        forward.hidden.rows < rows || forward.hidden.cols != hidden_size || forward.hidden.stride < hidden_size) {
        return cudaErrorInvalidValue;
    }
    constexpr std::size_t rows_per_block = detail::confidence_threads / warp_size;
    constexpr std::size_t enough = 2048;  // blocks; where rows are more than they have warps, warps take several
    std::size_t const blocks = (rows + rows_per_block - 1) / rows_per_block;
    return launch(detail::hidden_confidence_kernel<W, U>,
                  dim3(static_cast<unsigned>(blocks < enough ? blocks : enough)), dim3(detail::confidence_threads), 0,
                  stream, *this, forward.hidden.data, forward.hidden.stride,
                  static_cast<std::uint32_t const*>(round.requests.count));
}

/// *head.mean_term, once at set-up: reads W1.
template <class W>
[[nodiscard]] cudaError_t mean_confidence_term(confidence_head<W> const& head, cudaStream_t stream) noexcept {
    if (!head.valid() || !head.with_markov() || head.mean_term == nullptr) return cudaErrorInvalidValue;
    return launch(detail::mean_term_kernel<W>, dim3(1), dim3(1024), sizeof(detail::mean_term_shared), stream, head,
                  static_cast<std::uint32_t>(head.w1.rows));
}

/// The survival table of a round as far as it is known at the anchor, into `plan`: for planned budgets, which may
/// search it as they like. A confidence that is no probability ends its request's row. A warp a request. Reads what the
/// confidence's prepare left, so it comes after that, or after draw_chain, which prepares: it sees no drafted token
/// anyway.
template <class Confidence>
[[nodiscard]] cudaError_t plan_at_anchor(Confidence const& confidence, device_round const& round,
                                         survival_columns const& plan, cudaStream_t stream) noexcept {
    if (!round.ready() || !confidence.plans() || !plan.ready()) return cudaErrorInvalidValue;
    constexpr unsigned requests_per_block = detail::confidence_threads / warp_size;
    return launch(detail::plan_at_anchor_kernel<Confidence>,
                  dim3((round.limits.requests + requests_per_block - 1) / requests_per_block),
                  dim3(detail::confidence_threads), 0, stream, confidence, round, plan);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
