// SPDX-License-Identifier: MIT
//
// How requests move on from a round to the next, on the device (detail::request_place::apply of the host). The last
// emitted token is the next anchor. Positions grow, and remaining and min_remaining fall by what was emitted. A stop
// token ends a request.
//
// Finished requests stay in the round, as rows that emit nothing, until the engine takes them out: only it knows what
// takes their place. The list of them is a state and not an event, so the engine may read it after any round it likes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Requests of the round that emit nothing any more, after `advance`.
struct finished_columns {
    std::uint32_t* count = nullptr;     ///< [1]
    std::uint32_t* requests = nullptr;  ///< [limits.requests] their places r in the round, ascending
};

/// For an engine that reads it without a copy the two arrays may as well lie in mapped host memory.
[[nodiscard]] inline finished_columns carve_finished(workspace& ws, device_limits const& limits) noexcept {
    return {ws.take<std::uint32_t>(1), ws.take<std::uint32_t>(limits.requests)};
}

namespace detail {

inline constexpr unsigned threads_of_advance = 1024;

template <class = void>
__global__ void __launch_bounds__(threads_of_advance) advance_kernel(device_round round, finished_columns finished) {
    auto& shared = shared_memory<block_shared>();
    request_columns const& requests = round.requests;
    verdict_columns const& verdicts = round.verdicts;
    std::uint32_t const count = *requests.count < round.limits.requests ? *requests.count : round.limits.requests;
    std::uint32_t listed = 0;
    for (std::uint32_t first = 0; first < count; first += blockDim.x) {
        std::uint32_t const r = first + threadIdx.x;
        bool ended = false;
        if (r < count) {
            std::uint32_t remaining = requests.remaining[r];
            std::uint32_t const emitted = verdicts.emitted[r];
            if (verdicts.statuses[r] == status::ok && emitted > 0) {
                requests.anchors[r] = verdicts.tokens[r * (round.limits.block_size + 1) + emitted - 1];
                requests.positions[r] += emitted;
                remaining = verdicts.stopped[r] != 0 || emitted > remaining ? 0 : remaining - emitted;
                requests.remaining[r] = remaining;
                std::uint32_t const least = requests.min_remaining[r];
                requests.min_remaining[r] = least > emitted ? least - emitted : 0;
            }
            ended = remaining == 0;
        }
        if (finished.count == nullptr) continue;
        block_sum const before = sum_over_block(ended ? 1 : 0, shared);
        if (ended) finished.requests[listed + before.before] = r;
        listed += static_cast<std::uint32_t>(before.total);
    }
    if (finished.count != nullptr && threadIdx.x == 0) *finished.count = listed;
}

}  // namespace detail

/// Moves the requests of a round on by its verdicts. Those whose status is not ok stay as they are: the next round
/// tries them again with the same random keys, unless the engine takes them out. One launch. Everything that reads this
/// round's requests, as survival_history's push, comes before.
[[nodiscard]] inline cudaError_t advance(device_round const& round, finished_columns const& finished,
                                         cudaStream_t stream) noexcept {
    if (!round.ready() || (finished.count == nullptr) != (finished.requests == nullptr)) return cudaErrorInvalidValue;
    return launch(detail::advance_kernel<>, 1, detail::threads_of_advance, sizeof(block_shared), stream, round,
                  finished);
}
/// The same for an engine that asks for no list: it reads `remaining`.
[[nodiscard]] inline cudaError_t advance(device_round const& round, cudaStream_t stream) noexcept {
    return advance(round, finished_columns{}, stream);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
