// SPDX-License-Identifier: MIT
//
// Reading rows of target logits by warps, and the sums of their weights. A warp reads a block of 1,024 tokens
// (row_block) at a time. All of a lane's 16-byte loads are in flight before the first number is used.
//
// A block is summed relative to its own largest logit, which takes one pass over memory and cannot underflow. The row's
// sum is put together from its blocks when all are there. Rejected: a first pass for the largest logit, which reads
// everything twice; the host's guess of a typical logit, which needs a second try where the guess was bad.
//
// Exponents are fma(logit, rate, -reference) with reference = the block's largest logit times rate, rounded. Where
// blocks are put together, that rounded number is used again, so it causes no error. The only rounding is that of an
// exponent near 0, however large the logits are.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/detail/kernel/rows.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Rows of logits in device memory; sureleap::logits_rows with plain pointers. T is float, half or bf16. Rows that
/// begin at multiples of 16 bytes are read about four times as fast as others.
template <class T>
struct logits_rows {
    static_assert(is_device_storage_v<T>,
                  "logits_rows: logits on the device are float, sureleap::half or sureleap::bf16");
    T const* data = nullptr;  ///< [rows, stride]
    std::uint32_t rows = 0;   ///< that there is room for
    std::size_t stride = 0;   ///< elements from row to row, at least the vocabulary
    /// [rows] log(sum exp(row)) of the row as it is stored, or null if the producer has none. Drafts are judged by it:
    /// what it is off by, the probability of a judged draft is off by. Draws make the sum, of block sums or the row.
    /// The host (logits_row) also decides exactly by bounds, and judges again what a wrong one decided; here nobody
    /// does.
    float const* log_normalisers = nullptr;
    float const* block_sums = nullptr;  ///< [rows, row_blocks(vocabulary)] as on the host, or null

    using value_type = T;
    using row_type = T const*;
    /// Row i of the batch, which is the one behind draft k of request r.
    template <class Round>
    [[nodiscard]] __device__ T const* row(std::uint32_t i, Round const&, std::uint32_t, std::uint32_t) const {
        return row(i);
    }
    [[nodiscard]] __device__ T const* row(std::uint32_t i) const { return data + i * stride; }
    /// Normalisers were given that are those of `how`, and none of rows first .. last is too large to be read (the
    /// host's largest_normaliser): distributions of these rows take no pass over them.
    [[nodiscard]] __device__ bool are_normalised(transform const& how, std::uint32_t first, std::uint32_t last) const {
        if (log_normalisers == nullptr || how.temperature != 1.0 || how.truncates()) return false;
        constexpr float most = static_cast<float>(largest_normaliser<float>);
        bool read = true;
#pragma unroll 1
        for (std::uint32_t i = first; i <= last; ++i) {
            float const size = fabsf(log_normalisers[i]);
            read = read && !(size > most && size < infinity);
        }
        return read;
    }
};

/// row_block and row_blocks for device code.
inline constexpr std::uint32_t block_tokens = static_cast<std::uint32_t>(row_block);
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr std::uint32_t count_blocks(std::uint32_t size) noexcept {
    return (size + block_tokens - 1) / block_tokens;
}

// ---- blocks ----------------------------------------------------------------------------------------------------

/// A lane's 32 logits of a block, as they are stored: `vectors` times `together` consecutive ones.
template <class T>
struct row_lanes {
    static constexpr unsigned together = vector_size<T>;
    static constexpr unsigned vectors = block_tokens / warp_size / together;

    uint4 raw[vectors];

    /// Which token of the block number e of vector i is.
    [[nodiscard]] static __device__ __forceinline__ std::uint32_t place(unsigned i, unsigned e) {
        return (i * warp_size + lane_index()) * together + e;
    }
    /// Its logit; i and e known when this is compiled, or the registers become memory.
    [[nodiscard]] __device__ __forceinline__ float operator()(unsigned i, unsigned e) const {
        return detail::widen_from<T>(raw[i], e);
    }
    /// The largest.
    [[nodiscard]] __device__ __forceinline__ float largest() const {
        std::uint32_t word = raw[0].x;
#pragma unroll
        for (unsigned i = 0; i < vectors; ++i) {
            word = detail::larger_of_words<T>(word, detail::larger_of_words<T>(raw[i].x, raw[i].y));
            word = detail::larger_of_words<T>(word, detail::larger_of_words<T>(raw[i].z, raw[i].w));
        }
        float most = detail::widen_from<T>(word, 0);
        if constexpr (sizeof(T) == 2) most = fmaxf(most, detail::widen_from<T>(word, 1));
        return fmaxf(most, -infinity);  // of NaN alone
    }
    // Rows that are edited have tokens that take longer, and are kept apart from the rest (edited_row.cuh):

    /// The logit of a token that does not; of one that does -inf.
    [[nodiscard]] __device__ __forceinline__ float plain(unsigned i, unsigned e) const { return (*this)(i, e); }
    /// Which do, as bits i together + e.
    [[nodiscard]] __device__ __forceinline__ std::uint32_t others() const { return 0; }
    /// f(logit) of those.
    template <class F>
    __device__ __forceinline__ void for_others(F const&) const {}
};

namespace detail {
template <class Row>
struct lanes_of_row {
    using type = typename Row::lanes_type;
};
template <class T>
struct lanes_of_row<T*> {
    using type = row_lanes<std::remove_const_t<T>>;
};
}  // namespace detail
/// What a lane holds of a block of a row: T const*, or a row that is edited as it is read (edited_row.cuh).
template <class Row>
using lanes_of = typename detail::lanes_of_row<Row>::type;

/// Tokens first, first + 1 ... of a row, as many as fit 16 bytes; -inf beyond its end.
template <class T>
[[nodiscard]] __device__ __forceinline__ uint4 gather_vector(T const* row, std::uint32_t size, std::uint32_t first) {
    using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
    constexpr bits masked = static_cast<bits>(sizeof(T) == 4            ? 0xff800000u
                                              : std::is_same_v<T, bf16> ? 0xff80u
                                                                        : 0xfc00u);
    constexpr unsigned in_word = 4 / sizeof(T);
    std::uint32_t words[4];
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
        words[w] = 0;
#pragma unroll
        for (unsigned h = 0; h < in_word; ++h) {
            std::uint32_t const i = first + w * in_word + h;
            bits const stored = i < size ? sureleap::detail::bits_as<bits>(row[i]) : masked;
            words[w] |= static_cast<std::uint32_t>(stored) << (h * 8 * sizeof(T) % 32);
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/// 16 bytes at a time can be loaded of it.
template <class T>
[[nodiscard]] __device__ __forceinline__ bool is_aligned(T const* row) {
    return reinterpret_cast<std::uintptr_t>(row) % 16 == 0;
}

/// WARP collective: block `block` of such a row, all of whose tokens there are. Marked as read once: what is read again
/// is a block here and there, while distributions, sums and drafts should stay in the cache.
template <class T>
__device__ __forceinline__ void read_whole_block(T const* row, std::uint32_t block, row_lanes<T>& out) {
    auto const* const from = reinterpret_cast<uint4 const*>(row + block * block_tokens) + lane_index();
#pragma unroll
    for (unsigned i = 0; i < row_lanes<T>::vectors; ++i) out.raw[i] = __ldcs(from + i * warp_size);
}
namespace detail {
/// The same of any block, -inf beyond the row. Out of line, since it is long and seldom.
template <class T>
[[nodiscard]] __device__ __noinline__ row_lanes<T> gather_block(T const* row, std::uint32_t size, std::uint32_t block) {
    row_lanes<T> out;
#pragma unroll
    for (unsigned i = 0; i < row_lanes<T>::vectors; ++i) {
        out.raw[i] = gather_vector(row, size, block * block_tokens + row_lanes<T>::place(i, 0));
    }
    return out;
}
}  // namespace detail
/// WARP collective: block `block` of a row of `size` logits.
template <class T>
__device__ __forceinline__ void read_block(T const* row, std::uint32_t size, std::uint32_t block, row_lanes<T>& out) {
    if (is_aligned(row) && size - block * block_tokens >= block_tokens) {
        read_whole_block(row, block, out);
    } else {
        out = detail::gather_block(row, size, block);
    }
}

// ---- sums ------------------------------------------------------------------------------------------------------

/// What is known of a block: its largest logit and the sum of 2^(logit rate - reference); a sum that is NaN if a logit
/// is NaN or +inf. The rate is log2(e) / temperature.
struct block_weight {
    float largest;
    float sum;
};

[[nodiscard]] SURELEAP_HOST_DEVICE inline float rate_of(float scale) noexcept {
    return static_cast<float>(static_cast<double>(scale) * 1.4426950408889634);
}
namespace detail {
/// So large that a product of logit and rate may overflow: then differences come first.
[[nodiscard]] __device__ __forceinline__ bool is_far(float reference) {
    return !(fabsf(reference) < 1e30f);
}
}  // namespace detail
/// What the sum of a block is relative to, as an exponent of 2.
[[nodiscard]] __device__ __forceinline__ double reference_of(float largest, float rate) {
    float const reference = largest * rate;
    return detail::is_far(reference) ? static_cast<double>(largest) * static_cast<double>(rate)
                                     : static_cast<double>(reference);
}

namespace detail {
/// The sum of a lane where products of logit and rate may overflow: then differences come first. Out of line, since no
/// model has such logits.
template <class Lanes>
[[nodiscard]] __device__ __noinline__ float sum_far(Lanes const& logits, float top, float rate) {
    float sum = 0.0f;
#pragma unroll 1
    for (unsigned i = 0; i < Lanes::vectors; ++i) {
#pragma unroll 1
        for (unsigned e = 0; e < Lanes::together; ++e) sum += quick_exp2((logits(i, e) - top) * rate);
    }
    return sum;
}
}  // namespace detail

/// WARP collective. Four instructions a logit and a half: widening, fma, ex2, addition, and the maximum, of two-byte
/// logits two at a time.
template <class Lanes>
[[nodiscard]] __device__ __forceinline__ block_weight weigh_block(Lanes const& logits, float rate) {
    float largest = logits.largest();
    logits.for_others([&](float logit) { largest = fmaxf(largest, logit); });
    largest = largest_of_lanes(largest);
    float const top = largest > -infinity ? largest : 0.0f;  // of masked tokens alone: weights 0, where NaN still shows
    float const reference = top * rate;
    if (detail::is_far(reference)) {
        Lanes const far = logits;  // a copy, so that only this one is in memory
        return {largest, sum_over_lanes(detail::sum_far(far, top, rate))};
    }
    float sums[4] = {};
#pragma unroll
    for (unsigned i = 0; i < Lanes::vectors; ++i) {
#pragma unroll
        for (unsigned e = 0; e < Lanes::together; ++e) {
            sums[e % 4] += quick_exp2(fmaf(logits.plain(i, e), rate, -reference));
        }
    }
    logits.for_others([&](float logit) { sums[0] += quick_exp2(fmaf(logit, rate, -reference)); });
    return {largest, sum_over_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]))};
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
