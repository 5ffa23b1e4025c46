// SPDX-License-Identifier: MIT
//
// Products through BF16 against their definition over rounded factors, at sizes around every edge of a tile.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <sureleap/core/types.hpp>
#include <train/gemm.hpp>

#include "support/dice.hpp"

namespace {

// For the time of a test.
struct in_bf16 {
    in_bf16() { train::use_bf16_products(true); }
    ~in_bf16() { train::use_bf16_products(false); }
};

train::matrix<float> random_matrix(support::dice& roll, std::size_t rows, std::size_t cols) {
    train::matrix<float> out(rows, cols);
    for (std::size_t i = 0; i < rows * cols; ++i) out.span().data[i] = static_cast<float>(roll.bell());
    return out;
}

double rounded(float x) {
    return static_cast<double>(static_cast<float>(sureleap::bf16(x)));
}

// out[i, j] = start + sum over k of a(i, k) b(j, k), and how far a sum in float may be from it.
template <class A, class B>
void check(train::matrix_view<float> out, train::matrix_view<float> start, std::size_t depth, A const& a, B const& b) {
    double worst = 0;
    for (std::size_t i = 0; i < out.rows; ++i) {
        for (std::size_t j = 0; j < out.cols; ++j) {
            double sum = static_cast<double>(start.row(i)[j]);
            double size = std::abs(sum) + 1;
            for (std::size_t k = 0; k < depth; ++k) {
                double const term = rounded(a(i, k)) * rounded(b(j, k));
                sum += term;
                size += std::abs(term);
            }
            worst = std::max(worst, std::abs(static_cast<double>(out.row(i)[j]) - sum) / size);
        }
    }
    CHECK(worst < 2e-6);
}

}  // namespace

TEST_CASE("products through BF16 are those of rounded factors", "[train]") {
    if (!train::has_bf16_products) return;  // the processor has none
    in_bf16 const chosen;
    support::dice roll(17);
    INFO("seed " << roll.seed());
    struct sizes {
        std::size_t m, n, k;
    };
    for (auto const& [m, n, k] : {sizes{24, 32, 24}, sizes{25, 33, 31}, sizes{47, 95, 257}, sizes{529, 64, 48},
                                  sizes{1056, 33, 40}, sizes{97, 70, 513}, sizes{64, 96, 608}, sizes{65, 97, 1153}}) {
        CAPTURE(m, n, k);
        auto const start = random_matrix(roll, m, n);
        auto const none = [&] {
            train::matrix<float> out(m, n);
            out.resize_zeroed(m, n);
            return out;
        }();
        // Rows of a wider matrix, as heads and stacked projections are.
        auto const left = random_matrix(roll, m, k + 5);
        auto const right = random_matrix(roll, n, k + 3);
        auto const l = sureleap::column_range(left.view(), 2, k);
        auto const r = sureleap::column_range(right.view(), 1, k);
        auto const by_rows = [](auto const& x) { return [&x](std::size_t i, std::size_t c) { return x.row(i)[c]; }; };
        auto const by_cols = [](auto const& x) { return [&x](std::size_t i, std::size_t c) { return x.row(c)[i]; }; };

        auto y = random_matrix(roll, m, n);
        train::multiply(l, r, y.span());
        check(y.view(), none.view(), k, by_rows(l), by_rows(r));
        y = start;
        train::multiply(l, r, y.span(), train::into::sum);
        check(y.view(), start.view(), k, by_rows(l), by_rows(r));

        auto const w = random_matrix(roll, k, n);
        auto const wv = w.view();
        train::multiply_back(l, wv, y.span());
        check(y.view(), none.view(), k, by_rows(l), by_cols(wv));

        auto const dy = random_matrix(roll, k, m);
        auto const dv = dy.view();
        y = start;
        train::add_outer(dv, wv, y.span());
        check(y.view(), start.view(), k, by_cols(dv), by_cols(wv));

#if TRAIN_AMX_PRODUCTS
        // What processors without AMX take.
        using namespace train::detail;
        auto const by_vectors = [&](factor const& a, factor const& b, train::matrix<float>& out, bool add) {
            multiply_panels<vector_tiles>(a, b, m, n, k, out.span().data, n, add);
        };
        by_vectors({l.data, l.stride, 1}, {r.data, r.stride, 1}, y, false);
        check(y.view(), none.view(), k, by_rows(l), by_rows(r));
        y = start;
        by_vectors({dv.data, 1, dv.stride}, {wv.data, 1, wv.stride}, y, true);
        check(y.view(), start.view(), k, by_cols(dv), by_cols(wv));
#endif
    }
}

TEST_CASE("products through BF16 are a choice, and none for double", "[train]") {
    support::dice roll(18);
    auto const x = random_matrix(roll, 40, 50);
    auto const w = random_matrix(roll, 60, 50);
    train::matrix<float> before(40, 60), chosen(40, 60), after(40, 60);
    train::multiply(x.view(), w.view(), before.span());
    {
        in_bf16 const now;
        train::multiply(x.view(), w.view(), chosen.span());
    }
    train::multiply(x.view(), w.view(), after.span());
    std::size_t different = 0;
    for (std::size_t i = 0; i < 40 * 60; ++i) {
        CHECK(before.view().data[i] == after.view().data[i]);
        if (before.view().data[i] != chosen.view().data[i]) ++different;
    }
    CHECK((different > 1000) == train::has_bf16_products);

    train::matrix<double> dx(40, 50), dw(60, 50), plain(40, 60), same(40, 60);
    for (std::size_t i = 0; i < 40 * 50; ++i) dx.span().data[i] = roll.bell();
    for (std::size_t i = 0; i < 60 * 50; ++i) dw.span().data[i] = roll.bell();
    train::multiply(dx.view(), dw.view(), plain.span());
    in_bf16 const now;
    train::multiply(dx.view(), dw.view(), same.span());
    for (std::size_t i = 0; i < 40 * 60; ++i) CHECK(plain.view().data[i] == same.view().data[i]);
}
