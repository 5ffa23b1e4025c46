// SPDX-License-Identifier: MIT
//
// Tiles of products through BF16 by dot products of vectors (AVX512_BF16). The instruction multiplies pairs of
// neighbours along the sum: panels have the pairs of their rows side by side.
#pragma once

#include "gemm_panels.hpp"

#if TRAIN_BF16_PRODUCTS
namespace train::detail {

struct vector_tiles {
    static constexpr std::size_t rows = 12;
    static constexpr std::size_t cols = 32;
    static constexpr std::size_t most_depth = 256;
    static constexpr std::size_t most_rows = 44 * rows;

    [[nodiscard]] static constexpr std::size_t words(std::size_t width, std::size_t depth) noexcept {
        return width * ((depth + 1) / 2);
    }
    static void pack_left(factor const& f, std::size_t i, std::size_t count, std::size_t k, std::size_t depth,
                          std::uint32_t* out) {
        pack(f, i, count, rows, k, depth, out);
    }
    static void pack_right(factor const& f, std::size_t j, std::size_t count, std::size_t k, std::size_t depth,
                           std::uint32_t* out) {
        pack(f, j, count, cols, k, depth, out);
    }

    /// The sums of a tile, added to y or written there.
    static void multiply(std::uint32_t const* left, std::uint32_t const* right, std::size_t depth, float* y,
                         std::size_t stride, std::size_t count, std::size_t width, bool add) {
        __m512 sums[rows][2];
        for (auto& s : sums) s[0] = s[1] = _mm512_setzero_ps();
        for (std::size_t p = 0; p < (depth + 1) / 2; ++p) {
            auto const r0 = reinterpret_cast<__m512bh>(_mm512_load_si512(right + p * cols));
            auto const r1 = reinterpret_cast<__m512bh>(_mm512_load_si512(right + p * cols + 16));
#pragma GCC unroll 12
            for (std::size_t i = 0; i < rows; ++i) {
                auto const l = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(left[p * rows + i])));
                sums[i][0] = _mm512_dpbf16_ps(sums[i][0], l, r0);
                sums[i][1] = _mm512_dpbf16_ps(sums[i][1], l, r1);
            }
        }
#pragma GCC unroll 12
        for (std::size_t i = 0; i < rows; ++i) {
            if (i >= count) break;
#pragma GCC unroll 2
            for (std::size_t h = 0; h < 2; ++h) {
                auto const mask = first_of_16(width > 16 * h ? width - 16 * h : 0);
                float* const out = y + i * stride + 16 * h;
                __m512 const before = add ? _mm512_maskz_loadu_ps(mask, out) : _mm512_setzero_ps();
                _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(before, sums[i][h]));
            }
        }
    }

private:
    /// Rows i .. i + width - 1 of a factor as pairs, [pairs, width] words. width is a multiple of 4, at most 32.
    static void pack(factor const& f, std::size_t i, std::size_t count, std::size_t width, std::size_t k,
                     std::size_t depth, std::uint32_t* out) {
        std::size_t const pairs = (depth + 1) / 2;
        if (f.step == 1) {  // a row lies along the sum: its pairs are neighbours already
            for (std::size_t r = 0; r < width; ++r) {
                std::uint32_t* to = out + r;
                if (r >= count) {
                    for (std::size_t p = 0; p < pairs; ++p) to[p * width] = 0;
                    continue;
                }
                float const* const from = f.data + (i + r) * f.row + k;
                alignas(64) std::uint32_t words[16];
                for (std::size_t p = 0; p < pairs; p += 16) {
                    _mm512_store_si512(words, neighbours(from + 2 * p, depth - 2 * p));
                    for (std::size_t j = 0; j < std::min<std::size_t>(16, pairs - p); ++j) {
                        to[(p + j) * width] = words[j];
                    }
                }
            }
            return;
        }
        for (std::size_t p = 0; p < pairs; ++p) {
            for (std::size_t r = 0; r < width; r += 16) {
                auto const there = first_of_16(count > r ? count - r : 0);
                float const* const from = f.data + (k + 2 * p) * f.step + i + r;
                __m512 const a = _mm512_maskz_loadu_ps(there, from);
                __m512 const b = _mm512_maskz_loadu_ps(2 * p + 1 < depth ? there : __mmask16{0}, from + f.step);
                _mm512_mask_storeu_epi32(out + p * width + r, first_of_16(width - r), paired(a, b));
            }
        }
    }
};

}  // namespace train::detail
#endif
