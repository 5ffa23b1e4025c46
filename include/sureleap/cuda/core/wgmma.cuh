// SPDX-License-Identifier: MIT
//
// Products by wgmma, the tensor cores' instruction of sm_90a: four warps multiply, and both operands come from shared
// memory without passing through registers. Elsewhere, the emulator included, the same function by mma.cuh.
//
// Operands are rows of 128 bytes, 64 elements of 16 bits along k, whose units of 16 bytes change places: unit u of row
// i stands at u ^ (i % 8). PTX calls that K-major with 128-byte swizzling. A descriptor names 8 rows after the other,
// each eight 1,024 bytes apart, from an address that is a multiple of 1,024; 16 elements further along k are 32 bytes
// further. The sum's fragment is that of mma_m16n8k16 for 16 rows a warp: d[j][c] of columns 8 j ...
//
// The rows may have been written in the ordinary way or by __pipeline_memcpy_async; a fence orders that before the
// reads of wgmma, which go by another path (the async proxy). This has not met a device.
#pragma once

#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Of the addresses of operands, in bytes.
inline constexpr std::uint32_t wgmma_alignment = 1024;

namespace detail {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The descriptor of rows as above.
[[nodiscard]] __device__ __forceinline__ std::uint64_t describe_rows(void const* rows) {
    constexpr std::uint64_t eight_rows = 8 * 128;
    constexpr std::uint64_t swizzled_by_128_bytes = 1;
    auto const address = static_cast<std::uint64_t>(__cvta_generic_to_shared(rows));
    return address / 16 | std::uint64_t{1} << 16 | eight_rows / 16 << 32 | swizzled_by_128_bytes << 62;
}

#define SURELEAP_SUMS                                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "  \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "  \
    "%62, %63}"
#define SURELEAP_SUMS_OF(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define SURELEAP_WGMMA_K16(type)                                                   \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " SURELEAP_SUMS \
    ", a, b, p, 1, 1, 0, 0;\n"                                                     \
    "add.u64 a, a, 2;\n"                                                           \
    "add.u64 b, b, 2;\n"
// One statement from the first fence to the wait, so that no compiler moves a use of the sums in between.
#define SURELEAP_WGMMA_K64(type)                                                                                   \
    asm volatile(                                                                                                  \
        "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.eq.u32 p, 0, 0;\nmov.b64 a, %64;\nmov.b64 b, %65;\n"              \
        "fence.proxy.async.shared::cta;\nwgmma.fence.sync.aligned;\n" SURELEAP_WGMMA_K16(type)                     \
            SURELEAP_WGMMA_K16(type) SURELEAP_WGMMA_K16(type)                                                      \
                SURELEAP_WGMMA_K16(type) "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}"   \
        : SURELEAP_SUMS_OF(0), SURELEAP_SUMS_OF(1), SURELEAP_SUMS_OF(2), SURELEAP_SUMS_OF(3), SURELEAP_SUMS_OF(4), \
          SURELEAP_SUMS_OF(5), SURELEAP_SUMS_OF(6), SURELEAP_SUMS_OF(7), SURELEAP_SUMS_OF(8), SURELEAP_SUMS_OF(9), \
          SURELEAP_SUMS_OF(10), SURELEAP_SUMS_OF(11), SURELEAP_SUMS_OF(12), SURELEAP_SUMS_OF(13),                  \
          SURELEAP_SUMS_OF(14), SURELEAP_SUMS_OF(15)                                                               \
        : "l"(detail::describe_rows(rows_of_a)), "l"(detail::describe_rows(rows_of_b))                             \
        : "memory")
#endif

}  // namespace detail

/// WARPGROUP collective (four warps, the first of them a multiple of four): d += A B^T, for 64 rows of A and 128 of B,
/// of 64 elements each, bf16 or half.
template <class T>
__device__ __forceinline__ void wgmma_m64n128k64(float (&d)[16][4], unsigned char const* rows_of_a,
                                                 unsigned char const* rows_of_b) {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, half>,
                  "wgmma_m64n128k64: the elements of a and b are bf16 or half; convert others before they are stored");
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (std::is_same_v<T, bf16>) {
        SURELEAP_WGMMA_K64("bf16");
    } else {
        SURELEAP_WGMMA_K64("f16");
    }
#else
    std::uint32_t const lane = lane_index();
#pragma unroll
    for (std::uint32_t step = 0; step < 4; ++step) {
        std::uint32_t a[4];
        ldmatrix_x4(a, rows_of_a + swizzled(warp_index() % 4 * 16 + lane % 16, 2 * step + lane / 16));
#pragma unroll
        for (std::uint32_t j = 0; j < 16; j += 2) {
            std::uint32_t b[4];
            ldmatrix_x4(b, rows_of_b + swizzled(j * 8 + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
            mma_m16n8k16<T>(d[j], a, {b[0], b[1]}, d[j]);
            mma_m16n8k16<T>(d[j + 1], a, {b[2], b[3]}, d[j + 1]);
        }
    }
#endif
}

}  // namespace cuda
SURELEAP_END_NAMESPACE

#undef SURELEAP_SUMS
#undef SURELEAP_SUMS_OF
#undef SURELEAP_WGMMA_K16
#undef SURELEAP_WGMMA_K64
