// SPDX-License-Identifier: MIT
//
// Constrained text on the device: the logits of tokens that may not come are set to -inf, in place, before a stage
// reads the rows (sampling/row_mask.hpp of the host). p and q are masked by the same function of the text. So no kernel
// needs to know of masks.
//
//     mask_base_rows(base, masks, k, round, stream)                position k of every request, before it is drafted
//     mask_target_rows(rows, masks, round.batch, round, stream)    the target's rows, before accept; or trees.batch
//
// Both bar a request's stop tokens besides, as long as request_columns::min_remaining says so.
//
// A mask may depend on tokens that are drafted in the same round. An engine whose grammar runs on the device hands
// draw_chain a callable that fills and applies the mask of position k. A grammar on the host knows position 0 before
// the draft, and the target's rows after it. What is not masked of q costs acceptance, never the distribution.
//
// A row's normaliser is that of the masked row, or none is given.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Rows of logits that are changed.
template <class T>
struct mutable_rows {
    T* data = nullptr;
    std::size_t rows = 0;
    std::uint32_t vocabulary = 0;  ///< of the rows: V, or V_draft
    std::size_t stride = 0;        ///< elements from a row to the next; 0: vocabulary
};

/// A mask for each row, as grammar engines fill them (token_mask): bit v % 32 of word v / 32 of a row is set if token v
/// may come next, by the target's ids. Tokens behind the words may not. A row of ones is no constraint.
struct mask_columns {
    std::uint32_t const* words = nullptr;  ///< [rows, row_words]; null: nothing is masked but stop tokens
    std::uint32_t row_words = 0;
};

namespace detail {

inline constexpr unsigned threads_of_masking = 256;
inline constexpr std::uint32_t tokens_of_masking = 8192;  ///< of a block: a row of V = 151,936 has 19

/// Sets a part of a row to -inf where a token may not come: blockIdx.y says which. `words` may be null.
template <class T>
__device__ void mask_part(T* row, std::uint32_t vocabulary, std::uint32_t const* words, std::uint32_t row_words,
                          token_id const* to_target, bool bars_stops, device_round const& round, std::uint32_t r) {
    if (words == nullptr && !bars_stops) return;
    T const none{-infinity};
    std::uint32_t const first = blockIdx.y * tokens_of_masking;
    std::uint32_t const end = vocabulary - first < tokens_of_masking ? vocabulary : first + tokens_of_masking;
    for (std::uint32_t v = first + threadIdx.x; v < end; v += blockDim.x) {
        token_id const x = to_target == nullptr ? static_cast<token_id>(v) : to_target[v];
        auto const bit = static_cast<std::uint32_t>(x);
        bool const allowed = words == nullptr || (bit / 32 < row_words && (words[bit / 32] >> bit % 32 & 1) != 0);
        if (!allowed || (bars_stops && round.stops_at(r, x))) row[v] = none;
    }
}

template <class T>
__global__ void __launch_bounds__(threads_of_masking)
    mask_base(mutable_rows<T> base, mask_columns masks, std::uint32_t k, token_id const* to_target,
              device_round round) {
    std::uint32_t const r = blockIdx.x;
    if (r >= *round.requests.count || k >= round.chain_cap(r)) return;
    std::size_t const row = static_cast<std::size_t>(r) * round.limits.block_size + k;
    mask_part(base.data + row * base.stride, base.vocabulary,
              masks.words == nullptr ? nullptr : masks.words + row * masks.row_words, masks.row_words, to_target,
              k < round.requests.min_remaining[r], round, r);
}

template <class T>
__global__ void __launch_bounds__(threads_of_masking)
    mask_target(mutable_rows<T> rows, mask_columns masks, batch_columns batch, device_round round) {
    std::size_t const row = blockIdx.x;
    if (row >= static_cast<std::size_t>(batch.offsets[round.limits.requests])) return;
    std::uint32_t const r = batch.markers[row];
    std::uint64_t const behind = batch.positions[row] - round.requests.positions[r];
    mask_part(rows.data + row * rows.stride, rows.vocabulary,
              masks.words == nullptr ? nullptr : masks.words + row * masks.row_words, masks.row_words, nullptr,
              behind < round.requests.min_remaining[r], round, r);
}

template <class T>
[[nodiscard]] bool can_be_masked(mutable_rows<T>& rows, mask_columns const& masks) noexcept {
    if (rows.stride == 0) rows.stride = rows.vocabulary;
    return rows.data != nullptr && rows.vocabulary > 0 && rows.stride >= rows.vocabulary &&
           (masks.words == nullptr) == (masks.row_words == 0);
}
[[nodiscard]] inline unsigned parts_of_masking(std::uint32_t vocabulary) noexcept {
    return (vocabulary + tokens_of_masking - 1) / tokens_of_masking;
}

}  // namespace detail

/// Masks base logits [R gamma, V_draft] of position k, for requests that may draft it. `masks` [R gamma] rows;
/// `to_target` as chain_options. Heads add to base logits, so q is masked wherever it is read. One launch.
/// cudaErrorInvalidValue if shapes do not fit or a pointer is null.
template <class U>
[[nodiscard]] cudaError_t mask_base_rows(mutable_rows<U> base, mask_columns const& masks, std::uint32_t k,
                                         device_round const& round, cudaStream_t stream,
                                         token_id const* to_target = nullptr) noexcept {
    static_assert(is_device_storage_v<U>, "mask_base_rows: logits are float, sureleap::bf16 or sureleap::half");
    if (!round.ready() || !detail::can_be_masked(base, masks) || k >= round.limits.block_size ||
        base.rows < std::size_t{round.limits.requests} * round.limits.block_size ||
        (to_target == nullptr ? base.vocabulary != round.limits.vocabulary
                              : base.vocabulary > round.limits.vocabulary)) {
        return cudaErrorInvalidValue;
    }
    dim3 const grid(round.limits.requests, detail::parts_of_masking(base.vocabulary));
    return launch(detail::mask_base<U>, grid, detail::threads_of_masking, 0, stream, base, masks, k, to_target, round);
}

/// Masks the target's rows of a batch, round.batch or that of trees: `masks` has as many. One launch.
/// cudaErrorInvalidValue if shapes do not fit or a pointer is null. A mask that allows nothing leaves the row without a
/// distribution: the request's verdict is status::invalid_target, if the row decides.
template <class T>
[[nodiscard]] cudaError_t mask_target_rows(mutable_rows<T> rows, mask_columns const& masks, batch_columns const& batch,
                                           device_round const& round, cudaStream_t stream) noexcept {
    static_assert(is_device_storage_v<T>, "mask_target_rows: logits are float, sureleap::bf16 or sureleap::half");
    if (!round.ready() || batch.offsets == nullptr || !detail::can_be_masked(rows, masks) || rows.rows == 0 ||
        rows.rows > 0x7fffffffu || rows.vocabulary != round.limits.vocabulary) {
        return cudaErrorInvalidValue;
    }
    dim3 const grid(static_cast<unsigned>(rows.rows), detail::parts_of_masking(rows.vocabulary));
    return launch(detail::mask_target<T>, grid, detail::threads_of_masking, 0, stream, rows, masks, batch, round);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
