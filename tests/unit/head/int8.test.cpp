// SPDX-License-Identifier: MIT
//
// Weights in eight bits: how much is rounded away, and what happens at the ends of the ranges. A head over them is the
// head of the weights they represent.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::error_text;
using support::random_values;
using support::says;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEMPLATE_TEST_CASE("int8_matrix: the nearest of 255 steps, the largest weight of a row is the last", "", float, double,
                   bf16, half) {
    support::dice roll(601);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 200; ++trial) {
        std::size_t const rows = 1 + roll.below(6), cols = 1 + roll.below(40), stride = cols + roll.below(3);
        auto weights = random_values<TestType>(roll, rows * stride, std::exp(roll.between(-8.0, 8.0)));
        bool const has_zero_row = roll.chance(0.3);
        if (has_zero_row) std::fill_n(weights.begin(), cols, TestType{});
        int8_matrix const matrix{matrix_view<TestType>{weights.data(), rows, cols, stride}};
        int8_view const w = matrix.view();
        REQUIRE((w.rows == rows && w.cols == cols));
        for (std::size_t i = 0; i < rows; ++i) {
            double largest = 0.0;
            int most = 0;
            for (std::size_t j = 0; j < cols; ++j) {
                auto const exact = static_cast<double>(load(weights[i * stride + j]));
                int const value = w.values[i * cols + j];
                double const stored = static_cast<double>(w.scales[i]) * value;
                largest = std::max(largest, std::fabs(exact));
                most = std::max(most, std::abs(value));
                // Half a step, and what the scale itself is rounded by over 127 steps.
                REQUIRE(std::fabs(stored - exact) <= (0.5 + 127.0 * 0x1p-24) * static_cast<double>(w.scales[i]));
                REQUIRE((value == 0 || (value > 0) == (exact > 0.0)));
            }
            REQUIRE(most == (largest > 0.0 ? 127 : 0));
            REQUIRE(std::fabs(static_cast<double>(w.scales[i]) * 127.0 - largest) <= largest * 0x1p-23);
        }
    }
}

TEST_CASE("int8_matrix: no rows, tiny rows, rows of one sign") {
    int8_matrix const none{matrix_view<float>{nullptr, 0, 5}};
    CHECK(none.view().rows == 0);
    // Too small for a scale in float: zeros, not infinities.
    std::vector<float> const tiny{std::numeric_limits<float>::denorm_min(), 0.0f};
    int8_matrix const small{matrix_view<float>{tiny.data(), 1, 2}};
    CHECK((small.view().values[0] == 0 && small.view().scales[0] == 0.0f));
    std::vector<float> const negative{-1.0f, -0.5f, -0.25f};
    int8_matrix const below{matrix_view<float>{negative.data(), 1, 3}};
    CHECK(below.view().values[0] == -127);
    CHECK(below.view().values[1] == -64);
    CHECK(below.view().values[2] == -32);
}

#if SURELEAP_EXCEPTIONS
TEST_CASE("int8_matrix refuses what it cannot hold", "[error]") {
    std::vector<float> weights(6, 1.0f);
    weights[5] = inf;
    auto const make = [&](std::size_t rows, std::size_t cols) {
        return error_text([&] { int8_matrix{matrix_view<float>{weights.data(), rows, cols}}; });
    };
    CHECK(make(1, 5).empty());
    CHECK(says(make(2, 3), {"int8_matrix", "row 1", "column 2", "inf", "finite"}));
    weights[5] = nan_value;
    CHECK(says(make(2, 3), {"int8_matrix", "row 1", "column 2", "nan"}));
    std::vector<float> const wide(int8_view::most_columns + 1, 1.0f);
    auto const of_wide = [&](std::size_t cols) {
        return error_text([&] { int8_matrix{matrix_view<float>{wide.data(), 1, cols}}; });
    };
    CHECK(of_wide(4096).empty());
    CHECK(says(of_wide(4097), {"int8_matrix", "4097 columns", "at most 4096"}));
}

TEST_CASE("a head refuses eight bits that do not fit it", "[error]") {
    std::vector<float> const weights(6, 1.0f);
    int8_matrix const matrix{matrix_view<float>{weights.data(), 3, 2}};
    matrix_view<float> const fits{weights.data(), 3, 2}, other{weights.data(), 2, 3};
    auto const make = [](matrix_view<float> w1, int8_view w2) {
        return error_text([&] { static_cast<void>(markov_head{w1, w2}); });
    };
    CHECK(make(fits, matrix.view()).empty());
    CHECK(says(make(other, matrix.view()), {"markov_head", "w2", "[3, 2]", "[3, 3]"}));
    CHECK(says(make(fits, {}), {"markov_head", "w2", "[0, 0]"}));
    CHECK(says(make(fits, {matrix.view().values, nullptr, 3, 2}), {"markov_head", "w2", "scales"}));
    CHECK(says(make(fits, {nullptr, matrix.view().scales, 3, 2}), {"markov_head", "w2", "values"}));
}

TEST_CASE("a head refuses rows of eight bits that are too long", "[error]") {
    // A view made by hand has not passed int8_matrix.
    std::size_t const cols = int8_view::most_columns + 1;
    std::vector<float> const w1(cols, 1.0f), scales(1, 1.0f);
    std::vector<std::int8_t> const w2(cols, 1);
    auto const text = error_text([&] {
        static_cast<void>(
            markov_head{matrix_view<float>{w1.data(), 1, cols}, int8_view{w2.data(), scales.data(), 1, cols}});
    });
    CHECK(says(text, {"markov_head", "w2", "4097", "at most 4096"}));
}

TEST_CASE("a head refuses scales that are no numbers", "[error]") {
    std::vector<float> const w1(2, 1.0f);
    std::vector<std::int8_t> const w2(6, 1);
    for (float const bad : {nan_value, std::numeric_limits<float>::infinity()}) {
        std::vector<float> scales(3, 1.0f);
        auto const make = [&] {
            return error_text([&] {
                static_cast<void>(
                    markov_head{matrix_view<float>{w1.data(), 1, 2}, int8_view{w2.data(), scales.data(), 3, 2}});
            });
        };
        CHECK(make().empty());
        scales[1] = bad;
        CHECK(says(make(), {"markov_head", "w2", "scale of row 1", "finite"}));
    }
}
#endif

TEST_CASE("int16_vector: the nearest of the steps that fit, in any magnitude") {
    support::dice roll(602);
    INFO("seed " << roll.seed());
    for (std::size_t const cols : {1u, 2u, 16u, 255u, 511u, 512u, 513u, 600u, 4096u}) {
        for (double const scale : {1e-30, 1e-3, 1.0, 1e30}) {
            auto const x = random_values<float>(roll, cols, scale);
            std::vector<std::int16_t> values(cols);
            float const unit = detail::int16_vector::round(x.data(), cols, values.data());
            double const limit = detail::int16_vector::limit(cols);
            int most = 0;
            for (std::size_t j = 0; j < cols; ++j) {
                double const error = static_cast<double>(unit) * values[j] - static_cast<double>(x[j]);
                REQUIRE(std::fabs(error) <= (0.5 + limit * 0x1p-23) * static_cast<double>(unit));
                most = std::max(most, std::abs(int{values[j]}));
            }
            REQUIRE(most == static_cast<int>(limit));  // all of the range is used
        }
    }
    CHECK(detail::int16_vector::limit(256) == 32767.0);
}

TEST_CASE("int16_vector: zeros, and what is no number") {
    std::vector<std::int16_t> values(3, 99);
    std::vector<float> x{0.0f, -0.0f, 0.0f};
    CHECK(detail::int16_vector::round(x.data(), 3, values.data()) == 0.0f);
    CHECK(values == std::vector<std::int16_t>(3, 0));
    for (float const bad : {nan_value, inf, -inf}) {
        for (std::size_t at = 0; at < 3; ++at) {
            x = {1.0f, 2.0f, 3.0f};
            x[at] = bad;
            values.assign(3, 99);
            CHECK(std::isnan(detail::int16_vector::round(x.data(), 3, values.data())));
            CHECK(values == std::vector<std::int16_t>(3, 0));
        }
    }
}

TEST_CASE("int8 products: no sum leaves 32 bits, whatever the eight bits are") {
    for (std::size_t const cols : {1u, 255u, 256u, 510u, 511u, 512u, 515u, 516u, 517u, 1000u, 4095u, 4096u}) {
        for (int const weight : {127, -127, -128}) {
            std::vector<std::int8_t> const w(9 * cols, static_cast<std::int8_t>(weight));
            std::vector<float> const scales(9, 1.0f), x(cols, 1.0f), minus(cols, -1.0f);
            for (head_kernels const* const kernels : available_kernels<head_kernels>()) {
                INFO(kernels->name << ", cols " << cols << ", weights " << weight);
                std::vector<float> a(9), b(9);
                float const* from[] = {x.data(), minus.data()};
                float* to[] = {a.data(), b.data()};
                detail::int8_product(*kernels, {w.data(), scales.data(), 9, cols}, nullptr, 9, from, to, to, 2);
                double const exact = static_cast<double>(weight) * static_cast<double>(cols);
                for (std::size_t i = 0; i < 9; ++i) {
                    REQUIRE(std::fabs(static_cast<double>(a[i]) - exact) <= std::fabs(exact) * 0x1p-22);
                    REQUIRE(b[i] == -a[i]);
                }
            }
        }
    }
}

TEST_CASE("int8 products: more vectors than are rounded at a time, and rows by name") {
    support::dice roll(603);
    INFO("seed " << roll.seed());
    for (auto const& [cols, n] : {std::pair<std::size_t, std::size_t>{3, 70}, {520, 40}, {4096, 9}}) {
        INFO("cols " << cols << ", n " << n);
        auto const weights = random_values<float>(roll, 11 * cols);
        int8_matrix const matrix{matrix_view<float>{weights.data(), 11, cols}};
        std::vector<std::vector<float>> x, y(n, std::vector<float>(11, 0.25f));
        for (std::size_t k = 0; k < n; ++k) x.push_back(random_values<float>(roll, cols));
        std::vector<float const*> from;
        std::vector<float*> to;
        for (auto const& v : x) from.push_back(v.data());
        for (auto& v : y) to.push_back(v.data());
        detail::int8_product(native_kernels<head_kernels>(), matrix.view(), nullptr, 11, from.data(), to.data(),
                             to.data(), n);
        token_id const ids[] = {10, 2, 2};
        for (std::size_t k = 0; k < n; ++k) {
            std::vector<float> alone(11, 0.25f), some(3, 0.25f);
            float const* one = x[k].data();
            float* out = alone.data();
            detail::int8_product(native_kernels<head_kernels>(), matrix.view(), nullptr, 11, &one, &out, &out, 1);
            REQUIRE(alone == y[k]);
            out = some.data();
            detail::int8_product(native_kernels<head_kernels>(), matrix.view(), ids, 3, &one, &out, &out, 1);
            REQUIRE(some == std::vector<float>{y[k][10], y[k][2], y[k][2]});
        }
    }
}

TEST_CASE("int8 products: a code that is no number makes logits that are none; a zero code none at all") {
    std::vector<float> weights(5 * 20, 1.0f);
    std::fill_n(weights.begin(), 20, 0.0f);  // a row of zeros inherits it too
    int8_matrix const matrix{matrix_view<float>{weights.data(), 5, 20}};
    for (head_kernels const* const kernels : available_kernels<head_kernels>()) {
        for (float const bad : {nan_value, inf, -inf, 0.0f}) {
            INFO(kernels->name << ", " << bad);
            std::vector<float> good(20, 1.0f), other(20, bad == 0.0f ? 0.0f : 1.0f), a(5, 3.0f), b(5, 3.0f);
            other[19] = bad;
            float const* from[] = {good.data(), other.data()};
            float* to[] = {a.data(), b.data()};
            detail::int8_product(*kernels, matrix.view(), nullptr, 5, from, to, to, 2);
            CHECK(a[0] == 3.0f);
            for (std::size_t i = 1; i < 5; ++i) CHECK(std::fabs(a[i] - 23.0f) < 1e-4f);
            for (float const y : b) CHECK((bad == 0.0f ? y == 3.0f : std::isnan(y)));
        }
    }
}

TEST_CASE("heads over int8 are near those over float, by what was rounded away") {
    support::dice roll(604);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 40; ++trial) {
        std::size_t const target = 2 + roll.below(20), draft = 1 + roll.below(40), r = 1 + roll.below(48), d = 5;
        auto const w1 = random_values<float>(roll, target * r), w2 = random_values<float>(roll, draft * r);
        auto const gate = random_values<float>(roll, r * (d + r)), gate_bias = random_values<float>(roll, r);
        auto const joint = random_values<float>(roll, 3 * r * (2 * r + d)), bias = random_values<float>(roll, 3 * r);
        auto const hidden = random_values<float>(roll, d);
        matrix_view<float> const w1_view{w1.data(), target, r}, w2_view{w2.data(), draft, r};
        int8_matrix const matrix{w2_view};
        int8_view const w = matrix.view();
        auto const compare = [&](auto const& exact, auto const& rounded) {
            static_assert(factored_head<std::remove_cvref_t<decltype(rounded)>>);
            REQUIRE(rounded.vocabulary() == draft);
            REQUIRE(rounded.rank() == r);
            std::span<float const> const h = std::span<float const>(hidden).first(exact.hidden_size());
            std::vector<float> s(exact.state_size()), t(exact.state_size());
            exact.reset(s), rounded.reset(t);
            for (int k = 0; k < 3; ++k) {
                auto const previous = static_cast<token_id>(roll.below(target));
                std::vector<float> a(draft, 0.5f), b(draft, 0.5f);
                std::vector<float> const code = [&] {
                    auto copy = s;
                    auto const z = exact.code(copy, h, previous);
                    return std::vector<float>(z.begin(), z.end());
                }();
                exact.add_bias(s, h, previous, a);
                rounded.add_bias(t, h, previous, b);
                REQUIRE(s == t);  // W2 is no part of the state
                double size = 0.0, largest = 0.0;
                for (float const z : code) {
                    size += std::fabs(static_cast<double>(z));
                    largest = std::max(largest, std::fabs(static_cast<double>(z)));
                }
                double const step = largest / detail::int16_vector::limit(r);
                for (std::size_t v = 0; v < draft; ++v) {
                    double const scale = static_cast<double>(w.scales[v]);
                    // Half a step of each weight, half a step of each number of the code, and float arithmetic.
                    double const bound = 0.5 * scale * size + 0.5 * step * 127.0 * scale * static_cast<double>(r) +
                                         1e-5 * (1.0 + 127.0 * scale * size);
                    REQUIRE(std::fabs(static_cast<double>(a[v]) - static_cast<double>(b[v])) <= bound);
                }
            }
        };
        compare(markov_head{w1_view, w2_view}, markov_head{w1_view, w});
        matrix_view<float> const gate_view{gate.data(), r, d + r}, joint_view{joint.data(), 3 * r, 2 * r + d};
        compare(gated_head{w1_view, w2_view, gate_view, gate_bias}, gated_head{w1_view, w, gate_view, gate_bias});
        compare(rnn_head{w1_view, w2_view, joint_view, bias}, rnn_head{w1_view, w, joint_view, bias});
    }
}
