// SPDX-License-Identifier: MIT
//
// The correction's law, exactly: by a pass, by proposals with a pass behind them, and how both are keyed.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <sureleap/acceptance/residual.hpp>
#include <sureleap/distribution.hpp>
#include <sureleap/random.hpp>
#include <sureleap/testing/enumerator.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

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
    distribution<float> const p{{a, {}}, {}, {}, nullptr, native_row_kernels(), sums_p};
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
