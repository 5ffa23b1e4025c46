// SPDX-License-Identifier: MIT
//
// Laws of which only bounds of the sums are known: the same law, the same decisions, the same winners; and that draws
// which miss, and decisions that bounds leave open, change no law is enumerated on a small one.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/testing/enumerator.hpp>
#include <sureleap/verify/bounded.hpp>
#include <sureleap/verify/residual.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

/// Three weights and bounds of their sum.
struct toy {
    using weight_type = double;
    std::array<double, 3> w{};
    double low = 0.0;
    double high = 0.0;
    bool known = false;
    std::size_t* settled = nullptr;

    [[nodiscard]] std::size_t size() const { return w.size(); }
    [[nodiscard]] double operator[](token_id v) const { return w[static_cast<std::size_t>(v)]; }
    void evaluate(token_id first, std::span<double> out) const {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = (*this)[first + static_cast<token_id>(i)];
    }
    [[nodiscard]] double total() const { return w[0] + w[1] + w[2]; }
    [[nodiscard]] double probability(token_id v) const { return (*this)[v] / total(); }
    [[nodiscard]] bool is_settled() const { return known; }
    void settle() {
        if (!known && settled != nullptr) ++*settled;
        known = true;
    }
    void refine() { settle(); }
    [[nodiscard]] interval mass() const { return known ? interval{total(), total()} : interval{low, high}; }
};

/// A number by bounds, until it is asked for.
struct number {
    interval at;
    double value;
    [[nodiscard]] interval known() const { return at; }
    void refine() { at = {value, value}; }
};

/// Walks what production does with bounds: draws that miss, decisions that are open.
struct walker {
    enumerator::source base;

    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return base.bernoulli(key, num, den);
    }
    template <class Known, class Refine>
    [[nodiscard]] bool bernoulli(draw_key const& key, Known&& known, Refine&& refine) const {
        // Three parts of the number that decides: below both bounds, between them, above.
        odds_interval at = known();
        double const least = std::clamp(at.low.num / at.low.den, 0.0, 1.0);
        double const most = std::clamp(at.high.num / at.high.den, 0.0, 1.0);
        toy const parts{{least, most - least, 1.0 - most}, 1.0, 1.0, true};
        token_id const part = base.categorical(key, parts);
        if (part != 1) return part == 0;
        for (; !at.exact(); at = known()) refine();
        double const p = std::min(at.low.num / at.low.den, 1.0);
        REQUIRE(p >= least - 1e-15);
        REQUIRE(p <= most + 1e-15);
        draw_key inside = key;
        inside.position += 1000;
        return base.bernoulli(inside, std::clamp(p - least, 0.0, most - least), most - least);
    }
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const {
        if constexpr (requires { weights.mass(); }) {
            struct with_rest {
                Weights const& of;
                [[nodiscard]] std::size_t size() const { return of.size() + 1; }
                [[nodiscard]] double operator[](token_id v) const {
                    return static_cast<std::size_t>(v) < of.size() ? of[v] : of.mass().high - of.total();
                }
                [[nodiscard]] double total() const { return of.mass().high; }
            } const all{weights};
            if (!weights.is_settled()) {
                token_id const y = base.categorical(key, all);
                return static_cast<std::size_t>(y) < weights.size() ? y : no_token;
            }
        }
        return base.categorical(key, weights);
    }
};

toy random_toy(support::dice& roll) {
    toy p{{roll.between(0.1, 1.0), roll.between(0.1, 1.0), roll.between(0.1, 1.0)}};
    p.low = p.total() / roll.between(1.0, 1.3);
    p.high = p.total() * roll.between(1.0, 1.3);
    return p;
}

std::vector<double> left_of(toy const& p, toy const& q, double scale) {
    std::vector<double> left;
    for (token_id v = 0; v < 3; ++v) left.push_back(std::max(scale * p.probability(v) - q.probability(v), 0.0));
    return left;
}

draw_key const key{.seed = 5, .position = 9, .index = 3, .use = purpose::residual};
draw_key const accept{.seed = 5, .position = 9, .index = 2, .use = purpose::accept};

constexpr std::size_t size = 5000;

std::vector<float> random_row(support::dice& roll, double spread) {
    std::vector<float> row;
    for (std::size_t v = 0; v < size; ++v) row.push_back(static_cast<float>(roll.between(-spread, spread)));
    return row;
}

}  // namespace

TEST_CASE("bounded: every law drawn by bounds is the one drawn by sums, exactly") {
    support::dice roll(121);
    INFO("seed " << roll.seed());
    for (auto const noise : {enumerator::noise::fresh, enumerator::noise::keyed}) {
        for (int trial = 0; trial < 6; ++trial) {
            toy const p = random_toy(roll);
            toy q = random_toy(roll);
            q.settle();
            std::size_t settled_by = 0;
            // A token of p, and whether x is kept.
            std::vector<double> drawn(3), kept(2);
            enumerator walk{noise};
            walk.for_each_path([&] {
                toy mine = p;
                mine.settled = &settled_by;
                walker rng{walk.handle()};
                token_id const y = draw(mine, {1, 1, 0, purpose::bonus}, rng);
                drawn[static_cast<std::size_t>(y)] += walk.weight();
            });
            for (token_id v = 0; v < 3; ++v) {
                CHECK(std::abs(drawn[static_cast<std::size_t>(v)] - p.probability(v)) < 1e-12);
            }
            CHECK(settled_by == 3);  // all draws missed, once for each token
            for (token_id x = 0; x < 3; ++x) {
                kept.assign(2, 0.0);
                walk.for_each_path([&] {
                    toy mine = p;
                    walker rng{walk.handle()};
                    bool const keep = keeps(mine, q, x, accept, rng);
                    kept[keep] += walk.weight();
                });
                CHECK(std::abs(kept[1] - std::min(1.0, p.probability(x) / q.probability(x))) < 1e-12);
            }
            // Corrections.
            auto const left = left_of(p, q, 1.0);
            double const mass = left[0] + left[1] + left[2];
            for (std::uint32_t const proposals : {0u, 1u, 3u}) {
                std::vector<double> law(3);
                walk.for_each_path([&] {
                    toy mine = p;
                    walker rng{walk.handle()};
                    token_id const y = draw_residual(mine, q, 1.0, key, rng, {}, proposals);
                    law[static_cast<std::size_t>(y)] += walk.weight();
                });
                for (std::size_t v = 0; v < 3; ++v) CHECK(std::abs(law[v] - left[v] / mass) < 1e-12);
            }
        }
    }
}

TEST_CASE("bounded: block verification's test and correction in one, exactly") {
    support::dice roll(122);
    INFO("seed " << roll.seed());
    for (auto const noise : {enumerator::noise::fresh, enumerator::noise::keyed}) {
        for (int trial = 0; trial < 8; ++trial) {
            toy p = random_toy(roll);
            toy q = random_toy(roll);
            q.settle();
            double const scale = roll.between(0.5, 0.99);
            interval const around{scale / roll.between(1.0, 1.2), std::min(1.0, scale * roll.between(1.0, 1.2))};
            auto const left = left_of(p, q, scale);
            double const mass = left[0] + left[1] + left[2];
            for (bool const by_bounds : {false, true}) {
                for (std::uint32_t const proposals : {0u, 1u, 2u}) {
                    if (by_bounds && proposals == 2 && trial > 1) continue;  // some 100,000 paths
                    std::vector<double> law(4);
                    enumerator walk{noise};
                    walk.for_each_path([&] {
                        toy mine = p;
                        if (!by_bounds) mine.settle();
                        number given{by_bounds ? around : interval{scale, scale}, scale};
                        walker rng{walk.handle()};
                        token_id const y = correct_or_reject(mine, q, given, accept, key, rng, {}, proposals);
                        law[y == no_token ? 3 : static_cast<std::size_t>(y)] += walk.weight();
                    });
                    for (std::size_t v = 0; v < 3; ++v) {
                        CHECK(std::abs(law[v] - left[v] / (mass + 1.0 - scale)) < 1e-12);
                    }
                }
            }
        }
    }
}

TEST_CASE("bounded: a row with bounds answers as one with sums, and settles into it") {
    support::dice roll(123);
    INFO("seed " << roll.seed());
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        INFO("kernels " << kernels->name);
        auto const row = random_row(roll, 5.0);
        std::vector<double> sums(row_blocks(size)), bounds_of(row_blocks(size));
        distribution<float> const p{{row, {}}, {}, {}, nullptr, *kernels, sums};
        distribution<float> late{{row, {}}, {}, {}, nullptr, *kernels, bounds_of, totals::bounded};
        REQUIRE(late.is_settled() == (kernels->get<float>().bound == nullptr));
        CHECK(late.total() == p.total());
        CHECK(late.mass().low <= p.total());
        CHECK(late.mass().high >= p.total());
        CHECK(late.mass().high <= p.total() * loosest_bound);
        CHECK(late.probability(7) == p.probability(7));
        CHECK(late.log_probability(7) == p.log_probability(7));
        late.settle();
        CHECK(late.is_settled());
        CHECK(late.mass().low == p.total());
        CHECK(bounds_of == sums);
        distribution<float> none{{row, {}}, {}, {}, nullptr, *kernels, bounds_of, totals::none};
        CHECK_FALSE(none.is_settled());
        CHECK(none.mass().low == p.total());
        CHECK(inverse_cdf(none, 0.3) == inverse_cdf(distribution<float>{{row, {}}, {}, {}, nullptr, *kernels}, 0.3));
        none.settle();
        CHECK(none.total() == p.total());
    }
}

TEST_CASE("bounded: tokens are kept as by the sums, whether bounds decide or not") {
    support::dice roll(124);
    INFO("seed " << roll.seed());
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        INFO("kernels " << kernels->name);
        std::size_t decided = 0, open = 0, kept = 0, different = 0;
        for (std::uint64_t i = 0; i < 3000; ++i) {
            if (i % 100 == 0) {
                INFO("row " << i / 100);
            }
            static std::vector<float> a, b;
            static std::vector<double> sums(row_blocks(size));
            if (i % 100 == 0) {
                a = random_row(roll, 3.0);
                b = a;
                for (float& l : b) l += static_cast<float>(roll.between(-1.0, 1.0));
            }
            distribution<float> const p{{a, {}}, {}, {}, nullptr, *kernels};
            distribution<float> const q{{b, {}}, {}, {}, nullptr, *kernels};
            distribution<float> late{{a, {}}, {}, {}, nullptr, *kernels, sums, totals::bounded};
            philox_randomness rng;
            auto const x = static_cast<token_id>(roll.below(size));
            draw_key const named{1, i, 0, purpose::accept};
            bool const expected = rng.bernoulli(named, p.probability(x), q.probability(x));
            different += keeps(late, q, x, named, rng) != expected;
            (late.is_settled() ? open : decided) += 1;
            kept += expected;
        }
        CHECK(different == 0);
        CHECK(kept > 300);
        CHECK(kept < 2900);
        if (kernels->get<float>().bound != nullptr) {
            CHECK(open > 20);
            CHECK(decided > 2500);
        }
    }
}

TEST_CASE("bounded: draws, corrections and tests of long rows follow the law") {
    support::dice roll(125);
    INFO("seed " << roll.seed());
    auto const a = random_row(roll, 3.0);
    auto b = a;
    for (float& l : b) l += static_cast<float>(roll.between(-1.0, 1.0));
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        INFO("kernels " << kernels->name);
        std::vector<double> bounds_of(row_blocks(size)), sums(row_blocks(size));
        distribution<float> const p{{a, {}}, {}, {}, nullptr, *kernels};
        distribution<float> const q{{b, {}}, {}, {}, nullptr, *kernels};
        double const scale = 0.8;
        // Tokens in 20 classes, and a class of its own for a rejected prefix.
        std::vector<double> law(20), left(20), test(21);
        for (token_id v = 0; v < static_cast<token_id>(size); ++v) {
            auto const c = static_cast<std::size_t>(v) % 20;
            law[c] += p.probability(v);
            left[c] += std::max(p.probability(v) - q.probability(v), 0.0);
            test[c] += std::max(scale * p.probability(v) - q.probability(v), 0.0);
        }
        test[20] = 1.0 - scale;
        std::size_t const draws = 40'000;
        std::vector<double> drawn(20), corrected(20), tested(21);
        std::size_t missed = 0;
        philox_randomness rng;
        distribution<float> const fresh{{a, {}}, {}, {}, nullptr, *kernels, bounds_of, totals::bounded};
        for (std::size_t i = 0; i < draws; ++i) {
            std::uint64_t const at = i;
            auto late = fresh;
            missed += rng.categorical({1, at, 0, purpose::bonus}, late) == no_token;
            drawn[static_cast<std::size_t>(draw(late, {1, at, 0, purpose::bonus}, rng)) % 20] += 1.0;
            REQUIRE(late.is_settled() == fresh.is_settled());  // else its sums are those of all copies
            // Corrections and tests may settle a copy: it gets sums of its own.
            auto own = bounds_of;
            distribution<float> other =
                i % 2 == 0 ? distribution<float>{{a, {}}, {}, {}, nullptr, *kernels, own, totals::bounded}
                           : distribution<float>{{a, {}}, {}, {}, nullptr, *kernels, own};
            token_id const y = draw_residual(other, q, 1.0, {1, at, 0, purpose::residual}, rng, sums);
            REQUIRE(p.probability(y) > q.probability(y));
            corrected[static_cast<std::size_t>(y) % 20] += 1.0;
            number given{i % 4 < 2 ? interval{scale, scale} : interval{0.75, 0.82}, scale};
            token_id const z = correct_or_reject(other, q, given, {1, at, 0, purpose::accept},
                                                 {1, at, 1, purpose::residual}, rng, sums);
            tested[z == no_token ? 20 : static_cast<std::size_t>(z) % 20] += 1.0;
        }
        auto const chi_square = [&](std::vector<double> const& counts, std::vector<double> const& of) {
            double mass = 0.0, sum = 0.0;
            for (double const x : of) mass += x;
            for (std::size_t c = 0; c < of.size(); ++c) {
                double const e = of[c] / mass * static_cast<double>(draws);
                sum += (counts[c] - e) * (counts[c] - e) / e;
            }
            return sum;
        };
        CHECK(chi_square(drawn, law) < 60.0);  // 19 degrees of freedom: less than 1 in 100,000
        CHECK(chi_square(corrected, left) < 60.0);
        CHECK(chi_square(tested, test) < 60.0);
        if (kernels->get<float>().bound != nullptr) {
            CHECK(missed > draws / 50);
            CHECK(missed < draws / 16);
        }
    }
}

TEST_CASE("bounded: a race needs no sum, and sees what is no law") {
    support::dice roll(126);
    INFO("seed " << roll.seed());
    constexpr float inf = std::numeric_limits<float>::infinity();
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        INFO("kernels " << kernels->name);
        philox_randomness rng;
        auto const unsummed = [&](std::vector<float> const& row) {
            return distribution<float>{{row, {}}, {}, {}, nullptr, *kernels, {}, totals::none};
        };
        for (std::uint64_t i = 0; i < 50; ++i) {
            draw_key const named{4, i, 0, purpose::noise};
            auto row = random_row(roll, 4.0);
            auto const guess = static_cast<token_id>(roll.below(size));
            auto const winner = [&](std::vector<float> const& r) {
                return rng.gumbel_max(named, distribution<float>{{r, {}}, {}, {}, nullptr, *kernels});
            };
            auto p = unsummed(row);
            REQUIRE(gumbel_max(p, named, guess, rng) == winner(row));
            REQUIRE_FALSE(p.is_settled());
            // Logits far above those that the first ones make one expect, and beyond any float's exponential.
            for (float const far : {50.0f, 80.0f, 200.0f, 1e6f}) {
                auto high = row;
                for (std::size_t v = 3000; v < 3010; ++v) high[v] += far;
                auto q = unsummed(high);
                REQUIRE(gumbel_max(q, named, guess, rng) == winner(high));
                REQUIRE(q.valid());
            }
            // Masked in front, and nothing but one.
            std::fill_n(row.begin(), 1500, -inf);
            auto masked = unsummed(row);
            REQUIRE(gumbel_max(masked, named, guess, rng) == winner(row));
            std::vector<float> one(size, -inf);
            one[77] = 1.0f;
            auto single = unsummed(one);
            REQUIRE(gumbel_max(single, named, guess, rng) == 77);
            for (float const bad : {inf, std::numeric_limits<float>::quiet_NaN()}) {
                auto broken = row;
                broken[roll.below(size)] = bad;
                auto q = unsummed(broken);
                REQUIRE(gumbel_max(q, named, guess, rng) == no_token);
            }
            auto nothing = unsummed(std::vector<float>(size, -inf));
            REQUIRE(gumbel_max(nothing, named, guess, rng) == no_token);
        }
    }
}

TEST_CASE("bounded: narrower bounds hold, and end as the sum") {
    support::dice roll(126);
    INFO("seed " << roll.seed());
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        INFO("kernels " << kernels->name);
        if (kernels->get<float>().bound == nullptr) continue;
        for (double const spread : {0.1, 1.0, 8.0}) {
            auto row = random_row(roll, spread);
            row[roll.below(size)] += 6.0f;
            std::vector<double> sums(row_blocks(size)), bounds_of(row_blocks(size));
            distribution<float> const p{{row, {}}, {}, {}, nullptr, *kernels, sums};
            distribution<float> late{{row, {}}, {}, {}, nullptr, *kernels, bounds_of, totals::bounded};
            double width = late.mass().high / late.mass().low;
            std::size_t steps = 0;
            for (; !late.is_settled(); ++steps) {
                REQUIRE(steps < 3);
                CHECK(late.mass().low <= p.total() * (1.0 + 1e-12));
                CHECK(late.mass().high >= p.total() * (1.0 - 1e-12));
                late.refine();
                CHECK(late.mass().high / late.mass().low < width);
                width = late.mass().high / late.mass().low;
            }
            CHECK(steps == 2);
            CHECK(late.total() == p.total());
            CHECK(bounds_of == sums);
        }
        // Draws between the steps have the law: tokens in 20 classes.
        auto row = random_row(roll, 3.0);
        row[roll.below(size)] = 9.0f;
        std::vector<double> bounds_of(row_blocks(size)), law(20), drawn(20);
        distribution<float> late{{row, {}}, {}, {}, nullptr, *kernels, bounds_of, totals::bounded};
        for (token_id v = 0; v < static_cast<token_id>(size); ++v) {
            law[static_cast<std::size_t>(v) % 20] += late.probability(v);
        }
        late.refine();
        REQUIRE_FALSE(late.is_settled());
        std::size_t const draws = 40'000;
        philox_randomness rng;
        for (std::uint64_t i = 0; i < draws; ++i) {
            token_id const y = draw(late, {2, i, 0, purpose::bonus}, rng);
            drawn[static_cast<std::size_t>(y) % 20] += 1.0;
        }
        double chi = 0.0;
        for (std::size_t c = 0; c < 20; ++c) {
            double const e = law[c] * static_cast<double>(draws);
            chi += (drawn[c] - e) * (drawn[c] - e) / e;
        }
        CHECK(chi < 60.0);  // 19 degrees of freedom: less than 1 in 100,000
    }
}
