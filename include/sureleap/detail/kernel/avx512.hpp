// SPDX-License-Identifier: MIT
//
// Everything that is compiled for AVX-512 (x86-64-v4), whatever the program is compiled for. native.hpp takes it if the
// machine has these instructions. The header is empty for other processors, and for compilers without the attribute.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <immintrin.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/heads.hpp>
#include <sureleap/detail/kernel/philox.hpp>
#include <sureleap/detail/kernel/rows.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) inline
#define SURELEAP_INLINE SURELEAP_KERNEL __attribute__((always_inline))

// Without optimisation GCC's intrinsics with an immediate are macros, and warn where they are used.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

SURELEAP_BEGIN_NAMESPACE
namespace detail::avx512 {

// Masked forms with nothing masked, here and below: the plain ones make GCC 12 warn of its own header.

// ---- rows ------------------------------------------------------------------------------------------------------

namespace for_rows {

struct isa {
    static constexpr std::size_t width = 16;
    using vec = __m512;
    struct sums {
        __m512d low, high;
    };
    using flags = __mmask16;
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
    ///
    /// 0 below 2^-126: a number that small takes a processor a hundred cycles, and no sum of weights up to 1 notices
    /// it. At low temperatures many tokens of a large vocabulary are there.
    SURELEAP_KERNEL static vec exp2(vec x) {
        vec const f = _mm512_maskz_reduce_ps(all, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        vec p = fill(0.0018775766f);
        p = multiply_add(p, f, fill(0.0089893406f));
        p = multiply_add(p, f, fill(0.0558263175f));
        p = multiply_add(p, f, fill(0.2401536107f));
        p = multiply_add(p, f, fill(0.6931530833f));
        p = multiply_add(p, f, fill(0.9999999404f));
        return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, fill(-126.0f), _CMP_NLT_UQ), p, x);
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

}  // namespace for_rows

// ---- heads -----------------------------------------------------------------------------------------------------

#undef SURELEAP_KERNEL
#define SURELEAP_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))) inline

namespace for_heads {

struct isa {
    static constexpr std::size_t width = 16;
    static constexpr std::size_t parts = 1;
    static constexpr std::size_t at_once = 8;  // 24 sums, and 32 registers
    static constexpr std::size_t from_memory = 4;
    using vec = __m512;
    using words = __m512i;
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

    /// Without a branch, which would be guessed wrong for most of those that are listed. Compressed in a register,
    /// since compressing to memory is slow on some processors.
    SURELEAP_INLINE static std::size_t list(float const* from, float threshold, token_id first, token_id* out) {
        __mmask16 const mask = _mm512_cmp_ps_mask(_mm512_loadu_ps(from), _mm512_set1_ps(threshold), _CMP_GE_OQ);
        words const places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(places, _mm512_set1_epi32(first))));
        return static_cast<std::size_t>(__builtin_popcount(mask));
    }
};

#include <sureleap/detail/kernel/heads.inl>

}  // namespace for_heads

// ---- philox ----------------------------------------------------------------------------------------------------

/// As in avx2.hpp, with all eight counters in one register.
[[gnu::target("avx512f")]] inline void philox(philox_words const& words, std::array<std::uint32_t, 4> const& counter,
                                              std::uint64_t key, philox_bits& out) {
    constexpr __mmask8 all = 0xff;
    __m512i const first = _mm512_set1_epi64(static_cast<long long>(0xD2511F53u));
    __m512i const second = _mm512_set1_epi64(static_cast<long long>(0xCD9E8D57u));
    __m512i c[4];
    c[0] = _mm512_maskz_cvtepu32_epi64(all, _mm256_loadu_si256(reinterpret_cast<__m256i const*>(words.data())));
    for (std::size_t j = 1; j < 4; ++j) c[j] = _mm512_set1_epi32(static_cast<int>(counter[j]));
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        __m512i const product0 = _mm512_maskz_mul_epu32(all, first, c[0]);
        __m512i const product1 = _mm512_maskz_mul_epu32(all, second, c[2]);
        c[0] = _mm512_xor_si512(_mm512_xor_si512(_mm512_maskz_srli_epi64(all, product1, 32), c[1]),
                                _mm512_set1_epi32(static_cast<int>(key0)));
        c[1] = product1;
        c[2] = _mm512_xor_si512(_mm512_xor_si512(_mm512_maskz_srli_epi64(all, product0, 32), c[3]),
                                _mm512_set1_epi32(static_cast<int>(key1)));
        c[3] = product0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    __m512i const low = _mm512_mask_mov_epi32(c[0], 0xaaaa, _mm512_maskz_slli_epi64(all, c[1], 32));
    __m512i const high = _mm512_mask_mov_epi32(c[2], 0xaaaa, _mm512_maskz_slli_epi64(all, c[3], 32));
    __m512i const one = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    __m512i const other = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(out[0].data(), _mm512_permutex2var_epi64(low, one, high));
    _mm512_storeu_si512(out[4].data(), _mm512_permutex2var_epi64(low, other, high));
}

}  // namespace detail::avx512

template <class Table>
inline constexpr Table avx512_kernels{};
template <std::same_as<row_kernels> Table>
inline constexpr Table avx512_kernels<Table>{"avx512", instruction_set::avx512};
template <std::same_as<head_kernels> Table>
inline constexpr Table avx512_kernels<Table> = Table::template of<detail::avx512::for_heads::heads>("avx512");
template <std::same_as<philox_kernels> Table>
inline constexpr Table avx512_kernels<Table>{"avx512", detail::avx512::philox};

SURELEAP_END_NAMESPACE

#pragma GCC diagnostic pop
#undef SURELEAP_INLINE
#undef SURELEAP_KERNEL

#endif
