// SPDX-License-Identifier: MIT
//
// The passes of row.hpp with AVX2, FMA and F16C (x86-64-v3), whatever the program is compiled for. native.hpp calls
// them if the machine has these instructions. The header is empty for other processors, and for compilers without the
// attribute.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>
#include <limits>

#include <immintrin.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/row.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx2,fma,f16c"))) inline

SURELEAP_BEGIN_NAMESPACE
namespace detail::avx2 {

struct isa {
    static constexpr std::size_t width = 8;
    using vec = __m256;
    struct sums {
        __m256d low, high;
    };
    using flags = __m256;

    SURELEAP_KERNEL static vec load(float const* from) { return _mm256_loadu_ps(from); }
    SURELEAP_KERNEL static vec load(bf16 const* from) {
        __m128i const bits = _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
    SURELEAP_KERNEL static vec load(half const* from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from)));
    }
    SURELEAP_KERNEL static void store(float* to, vec x) { _mm256_storeu_ps(to, x); }

    SURELEAP_KERNEL static vec fill(float x) { return _mm256_set1_ps(x); }
    SURELEAP_KERNEL static vec plus(vec a, vec b) { return _mm256_add_ps(a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return _mm256_max_ps(a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
    SURELEAP_KERNEL static vec subtract_product(vec a, vec b, vec c) { return _mm256_fnmadd_ps(b, c, a); }

    /// 2^n 2^f with n the nearest integer; 2^f as in avx512.hpp. The power of two is put together in two factors, so that
    /// results below the smallest normal number come out, and +inf.
    SURELEAP_KERNEL static vec exp2(vec x) {
        x = max(fill(-200.0f), x);
        vec const n = _mm256_round_ps(_mm256_min_ps(fill(200.0f), x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        vec const f = _mm256_sub_ps(x, n);
        vec p = fill(0.0013276472f);
        p = multiply_add(p, f, fill(0.0096755414f));
        p = multiply_add(p, f, fill(0.0555071327f));
        p = multiply_add(p, f, fill(0.2402211972f));
        p = multiply_add(p, f, fill(0.6931469671f));
        p = multiply_add(p, f, fill(1.0000000717f));
        __m256i const whole = _mm256_cvtps_epi32(n);
        __m256i const half_of_it = _mm256_srai_epi32(whole, 1);
        return p * power(half_of_it) * power(_mm256_sub_epi32(whole, half_of_it));
    }

    SURELEAP_KERNEL static sums zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
    SURELEAP_KERNEL static void add(sums& s, vec x) {
        s.low = _mm256_add_pd(s.low, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
        s.high = _mm256_add_pd(s.high, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    }
    SURELEAP_KERNEL static double total(sums const& s) {
        __m256d const four = _mm256_add_pd(s.low, s.high);
        __m128d const two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
        return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }
    SURELEAP_KERNEL static float largest(vec x) {
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
    }

    SURELEAP_KERNEL static void raise(flags& f, vec x) {
        f = _mm256_or_ps(f, _mm256_cmp_ps(x, fill(std::numeric_limits<float>::infinity()), _CMP_NLT_UQ));
    }
    SURELEAP_KERNEL static bool any(flags f) { return _mm256_movemask_ps(f) != 0; }
    SURELEAP_KERNEL static std::uint32_t exceeds(vec a, vec b) {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLE_UQ)));
    }

    using words = __m256i;
    SURELEAP_KERNEL static words no_words() { return _mm256_setzero_si256(); }
    SURELEAP_KERNEL static words either(words a, words b) { return _mm256_or_si256(a, b); }
    SURELEAP_KERNEL static words rounded(vec x) { return _mm256_cvtps_epi32(x); }
    SURELEAP_KERNEL static vec pattern(words w) { return _mm256_castsi256_ps(w); }
    SURELEAP_KERNEL static bool any_negative(words w) { return _mm256_movemask_ps(pattern(w)) != 0; }

private:
    SURELEAP_KERNEL static vec power(__m256i n) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
    }
};

#include <sureleap/detail/kernel/rows.inl>

}  // namespace detail::avx2

/// The passes with AVX2; in double the reference.
inline constexpr row_kernels avx2_row_kernels{"avx2", detail::avx2::rows<float>::table,
                                              detail::scalar_rows<double>::table, detail::avx2::rows<bf16>::table,
                                              detail::avx2::rows<half>::table};

SURELEAP_END_NAMESPACE

#undef SURELEAP_KERNEL

#endif
