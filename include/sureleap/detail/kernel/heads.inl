// SPDX-License-Identifier: MIT
//
// The functions of heads.hpp in vectors, written once and compiled for AVX2 and for AVX-512: a part of avx2.hpp and
// avx512.hpp. rows.inl says why it is no ordinary template. Before they include it, they open the namespace for_heads
// and define SURELEAP_KERNEL, SURELEAP_INLINE (the same, and always inline) and a class `isa`, which has:
//
//     width, parts                 floats in a register; registers for 16 lanes
//     at_once                      rows of the matrix that are multiplied side by side with three vectors, a divisor of 8
//     from_memory                  the same of rows that are yet to be read
//     vec, zero, multiply_add(a, b, c)
//     load(T const*, part, h)      of 32 weights the first or second that the lanes of a part take
//     load_beside<T>(x, part, h)   the numbers that these are multiplied with
//     halve(vec const*)            8 of the 16 sums in `parts` registers: lane l plus lane l + 8
//     words, load_bytes, load_words, add_pairs(sum, a, b), halve_words    the same for int8 and 16 bits
//     list(from, threshold, first, out)    which of 16 floats are at or above it, counted from `first`; how many. Writes up
//                                  to 16 numbers

static constexpr std::size_t lanes = 16;
static constexpr std::size_t together = 8;  // rows whose sums become one register of results

/// Eight registers of eight partial sums to one of eight sums: lanes l and l + 4, then l + 2, then l + 1.
SURELEAP_INLINE __m256 gather_sums(__m256 const (&h)[together]) {
    __m256 t[4];
    SURELEAP_DETAIL_UNROLL(4)
    for (std::size_t i = 0; i < 4; ++i) {
        t[i] = _mm256_add_ps(_mm256_permute2f128_ps(h[2 * i], h[2 * i + 1], 0x20),
                             _mm256_permute2f128_ps(h[2 * i], h[2 * i + 1], 0x31));
    }
    __m256 u[2];
    SURELEAP_DETAIL_UNROLL(2)
    for (std::size_t i = 0; i < 2; ++i) {
        u[i] = _mm256_add_ps(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    }
    __m256 const sums = _mm256_add_ps(_mm256_shuffle_ps(u[0], u[1], 0x88), _mm256_shuffle_ps(u[0], u[1], 0xdd));
    return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
SURELEAP_INLINE __m256i gather_sums(__m256i const (&h)[together]) {
    __m256i t[4];
    SURELEAP_DETAIL_UNROLL(4)
    for (std::size_t i = 0; i < 4; ++i) t[i] = _mm256_hadd_epi32(h[2 * i], h[2 * i + 1]);
    __m256i const low = _mm256_hadd_epi32(t[0], t[1]);
    __m256i const high = _mm256_hadd_epi32(t[2], t[3]);
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/// As many rows are fetched before they are multiplied, where memory cannot know which ones come next.
static constexpr std::size_t ahead = 2 * together;
/// And so many bytes where rows side by side hide their order from it.
static constexpr std::size_t ahead_in_bytes = 8192;
/// Of rows, and a fraction of the second cache.
static constexpr std::size_t tile_bytes = std::size_t{1} << 17;

template <class W>
SURELEAP_INLINE void fetch_named(row_selection<W> const& rows, std::size_t first, std::size_t size) {
    for (std::size_t i = first; i < first + size && i < rows.count; ++i) {
        auto const* const row = reinterpret_cast<char const*>(rows.row(i));
        for (std::size_t c = 0; c < rows.cols * sizeof(W); c += 64) __builtin_prefetch(row + c, 0, 2);
    }
}

/// Rows i .. i + 7; the last row takes the place of those that are not there.
template <class W>
struct group {
    W const* row[together];
    SURELEAP_INLINE group(row_selection<W> const& rows, std::size_t i) {
        if (rows.ids == nullptr && i + together <= rows.count) {
            row[0] = rows.data + i * rows.stride;
            for (std::size_t r = 1; r < together; ++r) row[r] = row[r - 1] + rows.stride;
        } else {
            for (std::size_t r = 0; r < together; ++r) row[r] = rows.row(i + r < rows.count ? i + r : rows.count - 1);
        }
    }
};

/// The first `size` of eight numbers, zeros behind them.
SURELEAP_INLINE __m256 load_some(float const* from, std::size_t size) {
    if (size == together) return _mm256_loadu_ps(from);
    float some[together] = {};
    for (std::size_t r = 0; r < size; ++r) some[r] = from[r];
    return _mm256_loadu_ps(some);
}
SURELEAP_INLINE void store_some(float* to, std::size_t size, __m256 numbers) {
    if (size == together) return _mm256_storeu_ps(to, numbers);
    float some[together];
    _mm256_storeu_ps(some, numbers);
    for (std::size_t r = 0; r < size; ++r) to[r] = some[r];
}

#include <sureleap/detail/kernel/short_rows.inl>

template <class W>
struct products {
    using vec = isa::vec;
    static constexpr std::size_t parts = isa::parts;
    static constexpr std::size_t step = 2 * lanes;  // columns, two to a lane

    /// The last `size` elements of a row, zeros behind them.
    template <class T>
    struct tail {
        T values[step]{};
        SURELEAP_KERNEL void take(T const* row, std::size_t size) {
            for (std::size_t i = 0; i < size; ++i) values[i] = row[i];
        }
    };

    /// Sums of R rows with N vectors.
    template <std::size_t N, std::size_t R>
    struct block {
        vec sum[N][R][parts];
    };
    template <std::size_t N, std::size_t R>
    SURELEAP_INLINE static void add(W const* const (&row)[R], float const* const (&x)[N], block<N, R>& to) {
        SURELEAP_DETAIL_UNROLL(2)
        for (std::size_t p = 0; p < parts; ++p) {
            SURELEAP_DETAIL_UNROLL(2)
            for (std::size_t h = 0; h < 2; ++h) {
                vec of_x[N];
                SURELEAP_DETAIL_UNROLL(4)
                for (std::size_t n = 0; n < N; ++n) of_x[n] = isa::template load_beside<W>(x[n], p, h);
                SURELEAP_DETAIL_UNROLL(8)
                for (std::size_t r = 0; r < R; ++r) {
                    vec w = isa::load(row[r], p, h);
                    if (N > 1)
                        asm("" : "+v"(w));  // stays in a register: compilers would load it again for every product
                    SURELEAP_DETAIL_UNROLL(4)
                    for (std::size_t n = 0; n < N; ++n) {
                        to.sum[n][r][p] = isa::multiply_add(w, of_x[n], to.sum[n][r][p]);
                    }
                }
            }
        }
    }

    /// One group and N vectors, R rows at a time. With Fetch the rows come from memory.
    template <std::size_t N, std::size_t R, bool Fetch>
    SURELEAP_INLINE static void multiply(group<W> const& g, std::size_t cols, std::size_t size, float const* const* x,
                                         float const* const* base, float* const* y, std::size_t i) {
        __m256 halves[N][together];
        for (std::size_t first = 0; first < together; first += R) {
            block<N, R> sums;
            SURELEAP_DETAIL_UNROLL(4)
            for (std::size_t n = 0; n < N; ++n) {
                SURELEAP_DETAIL_UNROLL(8)
                for (std::size_t r = 0; r < R; ++r) {
                    SURELEAP_DETAIL_UNROLL(2)
                    for (std::size_t p = 0; p < parts; ++p) sums.sum[n][r][p] = isa::zero();
                }
            }
            W const* row[R];
            float const* from[N];
            auto const* next = reinterpret_cast<char const*>(g.row[first]) + ahead_in_bytes;
            std::size_t c = 0;
            for (; c + step <= cols; c += step) {
                SURELEAP_DETAIL_UNROLL(8)
                for (std::size_t r = 0; r < R; ++r) row[r] = g.row[first + r] + c;
                SURELEAP_DETAIL_UNROLL(4)
                for (std::size_t n = 0; n < N; ++n) from[n] = x[n] + c;
                add<N, R>(row, from, sums);
                if (Fetch && R > 1) {
                    SURELEAP_DETAIL_UNROLL(8)
                    for (std::size_t l = 0; l < R * step * sizeof(W); l += 64) __builtin_prefetch(next + l);
                    next += R * step * sizeof(W);
                }
            }
            if (c < cols) {
                tail<W> last_row[R];
                tail<float> last_x[N];
                for (std::size_t r = 0; r < R; ++r) {
                    last_row[r].take(g.row[first + r] + c, cols - c);
                    row[r] = last_row[r].values;
                }
                for (std::size_t n = 0; n < N; ++n) {
                    last_x[n].take(x[n] + c, cols - c);
                    from[n] = last_x[n].values;
                }
                add<N, R>(row, from, sums);
            }
            SURELEAP_DETAIL_UNROLL(4)
            for (std::size_t n = 0; n < N; ++n) {
                SURELEAP_DETAIL_UNROLL(8)
                for (std::size_t r = 0; r < R; ++r) halves[n][first + r] = isa::halve(sums.sum[n][r]);
            }
        }
        for (std::size_t n = 0; n < N; ++n) {
            __m256 const sums = gather_sums(halves[n]);
            store_some(y[n] + i, size, _mm256_add_ps(load_some(base[n] + i, size), sums));
        }
    }

    /// Rows first .. end - 1 and N vectors.
    template <std::size_t N, std::size_t R, bool Fetch>
    SURELEAP_KERNEL static void multiply_rows(row_selection<W> const& rows, std::size_t first, std::size_t end,
                                              float const* const* x, float const* const* base, float* const* y) {
        for (std::size_t i = first; i < end; i += together) {
            if (Fetch && rows.ids != nullptr) fetch_named(rows, i + ahead, together);
            if (N > 1 && i % lanes == 0) {  // there are too many rows of results for memory to know what comes next
                for (std::size_t n = 0; n < N; ++n) {
                    __builtin_prefetch(base[n] + i + ahead);
                    __builtin_prefetch(y[n] + i + ahead, 1);
                }
            }
            multiply<N, R, Fetch>({rows, i}, rows.cols, end - i < together ? end - i : together, x, base, y, i);
        }
    }
    /// One to three vectors with rows that are yet to be read: long ones, which take time enough, one after another,
    /// and then nothing is faster; short ones side by side.
    SURELEAP_KERNEL static void multiply_first(row_selection<W> const& rows, std::size_t first, std::size_t end,
                                               float const* const* x, float const* const* base, float* const* y,
                                               std::size_t n) {
        constexpr std::size_t R = isa::from_memory;
        if (sizeof(W) == 4 && rows.cols >= 256) {
            multiply_rows<1, 1, true>(rows, first, end, x, base, y);
            if (n == 2) multiply_rows<1, isa::at_once, false>(rows, first, end, x + 1, base + 1, y + 1);
            if (n == 3) multiply_rows<2, isa::at_once, false>(rows, first, end, x + 1, base + 1, y + 1);
        } else {
            if (n == 1) multiply_rows<1, R, true>(rows, first, end, x, base, y);
            if (n == 2) multiply_rows<2, R, true>(rows, first, end, x, base, y);
            if (n == 3) multiply_rows<3, R, true>(rows, first, end, x, base, y);
        }
    }

    /// Memory serves rows side by side at half the speed of one after another, unless they are fetched ahead in its
    /// order. So a batch goes by tiles that stay in the second cache: one to three vectors bring a tile there, the
    /// others find it, three at a time.
    SURELEAP_KERNEL static void product(row_selection<W> const& rows, float const* const* x, float const* const* base,
                                        float* const* y, std::size_t n) {
        if (n == 0 || rows.count == 0 || short_rows<W>::product(rows, x, base, y, n)) return;
        if (rows.ids != nullptr) fetch_named(rows, 0, ahead);
        std::size_t const groups = tile_bytes / (rows.cols * sizeof(W) + 1) / together;
        std::size_t const tile = n == 1 ? rows.count : (groups < 1 ? 1 : groups) * together;
        std::size_t const few = (n - 1) % 3 + 1;
        for (std::size_t first = 0; first < rows.count; first += tile) {
            std::size_t const end = first + tile < rows.count ? first + tile : rows.count;
            multiply_first(rows, first, end, x, base, y, few);
            for (std::size_t k = few; k < n; k += 3) {
                multiply_rows<3, isa::at_once, false>(rows, first, end, x + k, base + k, y + k);
            }
        }
    }
};

SURELEAP_INLINE __m256 load_named(float const* from, token_id const* ids, std::size_t size) {
    float some[together] = {};
    for (std::size_t r = 0; r < size; ++r) some[r] = from[ids[r]];
    return _mm256_loadu_ps(some);
}
/// What the sums of rows i .. i + size - 1 are multiplied with.
SURELEAP_INLINE __m256 load_scales(row_selection<std::int8_t> const& rows, float const* scales, std::size_t i,
                                   std::size_t size) {
    return rows.ids == nullptr ? load_some(scales + i, size) : load_named(scales, rows.ids + i, size);
}
/// y[r] = base[r] + scale[r] unit sum[r], for `size` rows.
SURELEAP_INLINE void store_scaled(__m256i const (&halves)[together], __m256 scale, float unit, float const* base,
                                  float* y, std::size_t size) {
    __m256 const sums = _mm256_cvtepi32_ps(gather_sums(halves));
    store_some(y, size, _mm256_fmadd_ps(sums, _mm256_mul_ps(scale, _mm256_set1_ps(unit)), load_some(base, size)));
}

/// One vector of Steps registers, which stay there.
template <std::size_t Steps>
SURELEAP_KERNEL void int8_rows_of(row_selection<std::int8_t> const& rows, float const* scales, std::int16_t const* x,
                                  float unit, float const* base, float* y) {
    constexpr std::size_t step = 2 * isa::width;
    isa::words of_x[Steps];
    SURELEAP_DETAIL_UNROLL(8)
    for (std::size_t s = 0; s < Steps; ++s) of_x[s] = isa::load_words(x + s * step);
    for (std::size_t i = 0; i < rows.count; i += together) {
        group<std::int8_t> const g(rows, i);
        if (rows.ids != nullptr) fetch_named(rows, i + ahead, together);
        __m256i halves[together];
        SURELEAP_DETAIL_UNROLL(8)
        for (std::size_t r = 0; r < together; ++r) {
            isa::words sum{};
            SURELEAP_DETAIL_UNROLL(8)
            for (std::size_t s = 0; s < Steps; ++s) {
                sum = isa::add_pairs(sum, isa::load_bytes(g.row[r] + s * step), of_x[s]);
            }
            halves[r] = isa::halve_words(sum);
        }
        std::size_t const size = rows.count - i < together ? rows.count - i : together;
        store_scaled(halves, load_scales(rows, scales, i, size), unit, base + i, y + i, size);
    }
}

/// Several vectors one after the other: what is read of the matrix for a group of rows stays in the first cache for
/// all.
SURELEAP_KERNEL void int8_product(row_selection<std::int8_t> const& rows, float const* scales,
                                  std::int16_t const* const* x, float const* unit, float const* const* base,
                                  float* const* y, std::size_t n) {
    constexpr std::size_t step = 2 * isa::width;
    if (rows.ids != nullptr) fetch_named(rows, 0, ahead);
    if (n == 1 && rows.cols == 2 * step) return int8_rows_of<2>(rows, scales, *x, *unit, *base, *y);
    if (n == 1 && rows.cols == 4 * step) return int8_rows_of<4>(rows, scales, *x, *unit, *base, *y);
    if (n == 1 && rows.cols == 8 * step) return int8_rows_of<8>(rows, scales, *x, *unit, *base, *y);
    for (std::size_t i = 0; i < rows.count; i += together) {
        group<std::int8_t> const g(rows, i);
        if (rows.ids != nullptr) fetch_named(rows, i + ahead, together);
        std::size_t const size = rows.count - i < together ? rows.count - i : together;
        __m256 const scale = load_scales(rows, scales, i, size);
        for (std::size_t k = 0; k < n; ++k) {
            __m256i halves[together];
            for (std::size_t r = 0; r < together; ++r) {
                isa::words sum{};
                std::size_t c = 0;
                for (; c + step <= rows.cols; c += step) {
                    sum = isa::add_pairs(sum, isa::load_bytes(g.row[r] + c), isa::load_words(x[k] + c));
                }
                if (c < rows.cols) {
                    std::int16_t last_x[step] = {};
                    std::int8_t last[step] = {};
                    for (std::size_t j = 0; c + j < rows.cols; ++j) {
                        last_x[j] = x[k][c + j];
                        last[j] = g.row[r][c + j];
                    }
                    sum = isa::add_pairs(sum, isa::load_bytes(last), isa::load_words(last_x));
                }
                halves[r] = isa::halve_words(sum);
            }
            store_scaled(halves, scale, unit[k], base[k] + i, y[k] + i, size);
        }
    }
}

SURELEAP_KERNEL std::size_t at_least(float const* row, std::size_t size, float threshold, token_id* out) {
    std::size_t count = 0;
    std::size_t i = 0;
    for (; i + lanes <= size; i += lanes) {
        count += isa::list(row + i, threshold, static_cast<token_id>(i), out + count);
    }
    for (; i < size; ++i) {
        if (row[i] >= threshold) out[count++] = static_cast<token_id>(i);
    }
    return count;
}

/// What head_kernels takes.
struct heads {
    template <class W>
    static constexpr product_function<W> product = products<W>::product;
    static constexpr int8_product_function int8_product = for_heads::int8_product;
    static constexpr auto at_least = for_heads::at_least;
};
