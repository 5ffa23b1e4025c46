// SPDX-License-Identifier: MIT
//
// The batch as a rectangle (verify_batch::padded_tokens), for targets that were captured for one number of tokens a
// request.
//
// In: the flat batch of a round (flatten.cuh). Out: tokens and positions [requests, width]. Positions go on behind the
// drafts, so that a row of the rectangle has consecutive positions. What the target caches for the padding is
// overwritten when those positions are reached. The engine needs cache room for `width` tokens from the anchor's
// position on. Verdicts are made of the flat batch: a round with a padded target has both. Row offsets[r] + k of the
// flat batch is row r * width + k of the rectangle.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

struct padded_columns {
    std::uint32_t width = 0;            ///< 1 + the longest length that the schedule can choose, or more
    token_id pad = 0;                   ///< behind 1 + l_r, and in rows without a request
    token_id* tokens = nullptr;         ///< [limits.requests, width]
    std::int32_t* positions = nullptr;  ///< [limits.requests, width], 0 in rows without a request; or null
};

[[nodiscard]] inline padded_columns carve_padded(workspace& ws, device_limits const& limits, std::uint32_t width,
                                                 token_id pad) noexcept {
    std::size_t const cells = std::size_t{limits.requests} * width;
    return {width, pad, ws.take<token_id>(cells), ws.take<std::int32_t>(cells)};
}

namespace detail {

inline constexpr unsigned threads_of_padding = 256;

template <class = void>
__global__ void __launch_bounds__(threads_of_padding) pad_kernel(device_round round, padded_columns padded) {
    std::uint32_t const cell = blockIdx.x * blockDim.x + threadIdx.x;
    std::uint32_t const r = cell / padded.width;
    std::uint32_t const k = cell - r * padded.width;
    if (r >= round.limits.requests) return;
    bool const there = r < *round.requests.count;
    token_id token = padded.pad;
    if (there && k == 0) token = round.requests.anchors[r];
    if (there && k > 0 && k <= round.batch.lengths[r]) token = round.drafts.tokens[r * round.limits.block_size + k - 1];
    padded.tokens[cell] = token;
    if (padded.positions != nullptr) {
        padded.positions[cell] = there ? static_cast<std::int32_t>(round.requests.positions[r] + k) : 0;
    }
}

}  // namespace detail

/// From lengths, as flatten. Columns beyond `width` are not there: a longer length would lose drafts. One launch.
[[nodiscard]] inline cudaError_t pad(device_round const& round, padded_columns const& padded,
                                     cudaStream_t stream) noexcept {
    constexpr std::uint32_t widest = 1024;
    if (!round.ready() || padded.tokens == nullptr || padded.width == 0 || padded.width > widest) {
        return cudaErrorInvalidValue;
    }
    std::uint32_t const cells = round.limits.requests * padded.width;
    unsigned const blocks = (cells + detail::threads_of_padding - 1) / detail::threads_of_padding;
    return launch(detail::pad_kernel<>, blocks, detail::threads_of_padding, 0, stream, round, padded);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
