// SPDX-License-Identifier: MIT
//
// The functions of head.hpp with AVX-512, whatever the program is compiled for. head_native.hpp calls them if the
// machine has these instructions. The header is empty for other processors, and for compilers without the attribute.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/head.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define SURELEAP_INLINE SURELEAP_KERNEL __attribute__((always_inline)) inline

// As in avx512.hpp.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

SURELEAP_BEGIN_NAMESPACE
namespace detail::head_avx512 {

struct isa {
    static constexpr std::size_t width = 16;
    static constexpr std::size_t parts = 1;
    static constexpr std::size_t at_once = 8;  // 24 sums, and 32 registers
    static constexpr std::size_t from_memory = 4;
    using vec = __m512;
    using words = __m512i;
    // Masked forms with nothing masked: the plain ones make GCC 12 warn of its own header.
    static constexpr __mmask16 all = 0xffff;

    SURELEAP_INLINE static vec load(float const* from, std::size_t, std::size_t h) {
        return _mm512_loadu_ps(from + h * width);
    }
    SURELEAP_INLINE static vec load(bf16 const* from, std::size_t, std::size_t h) {
        words const bits = _mm512_loadu_si512(from);
        return _mm512_castsi512_ps(h == 0 ? _mm512_maskz_slli_epi32(all, bits, 16)
                                          : _mm512_and_si512(bits, _mm512_set1_epi32(-0x10000)));
    }
    SURELEAP_INLINE static vec load(half const* from, std::size_t, std::size_t h) {
        return _mm512_maskz_cvtph_ps(all, _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + h * width)));
    }
    template <class W>
    SURELEAP_INLINE static vec load_beside(float const* x, std::size_t, std::size_t h) {
        if (!std::is_same_v<W, bf16>) return _mm512_loadu_ps(x + h * width);
        words const even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        words const odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
        return _mm512_permutex2var_ps(_mm512_loadu_ps(x), h == 0 ? even : odd, _mm512_loadu_ps(x + width));
    }
    SURELEAP_INLINE static vec zero() { return _mm512_setzero_ps(); }
    SURELEAP_INLINE static vec multiply_add(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
    SURELEAP_INLINE static __m256 halve(vec const (&sum)[1]) {
        return _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, sum[0], 0),
                             _mm512_maskz_extractf32x8_ps(0xff, sum[0], 1));
    }

    SURELEAP_INLINE static words load_bytes(std::int8_t const* from) {
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(from)));
    }
    SURELEAP_INLINE static words load_words(std::int16_t const* from) { return _mm512_loadu_si512(from); }
    SURELEAP_INLINE static words add_pairs(words sum, words a, words b) {
        return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
    }
    SURELEAP_INLINE static __m256i halve_words(words sum) {
        return _mm256_add_epi32(_mm512_maskz_extracti32x8_epi32(0xff, sum, 0),
                                _mm512_maskz_extracti32x8_epi32(0xff, sum, 1));
    }

    /// Without a branch, which would be guessed wrong for most of those that are listed. Compressed in a register, since
    /// compressing to memory is slow on some processors.
    SURELEAP_INLINE static std::size_t list(float const* from, float threshold, token_id first, token_id* out) {
        __mmask16 const mask = _mm512_cmp_ps_mask(_mm512_loadu_ps(from), _mm512_set1_ps(threshold), _CMP_GE_OQ);
        words const places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(places, _mm512_set1_epi32(first))));
        return static_cast<std::size_t>(__builtin_popcount(mask));
    }
};

#include <sureleap/detail/kernel/heads.inl>

}  // namespace detail::head_avx512

inline constexpr head_kernels avx512_head_kernels{
    "avx512",
    detail::head_avx512::products<float>::product,
    detail::head_avx512::products<bf16>::product,
    detail::head_avx512::products<half>::product,
    detail::head_avx512::int8_product,
    detail::head_avx512::at_least,
};

SURELEAP_END_NAMESPACE

#pragma GCC diagnostic pop
#undef SURELEAP_INLINE
#undef SURELEAP_KERNEL

#endif
