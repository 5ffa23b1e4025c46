// SPDX-License-Identifier: MIT
//
// Products with stored weights, in every instruction set that this machine has. What must hold to the last bit: sums
// of small integers, a row's independence of its batch, of its place and of the threads, and all 65,536 patterns of the
// two 16-bit storages. Beside it the distance from long double, with a bound that follows from the order of summation.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>

#include "engine/kernels.hpp"
#include "engine/kernels_table.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/kernel_sets.hpp"

namespace {

using namespace engine;
using namespace support;

double half_value(std::uint16_t bits) {
    int const exponent = bits >> 10 & 31;
    double const fraction = (bits & 1023) / 1024.0;
    double const size = exponent == 31  ? (fraction == 0.0 ? std::numeric_limits<double>::infinity()
                                                           : std::numeric_limits<double>::quiet_NaN())
                        : exponent == 0 ? std::ldexp(fraction, -14)
                                        : std::ldexp(1.0 + fraction, exponent - 15);
    return (bits & 0x8000) != 0 ? -size : size;
}
double bfloat_value(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// A weight and what its numbers are.
struct stored_matrix {
    storage type;
    std::size_t rows;
    std::size_t cols;
    std::vector<double> values;
    std::vector<unsigned char> bytes;

    /// `value` gives the numbers; they are rounded towards zero to what the storage holds as a normal number.
    template <class F>
    stored_matrix(storage t, std::size_t r, std::size_t c, F const& value) : type(t), rows(r), cols(c) {
        for (std::size_t i = 0; i < r * c; ++i) push(value());
    }
    [[nodiscard]] weight view() const { return {bytes.data(), type, rows, cols}; }
    [[nodiscard]] weight row(std::size_t j) const { return {bytes.data() + j * cols * bytes_of(type), type, 1, cols}; }

private:
    void push(double v) {
        if (type == storage::f64) return put(v, v);
        auto const f = static_cast<float>(v);
        if (type == storage::f32) return put(f, f);
        auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(f) >> 16);
        if (type == storage::bf16) return put(bits, bfloat_value(bits));
        int exponent = 0;
        double const fraction = std::frexp(std::fabs(v), &exponent);  // in [0.5, 1)
        bits = std::fabs(v) < 0x1p-14
                   ? std::uint16_t{0}
                   : static_cast<std::uint16_t>((exponent + 14) << 10 | static_cast<int>(fraction * 2048.0 - 1024.0) |
                                                (v < 0.0 ? 0x8000 : 0));
        put(bits, half_value(bits));
    }
    template <class T>
    void put(T stored, double value) {
        auto const* const from = reinterpret_cast<unsigned char const*>(&stored);
        bytes.insert(bytes.end(), from, from + sizeof stored);
        values.push_back(value);
    }
};

constexpr storage all_storages[] = {storage::f64, storage::f32, storage::f16, storage::bf16};

TEMPLATE_TEST_CASE("products of small integers are exact for every shape", "[kernels]", float, double) {
    // No rounding, so any element that is left out, read twice or taken from another row shows.
    dice roll(1);
    auto const integer = [&] { return static_cast<double>(roll.below(7)) - 3.0; };
    constexpr std::size_t rows = 53;  // every tile height, and rows left over
    constexpr std::size_t most = 17;
    thread_pool pool(2);
    for (std::size_t cols = 1; cols <= 160; cols += cols < 40 ? 1 : 40) {
        for (storage const type : all_storages) {
            stored_matrix const w(type, rows, cols, integer);
            auto const x = numbers<TestType>(most * cols, integer);
            std::vector<TestType> expected(most * rows);
            for (std::size_t at = 0; at < expected.size(); ++at) {
                double sum = 0.0;
                for (std::size_t c = 0; c < cols; ++c) sum += x[at / rows * cols + c] * w.values[at % rows * cols + c];
                expected[at] = static_cast<TestType>(sum);
            }
            with_every_set([&] {
                for (arithmetic const products : {arithmetic::full, arithmetic::bf16}) {
                    weight view = w.view();
                    view.products = products;
                    for (std::size_t const n : sizes{1, 2, 3, 4, 5, 6, 7, 8, 9, most}) {
                        std::vector<TestType> y(n * rows + 1, TestType{77});
                        matmul(pool, x.data(), n, view, y.data());
                        INFO("storage " << static_cast<int>(type) << ", arithmetic " << static_cast<int>(products)
                                        << ", cols " << cols << ", n " << n);
                        REQUIRE(std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(n * rows),
                                           y.begin()));
                        REQUIRE(y.back() == TestType{77});
                    }
                }
            });
        }
    }
}

TEST_CASE("products with a matrix of many strips are exact", "[kernels]") {
    // Rows so long that a chunk of them does not fit the second cache level, and more rows of x than a tile has.
    dice roll(8);
    auto const integer = [&] { return static_cast<double>(roll.below(7)) - 3.0; };
    constexpr std::size_t rows = 401;
    constexpr std::size_t cols = 6007;
    constexpr std::size_t n = 9;
    thread_pool pool(1);
    stored_matrix const w(storage::bf16, rows, cols, integer);
    auto const x = numbers<float>(n * cols, integer);
    std::vector<float> expected(n * rows);
    for (std::size_t at = 0; at < expected.size(); ++at) {
        double const* const wj = w.values.data() + at % rows * cols;
        float const* const xi = x.data() + at / rows * cols;
        double sum = 0.0;
        for (std::size_t c = 0; c < cols; ++c) sum += xi[c] * wj[c];
        expected[at] = static_cast<float>(sum);
    }
    with_every_set([&] {
        std::vector<float> y(n * rows);
        matmul(pool, x.data(), n, w.view(), y.data());
        REQUIRE(y == expected);
    });
}

TEMPLATE_TEST_CASE("a row has the same bits alone and in any batch, at any place, with any threads", "[kernels]", float,
                   double) {
    dice roll(2);
    auto const number = [&] { return roll.bell(); };
    constexpr std::size_t rows = 611;  // with cols >= 200 enough work for the pool at n = 1
    constexpr std::size_t most = 20;
    thread_pool one(1);
    thread_pool two(2);
    thread_pool three(3);
    with_every_set([&] {
        for (std::size_t const cols : sizes{200, 215}) {
            for (std::size_t kind = 0; kind < std::size(all_storages) + 1; ++kind) {
                bool const rounded = kind == std::size(all_storages);  // the last storage again, which is bf16
                storage const type = rounded ? storage::bf16 : all_storages[kind];
                stored_matrix const w(type, rows, cols, number);
                auto const with = [&](weight view) {
                    view.products = rounded ? arithmetic::bf16 : arithmetic::full;
                    return view;
                };
                auto const x = normal<TestType>(most * cols, roll);
                std::vector<TestType> alone(most * rows);
                for (std::size_t i = 0; i < most; ++i) {
                    matmul(one, x.data() + i * cols, 1, with(w.view()), alone.data() + i * rows);
                }
                for (thread_pool* const pool : {&one, &two, &three}) {
                    for (std::size_t const n : sizes{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, most}) {
                        INFO("storage " << static_cast<int>(type) << ", rounded " << rounded << ", cols " << cols
                                        << ", n " << n << ", threads " << pool->threads());
                        std::size_t const first = most - n;  // a row's place differs from n to n
                        std::vector<TestType> y(n * rows);
                        matmul(*pool, x.data() + first * cols, n, with(w.view()), y.data());
                        REQUIRE(same_bits(y.data(), alone.data() + first * rows, n * rows));
                    }
                }
                // An output alone, that is, as a tile of another height; and w where no register is aligned.
                std::size_t wrong = 0;
                for (std::size_t j = 0; j < rows; ++j) {
                    TestType y{};
                    matmul(one, x.data(), 1, with(w.row(j)), &y);
                    wrong += std::size_t{!same_bits(&y, &alone[j], 1)};
                }
                REQUIRE(wrong == 0);
            }
        }
    });
}

TEMPLATE_TEST_CASE("products with one x have the bits that they have one by one", "[kernels]", float, double) {
    dice roll(9);
    auto const number = [&] { return roll.bell(); };
    constexpr std::size_t cols = 215;
    constexpr std::size_t most = 9;
    thread_pool pool(2);
    stored_matrix const a(storage::bf16, 130, cols, number);
    stored_matrix const b(storage::bf16, 67, cols, number);
    stored_matrix const c(storage::bf16, 130, cols, number);
    stored_matrix const other(storage::f32, 130, cols, number);
    auto const x = normal<TestType>(most * cols, roll);
    with_every_set([&] {
        for (std::size_t const n : sizes{1, 3, 8, most}) {
            for (stored_matrix const* const last : {&c, &other}) {
                INFO("n " << n << ", storage of the last " << static_cast<int>(last->type));
                std::vector<TestType> ya(n * 130), yb(n * 67), yc(n * 130);
                auto za = ya, zb = yb, zc = yc;
                matmul(pool, x.data(), n, a.view(), ya.data());
                matmul(pool, x.data(), n, b.view(), yb.data());
                matmul(pool, x.data(), n, last->view(), yc.data());
                matmul(pool, x.data(), n, {{a.view(), za.data()}, {b.view(), zb.data()}, {last->view(), zc.data()}});
                REQUIRE(same_bits(ya.data(), za.data(), ya.size()));
                REQUIRE(same_bits(yb.data(), zb.data(), yb.size()));
                REQUIRE(same_bits(yc.data(), zc.data(), yc.size()));
                gated_matmul(pool, x.data(), n, a.view(), last->view(), za.data());
                silu_mul(ya.data(), yc.data(), ya.size());
                REQUIRE(same_bits(ya.data(), za.data(), ya.size()));
            }
        }
    });
}

TEST_CASE("with bf16 arithmetic activations are rounded to the nearest, ties to even", "[kernels]") {
    dice roll(10);
    std::uint16_t const one = 0x3f80;
    weight w{&one, storage::bf16, 1, 1};
    w.products = arithmetic::bf16;
    thread_pool pool(1);
    with_every_set([&] {
        for (int i = 0; i < 20'000; ++i) {
            auto const bits = static_cast<std::uint32_t>(roll.bits());
            // Every other one is half-way between two; subnormal numbers may be taken for zeros.
            float const x = std::bit_cast<float>(i % 2 == 0 ? bits : (bits & 0xffff0000U) | 0x8000U);
            if (std::fpclassify(x) == FP_SUBNORMAL) continue;
            float y = 0.0f;
            matmul(pool, &x, 1, w, &y);
            auto const expected = static_cast<float>(sureleap::bf16(x));
            INFO("seed 10, x " << x << ", y " << y << ", expected " << expected);
            REQUIRE((std::isnan(x) ? std::isnan(y) : y == expected));
        }
    });
}

TEMPLATE_TEST_CASE("products are within the rounding of their sums", "[kernels]", float, double) {
    dice roll(3);
    thread_pool pool(2);
    with_every_set([&] {
        for (std::size_t const cols : sizes{1, 7, 16, 100, 1000, 5003}) {
            for (storage const type : all_storages) {
                constexpr std::size_t rows = 26;
                constexpr std::size_t n = 3;
                stored_matrix const w(type, rows, cols, [&] { return roll.bell(); });
                auto const x = normal<TestType>(n * cols, roll);
                auto const before = normal<TestType>(n * rows, roll);
                std::vector<TestType> y(n * rows);
                std::vector<TestType> z = before;
                matmul(pool, x.data(), n, w.view(), y.data());
                matmul_add(pool, x.data(), n, w.view(), z.data());
                double worst = 0.0;
                std::size_t unequal = 0;
                for (std::size_t i = 0; i < n; ++i) {
                    for (std::size_t j = 0; j < rows; ++j) {
                        long double sum = 0.0L;
                        long double size = 0.0L;
                        for (std::size_t c = 0; c < cols; ++c) {
                            long double const term = static_cast<long double>(x[i * cols + c]) * w.values[j * cols + c];
                            sum += term;
                            size += std::fabs(term);
                        }
                        std::size_t const at = i * rows + j;
                        worst = std::max(worst, static_cast<double>(std::fabs(sum - y[at]) / size));
                        unequal += std::size_t{z[at] != before[at] + y[at]};
                    }
                }
                // An element is rounded once for each block of lanes (64 bytes), in its product and its conversion, and
                // in up to five additions of lanes: each time by half an epsilon at most.
                double const blocks = std::ceil(static_cast<double>(cols * sizeof(TestType)) / 64.0);
                double const bound = 0.5 * std::numeric_limits<TestType>::epsilon() * (blocks + 7.0);
                INFO("seed 3, storage " << static_cast<int>(type) << ", cols " << cols);
                REQUIRE(worst <= bound);
                REQUIRE(unequal == 0);
            }
        }
    });
}

TEMPLATE_TEST_CASE("every 16-bit pattern is read exactly", "[kernels]", float, double) {
    std::vector<std::uint16_t> patterns(65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
    with_every_set([&] {
        for (storage const type : {storage::f16, storage::bf16}) {
            for (std::size_t const cols : sizes{256, 65536}) {
                weight const w{patterns.data(), type, patterns.size() / cols, cols};
                std::vector<TestType> row(cols);
                std::size_t wrong = 0;
                for (std::size_t r = 0; r < w.rows; ++r) {
                    load_row(w, r, row.data());
                    for (std::size_t c = 0; c < cols; ++c) {
                        std::uint16_t const bits = patterns[r * cols + c];
                        double const value = type == storage::f16 ? half_value(bits) : bfloat_value(bits);
                        bool const right = std::isnan(value) ? std::isnan(row[c])
                                                             : row[c] == static_cast<TestType>(value) &&
                                                                   std::signbit(row[c]) == std::signbit(value);
                        wrong += std::size_t{!right};
                    }
                }
                INFO("storage " << static_cast<int>(type));
                REQUIRE(wrong == 0);
            }
        }
    });
}

TEMPLATE_TEST_CASE("a row of any length is loaded and nothing behind it", "[kernels]", float, double) {
    dice roll(4);
    with_every_set([&] {
        for (std::size_t cols = 1; cols <= 40; ++cols) {
            for (storage const type : all_storages) {
                stored_matrix const w(type, 3, cols, [&] { return roll.bell(); });
                std::vector<TestType> out(cols + 1, TestType{77});
                load_row(w.view(), 1, out.data());
                for (std::size_t c = 0; c < cols; ++c) REQUIRE(out[c] == static_cast<TestType>(w.values[cols + c]));
                REQUIRE(out[cols] == TestType{77});
            }
        }
    });
}

TEST_CASE("the instruction set is the one asked for, or an error", "[kernels]") {
    CHECK(choose_kernels(nullptr).name == choose_kernels("").name);
    CHECK(std::string(choose_kernels("portable").name) == "portable");
    CHECK(find_kernels("sse9") == nullptr);
    std::string const text = error_text([] { static_cast<void>(choose_kernels("sse9")); });
    CHECK(says(text, {"ENGINE_ISA", "'sse9'", "portable"}));
    CHECK(find_kernels(instruction_set()) != nullptr);
}

TEST_CASE("reading has a speed, whatever the size", "[kernels]") {
    std::vector<unsigned char> const data(3 * 1024 * 1024 + 77, 1);
    thread_pool pool(2);
    with_every_set([&] {
        for (std::size_t const bytes : {std::size_t{1}, std::size_t{16385}, data.size()}) {
            double const speed = read_bandwidth(pool, data.data(), bytes, 2);
            CHECK(speed > 0.0);
            CHECK(std::isfinite(speed));
        }
        // Every byte is read: changing one changes the result.
        auto const read = find_kernels(instruction_set())->read;
        std::vector<unsigned char> changed(40'000, 1);
        std::uint64_t const before = read(changed.data(), changed.size());
        std::size_t unseen = 0;
        for (std::size_t i = 0; i < changed.size(); i += 97) {
            changed[i] = 3;
            unseen += std::size_t{read(changed.data(), changed.size()) == before};
            changed[i] = 1;
        }
        CHECK(unseen == 0);
    });
}

}  // namespace
