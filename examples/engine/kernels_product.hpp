// SPDX-License-Identifier: MIT
//
// Products of activations with stored weights, tile by tile. Every tile shape is the same template and does for one
// output the same operations in the same order; -ffp-contract=fast may fuse a product with its addition, but then it
// does so in every tile, as each product feeds one addition. That makes a row's result independent of its batch.
//
// The whole length of a row is summed in one go. One could cut it into pieces whose x stays in the first cache level
// and put the lanes aside in between. But with 16-bit weights rows whose x fits the first level are no faster than rows
// whose x does not: a tile uses each register of x for every row of w, and the second level keeps up with that.
#pragma once

#include "kernels_table.hpp"
#include "kernels_vector.hpp"

namespace engine::ENGINE_KERNELS {

// A tile is W rows of w by N rows of x. In registers: its lanes, a part of each row of w, and of one row of x.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr std::size_t registers = 30;  // of 32: filled to the last one, Clang moves lanes to and fro
#else
inline constexpr std::size_t registers = 16;  // with parts == 4 hardly enough for one row of w
#endif
inline constexpr std::size_t widest = vector_bytes == 64 ? 8 : 3;  // most rows of x
/// Rows of w beside N rows of x: a divisor of row_unit.
inline constexpr std::size_t tile_rows(std::size_t n) {
    std::size_t const rows = (registers - 1) / (parts * n + 1);
    return rows >= 8 ? 8 : rows == 5 || rows == 7 ? rows - 1 : rows;
}

/// Makes the compiler load a vector once: it would rather read it anew in every instruction that uses it, and loads are
/// what a tile has least to spare.
template <class V>
ENGINE_INLINE void keep([[maybe_unused]] V& v) {
#if defined(__x86_64__)
    asm("" : "+v"(v));
#endif
}

/// How far ahead to ask for w: whole tiles, so that every row of a tile asks for the same place of a later tile, and
/// at least 16 KiB, so that memory has answered when the tile gets there. The processor's own prefetching follows one
/// row and stops at its page; without this a product reads memory at half its speed.
template <class Stored, std::size_t W>
[[nodiscard]] inline std::size_t distance(std::size_t cols) {
    std::size_t const bytes = W * cols * sizeof(Stored);
    return (16384 + bytes - 1) / bytes * bytes;
}

/// Into the second level: the first is for x. The address may lie behind the end of w, so it is no pointer.
ENGINE_INLINE void ask_for(void const* from, std::size_t ahead) {
    __builtin_prefetch(reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(from) + ahead), 0, 2);
}

/// Adds `count` blocks of products to the lanes; x holds for each block the N rows one after another.
template <class Real, class Stored, std::size_t W, std::size_t N>
ENGINE_INLINE void add_products(Stored const* const (&w)[W], Real const* x, std::size_t count, std::size_t ahead,
                                block<Real> (&acc)[W][N]) {
    for (std::size_t c = 0; c < count * lanes<Real>; c += lanes<Real>, x += N * lanes<Real>) {
        unroll<parts>([&](auto p) {
            wide<Real> wv[W];
            unroll<W>([&](auto j) {  // both here: GCC drops calls of a lambda that only prefetches
                load<Real>(w[j] + c + p * width<Real>, wv[j]);
                if (p == 0) ask_for(w[j] + c, ahead);
            });
            unroll<N>([&](auto i) {
                wide<Real> xv;
                load<Real>(x + i * lanes<Real> + p * width<Real>, xv);
                keep(xv);
                unroll<W>([&](auto j) { acc[j][i].part[p] += wv[j] * xv; });
            });
        });
    }
}

/// W outputs of N rows. The last cols % lanes elements are read from copies with zeros behind them: w's are made here,
/// x's are given in `tail`.
template <class Real, class Stored, std::size_t W, std::size_t N>
[[gnu::flatten]] void tile(Real const* x, Real const* tail, Stored const* w, std::size_t cols, Real* y,
                           std::size_t stride, bool add) {
    Stored const* row[W];
    Stored padded[W][lanes<Real>];
    unroll<W>([&](auto j) { row[j] = w + j * cols; });
    block<Real> acc[W][N] = {};
    std::size_t const ahead = distance<Stored, W>(cols);
    std::size_t const rest = cols % lanes<Real>;
    std::size_t count = cols / lanes<Real>;
    for (bool last = rest == 0;; last = true) {  // a loop, so that there is one copy of the arithmetic
        add_products(row, x, count, ahead, acc);
        if (last) break;
        unroll<W>([&](auto j) {
            for (std::size_t c = 0; c < lanes<Real>; ++c) padded[j][c] = c < rest ? row[j][cols - rest + c] : Stored{};
            row[j] = padded[j];
        });
        x = tail;
        count = 1;
    }
    unroll<N>([&](auto i) {
        unroll<W>([&](auto j) {
            Real const s = sum(acc[j][i]);
            Real& out = y[i * stride + j];
            out = add ? out + s : s;
        });
    });
}

template <class Real, class Stored, std::size_t N>
void tiles(Real const* x, Real const* tail, Stored const* w, std::size_t rows, std::size_t cols, Real* y,
           std::size_t stride, bool add) {
    constexpr std::size_t step = tile_rows(N);
    std::size_t j = 0;
    for (; j + step <= rows; j += step) tile<Real, Stored, step, N>(x, tail, w + j * cols, cols, y + j, stride, add);
    for (; j < rows; ++j) tile<Real, Stored, 1, N>(x, tail, w + j * cols, cols, y + j, stride, add);
}

/// The groups of rows of x that share a tile: as few as possible, and as even as possible, since one row alone costs
/// more than an eighth of eight.
struct groups {
    std::size_t n;
    std::size_t count;
    explicit groups(std::size_t rows) : n(rows), count((rows + widest - 1) / widest) {}
    [[nodiscard]] std::size_t begin(std::size_t g) const { return g * n / count; }
    [[nodiscard]] std::size_t size(std::size_t g) const { return begin(g + 1) - begin(g); }
    [[nodiscard]] std::size_t of(std::size_t row) const { return ((row + 1) * count - 1) / n; }
};

template <class Real>
[[nodiscard]] inline std::size_t padded(std::size_t cols) {
    return (cols + lanes<Real> - 1) / lanes<Real> * lanes<Real>;
}

/// A group lies together: for each block of lanes its rows one after another.
template <class Real>
[[gnu::flatten]] void pack(Real const* x, std::size_t n, std::size_t cols, std::size_t row, Real* out) {
    groups const all(n);
    std::size_t const g = all.of(row);
    std::size_t const size = all.size(g);
    Real const* const from = x + row * cols;
    Real* const to = out + all.begin(g) * padded<Real>(cols) + (row - all.begin(g)) * lanes<Real>;
    for (std::size_t c = 0; c < padded<Real>(cols); c += width<Real>) {
        wide<Real> v;
        load<Real>(from + c, c < cols ? cols - c : 0, v);
        store<Real>(to + c / lanes<Real> * lanes<Real> * size + c % lanes<Real>, width<Real>, v);
    }
}

inline constexpr std::size_t strip_bytes = std::size_t{1} << 18;

/// Goes through w in strips that stay in the second level while all groups of x use them, so that memory is read once.
template <class Real, class Stored>
void multiply(Real const* x, std::size_t n, void const* w, std::size_t rows, std::size_t cols, Real* y,
              std::size_t stride, bool add) {
    groups const all(n);
    std::size_t const fit = strip_bytes / (cols * sizeof(Stored)) / row_unit * row_unit;
    std::size_t const strip = fit == 0 ? row_unit : fit;
    for (std::size_t j = 0; j < rows; j += strip) {
        Stored const* const wj = static_cast<Stored const*>(w) + j * cols;
        std::size_t const count = rows - j < strip ? rows - j : strip;
        for (std::size_t g = 0; g < all.count; ++g) {
            std::size_t const size = all.size(g);
            Real const* const xg = x + all.begin(g) * padded<Real>(cols);
            Real const* const tail = xg + cols / lanes<Real> * lanes<Real> * size;
            Real* const yg = y + all.begin(g) * stride + j;
            unroll<widest>([&](auto i) {
                if (size == i + 1) tiles<Real, Stored, i + 1>(xg, tail, wj, count, cols, yg, stride, add);
            });
        }
    }
}

template <class Real, class Stored>
[[gnu::flatten]] void load_row(void const* row, std::size_t cols, Real* out) {
    auto const* const stored = static_cast<Stored const*>(row);
    for (std::size_t c = 0; c < cols; c += width<Real>) {
        wide<Real> v;
        load<Real>(stored + c, cols - c, v);
        store<Real>(out + c, cols - c, v);
    }
}

}  // namespace engine::ENGINE_KERNELS
