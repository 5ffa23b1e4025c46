// SPDX-License-Identifier: MIT
//
// Philox for several counters at once (philox.hpp), with the best instructions that the machine has, chosen at run
// time. A Gumbel-max draw over a row asks for six hundred blocks of bits. One by one they took a third of its time. The
// bits are the same in all versions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/cpu.hpp>
#include <sureleap/detail/kernel/philox.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

SURELEAP_BEGIN_NAMESPACE

/// Counters that are taken together.
inline constexpr std::size_t philox_lanes = 8;
using philox_bits = std::array<std::array<std::uint32_t, 4>, philox_lanes>;

struct philox_kernels {
    char const* name;
    /// out[i] = philox4x32({counter[0] + i, counter[1], counter[2], counter[3]}, key); the sum wraps.
    void (*lanes)(std::array<std::uint32_t, 4> const& counter, std::uint64_t key, philox_bits& out);
};

namespace detail {

inline void philox_one_by_one(std::array<std::uint32_t, 4> const& counter, std::uint64_t key, philox_bits& out) {
    for (std::size_t i = 0; i < philox_lanes; ++i) {
        out[i] = philox4x32({counter[0] + static_cast<std::uint32_t>(i), counter[1], counter[2], counter[3]}, key);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
// A lane is 64 bits wide for the products, and only the lower 32 of them count: what is above is never looked at.

[[gnu::target("avx2")]] inline void philox_avx2(std::array<std::uint32_t, 4> const& counter, std::uint64_t key,
                                                philox_bits& out) {
    __m256i const first = _mm256_set1_epi64x(static_cast<long long>(0xD2511F53u));
    __m256i const second = _mm256_set1_epi64x(static_cast<long long>(0xCD9E8D57u));
    __m256i const all[2] = {_mm256_setr_epi64x(0, 1, 2, 3), _mm256_setr_epi64x(4, 5, 6, 7)};
    __m256i c[2][4];
    for (std::size_t h = 0; h < 2; ++h) {
        for (std::size_t j = 0; j < 4; ++j) c[h][j] = _mm256_set1_epi32(static_cast<int>(counter[j]));
        c[h][0] = _mm256_add_epi32(c[h][0], all[h]);
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

// Masked forms with nothing masked: the plain ones make GCC 12 warn of its own header.
[[gnu::target("avx512f")]] inline void philox_avx512(std::array<std::uint32_t, 4> const& counter, std::uint64_t key,
                                                     philox_bits& out) {
    constexpr __mmask8 all = 0xff;
    __m512i const first = _mm512_set1_epi64(static_cast<long long>(0xD2511F53u));
    __m512i const second = _mm512_set1_epi64(static_cast<long long>(0xCD9E8D57u));
    __m512i c[4];
    for (std::size_t j = 0; j < 4; ++j) c[j] = _mm512_set1_epi32(static_cast<int>(counter[j]));
    c[0] = _mm512_add_epi32(c[0], _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
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
#endif

}  // namespace detail

inline constexpr philox_kernels scalar_philox_kernels{"scalar", detail::philox_one_by_one};
#if defined(__x86_64__) && defined(__GNUC__)
inline constexpr philox_kernels avx2_philox_kernels{"avx2", detail::philox_avx2};
inline constexpr philox_kernels avx512_philox_kernels{"avx512", detail::philox_avx512};
#endif

/// Best first, the reference last; a view of static memory. Everything in it runs here.
[[nodiscard]] inline std::span<philox_kernels const* const> available_philox_kernels() noexcept {
    static kernel_list<philox_kernels> const found{
#if defined(__x86_64__) && defined(__GNUC__)
        {&avx512_philox_kernels, cpu().avx512},
        {&avx2_philox_kernels, cpu().avx2},
#endif
        {&scalar_philox_kernels, true},
    };
    return found.tables();
}

/// The best of them.
[[nodiscard]] inline philox_kernels const& native_philox_kernels() noexcept {
    return *available_philox_kernels().front();
}

SURELEAP_END_NAMESPACE
