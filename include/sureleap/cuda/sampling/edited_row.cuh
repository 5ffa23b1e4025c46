// SPDX-License-Identifier: MIT
//
// A row of target logits that is changed as it is read: bias, penalties and a mask, as the host's array_edits
// (verify/array_edits.hpp) makes them. Nothing is copied. A row's bits say which tokens are changed at all, so a token
// that is not costs two tests of a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What is changed in all rows of a request.
struct request_edits {
    float repetition = 1.0f;
    float frequency = 0.0f;
    float presence = 0.0f;
    std::uint32_t biases = 0;
    token_id const* bias_tokens = nullptr;  ///< [biases]
    float const* bias = nullptr;            ///< [biases]
    std::int32_t const* counts = nullptr;   ///< [V] how often each token was emitted, or null
    std::uint32_t const* prompt = nullptr;  ///< words: tokens of the prompt, or null
    std::uint32_t const* seen = nullptr;    ///< words: tokens of either; read if the request is penalised

    [[nodiscard]] SURELEAP_HOST_DEVICE bool penalises() const noexcept {
        return repetition != 1.0f || frequency != 0.0f || presence != 0.0f;
    }
};

namespace detail {
/// Bit v of some words.
[[nodiscard]] __device__ __forceinline__ bool has_bit(std::uint32_t const* words, std::uint32_t v) {
    return (words[v / 32] >> v % 32 & 1u) != 0;
}
/// The logit of v behind bias and penalties.
[[nodiscard]] inline __device__ __noinline__ float changed(request_edits const& own, token_id const* drafted,
                                                           std::uint32_t drafts, std::uint32_t v, float logit) {
    for (std::uint32_t i = 0; i < own.biases; ++i) {
        if (static_cast<std::uint32_t>(own.bias_tokens[i]) == v) logit += own.bias[i];
    }
    if (!own.penalises()) return logit;
    std::int32_t count = own.counts == nullptr ? 0 : own.counts[v];
    for (std::uint32_t j = 0; j < drafts; ++j) count += static_cast<std::uint32_t>(drafted[j]) == v ? 1 : 0;
    bool const prompted = own.prompt != nullptr && has_bit(own.prompt, v);
    if (count > 0 || prompted) logit = logit > 0.0f ? logit / own.repetition : logit * own.repetition;
    if (count > 0) logit -= own.frequency * static_cast<float>(count) + own.presence;
    return logit;
}
}  // namespace detail

template <class T>
struct edited_lanes;

/// The row behind `drafts` drafted tokens of a request.
template <class T>
struct edited_row {
    using lanes_type = edited_lanes<T>;

    T const* logits;
    request_edits const* own;
    std::uint32_t const* allowed;  ///< words, or null
    token_id const* drafted;       ///< [drafts]
    std::uint32_t drafts;

    /// Any thread: the logit of a token, which may be counted in any type, as by a pointer.
    template <class Token>
    [[nodiscard]] __device__ float operator[](Token token) const {
        auto const v = static_cast<std::uint32_t>(token);
        if (allowed != nullptr && !detail::has_bit(allowed, v)) return -infinity;
        float const logit = load(logits[v]);
        return own->biases > 0 || own->penalises() ? detail::changed(*own, drafted, drafts, v, logit) : logit;
    }
};

/// A lane's 32 logits of a block, and a bit for each: whether it may come, and whether it is changed otherwise. Tokens
/// that are changed are few, and have a loop of their own: 32 copies of what changes them would not stay in registers.
template <class T>
struct edited_lanes {
    using stored = row_lanes<T>;
    static constexpr unsigned together = stored::together;
    static constexpr unsigned vectors = stored::vectors;

    stored raw;
    edited_row<T> const* row;  ///< which outlives the lanes
    std::uint32_t block;
    std::uint32_t allowed;
    std::uint32_t special;

    [[nodiscard]] static __device__ __forceinline__ std::uint32_t place(unsigned i, unsigned e) {
        return stored::place(i, e);
    }
    [[nodiscard]] __device__ __forceinline__ float operator()(unsigned i, unsigned e) const {
        return (others() >> (i * together + e) & 1u) == 0 ? plain(i, e) : changed(i, e);
    }
    [[nodiscard]] __device__ __forceinline__ float plain(unsigned i, unsigned e) const {
        return ((allowed & ~special) >> (i * together + e) & 1u) != 0 ? raw(i, e) : -infinity;
    }
    /// The largest of those that are not changed.
    [[nodiscard]] __device__ __forceinline__ float largest() const {
        float most = -infinity;
#pragma unroll
        for (unsigned i = 0; i < vectors; ++i) {
#pragma unroll
            for (unsigned e = 0; e < together; ++e) most = fmaxf(most, plain(i, e));
        }
        return most;
    }
    [[nodiscard]] __device__ __forceinline__ std::uint32_t others() const { return allowed & special; }
    template <class F>
    __device__ __forceinline__ void for_others(F const& f) const {
#pragma unroll 1
        for (std::uint32_t left = others(); left != 0; left &= left - 1) {
            auto const bit = static_cast<unsigned>(__ffs(static_cast<int>(left))) - 1;
            f(changed(bit / together, bit % together));
        }
    }
    /// The logit of a token that is changed, which is read once more.
    [[nodiscard]] __device__ __forceinline__ float changed(unsigned i, unsigned e) const {
        std::uint32_t const v = block * block_tokens + place(i, e);
        return detail::changed(*row->own, row->drafted, row->drafts, v, load(row->logits[v]));
    }
};

namespace detail {
/// The bits of a lane's 32 tokens of a block, in the order of row_lanes<T>; 0 beyond the row.
template <class T>
[[nodiscard]] __device__ __forceinline__ std::uint32_t bits_of_lane(std::uint32_t const* words, std::uint32_t size,
                                                                    std::uint32_t block) {
    using lanes = row_lanes<T>;
    std::uint32_t bits = 0;
#pragma unroll
    for (unsigned i = 0; i < lanes::vectors; ++i) {
        std::uint32_t const v = block * block_tokens + lanes::place(i, 0);
        std::uint32_t const count = v >= size ? 0u : size - v < lanes::together ? size - v : lanes::together;
        std::uint32_t const some = count > 0 ? words[v / 32] >> v % 32 & ((1u << count) - 1) : 0u;
        bits |= some << i * lanes::together;
    }
    return bits;
}
/// WARP collective: the lanes' bits of those of `tokens` that are in the block.
template <class T>
[[nodiscard]] __device__ __forceinline__ std::uint32_t bits_of_tokens(token_id const* tokens, std::uint32_t count,
                                                                      std::uint32_t block) {
    using lanes = row_lanes<T>;
    std::uint32_t bits = 0;
    for (std::uint32_t first = 0; first < count; first += warp_size) {
        std::uint32_t const j = first + lane_index();
        std::uint32_t const x = j < count ? static_cast<std::uint32_t>(tokens[j]) : no_place;
        unsigned here = __ballot_sync(all_lanes, x != no_place && x / block_tokens == block);
        while (here != 0) {
            std::uint32_t const place =
                __shfl_sync(all_lanes, x, static_cast<int>(__ffs(static_cast<int>(here))) - 1) % block_tokens;
            here &= here - 1;
            std::uint32_t const vector = place / lanes::together;
            if (vector % warp_size != lane_index()) continue;
            bits |= 1u << (vector / warp_size * lanes::together + place % lanes::together);
        }
    }
    return bits;
}
}  // namespace detail

namespace detail {
/// WARP collective: the lanes' bits of tokens that bias or penalties may change. Out of line: few requests have any.
template <class T>
[[nodiscard]] __device__ __noinline__ std::uint32_t special_bits(request_edits const& own, token_id const* drafted,
                                                                 std::uint32_t drafts, std::uint32_t size,
                                                                 std::uint32_t block) {
    std::uint32_t special = 0;
    if (own.penalises()) {
        special = bits_of_lane<T>(own.seen, size, block) | bits_of_tokens<T>(drafted, drafts, block);
    }
    if (own.biases > 0) special |= bits_of_tokens<T>(own.bias_tokens, own.biases, block);
    return special;
}
/// WARP collective: which of a block's tokens are changed, once their logits are asked for.
template <class T>
__device__ __forceinline__ void read_edits(edited_row<T> const& row, std::uint32_t size, std::uint32_t block,
                                           edited_lanes<T>& out) {
    out.row = &row;
    out.block = block;
    out.allowed = row.allowed == nullptr ? ~0u : bits_of_lane<T>(row.allowed, size, block);
    bool const changes = row.own->penalises() || row.own->biases > 0;
    out.special = changes ? special_bits<T>(*row.own, row.drafted, row.drafts, size, block) : 0;
}
}  // namespace detail

/// As of rows that are not edited.
template <class T>
[[nodiscard]] __device__ __forceinline__ bool is_aligned(edited_row<T> const& row) {
    return is_aligned(row.logits);
}
template <class T>
__device__ __forceinline__ void read_whole_block(edited_row<T> const& row, std::uint32_t block, edited_lanes<T>& out) {
    read_whole_block(row.logits, block, out.raw);
    detail::read_edits(row, (block + 1) * block_tokens, block, out);
}
template <class T>
__device__ __forceinline__ void read_block(edited_row<T> const& row, std::uint32_t size, std::uint32_t block,
                                           edited_lanes<T>& out) {
    read_block(row.logits, size, block, out.raw);
    detail::read_edits(row, size, block, out);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
