// SPDX-License-Identifier: MIT
//
// The correction's law, exactly: by a pass, by proposals with a pass behind them, and how both are keyed.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/testing/enumerator.hpp>
#include <sureleap/verify/residual.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

constexpr float inf_float = std::numeric_limits<float>::infinity();

draw_key const key{.seed = 5, .position = 9, .index = 3, .use = purpose::residual};

template <class P, class Q>
std::vector<double> expected_law(P const& p, Q const& q, double scale) {
    std::vector<double> law;
    double mass = 0.0;
    for (token_id v = 0; v < static_cast<token_id>(p.size()); ++v) {
        law.push_back(std::max(0.0, scale * p.probability(v) - q.probability(v)));
        mass += law.back();
    }
    for (double& x : law) x /= mass;
    return law;
}

/// Asks for what philox_randomness gives, and notes the keys.
struct recording {
    std::vector<draw_key>* keys;
    [[nodiscard]] bool bernoulli(draw_key const& k, double num, double den) const {
        keys->push_back(k);
        return philox_randomness{}.bernoulli(k, num, den);
    }
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& k, Weights const& w) const {
        keys->push_back(k);
        return philox_randomness{}.categorical(k, w);
    }
};

}  // namespace

TEST_CASE("residual: proposals change how a correction is drawn, not its law") {
    support::dice roll(81);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 40; ++trial) {
        std::vector<double> a, b;
        for (int v = 0; v < 3; ++v) {
            a.push_back(roll.between(-2.0, 2.0));
            b.push_back(roll.between(-2.0, 2.0));
        }
        distribution<double> const p{{a, {}}, {}, {}};
        distribution<double> const q{{b, {}}, {}, {}};
        double const scale = trial % 2 == 0 ? 1.0 : roll.between(0.7, 1.0);
        if (residual{p, q, scale}.total() < 1e-3) continue;
        auto const expected = expected_law(p, q, scale);
        for (auto const noise : {enumerator::noise::fresh, enumerator::noise::keyed}) {
            for (std::uint32_t const proposals : {0u, 1u, 2u, 3u}) {
                std::vector<double> law(3);
                enumerator walk{noise};
                walk.for_each_path([&] {
                    auto rng = walk.handle();
                    token_id const x = draw_residual(p, q, scale, key, rng, {}, proposals);
                    law[static_cast<std::size_t>(x)] += walk.weight();
                });
                for (std::size_t v = 0; v < 3; ++v) REQUIRE(std::abs(law[v] - expected[v]) < 1e-12);
            }
        }
    }
}

TEST_CASE("residual: long rows are proposed to, and corrections follow the law") {
    support::dice roll(82);
    INFO("seed " << roll.seed());
    std::size_t const size = 2100;
    std::vector<float> a, b;
    for (std::size_t v = 0; v < size; ++v) {
        a.push_back(static_cast<float>(roll.between(-3.0, 3.0)));
        b.push_back(a.back() + static_cast<float>(roll.between(-1.0, 1.0)));
    }
    std::vector<double> sums_p(row_blocks(size)), sums(row_blocks(size));
    distribution<float> const p{{a, {}}, {}, {}, nullptr, native_kernels<row_kernels>(), sums_p};
    distribution<float> const q{{b, {}}, {}, {}};
    auto const expected = expected_law(p, q, 1.0);
    for (std::uint32_t const proposals : {0u, 1u, residual_proposals}) {
        INFO("proposals " << proposals);
        // Tokens in 21 classes: 100,000 draws tell a class of 1/21 to 1.5 %.
        int const draws = 100'000;
        std::vector<double> counts(21), mass(21);
        for (std::size_t v = 0; v < size; ++v) mass[v % 21] += expected[v];
        philox_randomness rng;
        for (int i = 0; i < draws; ++i) {
            draw_key named = key;
            named.position = static_cast<std::uint64_t>(i);
            token_id const x = draw_residual(p, q, 1.0, named, rng, sums, proposals);
            REQUIRE(p.probability(x) > q.probability(x));
            counts[static_cast<std::size_t>(x) % 21] += 1.0;
        }
        double chi_square = 0.0;
        for (std::size_t c = 0; c < 21; ++c) {
            double const e = mass[c] * draws;
            chi_square += (counts[c] - e) * (counts[c] - e) / e;
        }
        CHECK(chi_square < 60.0);  // 20 degrees of freedom: 1 in 100,000
    }
}

TEST_CASE("residual: every proposal has keys of its own, and the pass keeps the key it always had") {
    std::vector<double> const a{0.0, 1.0, 2.0};
    std::vector<double> const b{1.9, 1.0, 0.0};
    distribution<double> const p{{a, {}}, {}, {}};
    distribution<double> const q{{b, {}}, {}, {}};
    std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> seen;
    bool passed = false;
    for (std::uint64_t position = 0; position < 200; ++position) {
        for (std::uint32_t index = 0; index < 8; ++index) {
            std::vector<draw_key> keys;
            recording rng{&keys};
            static_cast<void>(draw_residual(p, q, 1.0, {5, position, index, purpose::residual}, rng, {}, 3));
            for (draw_key const& k : keys) {
                REQUIRE(k.seed == 5);
                REQUIRE(seen.insert({k.position, k.index, static_cast<std::uint32_t>(k.use)}).second);
                if (k.use != purpose::residual) continue;
                passed = true;
                REQUIRE(k.index == index);
            }
        }
    }
    CHECK(passed);
}

TEST_CASE("residual: where nothing is left the target itself is drawn from") {
    std::vector<double> const a{0.5, 1.0, -0.5};
    distribution<double> const p{{a, {}}, {}, {}};
    for (std::uint32_t const proposals : {0u, 2u}) {
        std::vector<double> law(3);
        enumerator walk{enumerator::noise::fresh};
        walk.for_each_path([&] {
            auto rng = walk.handle();
            token_id const x = draw_residual(p, p, 1.0, key, rng, {}, proposals);
            law[static_cast<std::size_t>(x)] += walk.weight();
        });
        for (token_id v = 0; v < 3; ++v) CHECK(std::abs(law[static_cast<std::size_t>(v)] - p.probability(v)) < 1e-12);
    }
}

TEST_CASE("residual: what rounding leaves over is spread over the row, and not the last token's") {
    // p and q agree but for some tokens of 1e-7, which is less than sums in float are rounded by: the masses of the
    // blocks hold what rounding made. Each block ends with a token that nothing but rounding would be given to.
    std::size_t const size = 2 * row_block + 100;
    support::dice roll(83);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 6; ++trial) {
        std::vector<float> a(size, -inf_float), b(size, -inf_float);
        for (std::size_t v = 0; v < 40; ++v) {
            a[v] = b[v] = static_cast<float>(roll.between(-3.0, 0.0));
            for (std::size_t i = roll.below(3); i > 0; --i) b[v] = std::nextafter(b[v], v % 2 == 0 ? -4.0f : 0.0f);
        }
        std::vector<std::size_t> const gains{50, 51, 700, row_block + 3, size - 2};
        std::vector<std::size_t> const loses{52, 701, row_block + 4};
        for (std::size_t const v : gains) a[v] = -15.0f, b[v] = -17.0f;
        for (std::size_t const v : loses) a[v] = -17.0f, b[v] = -14.55f;
        for (std::size_t const v : {row_block - 1, size - 1}) a[v] = -50.0f, b[v] = -60.0f;
        for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
            std::vector<double> sums_p(row_blocks(size)), sums_q(row_blocks(size)), masses(row_blocks(size));
            distribution<float> const p{{a, {}}, {}, {}, nullptr, *kernels, sums_p};
            distribution<float> const q{{b, {}}, {}, {}, nullptr, *kernels, sums_q};
            for (bool const blocks : {true, false}) {
                INFO("trial " << trial << ", kernels " << kernels->name << ", sums of blocks " << blocks);
                residual const left{p, q, 1.0, blocks ? std::span<double>(masses) : std::span<double>{}};
                std::vector<double> law(size), drawn(size);
                double mass = 0.0;
                for (std::size_t v = 0; v < size; ++v) mass += law[v] = left[static_cast<token_id>(v)];
                REQUIRE(mass > 1e-8);
                REQUIRE(mass < 1e-5);
                int const draws = 400;
                for (int i = 0; i < draws; ++i) {
                    token_id const x = left.quantile((i + 0.5) / draws);
                    REQUIRE(x != no_token);
                    REQUIRE(law[static_cast<std::size_t>(x)] > 0.0);
                    drawn[static_cast<std::size_t>(x)] += 1.0 / draws;
                }
                double distance = 0.0;
                for (std::size_t v = 0; v < size; ++v) distance += 0.5 * std::abs(drawn[v] - law[v] / mass);
                // Masses that were added up in double hold; a grid may be off by one at each of some 50 borders.
                if (kernels == &scalar_kernels<row_kernels>) CHECK(distance < 0.1);
                CHECK(drawn[row_block - 1] + drawn[size - 1] == 0.0);  // 1e-14 of the residual
            }
        }
    }
}
