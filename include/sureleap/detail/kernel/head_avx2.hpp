// SPDX-License-Identifier: MIT
//
// The functions of head.hpp with AVX2, FMA and F16C, whatever the program is compiled for. head_native.hpp calls them
// if the machine has these instructions. The header is empty for other processors, and for compilers without the
// attribute.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/head.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx2,fma,f16c")))
#define SURELEAP_INLINE SURELEAP_KERNEL __attribute__((always_inline)) inline

SURELEAP_BEGIN_NAMESPACE
namespace detail::head_avx2 {

struct isa {
    static constexpr std::size_t width = 8;
    static constexpr std::size_t parts = 2;
    static constexpr std::size_t at_once = 2;  // 12 sums, and 16 registers
    static constexpr std::size_t from_memory = 2;
    using vec = __m256;
    using words = __m256i;

    SURELEAP_INLINE static vec load(float const* from, std::size_t part, std::size_t h) {
        return _mm256_loadu_ps(from + (2 * h + part) * width);
    }
    SURELEAP_INLINE static vec load(bf16 const* from, std::size_t part, std::size_t h) {
        __m256i const bits = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + 2 * part * width));
        return _mm256_castsi256_ps(h == 0 ? _mm256_slli_epi32(bits, 16)
                                          : _mm256_and_si256(bits, _mm256_set1_epi32(-0x10000)));
    }
    SURELEAP_INLINE static vec load(half const* from, std::size_t part, std::size_t h) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from + (2 * h + part) * width)));
    }
    template <class W>
    SURELEAP_INLINE static vec load_beside(float const* x, std::size_t part, std::size_t h) {
        if (!std::is_same_v<W, bf16>) return _mm256_loadu_ps(x + (2 * h + part) * width);
        __m256 const a = _mm256_loadu_ps(x + 2 * part * width);
        __m256 const b = _mm256_loadu_ps(x + (2 * part + 1) * width);
        __m256 const mixed = h == 0 ? _mm256_shuffle_ps(a, b, 0x88) : _mm256_shuffle_ps(a, b, 0xdd);
        return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
    }
    SURELEAP_INLINE static vec zero() { return _mm256_setzero_ps(); }
    SURELEAP_INLINE static vec multiply_add(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
    SURELEAP_INLINE static __m256 halve(vec const (&sum)[2]) { return _mm256_add_ps(sum[0], sum[1]); }

    SURELEAP_INLINE static words load_bytes(std::int8_t const* from) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from)));
    }
    SURELEAP_INLINE static words load_words(std::int16_t const* from) {
        return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
    }
    SURELEAP_INLINE static words add_pairs(words sum, words a, words b) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    }
    SURELEAP_INLINE static __m256i halve_words(words sum) { return sum; }

    SURELEAP_INLINE static std::size_t list(float const* from, float threshold, token_id first, token_id* out) {
        __m256 const t = _mm256_set1_ps(threshold);
        auto const low =
            static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(from), t, _CMP_GE_OQ)));
        auto const high =
            static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(from + width), t, _CMP_GE_OQ)));
        std::size_t count = 0;
        for (std::uint32_t mask = low | high << width; mask != 0; mask &= mask - 1) {
            out[count++] = first + __builtin_ctz(mask);
        }
        return count;
    }
};

#include <sureleap/detail/kernel/heads.inl>

}  // namespace detail::head_avx2

inline constexpr head_kernels avx2_head_kernels{
    "avx2",
    detail::head_avx2::products<float>::product,
    detail::head_avx2::products<bf16>::product,
    detail::head_avx2::products<half>::product,
    detail::head_avx2::int8_product,
    detail::head_avx2::at_least,
};

SURELEAP_END_NAMESPACE

#undef SURELEAP_INLINE
#undef SURELEAP_KERNEL

#endif
