// SPDX-License-Identifier: MIT
//
// The scalar backend: exact on integers, in the documented order of summation, for every storage and real type.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/head/linear.hpp>

namespace {

using sureleap::bf16;
using sureleap::half;
using sureleap::matrix_view;
using sureleap::scalar_backend;

double uniform(std::mt19937_64& bits) {
    return static_cast<double>(bits() >> 11) * 0x1p-53;
}

/// Integers from -8 to 8: exact in every storage, and so are their products and short sums in float.
template <class T>
std::vector<T> integers(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 bits(seed);
    std::vector<T> out;
    for (std::size_t i = 0; i < count; ++i) {
        float const value = static_cast<float>(bits() % 17) - 8.0f;
        out.push_back(static_cast<T>(value));
    }
    return out;
}

template <class T>
double value_of(T const& stored) {
    return static_cast<double>(sureleap::load(stored));
}

}  // namespace

TEST_CASE("sigmoid is accurate and never overflows", "[linear]") {
    CHECK(sureleap::sigmoid(0.0) == 0.5);
    CHECK(sureleap::sigmoid(0.0f) == 0.5f);
    CHECK(sureleap::sigmoid(1000.0) == 1.0);
    CHECK(sureleap::sigmoid(-1000.0) == 0.0);
    CHECK(sureleap::sigmoid(std::numeric_limits<float>::infinity()) == 1.0f);
    CHECK(sureleap::sigmoid(-std::numeric_limits<float>::infinity()) == 0.0f);
    CHECK(std::isnan(sureleap::sigmoid(std::numeric_limits<double>::quiet_NaN())));
    for (double x = -40.0; x <= 40.0; x += 0.37) {
        auto const expected = static_cast<double>(1.0L / (1.0L + std::exp(-static_cast<long double>(x))));
        INFO("x = " << x);
        CHECK(std::abs(sureleap::sigmoid(x) - expected) <= 4e-16 * expected);
    }
}

TEMPLATE_TEST_CASE("scalar products are exact on integers", "[linear]", (std::pair<float, float>),
                   (std::pair<float, double>), (std::pair<double, float>), (std::pair<double, double>),
                   (std::pair<bf16, float>), (std::pair<bf16, double>), (std::pair<half, float>),
                   (std::pair<half, double>)) {
    using weight = typename TestType::first_type;
    using real = typename TestType::second_type;
    for (std::size_t cols : {0u, 1u, 2u, 7u, 8u, 15u, 16u, 17u, 31u, 32u, 33u, 100u, 255u, 256u, 257u, 513u}) {
        INFO("cols = " << cols);
        auto const w = integers<weight>(cols, cols);
        auto const x = integers<real>(cols, cols + 1);
        double expected = 0.0;
        for (std::size_t j = 0; j < cols; ++j) expected += value_of(w[j]) * static_cast<double>(x[j]);
        auto const got = scalar_backend::dot(std::span<weight const>(w), std::span<real const>(x));
        static_assert(std::is_same_v<decltype(got), real const>);
        CHECK(static_cast<double>(got) == expected);
    }

    // A view with a stride: the columns between are poison that nobody may read.
    std::size_t const rows = 5;
    std::size_t const cols = 19;
    std::size_t const stride = 23;
    auto w = integers<weight>(rows * stride, 7);
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = cols; j < stride; ++j) {
            w[i * stride + j] = static_cast<weight>(std::numeric_limits<float>::quiet_NaN());
        }
    }
    auto const x = integers<real>(cols, 8);
    matrix_view<weight> const view(w.data(), rows, cols, stride);
    std::vector<real> set(rows, std::numeric_limits<real>::quiet_NaN());
    std::vector<real> added(rows, real(100));
    scalar_backend::gemv(view, x, std::span<real>(set));
    scalar_backend::gemv_add(view, x, std::span<real>(added));
    for (std::size_t i = 0; i < rows; ++i) {
        double expected = 0.0;
        for (std::size_t j = 0; j < cols; ++j) expected += value_of(w[i * stride + j]) * static_cast<double>(x[j]);
        CHECK(static_cast<double>(set[i]) == expected);
        CHECK(static_cast<double>(added[i]) == expected + 100.0);
    }
}

TEST_CASE("the scalar backend sums in its documented order", "[linear]") {
    // Weights are powers of two, so that products are exact and only the order of the rounded sums can show.
    std::uint64_t const seed = 20;
    INFO("seed = " << seed);
    std::mt19937_64 bits(seed);
    std::size_t const cols = 77;
    std::vector<float> w(cols);
    std::vector<float> x(cols);
    for (std::size_t j = 0; j < cols; ++j) {
        w[j] = std::ldexp(bits() % 2 ? 1.0f : -1.0f, static_cast<int>(bits() % 9) - 4);
        x[j] = static_cast<float>(uniform(bits) * 2.0 - 1.0);
    }
    float lane[16] = {};
    for (std::size_t j = 0; j < cols; ++j) lane[j % 16] += w[j] * x[j];
    for (std::size_t width : {8u, 4u, 2u, 1u}) {
        for (std::size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
    }
    float left_to_right = 0.0f;
    for (std::size_t j = 0; j < cols; ++j) left_to_right += w[j] * x[j];

    float const got = scalar_backend::dot(std::span<float const>(w), std::span<float const>(x));
    CHECK(got == lane[0]);
    CHECK(got != left_to_right);  // else this input could not tell one order from another
}

TEST_CASE("weights lie in bf16 and half without a loss the format does not impose", "[linear]") {
    std::uint64_t const seed = 21;
    INFO("seed = " << seed);
    std::mt19937_64 bits(seed);
    std::size_t const cols = 300;
    std::vector<bf16> b;
    std::vector<half> h;
    std::vector<double> x;
    for (std::size_t j = 0; j < cols; ++j) {
        float const value = static_cast<float>(uniform(bits) * 2.0 - 1.0);
        b.emplace_back(value);
        h.emplace_back(value);
        x.push_back(uniform(bits) * 2.0 - 1.0);
    }
    double expected_b = 0.0;
    double expected_h = 0.0;
    for (std::size_t j = 0; j < cols; ++j) {
        expected_b += value_of(b[j]) * x[j];
        expected_h += value_of(h[j]) * x[j];
    }
    CHECK(std::abs(scalar_backend::dot(std::span<bf16 const>(b), std::span<double const>(x)) - expected_b) < 1e-12);
    CHECK(std::abs(scalar_backend::dot(std::span<half const>(h), std::span<double const>(x)) - expected_h) < 1e-12);
}
