// SPDX-License-Identifier: MIT
//
// The passes of survivals.hpp with AVX-512 and AVX2, whatever the program is compiled for, and the choice among them when
// it runs. Written once for both: an instruction set brings loads under a mask, a comparison that gives a bit a lane, and
// the two things a pass does with those bits.
#pragma once

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

SURELEAP_BEGIN_NAMESPACE

#define SURELEAP_KERNEL __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,popcnt"))) inline
namespace detail::avx512 {
inline namespace SURELEAP_MARCH_TAG {

struct survival_isa {
    static constexpr std::size_t width = 16;
    using vec = __m512i;

    /// The first `lanes` numbers; the others are neither read nor at least any t > 0, which is why t = 0 needs `lanes`.
    SURELEAP_KERNEL static vec load(std::uint32_t const* from, std::size_t lanes) {
        return _mm512_maskz_loadu_epi32(first(lanes), from);
    }
    SURELEAP_KERNEL static vec load(std::uint32_t const* from) { return _mm512_loadu_si512(from); }
    SURELEAP_KERNEL static vec fill(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
    SURELEAP_KERNEL static std::uint32_t at_least(vec a, vec t) { return _mm512_cmpge_epu32_mask(a, t); }
    SURELEAP_KERNEL static vec add_where(vec sum, std::uint32_t lanes, vec a) {
        return _mm512_mask_add_epi32(sum, static_cast<__mmask16>(lanes), sum, a);
    }
    SURELEAP_KERNEL static std::uint64_t total(vec sum) {
        __m512i const low = _mm512_maskz_cvtepu32_epi64(0xff, _mm512_maskz_extracti64x4_epi64(0xff, sum, 0));
        __m512i const high = _mm512_maskz_cvtepu32_epi64(0xff, _mm512_maskz_extracti64x4_epi64(0xff, sum, 1));
        alignas(64) std::uint64_t parts[8];
        _mm512_store_si512(parts, _mm512_add_epi64(low, high));
        return parts[0] + parts[1] + parts[2] + parts[3] + parts[4] + parts[5] + parts[6] + parts[7];
    }
    /// Packs those lanes; the register is written whole. (Compressing straight to memory is microcode on some machines.)
    SURELEAP_KERNEL static void pack(std::uint32_t* to, std::uint32_t lanes, vec a) {
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), a));
    }

private:
    SURELEAP_KERNEL static __mmask16 first(std::size_t lanes) {
        return static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(lanes)));
    }
};

#include <sureleap/kernel/survivals.inl>

}  // namespace SURELEAP_MARCH_TAG
}  // namespace detail::avx512
#undef SURELEAP_KERNEL

#define SURELEAP_KERNEL __attribute__((target("avx2,fma,bmi,bmi2,popcnt"))) inline
namespace detail::avx2 {
inline namespace SURELEAP_MARCH_TAG {

struct survival_isa {
    static constexpr std::size_t width = 8;
    using vec = __m256i;

    SURELEAP_KERNEL static vec load(std::uint32_t const* from, std::size_t lanes) {
        __m256i const places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        return _mm256_maskload_epi32(reinterpret_cast<int const*>(from),
                                     _mm256_cmpgt_epi32(fill(static_cast<std::uint32_t>(lanes)), places));
    }
    SURELEAP_KERNEL static vec load(std::uint32_t const* from) {
        return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
    }
    SURELEAP_KERNEL static vec fill(std::uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
    /// Survivals and thresholds are far below 2^31: the signed comparison will do.
    SURELEAP_KERNEL static std::uint32_t at_least(vec a, vec t) {
        return 0xffu & ~static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(t, a))));
    }
    SURELEAP_KERNEL static vec add_where(vec sum, std::uint32_t lanes, vec a) {
        __m256i const bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        __m256i const chosen = _mm256_cmpeq_epi32(_mm256_and_si256(fill(lanes), bits), bits);
        return _mm256_add_epi32(sum, _mm256_and_si256(chosen, a));
    }
    SURELEAP_KERNEL static std::uint64_t total(vec sum) {
        alignas(32) std::uint32_t parts[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(parts), sum);
        std::uint64_t all = 0;
        for (std::uint32_t const part : parts) all += part;
        return all;
    }
    /// A bit at a time: few lanes are kept, and a table of permutations would be larger than the code.
    SURELEAP_KERNEL static void pack(std::uint32_t* to, std::uint32_t lanes, vec a) {
        alignas(32) std::uint32_t parts[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(parts), a);
        for (; lanes != 0; lanes &= lanes - 1) *to++ = parts[_tzcnt_u32(lanes)];
    }
};

#include <sureleap/kernel/survivals.inl>

}  // namespace SURELEAP_MARCH_TAG
}  // namespace detail::avx2
#undef SURELEAP_KERNEL

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
                            __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
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
