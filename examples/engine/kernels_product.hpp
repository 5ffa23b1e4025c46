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
/// Rows of w beside N rows of x.
inline constexpr std::size_t tile_rows(std::size_t n) {
    constexpr std::size_t heights[] = {16, 12, 8, 6, 4, 3, 2};
    for (std::size_t const rows : heights) {
        std::size_t const held = rows > n ? 2 * n + 2 : rows + 1;
        if (parts * rows * n + held <= registers) return rows;
    }
    return 1;
}

/// Makes the compiler load a vector once: it would rather read it anew in every instruction that uses it, and loads are
/// what a tile has least to spare.
template <class V>
ENGINE_INLINE void keep([[maybe_unused]] V& v) {
#if defined(__x86_64__)
    asm("" : "+v"(v));
#endif
}

// How rows meet in a product. A register of w makes `factors` registers of Real, and as many of x go with them. bfloat
// is the upper half of a float, so a register of pairs is two of floats: the even numbers after a shift, the odd ones
// after a mask. Taking them in order would cost an instruction more for each. If x has few rows, conversions are most
// of the work. Where the processor multiplies pairs itself, a register of pairs is left as it is.

/// bfloat in the storage of weights whose products round x.
struct rounding_bfloat {
    std::uint16_t bits;
};
template <class Stored>
inline constexpr bool is_rounding = false;
template <>
inline constexpr bool is_rounding<rounding_bfloat> = true;

#if defined(__AVX512BF16__)
inline constexpr bool multiplies_pairs = true;
#else
inline constexpr bool multiplies_pairs = false;
#endif

template <class Real, class Stored>
inline constexpr std::size_t factors = 1;
template <>
inline constexpr std::size_t factors<float, bfloat> = 2;
template <>
inline constexpr std::size_t factors<float, rounding_bfloat> = multiplies_pairs ? 1 : 2;

/// Numbers of a row that go into all lanes once, and what they take in packed x.
template <class Real, class Stored>
inline constexpr std::size_t unit = lanes<Real> * factors<Real, Stored>;
template <>
inline constexpr std::size_t unit<float, rounding_bfloat> = 2 * lanes<float>;
template <class Real, class Stored>
inline constexpr std::size_t packed_unit = lanes<Real> * factors<Real, Stored>;

template <class Real, class Stored>
using factors_of = wide<Real>[factors<Real, Stored>];

template <class Real, class Stored>
ENGINE_INLINE void load_factors(Stored const* from, wide<Real> (&v)[1]) {
    if constexpr (unit<Real, Stored> > packed_unit<Real, Stored>) {
        read(from, v[0]);
    } else {
        load<Real>(from, v[0]);
    }
    keep(v[0]);
}
template <class Real, class Stored>
ENGINE_INLINE void load_factors(Stored const* from, wide<Real> (&v)[2]) {
    vec<std::uint32_t, width<float>> pairs;
    read(from, pairs);
    keep(pairs);
    v[0] = (wide<float>)(pairs << 16);
    v[1] = (wide<float>)(pairs & 0xffff0000U);
}

template <class Stored, class Real>
ENGINE_INLINE void multiply_add(wide<Real> const& w, wide<Real> const& x, wide<Real>& sum) {
#if defined(__AVX512BF16__)
    if constexpr (unit<Real, Stored> > packed_unit<Real, Stored>) {
        sum = (wide<Real>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x);
        return;
    }
#endif
    sum += w * x;
}

/// How far ahead to prefetch w. Whole tiles, so that every row of a tile prefetches the same place of a later tile. At
/// least 16 KiB, so that the data is there when the tile gets there. The processor's own prefetching follows one row
/// and stops at its page. With that alone a product reads memory at half its speed.
template <class Stored, std::size_t W>
[[nodiscard]] inline std::size_t distance(std::size_t cols) {
    std::size_t const bytes = W * cols * sizeof(Stored);
    return (16384 + bytes - 1) / bytes * bytes;
}

/// Into the second level: the first is for x. The address may lie behind the end of w, so it is no pointer.
ENGINE_INLINE void ask_for(void const* from, std::size_t ahead) {
    __builtin_prefetch(reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(from) + ahead), 0, 2);
}

/// Adds `count` units of products to the lanes; x holds for each unit the N rows one after another. The fewer of the
/// two, rows of w or of x, stay in registers while the others pass by.
template <class Real, class Stored, std::size_t W, std::size_t N>
ENGINE_INLINE void add_products(Stored const* w, std::size_t stride, Real const* x, std::size_t count,
                                std::size_t ahead, block<Real> (&acc)[N * W]) {
    constexpr std::size_t all = factors<Real, Stored>;
    constexpr std::size_t step = packed_unit<Real, Stored>;
    for (; count > 0; --count, w += unit<Real, Stored>, x += N * step) {
        unroll<parts>([&](auto p) ENGINE_LAMBDA {
            auto const load_x = [&](auto i, auto f, wide<Real>& v) ENGINE_LAMBDA {
                load<Real>(x + i * step + (p * all + f) * width<Real>, v);
                keep(v);
            };
            auto const load_w = [&](auto j, factors_of<Real, Stored>& v) ENGINE_LAMBDA {
                if (p == 0) ask_for(w + j * stride, ahead);
                load_factors<Real>(w + j * stride + p * all * width<Real>, v);
            };
            if constexpr (W > N) {
                wide<Real> xv[N][all];
                unroll<N>([&](auto i)
                              ENGINE_LAMBDA { unroll<all>([&](auto f) ENGINE_LAMBDA { load_x(i, f, xv[i][f]); }); });
                unroll<W>([&](auto j) ENGINE_LAMBDA {
                    factors_of<Real, Stored> wv;
                    load_w(j, wv);
                    unroll<all>([&](auto f) ENGINE_LAMBDA {
                        unroll<N>([&](auto i) ENGINE_LAMBDA {
                            multiply_add<Stored, Real>(wv[f], xv[i][f], acc[i * W + j].part[p]);
                        });
                    });
                });
            } else {
                factors_of<Real, Stored> wv[W];
                unroll<W>([&](auto j) ENGINE_LAMBDA { load_w(j, wv[j]); });
                unroll<all>([&](auto f) ENGINE_LAMBDA {
                    unroll<N>([&](auto i) ENGINE_LAMBDA {
                        wide<Real> xv;
                        load_x(i, f, xv);
                        unroll<W>([&](auto j) ENGINE_LAMBDA {
                            multiply_add<Stored, Real>(wv[j][f], xv, acc[i * W + j].part[p]);
                        });
                    });
                });
            }
        });
    }
}

/// out[i * W + j] = sum of the lanes of acc[i * W + j], a register of sums at a time.
template <class Real, std::size_t First, std::size_t Count>
ENGINE_INLINE void add_lanes(block<Real> const (&acc)[Count], Real* out) {
    constexpr std::size_t left = Count - First;
    constexpr std::size_t taken = left < width<Real> ? left : width<Real>;
    wide<Real> v[power_of_two(taken)] = {};
    unroll<taken>([&](auto k) ENGINE_LAMBDA { add_parts(acc[First + k], v[k]); });
    sum_each<Real>(v);
    store<Real>(out + First, taken, v[0]);
    if constexpr (taken < left) add_lanes<Real, First + taken>(acc, out);
}

/// W outputs of N rows. The last numbers of a row that fill no unit are read from copies with zeros behind them: w's
/// are made here, x's are given in `tail`.
template <class Real, class Stored, std::size_t W, std::size_t N>
[[gnu::flatten]] void tile(Real const* x, Real const* tail, Stored const* w, std::size_t cols, Real* y,
                           std::size_t stride, bool add) {
    constexpr std::size_t step = unit<Real, Stored>;
    // Where results go may lie in the cache of the thread that read the last ones: fetched now, it is here in time.
    for (std::size_t i = 0; i < N; ++i) __builtin_prefetch(y + i * stride, 1);
    block<Real> acc[N * W];
    unroll<N * W>([&](auto k) ENGINE_LAMBDA { acc[k] = {}; });
    std::size_t const ahead = distance<Stored, W>(cols);
    std::size_t const rest = cols % step;
    Stored padded[W * step];
    std::size_t between = cols;
    std::size_t count = cols / step;
    for (bool last = rest == 0;; last = true) {  // a loop, so that there is one copy of the arithmetic
        add_products<Real, Stored, W, N>(w, between, x, count, ahead, acc);
        if (last) break;
        for (std::size_t k = 0; k < W * step; ++k) {
            padded[k] = k % step < rest ? w[(k / step + 1) * cols - rest + k % step] : Stored{};
        }
        w = padded;
        between = step;
        x = tail;
        count = 1;
    }
    Real s[N * W];
    add_lanes<Real, 0>(acc, s);
    for (std::size_t i = 0; i < N; ++i) {
        Real* const to = y + i * stride;
        if (add) {
            for (std::size_t j = 0; j < W; ++j) to[j] += s[i * W + j];
        } else {
            for (std::size_t j = 0; j < W; ++j) to[j] = s[i * W + j];
        }
    }
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

/// A multiple of the height of every tile that is used for n rows of x.
[[nodiscard]] inline std::size_t rows_together(std::size_t n) {
    return n > widest ? 48 : tile_rows(n);
}

/// Reals that a row takes in packed x.
template <class Real, class Stored>
[[nodiscard]] inline std::size_t packed_size(std::size_t cols) {
    return (cols + unit<Real, Stored> - 1) / unit<Real, Stored> * packed_unit<Real, Stored>;
}

/// Every other number of two registers.
template <class Real, std::size_t First, std::size_t... I>
ENGINE_INLINE void pick(wide<Real> const (&pair)[2], wide<Real>& v, std::integer_sequence<std::size_t, I...>) {
    v = __builtin_shufflevector(pair[0], pair[1], (2 * I + First)...);
}

/// To the nearest bf16, ties to even; NaN stays NaN.
ENGINE_INLINE void round_to_bfloat(wide<float>& v) {
    using integers = vec<std::uint32_t, width<float>>;
    integers const bits = (integers)v;
    integers const rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U;
    v = v == v ? (wide<float>)rounded : (wide<float>)((bits & 0xffff0000U) | 0x400000U);  // a bit that stays
}

/// A group lies together: for each unit its rows one after another, in the order in which load_factors has w.
template <class Real, class Stored>
[[gnu::flatten]] void pack_row(Real const* from, std::size_t n, std::size_t cols, std::size_t row, Real* out) {
    constexpr bool pairs = unit<Real, Stored> == 2 * lanes<Real>;
    constexpr std::size_t taken = pairs ? 2 : 1;  // registers
    constexpr std::size_t given = factors<Real, Stored>;
    constexpr std::size_t step = packed_unit<Real, Stored>;
    groups const rows(n);
    std::size_t const g = rows.of(row);
    std::size_t const size = rows.size(g);
    Real* to = out + rows.begin(g) * packed_size<Real, Stored>(cols) + (row - rows.begin(g)) * step;
    for (std::size_t c = 0; c < cols; to += (size - 1) * step) {
        for (std::size_t p = 0; p < parts; ++p, c += taken * width<Real>, to += given * width<Real>) {
            wide<Real> v[taken];
            unroll<taken>([&](auto f) {
                std::size_t const at = c + f * width<Real>;
                load<Real>(from + at, at < cols ? cols - at : 0, v[f]);
                if constexpr (is_rounding<Stored>) round_to_bfloat(v[f]);
            });
            if constexpr (pairs) {
                using every = std::make_integer_sequence<std::size_t, width<Real>>;
                wide<Real> even;
                wide<Real> odd;
                pick<Real, 0>(v, even, every{});
                pick<Real, 1>(v, odd, every{});
                if constexpr (given == 1) {
                    using integers = vec<std::uint32_t, width<Real>>;
                    v[0] = (wide<Real>)((integers)even >> 16 | ((integers)odd & 0xffff0000U));
                } else {
                    v[0] = even;
                    v[1] = odd;
                }
            }
            unroll<given>([&](auto f) { store<Real>(to + f * width<Real>, width<Real>, v[f]); });
        }
    }
}

template <class Real, class Stored>
void pack(Real const* x, std::size_t n, std::size_t cols, std::size_t row, Real* out) {
    pack_row<Real, Stored>(x + row * cols, n, cols, row, out);
}

inline constexpr std::size_t strip_bytes = std::size_t{1} << 18;

/// Goes through w in strips that stay in the second level while all groups of x use them, so that memory is read once.
template <class Real, class Stored>
void multiply(Real const* x, std::size_t n, void const* w, std::size_t rows, std::size_t cols, Real* y,
              std::size_t stride, bool add) {
    // Packed x mostly lies in the cache of the thread that packed it.
    for (std::size_t at = 0; at < n * packed_size<Real, Stored>(cols) && at < 4096; at += lanes<Real>) {
        __builtin_prefetch(x + at);
    }
    groups const all(n);
    std::size_t const height = rows_together(n);
    std::size_t const fit = strip_bytes / (cols * sizeof(Stored)) / height * height;
    std::size_t const strip = fit == 0 ? height : fit;
    for (std::size_t j = 0; j < rows; j += strip) {
        Stored const* const wj = static_cast<Stored const*>(w) + j * cols;
        std::size_t const count = rows - j < strip ? rows - j : strip;
        for (std::size_t g = 0; g < all.count; ++g) {
            std::size_t const size = all.size(g);
            Real const* const xg = x + all.begin(g) * packed_size<Real, Stored>(cols);
            Real const* const tail = xg + cols / unit<Real, Stored> * packed_unit<Real, Stored> * size;
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
