// SPDX-License-Identifier: MIT
//
// The passes of survivals.hpp with AVX-512 and AVX2, whatever the program is compiled for, and the choice among them when
// it runs. Written once for both, in survivals.inl.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/config.hpp>
#include <sureleap/kernel/survivals.hpp>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

// Without optimisation GCC's intrinsics with an immediate are macros, and warn where they are used.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

// Passes keep their sums in registers only if everything they call is part of them.
#define SURELEAP_INLINE SURELEAP_KERNEL __attribute__((always_inline))

SURELEAP_BEGIN_NAMESPACE

#define SURELEAP_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,popcnt"))) inline
namespace detail::avx512 {
inline namespace SURELEAP_MARCH_TAG {

struct survival_isa {
    static constexpr std::size_t width = 16;
    using vec = __m512i;
    using where = __mmask16;

    SURELEAP_INLINE static where all() { return 0xffff; }
    SURELEAP_INLINE static vec load(std::uint32_t const* from) { return _mm512_loadu_si512(from); }
    SURELEAP_INLINE static vec load(std::uint32_t const* from, where w) { return _mm512_maskz_loadu_epi32(w, from); }
    SURELEAP_INLINE static vec fill(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
    SURELEAP_INLINE static std::uint64_t total(vec sum) {
        alignas(64) std::uint32_t parts[width];
        _mm512_store_si512(parts, sum);
        std::uint64_t all = 0;
        for (std::uint32_t const part : parts) all += part;
        return all;
    }
    SURELEAP_INLINE static where first(vec n) {
        __m512i const places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        return _mm512_cmplt_epu32_mask(places, n);
    }
    SURELEAP_INLINE static where at_least(where w, vec a, vec t) { return _mm512_mask_cmpge_epu32_mask(w, a, t); }
    SURELEAP_INLINE static where minus(where a, where b) { return static_cast<where>(a & ~b); }
    SURELEAP_INLINE static vec add(vec sum, where w, vec a) { return _mm512_mask_add_epi32(sum, w, sum, a); }
    SURELEAP_INLINE static std::uint32_t bits(where w) { return w; }
    /// Compressing straight to memory is microcode on some machines.
    SURELEAP_INLINE static void pack(std::uint32_t* to, where w, std::uint32_t, vec a) {
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(w, a));
    }
};

#include <sureleap/kernel/survivals.inl>

}  // namespace SURELEAP_MARCH_TAG
}  // namespace detail::avx512
#undef SURELEAP_KERNEL

#define SURELEAP_KERNEL __attribute__((target("avx2,fma,bmi,popcnt"))) inline
namespace detail::avx2 {
inline namespace SURELEAP_MARCH_TAG {

/// The lanes that are set in each of 256 bit patterns, in order. (pext would do without, and is slow on older machines.)
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

struct survival_isa {
    static constexpr std::size_t width = 8;
    using vec = __m256i;
    using where = __m256i;  // lanes of ones

    SURELEAP_INLINE static where all() { return _mm256_set1_epi32(-1); }
    SURELEAP_INLINE static vec load(std::uint32_t const* from) {
        return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
    }
    SURELEAP_INLINE static vec load(std::uint32_t const* from, where w) {
        return _mm256_maskload_epi32(reinterpret_cast<int const*>(from), w);
    }
    SURELEAP_INLINE static vec fill(std::uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
    SURELEAP_INLINE static std::uint64_t total(vec sum) {
        alignas(32) std::uint32_t parts[width];
        _mm256_store_si256(reinterpret_cast<__m256i*>(parts), sum);
        std::uint64_t all = 0;
        for (std::uint32_t const part : parts) all += part;
        return all;
    }
    SURELEAP_INLINE static where first(vec n) {
        return _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    SURELEAP_INLINE static where at_least(where w, vec a, vec t) {
        return _mm256_andnot_si256(_mm256_cmpgt_epi32(t, a), w);
    }
    SURELEAP_INLINE static where minus(where a, where b) { return _mm256_andnot_si256(b, a); }
    SURELEAP_INLINE static vec add(vec sum, where w, vec a) { return _mm256_add_epi32(sum, _mm256_and_si256(w, a)); }
    SURELEAP_INLINE static std::uint32_t bits(where w) {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(w)));
    }
    SURELEAP_INLINE static void pack(std::uint32_t* to, where, std::uint32_t bits, vec a) {
        __m128i const lanes = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(chosen_lanes[bits].data()));
        __m256i const packed = _mm256_permutevar8x32_epi32(a, _mm256_cvtepu8_epi32(lanes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
    }
};

#include <sureleap/kernel/survivals.inl>

}  // namespace SURELEAP_MARCH_TAG
}  // namespace detail::avx2
#undef SURELEAP_KERNEL
#undef SURELEAP_INLINE

SURELEAP_END_NAMESPACE
#pragma GCC diagnostic pop

#endif

SURELEAP_BEGIN_NAMESPACE
inline namespace SURELEAP_MARCH_TAG {

#if defined(__x86_64__) && defined(__GNUC__)
inline constexpr survival_kernels avx512_survival_kernels{"avx512", detail::avx512::survivals::at_least,
                                                          detail::avx512::survivals::between,
                                                          detail::avx512::survivals::lengths};
inline constexpr survival_kernels avx2_survival_kernels{
    "avx2", detail::avx2::survivals::at_least, detail::avx2::survivals::between, detail::avx2::survivals::lengths};
#endif

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<survival_kernels const* const> available_survival_kernels() noexcept {
    struct list {
        survival_kernels const* all[3];
        std::size_t size = 0;
        list() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
            bool const v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt");
            bool const v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
            if (v4) all[size++] = &avx512_survival_kernels;
            if (v3) all[size++] = &avx2_survival_kernels;
#endif
            all[size++] = &scalar_survival_kernels;
        }
    };
    static list const found;
    return {found.all, found.size};
}

/// The best of them.
[[nodiscard]] inline survival_kernels const& native_survival_kernels() noexcept {
    return *available_survival_kernels().front();
}

}  // namespace SURELEAP_MARCH_TAG
SURELEAP_END_NAMESPACE
