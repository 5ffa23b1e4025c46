// SPDX-License-Identifier: MIT
//
// The passes of sample.hpp with AVX-512 (x86-64-v4), whatever the program is compiled for. To be called where
// sample_native.hpp finds the instructions; empty for other processors, and for compilers without the attribute.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include <sureleap/config.hpp>
#include <sureleap/kernel/sample.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) inline

// Without optimisation GCC's intrinsics with an immediate are macros, and warn where they are used.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

SURELEAP_BEGIN_NAMESPACE
namespace detail::avx512_samples {

struct isa {
    static constexpr std::size_t width = 8;
    using vec = __m512d;
    using ints = __m256i;
    // Masked forms with nothing masked: the plain ones make GCC 12 warn of its own header.
    static constexpr __mmask8 all = 0xff;

    SURELEAP_KERNEL static vec load(double const* from) { return _mm512_loadu_pd(from); }
    SURELEAP_KERNEL static void store(double* to, vec x) { _mm512_storeu_pd(to, x); }
    SURELEAP_KERNEL static __mmask8 first(std::size_t n) { return static_cast<__mmask8>((1u << (n < 8 ? n : 8)) - 1u); }
    SURELEAP_KERNEL static vec load_first(double const* from, std::size_t n) {
        return _mm512_maskz_loadu_pd(first(n), from);
    }
    SURELEAP_KERNEL static void store_first(double* to, vec x, std::size_t n) {
        _mm512_mask_storeu_pd(to, first(n), x);
    }
    SURELEAP_KERNEL static void transpose(vec* x) {
        // Neighbours, then pairs of them, then halves of the register.
        __m512i const even = _mm512_set_epi64(14, 6, 12, 4, 10, 2, 8, 0);
        __m512i const odd = _mm512_set_epi64(15, 7, 13, 5, 11, 3, 9, 1);
        __m512i const low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
        __m512i const high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
        __m512i const lower = _mm512_set_epi64(11, 10, 9, 8, 3, 2, 1, 0);
        __m512i const upper = _mm512_set_epi64(15, 14, 13, 12, 7, 6, 5, 4);
        exchange<1>(x, even, odd);
        exchange<2>(x, low, high);
        exchange<4>(x, lower, upper);
    }
    /// Blocks of `step` lanes off the diagonal change places between registers that are `step` apart.
    template <std::size_t step>
    SURELEAP_KERNEL static void exchange(vec* x, __m512i lower, __m512i upper) {
SURELEAP_DETAIL_UNROLL(8)
        for (std::size_t i = 0; i < width; ++i) {
            if ((i & step) != 0) continue;
            vec const a = x[i];
            x[i] = _mm512_permutex2var_pd(a, lower, x[i + step]);
            x[i + step] = _mm512_permutex2var_pd(a, upper, x[i + step]);
        }
    }
    SURELEAP_KERNEL static vec fill(double x) { return _mm512_set1_pd(x); }
    SURELEAP_KERNEL static vec min(vec a, vec b) { return _mm512_maskz_min_pd(all, a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return _mm512_maskz_max_pd(all, a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return _mm512_fmadd_pd(a, b, c); }
    SURELEAP_KERNEL static vec round(vec x) {
        return _mm512_maskz_roundscale_pd(all, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    SURELEAP_KERNEL static vec whole(vec x) {
        return _mm512_maskz_roundscale_pd(all, x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    }
    SURELEAP_KERNEL static vec eighth_power(vec n) {
        return _mm512_maskz_permutexvar_pd(all, _mm512_castpd_si512(n), load(eighth_powers));
    }
    SURELEAP_KERNEL static vec shift_exponent(vec p, vec n) {
        __m512i const whole = _mm512_maskz_andnot_epi64(all, _mm512_set1_epi64(7), _mm512_castpd_si512(n));
        return _mm512_castsi512_pd(_mm512_castpd_si512(p) + _mm512_maskz_slli_epi64(all, whole, 49));
    }
    SURELEAP_KERNEL static vec split(vec x, vec& e) {
        // The exponent of x * sqrt 2 is the one that leaves x within [1/sqrt 2, sqrt 2).
        e = _mm512_maskz_getexp_pd(all, x * fill(1.4142135623730951));
        return _mm512_maskz_scalef_pd(all, x, fill(0.0) - e);
    }
    SURELEAP_KERNEL static vec labels(std::uint32_t const* survived, std::uint32_t position) {
        __m256i const s = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(survived));
        __mmask8 const ones = _mm256_cmp_epi32_mask(s, _mm256_set1_epi32(static_cast<int>(position)), _MM_CMPINT_NLE);
        return _mm512_maskz_mov_pd(ones, fill(1.0));
    }
    SURELEAP_KERNEL static vec choose(vec flags, vec a, vec b) {
        return _mm512_mask_mov_pd(b, _mm512_cmp_pd_mask(flags, fill(0.0), _CMP_NEQ_UQ), a);
    }
    SURELEAP_KERNEL static ints integers(vec x) { return _mm512_maskz_cvttpd_epi32(all, x); }
    SURELEAP_KERNEL static void put(std::int32_t* to, ints x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
    }
    SURELEAP_KERNEL static std::uint32_t differ(ints a, ints b) { return _mm256_cmp_epi32_mask(a, b, _MM_CMPINT_NE); }
    SURELEAP_KERNEL static std::uint32_t unordered(vec a) { return _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q); }
    SURELEAP_KERNEL static void pairs(vec lows, vec highs, std::uint64_t* to) {
        __m512i const upper = _mm512_maskz_slli_epi64(all, _mm512_maskz_cvttpd_epi64(all, highs), 32);
        _mm512_storeu_si512(to, _mm512_maskz_cvttpd_epi64(all, lows) + upper);
    }
    SURELEAP_KERNEL static double total(vec x) {
        __m256d const four = _mm512_maskz_extractf64x4_pd(0xf, x, 0) + _mm512_maskz_extractf64x4_pd(0xf, x, 1);
        __m128d const two = _mm256_extractf128_pd(four, 0) + _mm256_extractf128_pd(four, 1);
        return two[0] + two[1];
    }
};

struct narrow_isa {
    static constexpr std::size_t width = 16;
    using vec = __m512;
    using ints = __m512i;
    static constexpr __mmask16 all = 0xffff;

    SURELEAP_KERNEL static vec load(float const* from) { return _mm512_loadu_ps(from); }
    SURELEAP_KERNEL static void store(float* to, vec x) { _mm512_storeu_ps(to, x); }
    SURELEAP_KERNEL static vec fill(float x) { return _mm512_set1_ps(x); }
    SURELEAP_KERNEL static vec min(vec a, vec b) { return _mm512_maskz_min_ps(all, a, b); }
    SURELEAP_KERNEL static vec max(vec a, vec b) { return _mm512_maskz_max_ps(all, a, b); }
    SURELEAP_KERNEL static vec multiply_add(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
    SURELEAP_KERNEL static vec from_doubles(double const* from) {
        __m256 const lower = _mm512_maskz_cvtpd_ps(isa::all, _mm512_loadu_pd(from));
        __m256 const upper = _mm512_maskz_cvtpd_ps(isa::all, _mm512_loadu_pd(from + 8));
        return _mm512_maskz_insertf32x8(all, _mm512_castps256_ps512(lower), upper, 1);
    }
    SURELEAP_KERNEL static vec shift_exponent(vec p, vec n) {
        return _mm512_castsi512_ps(_mm512_maskz_add_epi32(all, _mm512_castps_si512(p),
                                                          _mm512_maskz_slli_epi32(all, _mm512_castps_si512(n), 23)));
    }
    SURELEAP_KERNEL static ints integers(vec x) { return _mm512_maskz_cvttps_epi32(all, x); }
    SURELEAP_KERNEL static ints nearest(vec x) { return _mm512_maskz_cvtps_epi32(all, x); }
    SURELEAP_KERNEL static void put(std::int32_t* to, ints x) { _mm512_storeu_si512(to, x); }
    SURELEAP_KERNEL static std::uint32_t differ(ints a, ints b) { return _mm512_cmp_epi32_mask(a, b, _MM_CMPINT_NE); }
    SURELEAP_KERNEL static ints labelled(ints x, std::uint32_t const* survived, std::uint32_t position,
                                         std::int32_t one) {
        __mmask16 const ones = _mm512_cmp_epi32_mask(_mm512_loadu_si512(survived),
                                                     _mm512_set1_epi32(static_cast<int>(position)), _MM_CMPINT_NLE);
        return _mm512_mask_sub_epi32(x, ones, x, _mm512_set1_epi32(one));
    }
};

#include <sureleap/kernel/samples.inl>
#include <sureleap/kernel/screens.inl>

}  // namespace detail::avx512_samples

/// The passes with AVX-512.
inline constexpr sample_kernels avx512_sample_kernels = detail::avx512_samples::screens::table("avx512");

SURELEAP_END_NAMESPACE

#pragma GCC diagnostic pop
#undef SURELEAP_KERNEL

#endif
