// SPDX-License-Identifier: MIT
//
// Survival tables of past rounds on the device: survival_history (schedule/planning.hpp) for the asynchronous scheduler
// of paper section 5.2. A round of it, in one captured graph:
//
//     lagged_table(round, history, table, stream);                       // tables `lag` rounds old, this round's requests
//     best_budget(round, table, capacity, budget, stream);               // beside the draw, if on a stream of its own
//     ... draw_chain ...  admit(top_k_schedule{budget}, round, stream);  ... flatten, score, accept ...
//     remember(round, history, stream);                                  // before the requests move on
//     advance(round, stream);
//
// The budget is causal because what it reads was written by earlier rounds: `remember` must come after both the search
// and the draw. The table for a round is made before its block is drawn, or beside it. A history of lag 0 does not
// exist.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/survivals.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// One round of one slot. All zero: nothing is known.
struct past_round {
    std::uint64_t round = 0;  ///< its number + 1
    std::uint32_t size = 0;
    std::uint32_t ended = 0;  ///< 1 if its chain ended before its cap: nothing worth drafting came behind
};

/// A ring of `lag` rounds for every slot.
struct history_memory {
    std::uint32_t slots = 0;
    std::uint32_t block_size = 0;
    std::uint32_t lag = 0;
    fixed_probability prior = certain;        ///< the confidence assumed where nothing is known
    std::uint64_t* round = nullptr;           ///< [1] number of the coming round
    std::uint32_t* arrived = nullptr;         ///< [1] blocks that have remembered theirs; 0 between launches
    past_round* entries = nullptr;            ///< [slots, lag]
    fixed_probability* confidence = nullptr;  ///< [slots, lag, gamma]

    [[nodiscard]] bool fits(device_limits const& limits) const noexcept {
        return slots >= limits.requests && block_size == limits.block_size && lag >= 1 && prior <= certain &&
               round != nullptr && arrived != nullptr && entries != nullptr && confidence != nullptr;
    }
};

/// Out of `ws`; forget_all before its first use. `prior` of a probability is made by quantise.
[[nodiscard]] inline history_memory carve_history(workspace& ws, device_limits const& limits, std::uint32_t lag,
                                                  fixed_probability prior) noexcept {
    std::size_t const rings = std::size_t{limits.requests} * lag;
    return {limits.requests,
            limits.block_size,
            lag,
            prior,
            ws.take<std::uint64_t>(1),
            ws.take<std::uint32_t>(1),
            ws.take<past_round>(rings),
            ws.take<fixed_probability>(rings * limits.block_size)};
}

/// Forgets everything, as a history that was just built.
[[nodiscard]] inline cudaError_t forget_all(history_memory const& history, cudaStream_t stream) noexcept {
    if (history.round == nullptr || history.arrived == nullptr || history.entries == nullptr) {
        return cudaErrorInvalidValue;
    }
    std::size_t const rings = std::size_t{history.slots} * history.lag;
    cudaError_t error = cudaMemsetAsync(history.round, 0, sizeof(*history.round), stream);
    if (error == cudaSuccess) error = cudaMemsetAsync(history.arrived, 0, sizeof(*history.arrived), stream);
    if (error == cudaSuccess) error = cudaMemsetAsync(history.entries, 0, rings * sizeof(past_round), stream);
    return error;
}

/// Forgets a slot's past: survival_history::join, for the engine to call when a request takes the slot, between rounds.
[[nodiscard]] inline cudaError_t join(history_memory const& history, std::uint32_t slot, cudaStream_t stream) noexcept {
    if (history.entries == nullptr || slot >= history.slots) return cudaErrorInvalidValue;
    past_round* const ring = history.entries + std::size_t{slot} * history.lag;
    return cudaMemsetAsync(ring, 0, history.lag * sizeof(past_round), stream);
}

namespace detail {

inline constexpr unsigned threads_of_history = 256;

/// A thread a request: a product is a chain.
template <class = void>
__global__ void __launch_bounds__(threads_of_history)
    lagged_kernel(device_round round, history_memory history, survival_columns table) {
    std::uint32_t const r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= round.limits.requests || r >= *round.requests.count) return;
    std::uint64_t const now = *history.round;
    std::size_t const ring = std::size_t{round.requests.slots[r]} * history.lag + now % history.lag;
    past_round const past = history.entries[ring];
    bool const known = past.round != 0 && past.round + history.lag == now + 1;
    std::uint32_t const gamma = round.limits.block_size;
    std::uint32_t size = round.requests.draft_cap(r, gamma);
    if (known && past.ended != 0 && past.size < size) size = past.size;
    fixed_probability survival = round.requests.weights[r];
    std::uint32_t const remembered = known && past.size < size ? past.size : known ? size : 0;
    constexpr std::uint32_t ahead = 8;  // loads on their way at once
    for (std::uint32_t first = 0; first < size; first += ahead) {
        fixed_probability c[ahead];
#pragma unroll
        for (std::uint32_t i = 0; i < ahead; ++i) {
            c[i] = first + i < remembered ? __ldg(history.confidence + ring * gamma + first + i) : history.prior;
        }
#pragma unroll
        for (std::uint32_t i = 0; i < ahead; ++i) {
            if (first + i >= size) break;
            survival = extend_survival(survival, c[i]);
            table.survival[r * gamma + first + i] = survival;
        }
    }
    table.sizes[r] = size;
}

/// A thread a position.
template <class = void>
__global__ void __launch_bounds__(threads_of_history) remember_kernel(device_round round, history_memory history) {
    std::uint64_t const now = *history.round;
    std::uint32_t const gamma = round.limits.block_size;
    std::uint32_t const place = blockIdx.x * blockDim.x + threadIdx.x;
    std::uint32_t const r = place / gamma;
    std::uint32_t const k = place - r * gamma;
    if (r < round.limits.requests && r < *round.requests.count) {
        std::size_t const ring = std::size_t{round.requests.slots[r]} * history.lag + now % history.lag;
        std::uint32_t const size = round.drafts.sizes[r];
        if (k < size) history.confidence[ring * gamma + k] = round.drafts.confidence[place];
        if (k == 0) {
            bool const text_ends =
                size > 0 && round.stops_at(r, round.drafts.tokens[std::size_t{r} * gamma + size - 1]);
            bool const ended = size < round.requests.draft_cap(r, gamma) && !text_ends;
            history.entries[ring] = {now + 1, size, ended ? 1u : 0u};
        }
    }
    // The last block to come by has seen all others read the number of the round.
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(history.arrived, 1u) != gridDim.x - 1) return;
    __threadfence();
    *history.arrived = 0;
    *history.round = now + 1;
}

}  // namespace detail

/// The table that best_budget may read in the coming round: each request's confidences of `lag` rounds ago. Where that
/// block was shorter than this one may be, the prior continues it; where its chain had ended, it ends. Requests that
/// were not in that round have the prior alone. Positions that a request may not draft are left out. One launch.
[[nodiscard]] inline cudaError_t lagged_table(device_round const& round, history_memory const& history,
                                              survival_columns const& table, cudaStream_t stream) noexcept {
    if (!round.ready() || !history.fits(round.limits) || !table.ready()) return cudaErrorInvalidValue;
    unsigned const blocks = (round.limits.requests + detail::threads_of_history - 1) / detail::threads_of_history;
    return launch(detail::lagged_kernel<>, blocks, detail::threads_of_history, 0, stream, round, history, table);
}

/// Remembers this round's confidences: survival_history::push, once at the end of every round, before the requests move
/// on. One launch.
[[nodiscard]] inline cudaError_t remember(device_round const& round, history_memory const& history,
                                          cudaStream_t stream) noexcept {
    if (!round.ready() || !history.fits(round.limits)) return cudaErrorInvalidValue;
    std::uint32_t const places = round.limits.requests * round.limits.block_size;
    unsigned const blocks = (places + detail::threads_of_history - 1) / detail::threads_of_history;
    return launch(detail::remember_kernel<>, blocks, detail::threads_of_history, 0, stream, round, history);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
