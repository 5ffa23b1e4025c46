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
    // Masked forms with nothing masked: the plain ones make GCC 12 warn of its own header.
    static constexpr __mmask8 all = 0xff;

    SURELEAP_KERNEL static vec load(double const* from) { return _mm512_loadu_pd(from); }
    SURELEAP_KERNEL static void store(double* to, vec x) { _mm512_storeu_pd(to, x); }
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
    SURELEAP_KERNEL static vec absolute(vec x) { return _mm512_maskz_range_pd(all, x, x, 0x08); }
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
    SURELEAP_KERNEL static void indices(vec x, std::int32_t* to) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvttpd_epi32(all, x));
    }
    SURELEAP_KERNEL static std::uint32_t at_most(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
    SURELEAP_KERNEL static std::uint32_t unordered(vec a) { return _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q); }
    SURELEAP_KERNEL static void pair_up(vec lows, vec highs, double* to) {
        __m512i const first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
        __m512i const second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
        store(to, _mm512_permutex2var_pd(lows, first, highs));
        store(to + width, _mm512_permutex2var_pd(lows, second, highs));
    }
    SURELEAP_KERNEL static double total(vec x) {
        __m256d const four = _mm512_maskz_extractf64x4_pd(0xf, x, 0) + _mm512_maskz_extractf64x4_pd(0xf, x, 1);
        __m128d const two = _mm256_extractf128_pd(four, 0) + _mm256_extractf128_pd(four, 1);
        return two[0] + two[1];
    }
};

#include <sureleap/kernel/samples.inl>

}  // namespace detail::avx512_samples

/// The passes with AVX-512.
inline constexpr sample_kernels avx512_sample_kernels = detail::avx512_samples::samples::table("avx512");

SURELEAP_END_NAMESPACE

#pragma GCC diagnostic pop
#undef SURELEAP_KERNEL

#endif
