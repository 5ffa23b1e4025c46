// SPDX-License-Identifier: MIT
//
// Where queries, keys and values lie in the rows of a layer. One product makes all three, so they are neighbours:
//     a row of its own       projected [q | k | v]     rotated [q | k]
//     a row of a context     projected [k | v]         rotated [k]
// Keys and values are counted from the right: that makes rows with and without queries the same, and a gradient of
// projected rows has both where the rows themselves have them.
#pragma once

#include <cstddef>

#include <engine/config.hpp>
#include <sureleap/training/rows.hpp>

#include "attention.hpp"
#include "gemm.hpp"

namespace train {

class attention_columns {
public:
    explicit attention_columns(engine::transformer_config const& config) noexcept
        : heads_(config.heads), kv_heads_(config.kv_heads), head_dim_(config.head_dim) {}

    /// Columns of q.
    [[nodiscard]] std::size_t queries() const noexcept { return heads_ * head_dim_; }
    /// Columns of k, and as many of v.
    [[nodiscard]] std::size_t keys() const noexcept { return kv_heads_ * head_dim_; }

    /// The attention between such rows.
    template <class Real>
    [[nodiscard]] attention<Real> attending() const noexcept {
        return {heads_, kv_heads_, head_dim_};
    }

    /// q of rows of its own, projected or rotated.
    template <class Matrix>
    [[nodiscard]] Matrix query_part(Matrix const& rows) const {
        return sureleap::column_range(rows, 0, queries());
    }
    /// k of projected rows.
    template <class Matrix>
    [[nodiscard]] Matrix key_part(Matrix const& projected) const {
        return sureleap::column_range(projected, projected.cols - 2 * keys(), keys());
    }
    /// v of projected rows.
    template <class Matrix>
    [[nodiscard]] Matrix value_part(Matrix const& projected) const {
        return sureleap::column_range(projected, projected.cols - keys(), keys());
    }
    /// k of rotated rows.
    template <class Matrix>
    [[nodiscard]] Matrix rotated_key_part(Matrix const& rotated) const {
        return sureleap::column_range(rotated, rotated.cols - keys(), keys());
    }

    /// What the attention reads of rows.
    template <class Real>
    [[nodiscard]] key_rows<matrix_view<Real>> keys_and_values(matrix<Real> const& rotated,
                                                              matrix<Real> const& projected) const {
        return {rotated_key_part(rotated.view()), value_part(projected.view())};
    }
    /// Where it adds their gradients.
    template <class Real>
    [[nodiscard]] key_rows<matrix_span<Real>> keys_and_values(matrix_span<Real> d_projected) const {
        return {key_part(d_projected), value_part(d_projected)};
    }

private:
    std::size_t heads_;
    std::size_t kv_heads_;
    std::size_t head_dim_;
};

}  // namespace train
