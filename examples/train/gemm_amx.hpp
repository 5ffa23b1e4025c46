// SPDX-License-Identifier: MIT
//
// Tiles of products through BF16 by tile registers (AMX-BF16): one instruction multiplies 16 rows by 16 columns over 32
// numbers. A tile of the left factor has a row after the other, one of the right factor pairs of neighbours along the
// sum, each pair of 16 columns side by side. A factor that lies the other way is transposed while it is packed.
#pragma once

#include "gemm_panels.hpp"

#if TRAIN_BF16_PRODUCTS && defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#define TRAIN_AMX_PRODUCTS 1
#else
#define TRAIN_AMX_PRODUCTS 0
#endif

#if TRAIN_AMX_PRODUCTS
namespace train::detail {

/// Linux lets a program use tile registers once it has asked for them. Whether it does.
[[nodiscard]] inline bool may_use_amx() noexcept {
    constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
    static bool const granted = ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    return granted;
}

struct amx_tiles {
    static constexpr std::size_t rows = 32;
    static constexpr std::size_t cols = 32;
    static constexpr std::size_t most_depth = 576;
    static constexpr std::size_t most_rows = 16 * rows;

    [[nodiscard]] static constexpr std::size_t words(std::size_t width, std::size_t depth) noexcept {
        return width * 16 * ((depth + 31) / 32);
    }
    static void pack_left(factor const& f, std::size_t i, std::size_t count, std::size_t k, std::size_t depth,
                          std::uint32_t* out) {
        pack(f, i, count, k, depth, f.step != 1, out);
    }
    static void pack_right(factor const& f, std::size_t j, std::size_t count, std::size_t k, std::size_t depth,
                           std::uint32_t* out) {
        pack(f, j, count, k, depth, f.step == 1, out);
    }

    /// The sums of 2 x 2 tiles, added to y or written there.
    static void multiply(std::uint32_t const* left, std::uint32_t const* right, std::size_t depth, float* y,
                         std::size_t stride, std::size_t count, std::size_t width, bool add) {
        configure();
        bool const whole = count == rows && width == cols;
        alignas(64) float sums[rows * cols];
        if (whole && add) {
            _tile_loadd(0, y, stride * sizeof(float));
            _tile_loadd(1, y + 16, stride * sizeof(float));
            _tile_loadd(2, y + 16 * stride, stride * sizeof(float));
            _tile_loadd(3, y + 16 * stride + 16, stride * sizeof(float));
        } else {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        }
        for (std::size_t block = 0; block < (depth + 31) / 32; ++block, left += 2 * tile, right += 2 * tile) {
            _tile_loadd(4, left, 64);
            _tile_loadd(6, right, 64);
            _tile_loadd(7, right + tile, 64);
            _tile_loadd(5, left + tile, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        float* const to = whole ? y : sums;
        std::size_t const step = whole ? stride : cols;
        _tile_stored(0, to, step * sizeof(float));
        _tile_stored(1, to + 16, step * sizeof(float));
        _tile_stored(2, to + 16 * step, step * sizeof(float));
        _tile_stored(3, to + 16 * step + 16, step * sizeof(float));
        if (whole) return;
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t h = 0; h < cols; h += 16) {
                auto const there = first_of_16(width > h ? width - h : 0);
                float* const out = y + i * stride + h;
                __m512 const before = add ? _mm512_maskz_loadu_ps(there, out) : _mm512_setzero_ps();
                _mm512_mask_storeu_ps(out, there, _mm512_add_ps(before, _mm512_load_ps(sums + i * cols + h)));
            }
        }
    }

private:
    static constexpr std::size_t tile = 16 * 16;  // words

    /// Eight registers of 16 rows of 64 bytes, for this thread.
    static void configure() noexcept {
        thread_local bool configured = false;
        if (configured) return;
        struct alignas(64) {
            std::uint8_t palette = 1;
            std::uint8_t start_row = 0;
            std::uint8_t reserved[14] = {};
            std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } const all;
        static_assert(sizeof all == 64);
        _tile_loadconfig(&all);
        configured = true;
    }

    static void transpose(__m512i (&m)[16]) noexcept {
        __m512i t[16];
        for (std::size_t i = 0; i < 16; i += 2) {
            t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
            t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
        }
        for (std::size_t i = 0; i < 16; i += 4) {
            m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
            m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
            m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
            m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
        }
        // Quarter l of m[i + c] has column 4 l + c of rows i .. i + 3.
        for (std::size_t c = 0; c < 4; ++c) {
            __m512i const even_above = _mm512_shuffle_i32x4(m[c], m[4 + c], 0x88);
            __m512i const even_below = _mm512_shuffle_i32x4(m[8 + c], m[12 + c], 0x88);
            __m512i const odd_above = _mm512_shuffle_i32x4(m[c], m[4 + c], 0xdd);
            __m512i const odd_below = _mm512_shuffle_i32x4(m[8 + c], m[12 + c], 0xdd);
            t[c] = _mm512_shuffle_i32x4(even_above, even_below, 0x88);
            t[4 + c] = _mm512_shuffle_i32x4(odd_above, odd_below, 0x88);
            t[8 + c] = _mm512_shuffle_i32x4(even_above, even_below, 0xdd);
            t[12 + c] = _mm512_shuffle_i32x4(odd_above, odd_below, 0xdd);
        }
        for (std::size_t i = 0; i < 16; ++i) m[i] = t[i];
    }

    /// 32 rows from row i on, in blocks of 32 numbers: of each two tiles, the first 16 rows and the others.
    static void pack(factor const& f, std::size_t i, std::size_t count, std::size_t k, std::size_t depth, bool turned,
                     std::uint32_t* out) {
        for (std::size_t first = 0; first < depth; first += 32) {
            std::size_t const left = depth - first;
            for (std::size_t r = 0; r < 32; r += 16, out += tile) {
                std::size_t const there = count > r ? std::min<std::size_t>(16, count - r) : 0;
                __m512i words[16];
                if (f.step == 1) {  // words[j]: the pairs of row j
                    float const* const from = f.data + (i + r) * f.row + k + first;
                    for (std::size_t j = 0; j < 16; ++j) {
                        words[j] = j < there ? neighbours(from + j * f.row, left) : _mm512_setzero_si512();
                    }
                } else {  // words[j]: pair j of all rows
                    float const* const from = f.data + (k + first) * f.step + i + r;
                    auto const mask = first_of_16(there);
                    for (std::size_t j = 0; j < 16; ++j) {
                        auto const low = 2 * j < left ? mask : __mmask16{0};
                        auto const high = 2 * j + 1 < left ? mask : __mmask16{0};
                        words[j] = paired(_mm512_maskz_loadu_ps(low, from + 2 * j * f.step),
                                          _mm512_maskz_loadu_ps(high, from + (2 * j + 1) * f.step));
                    }
                }
                if (turned) transpose(words);
                for (std::size_t j = 0; j < 16; ++j) _mm512_store_si512(out + 16 * j, words[j]);
            }
        }
    }
};

}  // namespace train::detail
#endif
