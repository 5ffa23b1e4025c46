// SPDX-License-Identifier: MIT
//
// Products of tensor cores and the loads of their operands, as functions of a whole warp. Operands are matrix
// fragments: each lane holds a few elements. The PTX ISA defines the layouts ("Matrix Fragments for mma.m16n8k16 with
// floating point type", "ldmatrix"). With lane = 4 g + t, and two 16-bit elements in a word, the lower column or row in
// the lower half, they are:
//
//   a: 16 x 16, row major          a[0] = A[g][2t..]   a[1] = A[g + 8][2t..]   a[2] = A[g][2t + 8..]   a[3] = A[g + 8][2t + 8..]
//   b: 16 x 8, column major        b[0] = B[2t..][g]   b[1] = B[2t + 8..][g]
//   c, d: 16 x 8, float            c[0] = C[g][2t]     c[1] = C[g][2t + 1]     c[2] = C[g + 8][2t]     c[3] = C[g + 8][2t + 1]
//
// So with weights W[output][input] in rows, ldmatrix of 8 rows of W and 8 inputs gives half of a `b`. From an A in rows
// it gives the quarters of an `a`.
//
// Rejected: the wmma:: classes, whose fragments are opaque, so that a bias cannot be added nor a row be summed in
// registers. wgmma, which sm_90a alone has, is in wgmma.cuh.
//
// All lanes of the warp must call together. The order and rounding of the sum over k are the hardware's own.
#pragma once

#include <cstdint>
#include <type_traits>

#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// d = a b + c for elements T, bf16 or half, with float sums. d and c may be the same array.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2],
                                             float const (&c)[4]) {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, half>,
                  "mma_m16n8k16: the elements of a and b are bf16 or half; convert others before they are packed");
#if defined(SURELEAP_CUDA_EMULATED)
    if constexpr (std::is_same_v<T, bf16>) {
        ::emulator::mma_m16n8k16_bf16(d, a, b, c);
    } else {
        ::emulator::mma_m16n8k16_half(d, a, b, c);
    }
#elif defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, bf16>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
              "f"(c[3]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
              "f"(c[3]));
    }
#endif
}

/// Bytes 16 unit .. of a row among rows of 128 bytes. Eight rows would meet in the same banks: units change places by
/// the row.
[[nodiscard]] __device__ __forceinline__ std::uint32_t swizzled(std::uint32_t row, std::uint32_t unit) {
    return row * 128 + ((unit ^ (row & 7)) * 16);
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + j gives the address of row j of matrix i, 16
/// bytes aligned to 16; r[i] becomes the elements 2t and 2t + 1 of row g of matrix i.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], void const* row) {
#if defined(SURELEAP_CUDA_EMULATED)
    ::emulator::ldmatrix_x4(r, row);
#elif defined(__CUDA_ARCH__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
#endif
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
