// SPDX-License-Identifier: MIT
//
// The passes of row.hpp with AVX-512 (x86-64-v4), whatever the program is compiled for. native.hpp calls them if the
// machine has these instructions. The header is empty for other processors, and for compilers without the attribute.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>
#include <limits>

#include <immintrin.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/row.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) inline

// Without optimisation GCC's intrinsics with an immediate are macros, and warn where they are used.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

SURELEAP_BEGIN_NAMESPACE
namespace detail::avx512 {

struct isa {
    static constexpr std::size_t width = 16;
    using vec = __m512;
    struct sums {
        __m512d low, high;
    };
    using flags = __mmask16;
    // Masked forms with nothing masked: the plain ones make GCC 12 warn of its own header.
    static constexpr __mmask16 all = 0xffff;

    SURELEAP_KERNEL static vec load(float const* from) { return _mm512_loadu_ps(from); }
    SURELEAP_KERNEL static vec load(bf16 const* from) {
        __m256i const bits = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
        return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, bits), 16));
    }
    SURELEAP_KERNEL static vec load(half const* from) {
        return _mm512_maskz_cvtph_ps(all, _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from)));
    }
    SURELEAP_KERNEL static void store(float* to, vec x) { _mm512_storeu_ps(to, x); }

    SURELEAP_KERNEL static vec fill(float x) { return _mm512_set1_ps(x); }
    SURELEAP_KERNEL static vec plus(vec a, vec b) { return a + b; }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return _mm512_maskz_max_ps(all, a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
    SURELEAP_KERNEL static vec subtract_product(vec a, vec b, vec c) { return _mm512_fnmadd_ps(b, c, a); }

    /// 2^floor(x) 2^f, f = x - floor(x), which is 0 for infinities; 2^f by the polynomial of degree 5 with the least
    /// relative error, 8e-8. Tables of powers would save multiplications and cost as much in other places.
    SURELEAP_KERNEL static vec exp2(vec x) {
        vec const f = _mm512_maskz_reduce_ps(all, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        vec p = fill(0.0018775766f);
        p = multiply_add(p, f, fill(0.0089893406f));
        p = multiply_add(p, f, fill(0.0558263175f));
        p = multiply_add(p, f, fill(0.2401536107f));
        p = multiply_add(p, f, fill(0.6931530833f));
        p = multiply_add(p, f, fill(0.9999999404f));
        return _mm512_maskz_scalef_ps(all, p, x);
    }

    SURELEAP_KERNEL static sums zero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
    SURELEAP_KERNEL static void add(sums& s, vec x) {
        s.low = s.low + _mm512_maskz_cvtps_pd(0xff, part<0>(x));
        s.high = s.high + _mm512_maskz_cvtps_pd(0xff, part<1>(x));
    }
    SURELEAP_KERNEL static double total(sums const& s) {
        __m512d const eight = s.low + s.high;
        __m256d const four = _mm512_maskz_extractf64x4_pd(0xf, eight, 0) + _mm512_maskz_extractf64x4_pd(0xf, eight, 1);
        __m128d const two = _mm256_extractf128_pd(four, 0) + _mm256_extractf128_pd(four, 1);
        return two[0] + two[1];
    }
    SURELEAP_KERNEL static float largest(vec x) {
        __m256 const eight = _mm256_max_ps(part<0>(x), part<1>(x));
        __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 0), _mm256_extractf128_ps(eight, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
    }

    SURELEAP_KERNEL static void raise(flags& f, vec x) {
        f |= _mm512_cmp_ps_mask(x, fill(std::numeric_limits<float>::infinity()), _CMP_NLT_UQ);
    }
    SURELEAP_KERNEL static bool any(flags f) { return f != 0; }
    SURELEAP_KERNEL static std::uint32_t exceeds(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }

    using words = __m512i;
    SURELEAP_KERNEL static words no_words() { return _mm512_setzero_si512(); }
    SURELEAP_KERNEL static words either(words a, words b) { return a | b; }
    SURELEAP_KERNEL static words rounded(vec x) { return _mm512_maskz_cvtps_epi32(all, x); }
    SURELEAP_KERNEL static vec pattern(words w) { return _mm512_castsi512_ps(w); }
    SURELEAP_KERNEL static bool any_negative(words w) { return _mm512_movepi32_mask(w) != 0; }

private:
    template <int Half>
    SURELEAP_KERNEL static __m256 part(vec x) {
        return _mm512_maskz_extractf32x8_ps(0xff, x, Half);
    }
};

#include <sureleap/detail/kernel/rows.inl>

}  // namespace detail::avx512

/// The passes with AVX-512; in double the reference.
inline constexpr row_kernels avx512_row_kernels{"avx512", detail::avx512::rows<float>::table,
                                                detail::scalar_rows<double>::table, detail::avx512::rows<bf16>::table,
                                                detail::avx512::rows<half>::table};

SURELEAP_END_NAMESPACE

#pragma GCC diagnostic pop
#undef SURELEAP_KERNEL

#endif
