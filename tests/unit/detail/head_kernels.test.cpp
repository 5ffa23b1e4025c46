// SPDX-License-Identifier: MIT
//
// Every table of products against sums in long double, and what drafts rest on: a request's logits are the same bits
// alone and in any batch, integers are the same on every machine, nothing outside a row is touched. Buffers have
// exactly the size that is promised, so that a sanitizer sees a step too far.
#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/detail/kernel/heads.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/head/linear.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

template <class T>
T number(support::dice& roll) {
    return static_cast<T>(static_cast<float>(roll.bell()));
}

/// Rows in a matrix of exactly the elements that they span, from an address that is aligned for nothing.
template <class W>
struct matrix {
    std::vector<W> data;
    std::size_t rows, cols, stride;

    matrix(support::dice& roll, std::size_t rows_, std::size_t cols_, std::size_t gap)
        : rows(rows_), cols(cols_), stride(cols_ + gap) {
        data.resize(1 + (rows - 1) * stride + cols);
        for (W& w : data) {
            if constexpr (std::is_same_v<W, std::int8_t>) {
                w = static_cast<std::int8_t>(static_cast<int>(roll.below(255)) - 127);
            } else {
                w = number<W>(roll);
            }
        }
    }
    [[nodiscard]] W const* first() const { return data.data() + 1; }
    [[nodiscard]] W const* row(std::size_t i) const { return first() + i * stride; }
    [[nodiscard]] row_selection<W> all() const { return {first(), stride, cols, rows, nullptr}; }
    [[nodiscard]] row_selection<W> some(std::vector<token_id> const& ids) const {
        return {first(), stride, cols, ids.size(), ids.data()};
    }
};

/// Any rows, repeated ones and the last among them.
std::vector<token_id> random_ids(support::dice& roll, std::size_t count, std::size_t rows) {
    std::vector<token_id> ids(count);
    for (token_id& id : ids) id = static_cast<token_id>(roll.below(rows));
    if (count > 0) ids.back() = static_cast<token_id>(rows - 1);
    return ids;
}

/// Vectors of exactly `cols` numbers, and exactly `rows` numbers that their products are added to.
template <class X>
struct batch {
    std::vector<std::vector<X>> x;
    std::vector<std::vector<float>> before, y;

    batch(support::dice& roll, std::size_t n, std::size_t cols, std::size_t rows) : x(n), before(n) {
        for (auto& v : x) {
            for (std::size_t j = 0; j < cols; ++j) {
                if constexpr (std::is_same_v<X, float>) {
                    v.push_back(number<float>(roll));
                } else {
                    v.push_back(static_cast<X>(static_cast<int>(roll.below(65535)) - 32767));
                }
            }
            v.shrink_to_fit();
        }
        for (auto& v : before) {
            for (std::size_t i = 0; i < rows; ++i) v.push_back(number<float>(roll));
            v.shrink_to_fit();
        }
    }
    /// Results in memory of their own, or in place of what they are added to.
    template <class Product>
    void run(Product const& product, bool in_place = false) {
        y = before;
        std::vector<X const*> from;
        std::vector<float const*> base;
        std::vector<float*> to;
        for (auto const& v : x) from.push_back(v.data());
        for (auto& v : y) {
            if (!in_place) std::fill(v.begin(), v.end(), nan_value);
            to.push_back(v.data());
        }
        for (auto const& v : in_place ? y : before) base.push_back(v.data());
        product(from.data(), base.data(), to.data(), x.size());
    }
    /// The same vectors, those of `order`.
    [[nodiscard]] batch of(std::vector<std::size_t> const& order) const {
        batch other = *this;
        other.x.clear(), other.before.clear();
        for (std::size_t const k : order) other.x.push_back(x[k]), other.before.push_back(before[k]);
        return other;
    }
};

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float s, float t) {
        return std::bit_cast<std::uint32_t>(s) == std::bit_cast<std::uint32_t>(t);
    });
}

template <class F>
void with_every_table(F const& f) {
    for (head_kernels const* const kernels : available_kernels<head_kernels>()) {
        INFO("kernels " << kernels->name);
        f(*kernels);
    }
}

/// Around the 8 rows of a group, and a vocabulary that is no multiple of anything.
std::vector<std::size_t> row_counts() {
    std::vector<std::size_t> all(20);
    std::iota(all.begin(), all.end(), 1u);
    return all;
}
std::vector<std::size_t> column_counts() {
    std::vector<std::size_t> all(40);
    std::iota(all.begin(), all.end(), 1u);
    all.insert(all.end(), {250, 256});
    return all;
}

/// Error of a sum of `cols` rounded products in 16 lanes, added to a number: one rounding for the product, one for each
/// addition in the lane, four to join the lanes, one for the result.
template <class W>
bool near_long_double(row_selection<W> const& rows, batch<float> const& b) {
    for (std::size_t k = 0; k < b.x.size(); ++k) {
        for (std::size_t i = 0; i < rows.count; ++i) {
            long double sum = static_cast<long double>(b.before[k][i]);
            long double size = std::fabs(sum);
            for (std::size_t j = 0; j < rows.cols; ++j) {
                long double const term =
                    static_cast<long double>(load(rows.row(i)[j])) * static_cast<long double>(b.x[k][j]);
                sum += term;
                size += std::fabs(term);
            }
            auto const roundings = static_cast<long double>((rows.cols + 15) / 16 + 6);
            if (!(std::fabs(static_cast<long double>(b.y[k][i]) - sum) <= 1.01L * roundings * 0x1p-24L * size)) {
                UNSCOPED_INFO("row " << i << ", vector " << k << ": " << b.y[k][i] << " for "
                                     << static_cast<double>(sum));
                return false;
            }
        }
    }
    return true;
}

template <class W>
void check_products(head_kernels const& kernels, support::dice& roll, std::size_t rows, std::size_t cols,
                    std::size_t n) {
    INFO("rows " << rows << ", cols " << cols << ", n " << n);
    auto const multiply = kernels.template product<W>();
    matrix<W> const w(roll, rows, cols, roll.below(3));
    std::size_t const listed = roll.chance(0.5) ? rows : 1 + roll.below(2 * rows);
    auto const ids = random_ids(roll, listed, rows);
    for (row_selection<W> const& selected : {w.all(), w.some(ids)}) {
        batch<float> b(roll, n, cols, selected.count);
        b.run([&](auto... args) { multiply(selected, args...); });
        REQUIRE(near_long_double(selected, b));
        // Alone, and in another place of a smaller batch.
        std::vector<std::size_t> order(n);
        std::iota(order.begin(), order.end(), 0u);
        for (std::size_t k = 0; k < n; ++k) {
            auto alone = b.of({k});
            alone.run([&](auto... args) { multiply(selected, args...); }, true);
            REQUIRE(same_bits(alone.y[0], b.y[k]));
        }
        std::reverse(order.begin(), order.end());
        order.resize(n - roll.below(n));
        auto other = b.of(order);
        other.run([&](auto... args) { multiply(selected, args...); });
        for (std::size_t k = 0; k < order.size(); ++k) REQUIRE(same_bits(other.y[k], b.y[order[k]]));
    }
}

}  // namespace

TEST_CASE("head kernels: the reference is always there, the best comes first") {
    auto const all = available_kernels<head_kernels>();
    REQUIRE_FALSE(all.empty());
    CHECK(all.back() == &scalar_kernels<head_kernels>);
    CHECK(&native_kernels<head_kernels>() == all.front());
    std::vector<std::string> names;
    for (head_kernels const* const kernels : all) names.emplace_back(kernels->name);
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEMPLATE_TEST_CASE("head kernels: products are those of long double, and a vector's do not depend on its batch", "",
                   float, bf16, half) {
    support::dice roll(501);
    INFO("seed " << roll.seed());
    with_every_table([&](head_kernels const& kernels) {
        for (std::size_t const cols : column_counts()) {
            for (std::size_t const rows : row_counts()) {
                if (cols > 33 && rows % 3 != 1) continue;
                check_products<TestType>(kernels, roll, rows, cols, 1 + roll.below(7));
            }
        }
        for (std::size_t n = 1; n <= 7; ++n) check_products<TestType>(kernels, roll, 17, 45, n);
        for (std::size_t const cols : {37u, 256u}) check_products<TestType>(kernels, roll, 1003, cols, 5);
        // Rows whose length is known to the compiler, in more than a tile of them.
        for (std::size_t const cols : {32u, 64u, 128u}) check_products<TestType>(kernels, roll, 2051, cols, 5);
    });
}

TEMPLATE_TEST_CASE("head kernels: without rounding all tables agree", "", float, bf16, half) {
    // Small integers: every product and sum is a float, so the order cannot matter but a lost or doubled term does.
    support::dice roll(502);
    INFO("seed " << roll.seed());
    for (std::size_t const cols : column_counts()) {
        std::vector<TestType> w(11 * cols);
        std::vector<float> x(cols);
        for (auto& v : w) v = static_cast<TestType>(static_cast<float>(roll.below(17)) - 8.0f);
        for (auto& v : x) v = static_cast<float>(roll.below(17)) - 8.0f;
        std::vector<float> expected(11);
        for (std::size_t i = 0; i < 11; ++i) {
            for (std::size_t j = 0; j < cols; ++j) expected[i] += static_cast<float>(load(w[i * cols + j])) * x[j];
        }
        with_every_table([&](head_kernels const& kernels) {
            std::vector<float> y(11);
            float const* from = x.data();
            float* to = y.data();
            kernels.template product<TestType>()({w.data(), cols, cols, 11, nullptr}, &from, &to, &to, 1);
            REQUIRE(y == expected);
        });
    }
}

TEST_CASE("head kernels: a NaN or an infinity stays in its row and vector") {
    support::dice roll(503);
    INFO("seed " << roll.seed());
    with_every_table([&](head_kernels const& kernels) {
        for (std::size_t const cols : {5u, 16u, 21u, 48u}) {
            for (float const bad : {nan_value, inf}) {
                matrix<float> w(roll, 13, cols, 1);
                std::size_t const at = roll.below(13), column = roll.below(cols);
                w.data[1 + at * w.stride + column] = bad;
                if (at + 1 < 13) w.data[1 + at * w.stride + cols] = nan_value;  // in the gap: nobody reads it
                batch<float> b(roll, 4, cols, 13);
                for (auto& x : b.x) x[column] = 0.5f;
                b.run([&](auto... args) { kernels.for_float(w.all(), args...); });
                for (auto const& y : b.y) {
                    for (std::size_t i = 0; i < 13; ++i) REQUIRE(std::isfinite(y[i]) == (i != at));
                }
                // The same of one vector.
                matrix<float> const good(roll, 13, cols, 0);
                b.x[2][column] = bad;
                b.run([&](auto... args) { kernels.for_float(good.all(), args...); });
                for (std::size_t k = 0; k < 4; ++k) {
                    for (float const y : b.y[k]) REQUIRE(std::isfinite(y) == (k != 2));
                }
            }
        }
    });
}

TEST_CASE("head kernels: no rows, no vectors") {
    with_every_table([&](head_kernels const& kernels) {
        std::vector<float> const w(8, 1.0f), x(8, 1.0f);
        float y = 7.0f;
        float const* from = x.data();
        float* to = &y;
        kernels.for_float({w.data(), 8, 8, 0, nullptr}, &from, &to, &to, 1);
        kernels.for_float({w.data(), 8, 8, 1, nullptr}, nullptr, nullptr, nullptr, 0);
        CHECK(y == 7.0f);
        CHECK(kernels.at_least(nullptr, 0, 0.0f, nullptr) == 0);
    });
}

TEST_CASE("head kernels: int8 products are the same bits in every table") {
    support::dice roll(504);
    INFO("seed " << roll.seed());
    auto const check = [&](std::size_t rows, std::size_t cols, std::size_t n) {
        INFO("rows " << rows << ", cols " << cols << ", n " << n);
        matrix<std::int8_t> const w(roll, rows, cols, roll.below(2));
        std::vector<float> scales, units;
        for (std::size_t i = 0; i < rows; ++i) scales.push_back(static_cast<float>(roll.between(1e-4, 1e-2)));
        for (std::size_t k = 0; k < n; ++k) units.push_back(static_cast<float>(roll.between(1e-5, 1e-3)));
        scales.shrink_to_fit(), units.shrink_to_fit();
        auto const ids = random_ids(roll, 1 + roll.below(2 * rows), rows);
        for (row_selection<std::int8_t> const& selected : {w.all(), w.some(ids)}) {
            batch<std::int16_t> b(roll, n, cols, selected.count);
            auto expected = b.before;
            for (std::size_t k = 0; k < n; ++k) {
                for (std::size_t i = 0; i < selected.count; ++i) {
                    std::int64_t sum = 0;
                    for (std::size_t j = 0; j < cols; ++j) sum += std::int64_t{selected.row(i)[j]} * b.x[k][j];
                    float const factor = scales[selected.index(i)] * units[k];
                    expected[k][i] = std::fma(static_cast<float>(sum), factor, expected[k][i]);
                }
            }
            with_every_table([&](head_kernels const& kernels) {
                for (bool const in_place : {false, true}) {
                    b.run(
                        [&](auto const* from, auto const* base, auto const* to, std::size_t count) {
                            kernels.for_int8(selected, scales.data(), from, units.data(), base, to, count);
                        },
                        in_place);
                    for (std::size_t k = 0; k < n; ++k) REQUIRE(same_bits(b.y[k], expected[k]));
                }
            });
        }
    };
    for (std::size_t const cols : column_counts()) {
        for (std::size_t const rows : row_counts()) {
            if (cols > 34 && rows % 3 != 1) continue;
            check(rows, cols, 1 + roll.below(7));
        }
    }
    check(1003, 77, 5);
    check(9, 500, 2);
    // Rows whose length is known to the compiler.
    for (std::size_t const cols : {32u, 64u, 128u, 256u}) {
        for (std::size_t const rows : row_counts()) check(rows, cols, 1);
    }
}

TEST_CASE("head kernels: at_least is a loop over the row, ties in and NaN out") {
    support::dice roll(505);
    INFO("seed " << roll.seed());
    std::vector<float> const special{-inf, -1.5f, -0.0f, 0.0f, 1.0f, 1.5f, inf, nan_value, -nan_value};
    std::vector<float> const thresholds{-inf, -1.5f, 0.0f, -0.0f, 1.0f, inf, nan_value};
    for (std::size_t size : {1u, 2u, 7u, 8u, 15u, 16u, 17u, 31u, 32u, 33u, 100u, 1024u, 3001u}) {
        std::vector<float> data(size + 1);
        for (float& x : data) x = special[roll.below(special.size())];
        float const* const row = data.data() + 1;
        for (float const threshold : thresholds) {
            INFO("size " << size << ", threshold " << threshold);
            std::vector<token_id> expected;
            for (std::size_t i = 0; i < size; ++i) {
                if (row[i] >= threshold) expected.push_back(static_cast<token_id>(i));
            }
            with_every_table([&](head_kernels const& kernels) {
                std::vector<token_id> out(size, -5);
                out.resize(kernels.at_least(row, size, threshold, out.data()));
                REQUIRE(out == expected);
            });
        }
    }
}

TEMPLATE_TEST_CASE("native backend: gemm_add and gather_add are gemv_add and dot", "", float, double, bf16, half) {
    support::dice roll(506);
    INFO("seed " << roll.seed());
    auto const check = [&]<class Real>(Real, double bound) {
        for (int trial = 0; trial < 60; ++trial) {
            std::size_t const rows = 1 + roll.below(30), cols = 1 + roll.below(50), n = 1 + roll.below(6);
            matrix<TestType> const w(roll, rows, cols, roll.below(3));
            matrix_view<TestType> const view{w.first(), rows, cols, w.stride};
            auto const ids = random_ids(roll, 1 + roll.below(rows), rows);
            std::vector<std::vector<Real>> x(n, std::vector<Real>(cols)), y(n, std::vector<Real>(rows, Real(9)));
            for (auto& v : x) {
                for (Real& value : v) value = static_cast<Real>(roll.bell());
            }
            std::vector<Real const*> from;
            std::vector<Real*> to;
            for (auto const& v : x) from.push_back(v.data());
            for (auto& v : y) to.push_back(v.data());
            std::vector<std::vector<Real>> const base(n, std::vector<Real>(rows, Real(0.5)));
            std::vector<Real const*> bases;
            for (auto const& v : base) bases.push_back(v.data());
            native_backend::gemm_add(view, from.data(), bases.data(), to.data(), n);
            for (std::size_t k = 0; k < n; ++k) {
                std::span<Real const> const one{x[k]};
                std::vector<Real> added(rows, Real(0.5)), product(rows, Real(9)), some(ids.size(), Real(0.5));
                native_backend::gemv_add(view, one, std::span<Real>(added));
                native_backend::gemv(view, one, std::span<Real>(product));
                native_backend::gather_add(view, ids, x[k].data(), some.data());
                REQUIRE(added == y[k]);
                for (std::size_t i = 0; i < rows; ++i) {
                    Real const dot = native_backend::dot(view.row(i), one);
                    REQUIRE(dot == product[i]);
                    REQUIRE(added[i] == Real(0.5) + dot);
                    REQUIRE(std::abs(static_cast<double>(dot - scalar_backend::dot(view.row(i), one))) <= bound);
                }
                for (std::size_t i = 0; i < ids.size(); ++i) {
                    REQUIRE(some[i] == added[static_cast<std::size_t>(ids[i])]);
                }
            }
        }
        Real const nothing = native_backend::dot(std::span<TestType const>{}, std::span<Real const>{});
        CHECK(nothing == Real(0));
    };
    check(float{}, 1e-4);
    check(double{}, 0.0);
}
