// SPDX-License-Identifier: MIT
//
// The functions between the products and attention, in every instruction set that this machine has: distances from long
// double, with bounds that follow from the operations, and the cases that are exact.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "engine/kernels.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/kernel_sets.hpp"

namespace {

using namespace engine;
using namespace support;

TEMPLATE_TEST_CASE("rms_norm divides by the root of the mean square", "[kernels]", float, double) {
    dice roll(5);
    with_every_set([&] {
        for (std::size_t const size : sizes{1, 5, 16, 31, 128, 2560}) {
            auto const x = normal<TestType>(size, roll);
            auto const scale = normal<TestType>(size, roll);
            std::vector<TestType> out(size);
            rms_norm(x.data(), scale.data(), size, 1e-6, out.data());
            long double squares = 0.0L;
            for (TestType const v : x) squares += static_cast<long double>(v) * v;
            long double const root = std::sqrt(squares / static_cast<long double>(size) + 1e-6L);
            double worst = 0.0;
            for (std::size_t i = 0; i < size; ++i) {
                long double const expected = x[i] / root * scale[i];
                worst = std::max(worst, static_cast<double>(std::fabs(out[i] - expected) / std::fabs(expected)));
            }
            INFO("seed 5, size " << size);
            // The sum counts half, as a root is taken of it; then a conversion and two products.
            double const blocks = std::ceil(static_cast<double>(size * sizeof(TestType)) / 64.0);
            REQUIRE(worst <= 0.5 * std::numeric_limits<TestType>::epsilon() * (0.5 * (blocks + 7.0) + 4.0));
            std::vector<TestType> in_place = x;
            rms_norm(in_place.data(), scale.data(), size, 1e-6, in_place.data());
            REQUIRE(same_bits(in_place.data(), out.data(), size));
        }
    });
}

TEMPLATE_TEST_CASE("rotate turns the pairs of the two halves", "[kernels]", float, double) {
    dice roll(6);
    with_every_set([&] {
        for (std::size_t const size : sizes{2, 6, 8, 30, 64, 128, 256}) {
            auto const x = normal<TestType>(size, roll);
            auto const angle = numbers<double>(size / 2, [&] { return roll.between(-3.0, 3.0); });
            std::vector<TestType> cos(size / 2);
            std::vector<TestType> sin(size / 2);
            for (std::size_t i = 0; i < size / 2; ++i) {
                cos[i] = static_cast<TestType>(std::cos(angle[i]));
                sin[i] = static_cast<TestType>(std::sin(angle[i]));
            }
            std::vector<TestType> out = x;
            rotate(out.data(), cos.data(), sin.data(), size);
            double worst = 0.0;
            for (std::size_t i = 0; i < size / 2; ++i) {
                long double const a = x[i];
                long double const b = x[i + size / 2];
                long double const radius = std::hypot(a, b);
                worst = std::max(worst, static_cast<double>(std::fabs(out[i] - (a * cos[i] - b * sin[i])) / radius));
                worst = std::max(
                    worst, static_cast<double>(std::fabs(out[i + size / 2] - (b * cos[i] + a * sin[i])) / radius));
            }
            INFO("seed 6, size " << size);
            REQUIRE(worst <= 1.5 * std::numeric_limits<TestType>::epsilon());
        }
    });
}

TEMPLATE_TEST_CASE("silu_mul is x / (1 + exp(-x)) from one end to the other", "[kernels]", float, double) {
    // Far below zero it is x exp(x): its relative error there is that of the exponential.
    double const low = sizeof(TestType) == 4 ? -87.0 : -700.0;
    with_every_set([&] {
        for (std::size_t const size : sizes{1, 15, 16, 1000}) {
            std::vector<TestType> x(size);
            for (std::size_t i = 0; i < size; ++i) {
                x[i] = static_cast<TestType>(low +
                                             (40.0 - low) * (static_cast<double>(i) + 0.3) / static_cast<double>(size));
            }
            std::vector<TestType> gate = x;
            std::vector<TestType> const up(size, TestType{3});
            silu_mul(gate.data(), up.data(), size);
            double worst = 0.0;
            for (std::size_t i = 0; i < size; ++i) {
                long double const expected = 3.0L * x[i] / (1.0L + std::exp(-static_cast<long double>(x[i])));
                worst = std::max(worst, static_cast<double>(std::fabs((gate[i] - expected) / expected)));
            }
            INFO("size " << size);
            REQUIRE(worst <= 3.5 * std::numeric_limits<TestType>::epsilon());  // exp 2, and three operations
        }
        TestType const infinity = std::numeric_limits<TestType>::infinity();
        TestType extremes[] = {TestType{-1000}, TestType{1000}, infinity, TestType{0},
                               std::numeric_limits<TestType>::quiet_NaN()};
        TestType const ones[] = {1, 1, 1, 1, 1};
        silu_mul(extremes, ones, 5);
        REQUIRE(extremes[0] == TestType{0});
        REQUIRE(extremes[1] == TestType{1000});
        REQUIRE(extremes[2] == infinity);
        REQUIRE(extremes[3] == TestType{0});
        REQUIRE(std::isnan(extremes[4]));
    });
}

/// Keys and values [n, size] as the cache has them, chunk by chunk; what nobody wrote is `fill`.
template <class Real>
std::vector<Real> in_chunks(std::vector<Real> const& keys, std::vector<Real> const& values, std::size_t size,
                            Real fill) {
    std::size_t const n = keys.size() / size;
    std::size_t const chunk = 2 * chunk_keys * size;
    std::vector<Real> all((n + chunk_keys - 1) / chunk_keys * chunk, fill);
    for (std::size_t k = 0; k < n; ++k) {
        Real* const to = all.data() + k / chunk_keys * chunk;
        std::size_t const at = k % chunk_keys;
        for (std::size_t c = 0; c < size; ++c) {
            to[c * chunk_keys + at] = keys[k * size + c];
            to[(chunk_keys + at) * size + c] = values[k * size + c];
        }
    }
    return all;
}

/// Attention of queries x [count, size] to the first keys[q] keys, all of them together, chunk by chunk.
template <class Real>
std::vector<Real> attention(Real const* x, std::vector<std::size_t> const& keys, Real const* chunks, std::size_t size,
                            Real scale) {
    std::size_t const most = (*std::max_element(keys.begin(), keys.end()) + chunk_keys - 1) / chunk_keys;
    std::size_t const stride = attended_size(size);
    std::vector<Real> attended(keys.size() * most * stride, Real{77});
    for (std::size_t c = 0; c < most; ++c) {
        std::vector<attention_query<Real>> queries;
        for (std::size_t q = 0; q < keys.size(); ++q) {
            if (keys[q] <= c * chunk_keys) continue;
            queries.push_back({x + q * size, attended.data() + (q * most + c) * stride,
                               std::min(keys[q] - c * chunk_keys, chunk_keys)});
        }
        attend<Real>(queries, chunks + c * 2 * chunk_keys * size, size, scale);
    }
    std::vector<Real> out(keys.size() * size);
    for (std::size_t q = 0; q < keys.size(); ++q) {
        join_attended(attended.data() + q * most * stride, (keys[q] + chunk_keys - 1) / chunk_keys, size,
                      out.data() + q * size);
    }
    return out;
}

TEMPLATE_TEST_CASE("attention is the softmax of the scores over the values", "[kernels]", float, double) {
    dice roll(7);
    with_every_set([&] {
        for (std::size_t const size : sizes{1, 8, 20, 64, 128, 256}) {
            for (std::size_t const n : sizes{1, 2, 7, 16, 17, 64, 65, 100, 333}) {
                auto const scale = static_cast<TestType>(1.0 / std::sqrt(static_cast<double>(size)));
                auto const query = normal<TestType>(size, roll);
                auto const keys = normal<TestType>(n * size, roll);
                auto const values = normal<TestType>(n * size, roll);
                auto const chunks = in_chunks(keys, values, size, TestType{0});
                auto const out = attention(query.data(), {n}, chunks.data(), size, scale);
                std::vector<long double> p(n);
                long double total = 0.0L;
                for (std::size_t k = 0; k < n; ++k) {
                    long double s = 0.0L;
                    for (std::size_t c = 0; c < size; ++c) s += static_cast<long double>(query[c]) * keys[k * size + c];
                    total += p[k] = std::exp(s * scale);
                }
                double worst = 0.0;
                for (std::size_t c = 0; c < size; ++c) {
                    long double expected = 0.0L;
                    for (std::size_t k = 0; k < n; ++k) expected += p[k] / total * values[k * size + c];
                    worst = std::max(worst, static_cast<double>(std::fabs(out[c] - expected)));
                }
                INFO("seed 7, n " << n << ", size " << size);
                // Values and scores are at most a few units; n additions of weighted values that sum to at most 2.
                REQUIRE(worst <= std::numeric_limits<TestType>::epsilon() * (static_cast<double>(n) + 40.0));
                // Neither what stands behind the n-th key, nor where the numbers lie.
                auto moved = in_chunks(keys, values, size, std::numeric_limits<TestType>::quiet_NaN());
                moved.insert(moved.begin(), TestType{0});
                REQUIRE(
                    same_bits(attention(query.data(), {n}, moved.data() + 1, size, scale).data(), out.data(), size));
            }
        }
    });
}

TEMPLATE_TEST_CASE("queries that attend together have the bits that they have alone", "[kernels]", float, double) {
    dice roll(11);
    with_every_set([&] {
        for (std::size_t const size : sizes{8, 20, 64, 128}) {
            constexpr std::size_t most = 140;
            auto const x = normal<TestType>(17 * size, roll);
            auto const chunks = in_chunks(normal<TestType>(most * size, roll), normal<TestType>(most * size, roll),
                                          size, std::numeric_limits<TestType>::quiet_NaN());
            for (std::size_t const count : sizes{1, 2, 3, 4, 6, 7, 8, 14, 17}) {
                std::vector<std::size_t> keys;
                for (std::size_t q = 0; q < count; ++q) keys.push_back(1 + roll.below(most));
                auto const together = attention(x.data(), keys, chunks.data(), size, TestType(0.3));
                for (std::size_t q = 0; q < count; ++q) {
                    auto const alone = attention(x.data() + q * size, {keys[q]}, chunks.data(), size, TestType(0.3));
                    INFO("seed 11, size " << size << ", " << count << " queries, " << keys[q] << " keys");
                    REQUIRE(same_bits(alone.data(), together.data() + q * size, size));
                }
            }
        }
    });
}

TEMPLATE_TEST_CASE("attention is exact where one key takes everything, and scores may be large", "[kernels]", float,
                   double) {
    with_every_set([&] {
        constexpr std::size_t size = 24;
        constexpr std::size_t n = 75;
        for (std::size_t chosen = 0; chosen < n; ++chosen) {
            std::vector<TestType> const query(size, TestType{100});
            std::vector<TestType> keys(n * size, TestType{-100});
            std::vector<TestType> values(n * size);
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<TestType>(i);
            std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>(chosen * size), size, TestType{100});
            auto const chunks = in_chunks(keys, values, size, TestType{0});
            auto const out = attention(query.data(), {n}, chunks.data(), size, TestType{1});
            REQUIRE(same_bits(out.data(), values.data() + chosen * size, size));
        }
    });
}

}  // namespace
