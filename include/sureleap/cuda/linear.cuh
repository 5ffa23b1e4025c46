// SPDX-License-Identifier: MIT
//
// The little linear algebra of heads on the device: dot products of stored rows with a vector, by groups of neighbouring
// lanes. Everything that is too ragged or too small for tensor cores is made of them: rows of a shortlist, products with
// the matrices of a gated or RNN head, confidences.
//
// Numbers are read eight at a time, an octet, whatever their format: 16 bytes of bf16 or half, 32 of float. A group of 8
// lanes reads 128 contiguous bytes of a 16-bit row at once, so a warp has four rows in hand and adds lanes in three
// shuffles instead of five for each row alone; a group of 32 is for rows that come one by one.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/config.hpp>
#include <sureleap/cuda/device.cuh>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

inline constexpr unsigned octet = 8;

namespace detail {

/// A stored number as a float.
[[nodiscard]] __device__ __forceinline__ float widen(float stored) {
    return stored;
}
[[nodiscard]] __device__ __forceinline__ float widen(bf16 stored) {
    return __uint_as_float(static_cast<std::uint32_t>(stored.bits) << 16);
}
/// Without a branch: the exponent is moved by a product, which is exact, and subnormals come out right by themselves.
[[nodiscard]] __device__ __forceinline__ float widen(half stored) {
    std::uint32_t const bits = stored.bits;
    float const magnitude = __uint_as_float((bits & 0x7fffu) << 13) * 0x1p112f;
    std::uint32_t const beyond = magnitude >= 65536.0f ? 0x7f800000u : 0u;  // infinity, or NaN with its mantissa
    return __uint_as_float(__float_as_uint(magnitude) | beyond | ((bits & 0x8000u) << 16));
}

/// Eight stored numbers, as they are read and as floats.
template <class T>
struct raw_octet {
    uint4 part[octet * sizeof(T) / sizeof(uint4)];

    /// `from` is aligned to 16 bytes.
    __device__ __forceinline__ void read(T const* from) {
        auto const* const parts = reinterpret_cast<uint4 const*>(from);
#pragma unroll
        for (unsigned i = 0; i < sizeof(part) / sizeof(uint4); ++i) part[i] = parts[i];
    }
    __device__ __forceinline__ void widen(float (&out)[octet]) const {
        constexpr unsigned per_word = sizeof(std::uint32_t) / sizeof(T);
#pragma unroll
        for (unsigned i = 0; i < octet / per_word; ++i) {
            uint4 const& four = part[i / 4];
            std::uint32_t const word = i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
            if constexpr (per_word == 1) {
                out[i] = __uint_as_float(word);
            } else {
                T low;
                T high;
                low.bits = static_cast<std::uint16_t>(word);
                high.bits = static_cast<std::uint16_t>(word >> 16);
                out[2 * i] = detail::widen(low);
                out[2 * i + 1] = detail::widen(high);
            }
        }
    }
};

[[nodiscard]] __device__ __forceinline__ bool is_aligned(void const* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(uint4) == 0;
}

/// 1 / (1 + exp(-x)) as on the host: exp is only taken of what is not positive.
[[nodiscard]] __device__ __forceinline__ float sigmoid(float x) {
    if (x >= 0.0f) return 1.0f / (1.0f + expf(-x));
    float const e = expf(x);
    return e / (1.0f + e);
}

}  // namespace detail

/// out[i] = sum over j < size of row[i][j] x[j]: `count` dot products by every group of `lanes` neighbouring lanes, each
/// group with rows of its own. A null row gives 0. WARP collective: all 32 lanes, with one size and x; every lane of a
/// group gets its group's sums. W and X: float, bf16 or half; any alignment, the fast way with 16 bytes. The rows of a
/// group are read side by side, which keeps more bytes in flight; they share what is read of x.
template <unsigned lanes, unsigned count, class W, class X>
__device__ __forceinline__ void dot(W const* const (&row)[count], X const* x, unsigned size, float (&out)[count]) {
    static_assert(lanes == 8 || lanes == 32, "dot: groups of 8 or 32 lanes");
    unsigned const lane = lane_index() % lanes;
    unsigned vectors = detail::is_aligned(x) ? size / octet * octet : 0;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
        out[i] = 0.0f;
        if (!detail::is_aligned(row[i])) vectors = 0;
    }
#pragma unroll 2
    for (unsigned j = lane * octet; j < vectors; j += lanes * octet) {
        detail::raw_octet<W> stored[count];
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
            if (row[i] != nullptr) stored[i].read(row[i] + j);
        }
        float factors[octet];
        detail::raw_octet<X> some;
        some.read(x + j);
        some.widen(factors);
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
            if (row[i] == nullptr) continue;
            float weights[octet];
            stored[i].widen(weights);
#pragma unroll
            for (unsigned e = 0; e < octet; ++e) out[i] = fmaf(weights[e], factors[e], out[i]);
        }
    }
    for (unsigned j = vectors + lane; j < size; j += lanes) {
        float const factor = detail::widen(x[j]);
#pragma unroll
        for (unsigned i = 0; i < count; ++i) {
            if (row[i] != nullptr) out[i] = fmaf(detail::widen(row[i][j]), factor, out[i]);
        }
    }
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
#pragma unroll
        for (unsigned apart = lanes / 2; apart > 0; apart /= 2) {
            out[i] += __shfl_xor_sync(all_lanes, out[i], static_cast<int>(apart));
        }
    }
}

/// One row, by the whole warp.
template <class W, class X>
[[nodiscard]] __device__ __forceinline__ float dot(W const* row, X const* x, unsigned size) {
    W const* const rows[1] = {row};
    float out[1];
    dot<32>(rows, x, size, out);
    return out[0];
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
