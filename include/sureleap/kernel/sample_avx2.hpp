// SPDX-License-Identifier: MIT
//
// The passes of sample.hpp with AVX2 and FMA (x86-64-v3), whatever the program is compiled for. To be called where
// sample_native.hpp finds the instructions; empty for other processors, and for compilers without the attribute.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include <sureleap/config.hpp>
#include <sureleap/kernel/sample.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx2,fma"))) inline

SURELEAP_BEGIN_NAMESPACE
namespace detail::avx2_samples {

struct isa {
    static constexpr std::size_t width = 4;
    using vec = __m256d;

    SURELEAP_KERNEL static vec load(double const* from) { return _mm256_loadu_pd(from); }
    SURELEAP_KERNEL static void store(double* to, vec x) { _mm256_storeu_pd(to, x); }
    SURELEAP_KERNEL static vec fill(double x) { return _mm256_set1_pd(x); }
    SURELEAP_KERNEL static vec min(vec a, vec b) { return _mm256_min_pd(a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return _mm256_max_pd(a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return _mm256_fmadd_pd(a, b, c); }
    SURELEAP_KERNEL static vec round(vec x) {
        return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    SURELEAP_KERNEL static vec whole(vec x) { return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
    SURELEAP_KERNEL static vec absolute(vec x) { return _mm256_andnot_pd(fill(-0.0), x); }
    SURELEAP_KERNEL static vec eighth_power(vec n) {
        __m256i const lowest = _mm256_and_si256(_mm256_castpd_si256(n), _mm256_set1_epi64x(7));
        return _mm256_i64gather_pd(eighth_powers, lowest, 8);
    }
    SURELEAP_KERNEL static vec shift_exponent(vec p, vec n) {
        __m256i const whole = _mm256_andnot_si256(_mm256_set1_epi64x(7), _mm256_castpd_si256(n));
        return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), _mm256_slli_epi64(whole, 49)));
    }
    SURELEAP_KERNEL static vec split(vec x, vec& e) {
        // As in sample_avx512.hpp. A small integer in the lowest bits of 2^52 is that double.
        __m256i const exponent = _mm256_srli_epi64(_mm256_castpd_si256(x * fill(1.4142135623730951)), 52);
        vec const biased = _mm256_castsi256_pd(_mm256_or_si256(exponent, _mm256_castpd_si256(fill(0x1p52))));
        e = biased - fill(0x1p52 + 1023.0);
        __m256i const raised = _mm256_slli_epi64(_mm256_sub_epi64(exponent, _mm256_set1_epi64x(1023)), 52);
        return _mm256_castsi256_pd(_mm256_sub_epi64(_mm256_castpd_si256(x), raised));
    }
    SURELEAP_KERNEL static vec labels(std::uint32_t const* survived, std::uint32_t position) {
        __m128i const s = _mm_loadu_si128(reinterpret_cast<__m128i const*>(survived));
        __m128i const more = _mm_cmpgt_epi32(s, _mm_set1_epi32(static_cast<int>(position)));
        return _mm256_and_pd(_mm256_castsi256_pd(_mm256_cvtepi32_epi64(more)), fill(1.0));
    }
    SURELEAP_KERNEL static vec choose(vec flags, vec a, vec b) {
        return _mm256_blendv_pd(b, a, _mm256_cmp_pd(flags, fill(0.0), _CMP_NEQ_UQ));
    }
    SURELEAP_KERNEL static void indices(vec x, std::int32_t* to) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvttpd_epi32(x));
    }
    SURELEAP_KERNEL static std::uint32_t at_most(vec a, vec b) {
        return static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_LE_OQ)));
    }
    SURELEAP_KERNEL static std::uint32_t unordered(vec a) {
        return static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd(a, a, _CMP_UNORD_Q)));
    }
    SURELEAP_KERNEL static void pair_up(vec lows, vec highs, double* to) {
        vec const even = _mm256_unpacklo_pd(lows, highs);
        vec const odd = _mm256_unpackhi_pd(lows, highs);
        store(to, _mm256_permute2f128_pd(even, odd, 0x20));
        store(to + width, _mm256_permute2f128_pd(even, odd, 0x31));
    }
    SURELEAP_KERNEL static double total(vec x) {
        __m128d const two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
        return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }
};

#include <sureleap/kernel/samples.inl>

}  // namespace detail::avx2_samples

/// The passes with AVX2.
inline constexpr sample_kernels avx2_sample_kernels = detail::avx2_samples::samples::table("avx2");

SURELEAP_END_NAMESPACE

#undef SURELEAP_KERNEL

#endif
