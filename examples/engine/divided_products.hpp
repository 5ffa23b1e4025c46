// SPDX-License-Identifier: MIT
//
// Products whose outputs are divided among ranks. Each rank computes its share of a weight's rows, and all of them get
// the whole. An output is computed by one rank, in the order in which a single process does it. So it has the same bits
// for any number of ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels.hpp"
#include "ranks.hpp"
#include "row_share.hpp"
#include "thread_pool.hpp"

namespace engine {

/// The products of kernels.hpp, over one process or over ranks. A product is one exchange of its outputs, or several if
/// there are more than fit one. One at a time. Throws where a rank is lost.
template <class Real>
class divided_products {
public:
    /// ranks: null, or more than one, and must outlive this. So must the pool.
    divided_products(thread_pool& pool, any_ranks* ranks) noexcept : pool_(pool), ranks_(ranks) {}

    [[nodiscard]] any_ranks* ranks() const noexcept { return ranks_; }

    /// As matmul: y = x w^T for each, at most three.
    void operator()(Real const* x, std::size_t n, std::initializer_list<product<Real>> products);
    /// As matmul_add: y += x w^T.
    void add(Real const* x, std::size_t n, weight const& w, Real* y);
    /// As gated_matmul: y = silu(x gate^T) * (x up^T).
    void gated(Real const* x, std::size_t n, weight const& gate, weight const& up, Real* y);

private:
    struct output {  // y [n, rows]
        std::size_t rows = 0;
        Real* y = nullptr;
    };
    [[nodiscard]] std::size_t most(output const& o) const noexcept { return most_rows(o.rows, ranks_->size()); }
    [[nodiscard]] row_share share(std::size_t rows, std::size_t rank) const noexcept {
        return share_of(rows, {rank, ranks_->size()});
    }
    [[nodiscard]] weight own(weight const& w) const noexcept;
    void divide(std::size_t n, std::span<output const> outputs,
                std::function<void(std::size_t first, std::size_t count, std::span<Real* const> to)> const& compute);

    thread_pool& pool_;
    any_ranks* ranks_;
    std::vector<Real> own_;  // of each output [rows of x, share], one after the other
    std::vector<Real> all_;  // [ranks] of these
};

extern template class divided_products<float>;
extern template class divided_products<double>;

}  // namespace engine
