// SPDX-License-Identifier: MIT
//
// The fast backends against the scalar one: equal on integers, close on everything else, for all storages, ragged
// sizes and strided views; and heads that use them. A backend whose dependency is absent is left out.
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

#include <sureleap/confidence/head.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#if __has_include(<Eigen/Core>)
#include <sureleap/ext/eigen.hpp>
#define SURELEAP_TEST_EIGEN 1
#endif
#if __has_include(<xsimd/xsimd.hpp>)
#include <sureleap/ext/xsimd.hpp>
#define SURELEAP_TEST_XSIMD 1
#endif

namespace {

using sureleap::bf16;
using sureleap::half;
using sureleap::matrix_view;
using sureleap::scalar_backend;
using sureleap::token_id;

double uniform(std::mt19937_64& bits) {
    return static_cast<double>(bits() >> 11) * 0x1p-53;
}

template <class T>
std::vector<T> random_values(std::size_t count, std::mt19937_64& bits, bool integers) {
    std::vector<T> out;
    for (std::size_t i = 0; i < count; ++i) {
        float const value =
            integers ? static_cast<float>(bits() % 17) - 8.0f : static_cast<float>(uniform(bits) * 2.0 - 1.0);
        out.push_back(static_cast<T>(value));
    }
    return out;
}

template <class Backend, class Weight, class Real>
void compare_products(std::uint64_t seed) {
    std::mt19937_64 bits(seed);
    float const poison = std::numeric_limits<float>::quiet_NaN();
    for (std::size_t rows : {1u, 2u, 5u, 8u, 33u}) {
        for (std::size_t cols : {1u, 3u, 8u, 16u, 31u, 64u, 100u, 255u, 256u, 257u, 700u}) {
            for (std::size_t gap : {0u, 3u}) {
                for (bool integers : {true, false}) {
                    INFO("seed " << seed << ", rows " << rows << ", cols " << cols << ", gap " << gap << ", integers "
                                 << integers);
                    auto w = random_values<Weight>(rows * (cols + gap), bits, integers);
                    for (std::size_t i = 0; i < rows; ++i) {
                        for (std::size_t j = cols; j < cols + gap; ++j) {
                            w[i * (cols + gap) + j] = static_cast<Weight>(poison);
                        }
                    }
                    auto const x = random_values<Real>(cols, bits, integers);
                    auto const y = random_values<Real>(rows, bits, integers);
                    matrix_view<Weight> const view(w.data(), rows, cols, cols + gap);

                    std::vector<Real> expected(rows);
                    std::vector<Real> got(rows, std::numeric_limits<Real>::quiet_NaN());
                    std::vector<Real> expected_sum = y;
                    std::vector<Real> got_sum = y;
                    scalar_backend::gemv(view, x, std::span<Real>(expected));
                    scalar_backend::gemv_add(view, x, std::span<Real>(expected_sum));
                    Backend::gemv(view, x, std::span<Real>(got));
                    Backend::gemv_add(view, x, std::span<Real>(got_sum));
                    Real const rounding = std::numeric_limits<Real>::epsilon() * static_cast<Real>(cols + 1);
                    Real const bound = integers ? Real(0) : rounding;
                    bool close = true;
                    for (std::size_t i = 0; i < rows; ++i) {
                        Real const dot = Backend::dot(view.row(i), std::span<Real const>(x));
                        close = close && std::abs(got[i] - expected[i]) <= bound;
                        close = close && std::abs(got_sum[i] - expected_sum[i]) <= bound;
                        close = close && std::abs(dot - expected[i]) <= bound;
                    }
                    REQUIRE(close);
                }
            }
        }
    }
    std::vector<Weight> const no_weights;
    std::vector<Real> const no_reals;
    REQUIRE(Backend::dot(std::span<Weight const>(no_weights), std::span<Real const>(no_reals)) == Real(0));
}

template <class Backend>
void compare_all_storages() {
    compare_products<Backend, float, float>(1);
    compare_products<Backend, float, double>(2);
    compare_products<Backend, double, float>(3);
    compare_products<Backend, double, double>(4);
    compare_products<Backend, bf16, float>(5);
    compare_products<Backend, bf16, double>(6);
    compare_products<Backend, half, float>(7);
    compare_products<Backend, half, double>(8);
}

template <class Backend, class Weight>
void compare_heads(std::uint64_t seed) {
    INFO("seed " << seed);
    std::mt19937_64 bits(seed);
    std::size_t const targets = 40;
    std::size_t const drafts = 29;
    std::size_t const r = 11;
    std::size_t const d = 21;
    auto const w1 = random_values<Weight>(targets * r, bits, false);
    auto const w2 = random_values<Weight>(drafts * r, bits, false);
    auto const joint = random_values<Weight>(3 * r * (2 * r + d), bits, false);
    auto const bias = random_values<Weight>(3 * r, bits, false);
    auto const weight = random_values<Weight>(d + r, bits, false);
    auto const hidden = random_values<double>(d, bits, false);
    matrix_view<Weight> const w1_view(w1.data(), targets, r);
    matrix_view<Weight> const w2_view(w2.data(), drafts, r);
    matrix_view<Weight> const joint_view(joint.data(), 3 * r, 2 * r + d);
    matrix_view<Weight> const weight_view(weight.data(), 1, d + r);

    auto const compare = [&](auto const& oracle, auto const& head) {
        std::vector<double> state_a(oracle.state_size());
        std::vector<double> state_b(head.state_size());
        oracle.reset(state_a);
        head.reset(state_b);
        for (token_id previous : {3, 0, 39, 17}) {
            std::vector<double> a(drafts);
            std::vector<double> b(drafts);
            oracle.add_bias(state_a, hidden, previous, a);
            head.add_bias(state_b, hidden, previous, b);
            for (std::size_t v = 0; v < drafts; ++v) REQUIRE(std::abs(a[v] - b[v]) < 1e-13);
        }
    };
    compare(sureleap::markov_head<Weight, double>(w1_view, w2_view),
            sureleap::markov_head<Weight, double, Backend>(w1_view, w2_view));
    compare(sureleap::rnn_head<Weight, double>(w1_view, w2_view, joint_view, bias),
            sureleap::rnn_head<Weight, double, Backend>(w1_view, w2_view, joint_view, bias));
    sureleap::confidence_head<Weight, double> const oracle(weight_view, 0.25, w1_view);
    sureleap::confidence_head<Weight, double, Backend> const head(weight_view, 0.25, w1_view);
    for (token_id previous : {3, 0, 39, 17}) {
        REQUIRE(std::abs(oracle.logit(hidden, previous) - head.logit(hidden, previous)) < 1e-13);
        REQUIRE(std::abs(oracle.at_anchor(hidden, previous, 2) - head.at_anchor(hidden, previous, 2)) < 1e-13);
    }
}

}  // namespace

#ifdef SURELEAP_TEST_EIGEN
TEST_CASE("the Eigen backend agrees with the scalar one", "[linear][backend]") {
    compare_all_storages<sureleap::eigen_backend>();
    compare_heads<sureleap::eigen_backend, double>(31);
    compare_heads<sureleap::eigen_backend, bf16>(32);
    std::vector<float> const w(8, 1.0f);
    matrix_view<float> const view(w.data(), 4, 2);
    sureleap::markov_head const head{view, view, sureleap::eigen_backend{}};
    STATIC_REQUIRE(std::is_same_v<decltype(head)::backend_type, sureleap::eigen_backend>);
}
#endif

#ifdef SURELEAP_TEST_XSIMD
TEST_CASE("the xsimd backend agrees with the scalar one", "[linear][backend]") {
    compare_all_storages<sureleap::xsimd_backend>();
    compare_heads<sureleap::xsimd_backend, double>(41);
    compare_heads<sureleap::xsimd_backend, half>(42);
    std::vector<float> const w(8, 1.0f);
    matrix_view<float> const view(w.data(), 4, 2);
    sureleap::markov_head const head{view, view, sureleap::xsimd_backend{}};
    STATIC_REQUIRE(std::is_same_v<decltype(head)::backend_type, sureleap::xsimd_backend>);
}
#endif
