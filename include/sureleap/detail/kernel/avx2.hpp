// SPDX-License-Identifier: MIT
//
// Everything that is compiled for AVX2, with FMA and F16C (x86-64-v3), whatever the program is compiled for. native.hpp
// takes it if the machine has these instructions. The header is empty for other processors, and for compilers without
// the attribute.
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
#include <sureleap/detail/kernel/survivals.hpp>

#define SURELEAP_KERNEL __attribute__((target("avx2,fma,f16c"))) inline
#define SURELEAP_INLINE SURELEAP_KERNEL __attribute__((always_inline))

SURELEAP_BEGIN_NAMESPACE
namespace detail::avx2 {

// ---- rows ------------------------------------------------------------------------------------------------------

namespace for_rows {

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

    /// 2^n 2^f with n the nearest integer; 2^f, and 0 below 2^-126, as in avx512.hpp. The power of two is put together
    /// in two factors, so that +inf comes out.
    SURELEAP_KERNEL static vec exp2(vec x) {
        vec const normal = _mm256_cmp_ps(x, fill(-126.0f), _CMP_NLT_UQ);
        x = max(fill(-126.0f), x);
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
        return _mm256_and_ps(p * power(half_of_it) * power(_mm256_sub_epi32(whole, half_of_it)), normal);
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

}  // namespace for_rows

// ---- heads -----------------------------------------------------------------------------------------------------

namespace for_heads {

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

}  // namespace for_heads

// ---- survivals -------------------------------------------------------------------------------------------------

#undef SURELEAP_KERNEL
#define SURELEAP_KERNEL __attribute__((target("avx2,bmi,popcnt"))) inline

// There is no AVX-512 version. It was only 5 to 10 % faster: a pass mostly waits for memory, and a row of eight fills
// an AVX2 register.
namespace for_survivals {

/// The lanes that are set in each of 256 bit patterns, in order. (pext would do without, and is slow on older
/// machines.)
inline constexpr auto chosen_lanes = [] {
    std::array<std::array<std::uint8_t, 8>, 256> all{};
    for (std::size_t bits = 0; bits < 256; ++bits) {
        std::size_t count = 0;
        for (std::uint8_t lane = 0; lane < 8; ++lane) {
            if ((bits >> lane & 1u) != 0) all[bits][count++] = lane;
        }
    }
    return all;
}();

struct isa {
    static constexpr std::size_t width = 8;
    using vec = __m256i;
    using where = __m256i;  // lanes of ones

    SURELEAP_INLINE static where everywhere() { return _mm256_set1_epi32(-1); }
    SURELEAP_INLINE static vec load(std::uint32_t const* from) {
        return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
    }
    SURELEAP_INLINE static vec load(std::uint32_t const* from, where w) {
        return _mm256_maskload_epi32(reinterpret_cast<int const*>(from), w);
    }
    SURELEAP_INLINE static vec fill(std::uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
    SURELEAP_INLINE static std::uint64_t total(vec sum) {
        __m256i const low = _mm256_cvtepu32_epi64(_mm256_castsi256_si128(sum));
        __m256i const high = _mm256_cvtepu32_epi64(_mm256_extracti128_si256(sum, 1));
        __m256i const both = _mm256_add_epi64(low, high);
        __m128i const two = _mm_add_epi64(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
        return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))));
    }
    /// Lanes 0 .. n-1.
    SURELEAP_INLINE static where first(vec n) {
        return _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    /// Thresholds are kept as t - 1, for a comparison that there is: signed, so that 0 - 1 is below everything. What is
    /// in use is far below 2^31.
    SURELEAP_INLINE static vec below(std::uint32_t t) { return fill(t - 1u); }
    SURELEAP_INLINE static where at_least(where w, vec a, vec t) {
        return _mm256_and_si256(_mm256_cmpgt_epi32(a, t), w);
    }
    SURELEAP_INLINE static where minus(where a, where b) { return _mm256_andnot_si256(b, a); }
    SURELEAP_INLINE static vec add_where(vec sum, where w, vec a) {
        return _mm256_add_epi32(sum, _mm256_and_si256(w, a));
    }
    /// Lanes of ones are -1.
    SURELEAP_INLINE static vec count_where(vec count, where w) { return _mm256_sub_epi32(count, w); }
    SURELEAP_INLINE static std::uint32_t bits(where w) {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(w)));
    }
    /// Those lanes, one after another; writes `width` numbers.
    SURELEAP_INLINE static void pack(std::uint32_t* to, std::uint32_t chosen, vec a) {
        __m128i const lanes = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(chosen_lanes[chosen].data()));
        __m256i const packed = _mm256_permutevar8x32_epi32(a, _mm256_cvtepu8_epi32(lanes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
    }

    SURELEAP_INLINE static std::size_t ones(std::uint32_t mask) {
        return static_cast<std::size_t>(_mm_popcnt_u32(mask));
    }
    SURELEAP_INLINE static std::size_t zeros_below(std::uint64_t mask) {
        return static_cast<std::size_t>(_tzcnt_u64(mask));
    }
};

#include <sureleap/detail/kernel/survivals.inl>

}  // namespace for_survivals

// ---- philox ----------------------------------------------------------------------------------------------------

/// A lane is 64 bits wide for the products, and only the lower 32 of them count: what is above is never looked at.
[[gnu::target("avx2")]] inline void philox(philox_words const& words, std::array<std::uint32_t, 4> const& counter,
                                           std::uint64_t key, philox_bits& out) {
    __m256i const first = _mm256_set1_epi64x(static_cast<long long>(0xD2511F53u));
    __m256i const second = _mm256_set1_epi64x(static_cast<long long>(0xCD9E8D57u));
    __m256i c[2][4];
    for (std::size_t h = 0; h < 2; ++h) {
        c[h][0] = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<__m128i const*>(words.data() + 4 * h)));
        for (std::size_t j = 1; j < 4; ++j) c[h][j] = _mm256_set1_epi32(static_cast<int>(counter[j]));
    }
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        __m256i const of_first = _mm256_set1_epi32(static_cast<int>(key0));
        __m256i const of_second = _mm256_set1_epi32(static_cast<int>(key1));
        for (std::size_t h = 0; h < 2; ++h) {
            __m256i const product0 = _mm256_mul_epu32(first, c[h][0]);
            __m256i const product1 = _mm256_mul_epu32(second, c[h][2]);
            c[h][0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), c[h][1]), of_first);
            c[h][1] = product1;
            c[h][2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), c[h][3]), of_second);
            c[h][3] = product0;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (std::size_t h = 0; h < 2; ++h) {
        __m256i const low = _mm256_blend_epi32(c[h][0], _mm256_slli_epi64(c[h][1], 32), 0xaa);
        __m256i const high = _mm256_blend_epi32(c[h][2], _mm256_slli_epi64(c[h][3], 32), 0xaa);
        __m256i const even = _mm256_unpacklo_epi64(low, high);  // lanes 0 and 2
        __m256i const odd = _mm256_unpackhi_epi64(low, high);
        auto* const to = reinterpret_cast<__m256i*>(out[4 * h].data());
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
}

}  // namespace detail::avx2

template <class Table>
inline constexpr Table avx2_kernels{};
template <std::same_as<row_kernels> Table>
inline constexpr Table avx2_kernels<Table>{"avx2", instruction_set::avx2};
template <std::same_as<head_kernels> Table>
inline constexpr Table avx2_kernels<Table> = Table::template of<detail::avx2::for_heads::heads>("avx2");
template <std::same_as<survival_kernels> Table>
inline constexpr Table avx2_kernels<Table> = Table::template of<detail::avx2::for_survivals::survivals>("avx2");
template <std::same_as<philox_kernels> Table>
inline constexpr Table avx2_kernels<Table>{"avx2", detail::avx2::philox};

SURELEAP_END_NAMESPACE

#undef SURELEAP_INLINE
#undef SURELEAP_KERNEL

#endif
