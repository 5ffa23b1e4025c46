// SPDX-License-Identifier: MIT
//
// The formats that weights and logits may have on the device, and how threads read them: 16 bytes at a time, widened to
// floats as they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

template <class T>
inline constexpr bool is_device_storage_v =
    std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, half>;

/// Numbers of T in 16 bytes, which is what a thread loads at once.
template <class T>
inline constexpr std::uint32_t vector_size = 16 / sizeof(T);

namespace detail {

[[nodiscard]] __device__ __forceinline__ float widen(float x) {
    return x;
}
[[nodiscard]] __device__ __forceinline__ float widen(bf16 x) {
    return sureleap::detail::bits_as<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
/// One instruction, where the portable conversion spends ten.
[[nodiscard]] __device__ __forceinline__ float widen(half x) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
#else
    return static_cast<float>(x);
#endif
}

/// Number e of those in a word of 32 bits, the low half first.
template <class T>
[[nodiscard]] __device__ __forceinline__ float widen_from(std::uint32_t word, [[maybe_unused]] unsigned e) {
    if constexpr (std::is_same_v<T, float>) {
        return sureleap::detail::bits_as<float>(word);
    } else if constexpr (std::is_same_v<T, bf16>) {
        return sureleap::detail::bits_as<float>(e == 0 ? word << 16 : word & 0xffff0000u);
    } else {
        half stored;
        stored.bits = static_cast<std::uint16_t>(e == 0 ? word : word >> 16);
        return widen(stored);
    }
}
/// The larger of two words, number by number; of a NaN and a number the number. One instruction for two numbers.
template <class T>
[[nodiscard]] __device__ __forceinline__ std::uint32_t larger_of_words(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
    std::uint32_t result;
    if constexpr (std::is_same_v<T, float>) {
        result = sureleap::detail::bits_as<std::uint32_t>(
            fmaxf(sureleap::detail::bits_as<float>(a), sureleap::detail::bits_as<float>(b)));
    } else if constexpr (std::is_same_v<T, bf16>) {
        asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    } else {
        asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    }
    return result;
#else
    std::uint32_t result = 0;
    for (unsigned e = 0; e < 4 / sizeof(T); ++e) {
        bool const takes_b =
            !(widen_from<T>(a, e) >= widen_from<T>(b, e)) && widen_from<T>(b, e) == widen_from<T>(b, e);
        std::uint32_t const mask = sizeof(T) == 4 ? ~0u : 0xffffu << 16 * e;
        result |= (takes_b ? b : a) & mask;
    }
    return result;
#endif
}
/// Number e of those in 16 bytes; e known when this is compiled, or the registers become memory.
template <class T>
[[nodiscard]] __device__ __forceinline__ float widen_from(uint4 const& bytes, unsigned e) {
    constexpr unsigned in_word = 4 / sizeof(T);
    unsigned const w = e / in_word;
    return widen_from<T>(w == 0 ? bytes.x : w == 1 ? bytes.y : w == 2 ? bytes.z : bytes.w, e % in_word);
}
/// All of them.
template <class T>
__device__ __forceinline__ void unpack(uint4 const& bytes, float (&out)[vector_size<T>]) {
#pragma unroll
    for (unsigned e = 0; e < vector_size<T>; ++e) out[e] = widen_from<T>(bytes, e);
}

/// A matrix whose rows can be loaded 16 bytes at a time.
template <class T>
[[nodiscard]] bool loads_by_vectors(matrix_view<T> const& m) noexcept {
    return m.data != nullptr && m.rows > 0 && m.cols > 0 && m.stride >= m.cols && m.cols % vector_size<T> == 0 &&
           m.stride % vector_size<T> == 0 && reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0;
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
