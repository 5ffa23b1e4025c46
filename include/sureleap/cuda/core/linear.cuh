// SPDX-License-Identifier: MIT
//
// Linear algebra of heads on the device: dot products of stored rows with a vector, by groups of neighbouring lanes.
// What is too irregular or too small for tensor cores is made of them: rows of a shortlist, products with the matrices
// of a gated or RNN head, confidences.
//
// Numbers are read eight at a time (load_width), whatever their format: 16 bytes of bf16 or half, 32 of float. A group
// of 8 lanes reads 128 contiguous bytes of a 16-bit row at once. So a warp works on four rows, and adds lanes in three
// shuffles where a row alone takes five. A group of 32 is for rows that come one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/warp.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

inline constexpr unsigned load_width = 8;

namespace detail {

/// Eight stored numbers, as they are read and as floats.
template <class T>
struct wide_load {
    uint4 part[load_width * sizeof(T) / sizeof(uint4)];

    /// `from` is aligned to 16 bytes.
    __device__ __forceinline__ void read(T const* from) {
        auto const* const parts = reinterpret_cast<uint4 const*>(from);
#pragma unroll
        for (unsigned i = 0; i < sizeof(part) / sizeof(uint4); ++i) part[i] = parts[i];
    }
    __device__ __forceinline__ void widen(float (&out)[load_width]) const {
#pragma unroll
        for (unsigned i = 0; i < sizeof(part) / sizeof(uint4); ++i) {
            float some[vector_size<T>];
            unpack<T>(part[i], some);
#pragma unroll
            for (unsigned e = 0; e < vector_size<T>; ++e) out[i * vector_size<T> + e] = some[e];
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

/// out[i] = sum over j < size of row[i][j] x[j]: `count` dot products by every group of `lanes` neighbouring lanes,
/// each group with rows of its own. What comes of a null row is of no use. WARP collective: all 32 lanes, with one size
/// and x; every lane of a group gets its group's sums. W and X: float, bf16 or half; any alignment, the fast way with
/// 16 bytes.
///
/// `in_flight` such loads a lane are asked for before the first is used, of one row or of several: that keeps enough
/// bytes in flight when rows come from far away. Rows of a group share what is read of x.
template <unsigned lanes, unsigned in_flight, unsigned count, class W, class X>
__device__ __forceinline__ void dot(W const* const (&row)[count], X const* x, unsigned size, float (&out)[count]) {
    static_assert(lanes == 8 || lanes == 32, "dot: groups of 8 or 32 lanes");
    constexpr unsigned depth = count < in_flight ? in_flight / count : 1;
    unsigned const lane = lane_index() % lanes;
    bool aligned = detail::is_aligned(x);
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
        out[i] = 0.0f;
        aligned = aligned && detail::is_aligned(row[i]);
    }
    unsigned const vectors = aligned ? size / load_width * load_width : 0;
    for (unsigned first = lane * load_width; first < vectors; first += lanes * load_width * depth) {
        detail::wide_load<W> stored[depth][count];
#pragma unroll
        for (unsigned d = 0; d < depth; ++d) {
            unsigned const j = first + d * lanes * load_width;
#pragma unroll
            for (unsigned i = 0; i < count; ++i) {
                stored[d][i] = {};
                if (j < vectors && row[i] != nullptr) stored[d][i].read(row[i] + j);
            }
        }
#pragma unroll
        for (unsigned d = 0; d < depth; ++d) {
            unsigned const j = first + d * lanes * load_width;
            detail::wide_load<X> some{};
            if (j < vectors) some.read(x + j);
            float factors[load_width];
            some.widen(factors);
#pragma unroll
            for (unsigned i = 0; i < count; ++i) {
                float weights[load_width];
                stored[d][i].widen(weights);
#pragma unroll
                for (unsigned e = 0; e < load_width; ++e) out[i] = fmaf(weights[e], factors[e], out[i]);
            }
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
    for (unsigned i = 0; i < count; ++i) out[i] = sum_over_lanes<lanes>(out[i]);
}

/// One row, by the whole warp.
template <class W, class X>
[[nodiscard]] __device__ __forceinline__ float dot(W const* row, X const* x, unsigned size) {
    W const* const rows[1] = {row};
    float out[1];
    dot<32, 4>(rows, x, size, out);
    return out[0];
}

/// use(i, addend(i) + row(i) . x) for i < count, by one thread each: products of `count` rows of `size` numbers with x
/// in shared memory, eight rows a warp at a time, two by each group of 8 lanes. BLOCK collective without barriers.
///
/// What is added is asked for before the product, so that it does not wait for its memory alone.
template <class Row, class Addend, class X, class Use>
__device__ __forceinline__ void each_product(std::uint32_t count, Row const& row, Addend const& addend, X const* x,
                                             unsigned size, Use const& use) {
    constexpr unsigned lanes = 8;
    constexpr unsigned groups = warp_size / lanes;
    constexpr unsigned together = 2 * groups;
    using pointer = std::remove_cvref_t<decltype(row(0u))>;
    for (std::uint32_t first = warp_index() * together; first < count; first += blockDim.x / warp_size * together) {
        pointer rows[2];
        float from[2];
        std::uint32_t at[2];
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            at[i] = first + i * groups + lane_index() / lanes;
            rows[i] = at[i] < count ? row(at[i]) : nullptr;
            from[i] = at[i] < count ? addend(at[i]) : 0.0f;
        }
        float sum[2];
        dot<lanes, 8>(rows, x, size, sum);
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            if (at[i] < count && lane_index() % lanes == i) use(at[i], from[i] + sum[i]);
        }
    }
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
