// SPDX-License-Identifier: MIT
//
// Products with rows of a few registers, a part of heads.inl: with ranks up to 64, or 128 in 16 bits, going through
// columns in a loop takes as long as the products. Here the number of columns is known to the compiler, and what rows
// are multiplied with stays in registers. Sums are in the same order.

template <class W>
struct short_rows {
    using vec = isa::vec;
    static constexpr std::size_t parts = isa::parts;
    static constexpr std::size_t step = 2 * lanes;

    /// Rows first .. end - 1 of Steps * step columns, and N vectors.
    template <std::size_t Steps, std::size_t N>
    SURELEAP_KERNEL static void multiply(row_selection<W> const& rows, std::size_t first, std::size_t end,
                                         float const* const* x, float const* const* base, float* const* y) {
        vec of_x[N][Steps][parts][2];
        SURELEAP_DETAIL_UNROLL(2)
        for (std::size_t n = 0; n < N; ++n) {
            SURELEAP_DETAIL_UNROLL(4)
            for (std::size_t s = 0; s < Steps; ++s) {
                SURELEAP_DETAIL_UNROLL(2)
                for (std::size_t p = 0; p < parts; ++p) {
                    SURELEAP_DETAIL_UNROLL(2)
                    for (std::size_t h = 0; h < 2; ++h) {
                        of_x[n][s][p][h] = isa::template load_beside<W>(x[n] + s * step, p, h);
                    }
                }
            }
        }
        for (std::size_t i = first; i < end; i += together) {
            if (rows.ids != nullptr) fetch_named(rows, i + ahead, together);
            group<W> const g(rows, i);
            __m256 halves[N][together];
            SURELEAP_DETAIL_UNROLL(8)
            for (std::size_t r = 0; r < together; ++r) {
                vec sum[N][parts];
                SURELEAP_DETAIL_UNROLL(2)
                for (std::size_t p = 0; p < parts; ++p) {
                    SURELEAP_DETAIL_UNROLL(2)
                    for (std::size_t n = 0; n < N; ++n) sum[n][p] = isa::zero();
                    SURELEAP_DETAIL_UNROLL(4)
                    for (std::size_t s = 0; s < Steps; ++s) {
                        SURELEAP_DETAIL_UNROLL(2)
                        for (std::size_t h = 0; h < 2; ++h) {
                            vec const w = isa::load(g.row[r] + s * step, p, h);
                            SURELEAP_DETAIL_UNROLL(2)
                            for (std::size_t n = 0; n < N; ++n) {
                                sum[n][p] = isa::multiply_add(w, of_x[n][s][p][h], sum[n][p]);
                            }
                        }
                    }
                }
                SURELEAP_DETAIL_UNROLL(2)
                for (std::size_t n = 0; n < N; ++n) halves[n][r] = isa::halve(sum[n]);
            }
            std::size_t const size = end - i < together ? end - i : together;
            SURELEAP_DETAIL_UNROLL(2)
            for (std::size_t n = 0; n < N; ++n) {
                store_some(y[n] + i, size, _mm256_add_ps(load_some(base[n] + i, size), gather_sums(halves[n])));
            }
        }
    }

    /// By tiles of rows that stay in the second cache, two vectors at a time.
    template <std::size_t Steps>
    SURELEAP_KERNEL static void by_tiles(row_selection<W> const& rows, float const* const* x, float const* const* base,
                                         float* const* y, std::size_t n) {
        constexpr std::size_t rows_of_tile = tile_bytes / (Steps * step * sizeof(W));
        std::size_t const tile = n <= 2 ? rows.count : rows_of_tile;
        if (rows.ids != nullptr) fetch_named(rows, 0, ahead);
        for (std::size_t first = 0; first < rows.count; first += tile) {
            std::size_t const end = first + tile < rows.count ? first + tile : rows.count;
            if (n % 2 != 0) multiply<Steps, 1>(rows, first, end, x, base, y);
            for (std::size_t k = n % 2; k < n; k += 2) {
                multiply<Steps, 2>(rows, first, end, x + k, base + k, y + k);
            }
        }
    }

    /// False if rows are too long, or no multiple of `step`.
    SURELEAP_KERNEL static bool product(row_selection<W> const& rows, float const* const* x, float const* const* base,
                                        float* const* y, std::size_t n) {
        if (rows.cols == step) {
            by_tiles<1>(rows, x, base, y, n);
        } else if (rows.cols == 2 * step) {
            by_tiles<2>(rows, x, base, y, n);
        } else if (rows.cols == 4 * step && sizeof(W) == 2) {
            by_tiles<4>(rows, x, base, y, n);
        } else {
            return false;
        }
        return true;
    }
};
