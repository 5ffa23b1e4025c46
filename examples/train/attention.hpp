// SPDX-License-Identifier: MIT
//
// Grouped-query attention over ranges of rows, forward and backward. A query row sees up to two half-open ranges: of
// context rows, whose keys come from features of another model, and of rows of its own kind. So a packed batch of
// sequences and blocks needs no mask:
//     block of a drafter      context before its anchor, and its own block whole
//     causal language model   no context; own rows from the start of its sequence up to itself
//     dummy                   nothing: its output is 0, and no gradient leaves it
//
// Rows are taken in tiles, so that scores come from matrix products and stay in the cache: a tile multiplies by all
// keys that one of its rows sees, and what a row does not see counts as probability 0. For blocks of one sequence,
// whose contexts are nested, and for causal rows little of that is wasted; a tile ends where the context begins
// elsewhere. Backward keeps no probabilities, which would be the largest array of all: they are computed again from the
// logarithm of a row's normaliser (the idea of FlashAttention, Dao et al. 2022).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/training/packing.hpp>

#include "gemm.hpp"

namespace train {

using sureleap::row_span;

/// What a query row sees. An empty range may lie anywhere.
struct visible_rows {
    row_span context{};
    row_span own{};
};

/// Keys and values, all kv heads of a row side by side.
template <class Matrix>
struct key_rows {
    Matrix keys{};
    Matrix values{};
};

template <class Real>
class attention {
public:
    using views = key_rows<matrix_view<Real>>;
    using spans = key_rows<matrix_span<Real>>;

    attention(std::size_t heads, std::size_t kv_heads, std::size_t head_dim) noexcept
        : heads_(heads), group_(heads / kv_heads), size_(head_dim) {}

    /// out [n, heads * head_dim] from queries of that shape; normalisers [n, heads] are for backward.
    void forward(std::span<visible_rows const> sees, matrix_view<Real> queries, views const& context, views const& own,
                 matrix_span<Real> out, matrix_span<Real> normalisers) const {
        matrix<Real> scores;
        for_each_tile(sees, [&](tile const& t) {
            for (std::size_t head = 0; head < heads_; ++head) {
                auto const keys = of(t, context, own, head);
                auto const p = score(t, queries, keys, head, scores);
                for (std::size_t i = 0; i < t.rows.size(); ++i) {
                    auto const row = p.row(i);
                    Real const normaliser = log_normaliser(t, sees[t.rows.begin + i], row);
                    normalisers.row(t.rows.begin + i)[head] = normaliser;
                    keep_visible(t, sees[t.rows.begin + i], row, normaliser);
                }
                auto const o = cut(out, t.rows, head);
                multiply_back(left(p, t), keys.context.values, o);
                multiply_back(right(p, t), keys.own.values, o, into::sum);
            }
        });
    }

    /// From d_out: writes d_queries, adds to the gradients of keys and values.
    void backward(std::span<visible_rows const> sees, matrix_view<Real> queries, views const& context, views const& own,
                  matrix_view<Real> out, matrix_view<Real> normalisers, matrix_view<Real> d_out,
                  matrix_span<Real> d_queries, spans const& d_context, spans const& d_own) const {
        matrix<Real> scores;
        matrix<Real> d_scores;
        for_each_tile(sees, [&](tile const& t) {
            for (std::size_t head = 0; head < heads_; ++head) {
                auto const keys = of(t, context, own, head);
                auto const d_keys = of(t, d_context, d_own, head);
                auto const p = score(t, queries, keys, head, scores);
                auto const d = d_scores.resize(p.rows, p.cols);
                auto const dy = cut(d_out, t.rows, head);
                multiply(dy, keys.context.values, left(d, t));
                multiply(dy, keys.own.values, right(d, t));
                auto const y = cut(out, t.rows, head);
                for (std::size_t i = 0; i < t.rows.size(); ++i) {
                    std::size_t const row = t.rows.begin + i;
                    keep_visible(t, sees[row], p.row(i), normalisers.row(row)[head]);
                    Real const mean = sureleap::scalar_backend::dot(dy.row(i), y.row(i));
                    auto const probabilities = p.row(i);
                    auto const ds = d.row(i);
                    for (std::size_t j = 0; j < ds.size(); ++j) ds[j] = probabilities[j] * (ds[j] - mean) * scale();
                }
                auto const q = cut(queries, t.rows, head);
                auto const dq = cut(d_queries, t.rows, head);
                multiply_back(left(d, t), keys.context.keys, dq);
                multiply_back(right(d, t), keys.own.keys, dq, into::sum);
                add_outer(left(d, t), q, d_keys.context.keys);
                add_outer(right(d, t), q, d_keys.own.keys);
                add_outer(left(p, t), dy, d_keys.context.values);
                add_outer(right(p, t), dy, d_keys.own.values);
            }
        });
    }

private:
    static constexpr std::size_t tile_rows = 64;

    // Query rows, and the hulls of what they see.
    struct tile {
        row_span rows;
        row_span context;
        row_span own;
    };
    template <class Matrix>
    struct tile_keys {
        key_rows<Matrix> context;
        key_rows<Matrix> own;
    };

    static void cover(row_span& hull, row_span const& more) {
        if (more.size() == 0) return;
        hull = hull.size() == 0 ? more : row_span{std::min(hull.begin, more.begin), std::max(hull.end, more.end)};
    }

    template <class F>
    static void for_each_tile(std::span<visible_rows const> sees, F const& f) {
        for (std::size_t first = 0; first < sees.size();) {
            tile t{{first, first}, {}, {}};
            while (t.rows.end < sees.size() && t.rows.size() < tile_rows &&
                   sees[t.rows.end].context.begin == sees[first].context.begin) {
                cover(t.context, sees[t.rows.end].context);
                cover(t.own, sees[t.rows.end].own);
                ++t.rows.end;
            }
            f(t);
            first = t.rows.end;
        }
    }

    [[nodiscard]] Real scale() const noexcept { return static_cast<Real>(1.0 / std::sqrt(static_cast<double>(size_))); }

    // Rows of one head, queries or keys.
    template <class Matrix>
    [[nodiscard]] Matrix cut(Matrix const& m, row_span rows, std::size_t head) const {
        if (rows.size() == 0) return {nullptr, 0, size_, size_};
        return sureleap::column_range(sureleap::row_range(m, rows.begin, rows.size()), head * size_, size_);
    }
    template <class Matrix>
    [[nodiscard]] tile_keys<Matrix> of(tile const& t, key_rows<Matrix> const& context, key_rows<Matrix> const& own,
                                       std::size_t head) const {
        std::size_t const kv = head / group_;
        return {{cut(context.keys, t.context, kv), cut(context.values, t.context, kv)},
                {cut(own.keys, t.own, kv), cut(own.values, t.own, kv)}};
    }

    // Columns of a tile's scores that belong to context rows, and to own rows.
    [[nodiscard]] static matrix_span<Real> left(matrix_span<Real> m, tile const& t) {
        return sureleap::column_range(m, 0, t.context.size());
    }
    [[nodiscard]] static matrix_span<Real> right(matrix_span<Real> m, tile const& t) {
        return sureleap::column_range(m, t.context.size(), t.own.size());
    }

    [[nodiscard]] matrix_span<Real> score(tile const& t, matrix_view<Real> queries,
                                          tile_keys<matrix_view<Real>> const& keys, std::size_t head,
                                          matrix<Real>& memory) const {
        auto const scores = memory.resize(t.rows.size(), t.context.size() + t.own.size());
        multiply(cut(queries, t.rows, head), keys.context.keys, left(scores, t));
        multiply(cut(queries, t.rows, head), keys.own.keys, right(scores, t));
        return scores;
    }

    // The columns of a row that it sees, as two runs.
    [[nodiscard]] static std::span<Real> seen_context(tile const& t, visible_rows const& sees, std::span<Real> row) {
        if (sees.context.size() == 0) return {};
        return row.subspan(sees.context.begin - t.context.begin, sees.context.size());
    }
    [[nodiscard]] static std::span<Real> seen_own(tile const& t, visible_rows const& sees, std::span<Real> row) {
        if (sees.own.size() == 0) return {};
        return row.subspan(t.context.size() + sees.own.begin - t.own.begin, sees.own.size());
    }

    // log sum exp of the scaled scores a row sees; 0, which is never used, if it sees nothing.
    [[nodiscard]] Real log_normaliser(tile const& t, visible_rows const& sees, std::span<Real> row) const {
        Real top = -std::numeric_limits<Real>::infinity();
        Real total = 0;
        std::span<Real> const runs[] = {seen_context(t, sees, row), seen_own(t, sees, row)};
        for (auto const run : runs) {
            if (!run.empty()) top = std::max(top, eigen_array(run).maxCoeff());
        }
        for (auto const run : runs) {
            if (!run.empty()) total += ((eigen_array(run) - top) * scale()).exp().sum();
        }
        return total > Real(0) ? top * scale() + std::log(total) : Real(0);
    }

    // Scores into probabilities where the row sees, 0 elsewhere.
    void keep_visible(tile const& t, visible_rows const& sees, std::span<Real> row, Real normaliser) const {
        auto const context = seen_context(t, sees, row);
        auto const own = seen_own(t, sees, row);
        auto const position = [&](std::span<Real> run) { return static_cast<std::size_t>(run.data() - row.data()); };
        std::size_t done = 0;
        for (auto const run : {context, own}) {
            if (run.empty()) continue;
            std::fill(row.begin() + static_cast<std::ptrdiff_t>(done),
                      row.begin() + static_cast<std::ptrdiff_t>(position(run)), Real(0));
            eigen_array(run) = (eigen_array(run) * scale() - normaliser).exp();
            done = position(run) + run.size();
        }
        std::fill(row.begin() + static_cast<std::ptrdiff_t>(done), row.end(), Real(0));
    }

    std::size_t heads_;
    std::size_t group_;
    std::size_t size_;
};

}  // namespace train
