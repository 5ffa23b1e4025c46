// SPDX-License-Identifier: MIT
//
// What products through BF16 (gemm_bf16.hpp) have in common, whatever instruction multiplies: factors are copied to
// panels of some rows, in the order in which the instruction reads them, and a copy serves all tiles of its panel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include <immintrin.h>
#define TRAIN_BF16_PRODUCTS 1
#else
#define TRAIN_BF16_PRODUCTS 0
#endif

#if TRAIN_BF16_PRODUCTS
namespace train::detail {

/// A factor of a product, element (i, k) at data[i * row + k * step]; k runs along the sum. One of the strides is 1.
struct factor {
    float const* data;
    std::size_t row;
    std::size_t step;
};

/// The first `count` of 16 elements.
[[nodiscard]] inline __mmask16 first_of_16(std::size_t count) noexcept {
    return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
}

/// BF16 of a in the lower and b in the upper half of each of 16 words.
[[nodiscard]] inline __m512i paired(__m512 a, __m512 b) {
    __m512i const low = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
    __m512i const high = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(b)));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/// Up to 32 neighbours as 16 words; what is missing of them is 0.
[[nodiscard]] inline __m512i neighbours(float const* from, std::size_t count) {
    __m512 const a = _mm512_maskz_loadu_ps(first_of_16(count), from);
    __m512 const b = _mm512_maskz_loadu_ps(first_of_16(count > 16 ? count - 16 : 0), from + 16);
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
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

/// y [m, n] = left right^T, or y += that, over sums of `depth`. Tiles says how large tiles are, and packs and
/// multiplies them:
///     rows, cols          of a tile: of the left and of the right panel
///     most_depth          of a sum at a time: two panels of it fit the first cache, or the left ones the second
///     most_rows           of the left factor at a time: its panels fit the second cache
///     words(rows, depth)  of a panel
///     pack_left, pack_right(factor, first row, rows, k, depth, out)
///     multiply(left, right, depth, y, stride, rows, cols, add)
template <class Tiles>
void multiply_panels(factor const& left, factor const& right, std::size_t m, std::size_t n, std::size_t depth, float* y,
                     std::size_t stride, bool add) {
    thread_local panels left_memory;
    thread_local panels right_memory;
    // Rows of the left factor are taken in blocks; where there are several, right panels are kept for all of them.
    bool const keep = m > Tiles::most_rows;
    std::size_t const right_panels = (n + Tiles::cols - 1) / Tiles::cols;
    for (std::size_t k = 0; k < depth; k += Tiles::most_depth) {
        std::size_t const some = std::min(Tiles::most_depth, depth - k);
        std::size_t const left_size = Tiles::words(Tiles::rows, some);
        std::size_t const right_size = Tiles::words(Tiles::cols, some);
        std::uint32_t* const r = right_memory.take((keep ? right_panels : 1) * right_size);
        for (std::size_t first = 0; first < m; first += Tiles::most_rows) {
            std::size_t const end = std::min(m, first + Tiles::most_rows);
            std::size_t const left_panels = (end - first + Tiles::rows - 1) / Tiles::rows;
            std::uint32_t* const l = left_memory.take(left_panels * left_size);
            for (std::size_t p = 0; p < left_panels; ++p) {
                std::size_t const i = first + p * Tiles::rows;
                Tiles::pack_left(left, i, std::min(Tiles::rows, end - i), k, some, l + p * left_size);
            }
            for (std::size_t q = 0; q < right_panels; ++q) {
                std::size_t const j = q * Tiles::cols;
                std::size_t const cols = std::min(Tiles::cols, n - j);
                std::uint32_t* const panel = r + (keep ? q : 0) * right_size;
                if (first == 0 || !keep) Tiles::pack_right(right, j, cols, k, some, panel);
                for (std::size_t p = 0; p < left_panels; ++p) {
                    std::size_t const i = first + p * Tiles::rows;
                    Tiles::multiply(l + p * left_size, panel, some, y + i * stride + j, stride,
                                    std::min(Tiles::rows, end - i), cols, add || k > 0);
                }
            }
        }
    }
}

}  // namespace train::detail
#endif
