// SPDX-License-Identifier: MIT
//
// Products of float matrices through BF16, for processors that have its dot products (AVX512_BF16): twice as many
// multiplications as in float. Both factors are rounded to BF16, 8 bits of a number; sums keep float. That is what large
// models are trained with. It is a choice (use_bf16_products), as results differ from those of float in the third digit.
//
// The instruction multiplies pairs of neighbours along the sum, so factors are copied first: the left one in panels of 12
// rows, the right one in panels of 32 columns, pairs side by side. A copy serves all tiles of its panel.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include <immintrin.h>
#define TRAIN_BF16_PRODUCTS 1
#else
#define TRAIN_BF16_PRODUCTS 0
#endif

namespace train {

/// Whether this program was compiled for a processor with such products.
inline constexpr bool has_bf16_products = TRAIN_BF16_PRODUCTS != 0;

namespace detail {

inline std::atomic<bool>& bf16_products() noexcept {
    static std::atomic<bool> chosen{false};
    return chosen;
}

/// A factor of a product, element (i, k) at data[i * row + k * step]; k runs along the sum. One of the strides is 1.
struct factor {
    float const* data;
    std::size_t row;
    std::size_t step;
};

}  // namespace detail

/// For all float products of the program from here on; without has_bf16_products nothing changes.
inline void use_bf16_products(bool chosen) noexcept {
    detail::bf16_products() = chosen && has_bf16_products;
}

#if TRAIN_BF16_PRODUCTS
namespace detail {

inline constexpr std::size_t tile_rows = 12;
inline constexpr std::size_t tile_cols = 32;
// Of a sum and of the left factor at a time: then a right panel and a left one fit the first cache, all left ones the
// second.
inline constexpr std::size_t most_depth = 256;
inline constexpr std::size_t most_rows = 44 * tile_rows;

/// BF16 of a in the lower and b in the upper half of each of 16 words.
[[nodiscard]] inline __m512i paired(__m512 a, __m512 b) {
    __m512i const low = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
    __m512i const high = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(b)));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/// The first `count` of 16 elements.
[[nodiscard]] inline __mmask16 first_of_16(std::size_t count) noexcept {
    return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
}

/// Rows i .. i + width - 1 of a factor as pairs, [pairs, width] words. width is a multiple of 4, at most 32.
inline void pack(factor const& f, std::size_t i, std::size_t rows, std::size_t width, std::size_t k, std::size_t depth,
                 std::uint32_t* out) {
    std::size_t const pairs = (depth + 1) / 2;
    if (f.step == 1) {  // a row lies along the sum: its pairs are neighbours already
        for (std::size_t r = 0; r < width; ++r) {
            std::uint32_t* to = out + r;
            if (r >= rows) {
                for (std::size_t p = 0; p < pairs; ++p) to[p * width] = 0;
                continue;
            }
            float const* const from = f.data + (i + r) * f.row + k;
            alignas(64) std::uint32_t words[16];
            for (std::size_t p = 0; p < pairs; p += 16) {
                std::size_t const left = depth - 2 * p;
                __m512 const a = _mm512_maskz_loadu_ps(first_of_16(left), from + 2 * p);
                __m512 const b = _mm512_maskz_loadu_ps(first_of_16(left > 16 ? left - 16 : 0), from + 2 * p + 16);
                _mm512_store_si512(words, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
                for (std::size_t j = 0; j < std::min<std::size_t>(16, pairs - p); ++j) to[(p + j) * width] = words[j];
            }
        }
        return;
    }
    for (std::size_t p = 0; p < pairs; ++p) {
        for (std::size_t r = 0; r < width; r += 16) {
            auto const there = first_of_16(rows > r ? rows - r : 0);
            float const* const from = f.data + (k + 2 * p) * f.step + i + r;
            __m512 const a = _mm512_maskz_loadu_ps(there, from);
            __m512 const b = _mm512_maskz_loadu_ps(2 * p + 1 < depth ? there : __mmask16{0}, from + f.step);
            _mm512_mask_storeu_epi32(out + p * width + r, first_of_16(width - r), paired(a, b));
        }
    }
}

/// The sums of a tile, added to y or written there.
inline void multiply_tile(std::uint32_t const* left, std::uint32_t const* right, std::size_t pairs, float* y,
                          std::size_t stride, std::size_t rows, std::size_t cols, bool add) {
    __m512 sums[tile_rows][2];
    for (auto& s : sums) s[0] = s[1] = _mm512_setzero_ps();
    for (std::size_t p = 0; p < pairs; ++p) {
        auto const r0 = reinterpret_cast<__m512bh>(_mm512_load_si512(right + p * tile_cols));
        auto const r1 = reinterpret_cast<__m512bh>(_mm512_load_si512(right + p * tile_cols + 16));
#pragma GCC unroll 12
        for (std::size_t i = 0; i < tile_rows; ++i) {
            auto const l = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(left[p * tile_rows + i])));
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], l, r0);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], l, r1);
        }
    }
#pragma GCC unroll 12
    for (std::size_t i = 0; i < tile_rows; ++i) {
        if (i >= rows) break;
#pragma GCC unroll 2
        for (std::size_t h = 0; h < 2; ++h) {
            auto const mask = first_of_16(cols > 16 * h ? cols - 16 * h : 0);
            float* const out = y + i * stride + 16 * h;
            __m512 const before = add ? _mm512_maskz_loadu_ps(mask, out) : _mm512_setzero_ps();
            _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(before, sums[i][h]));
        }
    }
}

/// Memory for panels. One a thread.
struct panels {
    std::vector<std::uint32_t> memory;
    std::uint32_t* take(std::size_t words) {
        if (memory.size() < words + 16) memory.resize(words + 16);
        auto const address = reinterpret_cast<std::uintptr_t>(memory.data());
        return memory.data() + (64 - address % 64) % 64 / sizeof(std::uint32_t);
    }
};

/// y [m, n] = left right^T, or y += that, over sums of `depth`.
inline void multiply_bf16(factor const& left, factor const& right, std::size_t m, std::size_t n, std::size_t depth,
                          float* y, std::size_t stride, bool add) {
    thread_local panels left_memory;
    thread_local panels right_memory;
    // Rows of the left factor are taken in blocks; where there are several, right panels are kept for all of them.
    bool const keep = m > most_rows;
    std::size_t const right_panels = (n + tile_cols - 1) / tile_cols;
    for (std::size_t k = 0; k < depth; k += most_depth) {
        std::size_t const some = std::min(most_depth, depth - k);
        std::size_t const pairs = (some + 1) / 2;
        std::size_t const left_size = tile_rows * pairs;
        std::size_t const right_size = tile_cols * pairs;
        std::uint32_t* const r = right_memory.take((keep ? right_panels : 1) * right_size);
        for (std::size_t first = 0; first < m; first += most_rows) {
            std::size_t const end = std::min(m, first + most_rows);
            std::size_t const left_panels = (end - first + tile_rows - 1) / tile_rows;
            std::uint32_t* const l = left_memory.take(left_panels * left_size);
            for (std::size_t p = 0; p < left_panels; ++p) {
                std::size_t const i = first + p * tile_rows;
                pack(left, i, std::min(tile_rows, end - i), tile_rows, k, some, l + p * left_size);
            }
            for (std::size_t q = 0; q < right_panels; ++q) {
                std::size_t const j = q * tile_cols;
                std::size_t const cols = std::min(tile_cols, n - j);
                std::uint32_t* const panel = r + (keep ? q : 0) * right_size;
                if (first == 0 || !keep) pack(right, j, cols, tile_cols, k, some, panel);
                for (std::size_t p = 0; p < left_panels; ++p) {
                    std::size_t const i = first + p * tile_rows;
                    multiply_tile(l + p * left_size, panel, pairs, y + i * stride + j, stride,
                                  std::min(tile_rows, end - i), cols, add || k > 0);
                }
            }
        }
    }
}

}  // namespace detail
#endif

}  // namespace train
