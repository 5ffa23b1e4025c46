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
inline namespace SURELEAP_MARCH_TAG {

struct isa {
    static constexpr std::size_t width = 4;
    using vec = __m256d;
    using ints = __m128i;

    SURELEAP_KERNEL static vec load(double const* from) { return _mm256_loadu_pd(from); }
    SURELEAP_KERNEL static void store(double* to, vec x) { _mm256_storeu_pd(to, x); }
    SURELEAP_KERNEL static __m256i first(std::size_t n) {
        __m256i const lane = _mm256_set_epi64x(3, 2, 1, 0);
        return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n < 4 ? n : 4)), lane);
    }
    SURELEAP_KERNEL static vec load_first(double const* from, std::size_t n) {
        return _mm256_maskload_pd(from, first(n));
    }
    SURELEAP_KERNEL static void store_first(double* to, vec x, std::size_t n) { _mm256_maskstore_pd(to, first(n), x); }
    SURELEAP_KERNEL static void transpose(vec* x) {
        vec const a = _mm256_unpacklo_pd(x[0], x[1]);
        vec const b = _mm256_unpackhi_pd(x[0], x[1]);
        vec const c = _mm256_unpacklo_pd(x[2], x[3]);
        vec const d = _mm256_unpackhi_pd(x[2], x[3]);
        x[0] = _mm256_permute2f128_pd(a, c, 0x20);
        x[1] = _mm256_permute2f128_pd(b, d, 0x20);
        x[2] = _mm256_permute2f128_pd(a, c, 0x31);
        x[3] = _mm256_permute2f128_pd(b, d, 0x31);
    }
    SURELEAP_KERNEL static vec fill(double x) { return _mm256_set1_pd(x); }
    SURELEAP_KERNEL static vec min(vec a, vec b) { return _mm256_min_pd(a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return _mm256_max_pd(a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return _mm256_fmadd_pd(a, b, c); }
    SURELEAP_KERNEL static vec round(vec x) {
        return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    SURELEAP_KERNEL static vec whole(vec x) { return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
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
    SURELEAP_KERNEL static ints integers(vec x) { return _mm256_cvttpd_epi32(x); }
    SURELEAP_KERNEL static void put(std::int32_t* to, ints x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), x); }
    SURELEAP_KERNEL static std::uint32_t differ(ints a, ints b) {
        return static_cast<std::uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(a, b)))) ^ 0xfu;
    }
    SURELEAP_KERNEL static std::uint32_t unordered(vec a) {
        return static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd(a, a, _CMP_UNORD_Q)));
    }
    SURELEAP_KERNEL static void pairs(vec lows, vec highs, std::uint64_t* to) {
        __m256i const lower = _mm256_cvtepu32_epi64(_mm256_cvttpd_epi32(lows));
        __m256i const upper = _mm256_cvtepu32_epi64(_mm256_cvttpd_epi32(highs));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_or_si256(lower, _mm256_slli_epi64(upper, 32)));
    }
    SURELEAP_KERNEL static double total(vec x) {
        __m128d const two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
        return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }
};

struct narrow_isa {
    static constexpr std::size_t width = 8;
    using vec = __m256;
    using ints = __m256i;

    SURELEAP_KERNEL static vec load(float const* from) { return _mm256_loadu_ps(from); }
    SURELEAP_KERNEL static void store(float* to, vec x) { _mm256_storeu_ps(to, x); }
    SURELEAP_KERNEL static vec fill(float x) { return _mm256_set1_ps(x); }
    SURELEAP_KERNEL static vec min(vec a, vec b) { return _mm256_min_ps(a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return _mm256_max_ps(a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
    SURELEAP_KERNEL static vec from_doubles(double const* from) {
        __m128 const lower = _mm256_cvtpd_ps(_mm256_loadu_pd(from));
        __m128 const upper = _mm256_cvtpd_ps(_mm256_loadu_pd(from + 4));
        return _mm256_insertf128_ps(_mm256_castps128_ps256(lower), upper, 1);
    }
    SURELEAP_KERNEL static vec shift_exponent(vec p, vec n) {
        __m256i const shift = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
        return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
    }
    SURELEAP_KERNEL static ints integers(vec x) { return _mm256_cvttps_epi32(x); }
    SURELEAP_KERNEL static ints nearest(vec x) { return _mm256_cvtps_epi32(x); }
    SURELEAP_KERNEL static void put(std::int32_t* to, ints x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
    }
    SURELEAP_KERNEL static std::uint32_t differ(ints a, ints b) {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)))) ^ 0xffu;
    }
    SURELEAP_KERNEL static ints labelled(ints x, std::uint32_t const* survived, std::uint32_t position,
                                         std::int32_t one) {
        __m256i const s = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(survived));
        __m256i const more = _mm256_cmpgt_epi32(s, _mm256_set1_epi32(static_cast<int>(position)));
        return _mm256_sub_epi32(x, _mm256_and_si256(more, _mm256_set1_epi32(one)));
    }
};

#include <sureleap/kernel/samples.inl>
#include <sureleap/kernel/screens.inl>

}  // namespace SURELEAP_MARCH_TAG
}  // namespace detail::avx2_samples

inline namespace SURELEAP_MARCH_TAG {

/// The passes with AVX2.
inline constexpr sample_kernels avx2_sample_kernels = detail::avx2_samples::screens::table("avx2");

}  // namespace SURELEAP_MARCH_TAG
SURELEAP_END_NAMESPACE

#undef SURELEAP_KERNEL

#endif
