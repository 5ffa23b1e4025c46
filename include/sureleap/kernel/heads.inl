// SPDX-License-Identifier: MIT
//
// The functions of head.hpp in vectors, written once and compiled for AVX2 and for AVX-512: a part of head_avx2.hpp and
// head_avx512.hpp, as rows.inl is of avx2.hpp (which says why it is no ordinary template). Who includes it has opened a
// namespace, defined SURELEAP_KERNEL and a class `isa`:
//
//     width, parts                 floats in a register; registers for 16 lanes
//     at_once                      rows of the matrix that are multiplied side by side, a divisor of 8
//     vectors                      vectors of x multiplied with them at once
//     vec, load(T const*), zero, multiply_add(a, b, c)
//     halve(vec const*)            8 of the 16 sums in `parts` registers: lane l plus lane l + 8
//     words, load_bytes, load_words, pairs(a, b), add, halve_words    the same for int8 and 16 bits
//     list(from, threshold, first, out)    which of 16 floats are at or above it, counted from `first`; how many. Writes up
//                                  to 16 numbers

static constexpr std::size_t lanes = 16;
static constexpr std::size_t together = 8;  // rows whose sums become one register of results

/// Eight registers of eight partial sums to one of eight sums: lanes l and l + 4, then l + 2, then l + 1.
SURELEAP_INLINE __m256 gather_sums(__m256 const (&h)[together]) {
    __m256 t[4];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
        t[i] = _mm256_add_ps(_mm256_permute2f128_ps(h[2 * i], h[2 * i + 1], 0x20),
                             _mm256_permute2f128_ps(h[2 * i], h[2 * i + 1], 0x31));
    }
    __m256 u[2];
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
        u[i] = _mm256_add_ps(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    }
    __m256 const sums = _mm256_add_ps(_mm256_shuffle_ps(u[0], u[1], 0x88), _mm256_shuffle_ps(u[0], u[1], 0xdd));
    return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
SURELEAP_INLINE __m256i gather_sums(__m256i const (&h)[together]) {
    __m256i t[4];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) t[i] = _mm256_hadd_epi32(h[2 * i], h[2 * i + 1]);
    __m256i const low = _mm256_hadd_epi32(t[0], t[1]);
    __m256i const high = _mm256_hadd_epi32(t[2], t[3]);
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/// As many rows are fetched before they are multiplied, where memory cannot know which ones come next.
static constexpr std::size_t ahead = 2 * together;

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

/// y[r] = base[r] + sum r, for `size` of them.
SURELEAP_INLINE void add_to(float const* base, float* y, std::size_t size, __m256 sums) {
    if (size == together) {
        _mm256_storeu_ps(y, _mm256_add_ps(_mm256_loadu_ps(base), sums));
        return;
    }
    float some[together];
    _mm256_storeu_ps(some, sums);
    for (std::size_t r = 0; r < size; ++r) y[r] = base[r] + some[r];
}

template <class W>
struct products {
    using vec = isa::vec;
    static constexpr std::size_t parts = isa::parts;

    /// The last `size` elements of a row, zeros behind them.
    template <class T>
    struct tail {
        T values[lanes]{};
        SURELEAP_KERNEL void take(T const* row, std::size_t size) {
            for (std::size_t i = 0; i < size; ++i) values[i] = row[i];
        }
    };

    template <std::size_t N>
    SURELEAP_INLINE static void add(W const* const (&row)[isa::at_once], float const* const (&x)[N],
                                    vec (&sum)[N][isa::at_once][parts]) {
#pragma GCC unroll 2
        for (std::size_t p = 0; p < parts; ++p) {
            vec of_x[N];
#pragma GCC unroll 4
            for (std::size_t n = 0; n < N; ++n) of_x[n] = isa::load(x[n] + p * isa::width);
#pragma GCC unroll 8
            for (std::size_t r = 0; r < isa::at_once; ++r) {
                vec w = isa::load(row[r] + p * isa::width);
                asm("" : "+v"(w));  // stays in a register: compilers would load it again for every product
#pragma GCC unroll 4
                for (std::size_t n = 0; n < N; ++n) sum[n][r][p] = isa::multiply_add(w, of_x[n], sum[n][r][p]);
            }
        }
    }

    template <std::size_t N>
    SURELEAP_INLINE static void multiply(group<W> const& g, std::size_t cols, std::size_t rows, std::size_t i,
                                         float const* const* x, float const* const* base, float* const* y) {
        __m256 halves[N][together];
        for (std::size_t first = 0; first < together; first += isa::at_once) {
            vec sum[N][isa::at_once][parts];
#pragma GCC unroll 4
            for (std::size_t n = 0; n < N; ++n) {
#pragma GCC unroll 8
                for (std::size_t r = 0; r < isa::at_once; ++r) {
#pragma GCC unroll 2
                    for (std::size_t p = 0; p < parts; ++p) sum[n][r][p] = isa::zero();
                }
            }
            std::size_t c = 0;
            for (; c + lanes <= cols; c += lanes) {
                W const* row[isa::at_once];
                float const* from[N];
#pragma GCC unroll 8
                for (std::size_t r = 0; r < isa::at_once; ++r) {
                    row[r] = g.row[first + r] + c;
                }
#pragma GCC unroll 4
                for (std::size_t n = 0; n < N; ++n) from[n] = x[n] + c;
                add<N>(row, from, sum);
            }
            if (c < cols) {
                tail<W> last_row[isa::at_once];
                tail<float> last_x[N];
                W const* row[isa::at_once];
                float const* from[N];
                for (std::size_t r = 0; r < isa::at_once; ++r) {
                    last_row[r].take(g.row[first + r] + c, cols - c);
                    row[r] = last_row[r].values;
                }
                for (std::size_t n = 0; n < N; ++n) {
                    last_x[n].take(x[n] + c, cols - c);
                    from[n] = last_x[n].values;
                }
                add<N>(row, from, sum);
            }
#pragma GCC unroll 4
            for (std::size_t n = 0; n < N; ++n) {
#pragma GCC unroll 8
                for (std::size_t r = 0; r < isa::at_once; ++r) halves[n][first + r] = isa::halve(sum[n][r]);
            }
        }
        std::size_t const size = rows - i < together ? rows - i : together;
        for (std::size_t n = 0; n < N; ++n) add_to(base[n] + i, y[n] + i, size, gather_sums(halves[n]));
    }

    /// One vector: row after row, as memory likes it. A row's additions wait for each other, but not for those of the
    /// next rows.
    SURELEAP_INLINE static void multiply_one(group<W> const& g, std::size_t cols, std::size_t rows, std::size_t i,
                                             float const* x, float const* base, float* y) {
        __m256 halves[together];
        for (std::size_t r = 0; r < together; ++r) {
            vec sum[parts];
#pragma GCC unroll 2
            for (std::size_t p = 0; p < parts; ++p) sum[p] = isa::zero();
            W const* const row = g.row[r];
            std::size_t c = 0;
            for (; c + lanes <= cols; c += lanes) {
#pragma GCC unroll 2
                for (std::size_t p = 0; p < parts; ++p) {
                    std::size_t const at = c + p * isa::width;
                    sum[p] = isa::multiply_add(isa::load(row + at), isa::load(x + at), sum[p]);
                }
            }
            if (c < cols) {
                tail<W> last_row;
                tail<float> last_x;
                last_row.take(row + c, cols - c);
                last_x.take(x + c, cols - c);
#pragma GCC unroll 2
                for (std::size_t p = 0; p < parts; ++p) {
                    std::size_t const at = p * isa::width;
                    sum[p] = isa::multiply_add(isa::load(last_row.values + at), isa::load(last_x.values + at), sum[p]);
                }
            }
            halves[r] = isa::halve(sum);
        }
        std::size_t const size = rows - i < together ? rows - i : together;
        add_to(base + i, y + i, size, gather_sums(halves));
    }

    SURELEAP_KERNEL static void product(row_selection<W> const& rows, float const* const* x, float const* const* base,
                                        float* const* y, std::size_t n) {
        if (rows.ids != nullptr) fetch_named(rows, 0, ahead);
        for (std::size_t i = 0; i < rows.count; i += together) {
            group<W> const g(rows, i);
            std::size_t k = 0;
            // Rows here and there are fetched ahead, all lines of several rows at once; what follows on comes by itself.
            if (rows.ids != nullptr) fetch_named(rows, i + ahead, together);
            for (; k + isa::vectors <= n; k += isa::vectors) {
                // The next rows come while these are multiplied, one at a time; with a single vector memory is busy anyway.
                if (std::size_t const next = i + together + k / isa::vectors; next < rows.count) {
                    W const* const row = rows.row(next);
                    for (std::size_t c = 0; c < rows.cols; c += 64 / sizeof(W)) __builtin_prefetch(row + c);
                }
                multiply<isa::vectors>(g, rows.cols, rows.count, i, x + k, base + k, y + k);
            }
            for (; k < n; ++k) multiply_one(g, rows.cols, rows.count, i, x[k], base[k], y[k]);
        }
    }
};

/// One vector at a time: what is read of the matrix for a group of rows stays in the first cache for all of them.
SURELEAP_KERNEL inline void int8_product(row_selection<std::int8_t> const& rows, float const* scales,
                                         std::int16_t const* const* x, float const* unit, float const* const* base,
                                         float* const* y, std::size_t n) {
    constexpr std::size_t step = 2 * isa::width;
    if (rows.ids != nullptr) fetch_named(rows, 0, ahead);
    for (std::size_t i = 0; i < rows.count; i += together) {
        group<std::int8_t> const g(rows, i);
        if (rows.ids != nullptr) fetch_named(rows, i + ahead, together);
        std::size_t const size = rows.count - i < together ? rows.count - i : together;
        float scale[together] = {};
        for (std::size_t r = 0; r < size; ++r) scale[r] = scales[rows.index(i + r)];
        for (std::size_t k = 0; k < n; ++k) {
            __m256i halves[together];
            for (std::size_t r = 0; r < together; ++r) {
                isa::words sum{};
                std::size_t c = 0;
                for (; c + step <= rows.cols; c += step) {
                    sum = isa::add(sum, isa::pairs(isa::load_bytes(g.row[r] + c), isa::load_words(x[k] + c)));
                }
                if (c < rows.cols) {
                    std::int16_t last_x[step] = {};
                    std::int8_t last[step] = {};
                    for (std::size_t j = 0; c + j < rows.cols; ++j) {
                        last_x[j] = x[k][c + j];
                        last[j] = g.row[r][c + j];
                    }
                    sum = isa::add(sum, isa::pairs(isa::load_bytes(last), isa::load_words(last_x)));
                }
                halves[r] = isa::halve_words(sum);
            }
            __m256 const sums = _mm256_cvtepi32_ps(gather_sums(halves));
            __m256 const factors = _mm256_mul_ps(_mm256_loadu_ps(scale), _mm256_set1_ps(unit[k]));
            float some[together] = {};
            for (std::size_t r = 0; r < size; ++r) some[r] = base[k][i + r];
            _mm256_storeu_ps(some, _mm256_fmadd_ps(sums, factors, _mm256_loadu_ps(some)));
            for (std::size_t r = 0; r < size; ++r) y[k][i + r] = some[r];
        }
    }
}

SURELEAP_KERNEL inline std::size_t at_least(float const* row, std::size_t size, float threshold, token_id* out) {
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
