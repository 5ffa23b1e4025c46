// SPDX-License-Identifier: MIT
#include "divided_products.hpp"

#include <algorithm>
#include <array>

namespace engine {

namespace {
constexpr std::size_t most_products = 3;  // queries, keys and values
}  // namespace

template <class Real>
weight divided_products<Real>::own(weight const& w) const noexcept {
    row_share const mine = share(w.rows, ranks_->rank());
    return w.part(mine.first, mine.count);
}

/// compute(first, count, to): own outputs of rows first .. first + count - 1 of x, to[i] [count, own share of output
/// i]. As many rows of x at a time as an exchange holds.
template <class Real>
void divided_products<Real>::divide(
    std::size_t n, std::span<output const> outputs,
    std::function<void(std::size_t first, std::size_t count, std::span<Real* const> to)> const& compute) {
    std::size_t width = 0;
    for (output const& o : outputs) width += most(o);
    std::size_t const fit = std::max<std::size_t>(ranks_->most_bytes() / (width * sizeof(Real)), 1);
    for (std::size_t first = 0; first < n; first += fit) {
        std::size_t const count = std::min(fit, n - first);
        std::size_t const size = count * width;
        if (own_.size() < size) {
            own_.resize(size);
            all_.resize(size * ranks_->size());
        }
        std::array<Real*, most_products> to{};
        for (std::size_t i = 0, at = 0; i < outputs.size(); at += count * most(outputs[i]), ++i) {
            to[i] = own_.data() + at;
        }
        compute(first, count, std::span(to).first(outputs.size()));
        gather_all(*ranks_, std::span<Real const>(own_).first(size), std::span(all_).first(size * ranks_->size()));
        Real const* from = all_.data();
        for (std::size_t rank = 0; rank < ranks_->size(); ++rank) {
            for (output const& o : outputs) {
                row_share const theirs = share(o.rows, rank);
                for (std::size_t i = 0; i < count; ++i) {
                    std::copy_n(from + i * theirs.count, theirs.count, o.y + (first + i) * o.rows + theirs.first);
                }
                from += count * most(o);
            }
        }
    }
}

template <class Real>
void divided_products<Real>::operator()(Real const* x, std::size_t n, std::initializer_list<product<Real>> products) {
    if (ranks_ == nullptr) return matmul(pool_, x, n, products);
    std::array<output, most_products> outputs;
    std::size_t count = 0;
    for (product<Real> const& p : products) outputs[count++] = {p.w.rows, p.y};
    std::size_t const cols = products.begin()->w.cols;
    divide(n, std::span(outputs).first(count), [&](std::size_t first, std::size_t rows, std::span<Real* const> to) {
        for (std::size_t i = 0; i < count; ++i) {
            matmul(pool_, x + first * cols, rows, own((products.begin() + i)->w), to[i]);
        }
    });
}

template <class Real>
void divided_products<Real>::add(Real const* x, std::size_t n, weight const& w, Real* y) {
    if (ranks_ == nullptr) return matmul_add(pool_, x, n, w, y);
    output const sum{w.rows, y};
    row_share const mine = share(w.rows, ranks_->rank());
    divide(n, {&sum, 1}, [&](std::size_t first, std::size_t rows, std::span<Real* const> to) {
        // What is added to comes along, so that the sum is made as a single process makes it.
        for (std::size_t i = 0; i < rows; ++i) {
            std::copy_n(y + (first + i) * w.rows + mine.first, mine.count, to[0] + i * mine.count);
        }
        matmul_add(pool_, x + first * w.cols, rows, own(w), to[0]);
    });
}

template <class Real>
void divided_products<Real>::gated(Real const* x, std::size_t n, weight const& gate, weight const& up, Real* y) {
    if (ranks_ == nullptr) return gated_matmul(pool_, x, n, gate, up, y);
    output const activation{gate.rows, y};
    divide(n, {&activation, 1}, [&](std::size_t first, std::size_t rows, std::span<Real* const> to) {
        gated_matmul(pool_, x + first * gate.cols, rows, own(gate), own(up), to[0]);
    });
}

template class divided_products<float>;
template class divided_products<double>;

}  // namespace engine
