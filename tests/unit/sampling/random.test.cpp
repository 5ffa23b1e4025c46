// SPDX-License-Identifier: MIT
//
// Philox against published values, keys that never meet, and the laws of the draws made from them.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/sampling/random.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

using words = std::array<std::uint32_t, 4>;

struct weights {
    std::vector<double> w;
    double sum;

    explicit weights(std::vector<double> values) : w(std::move(values)), sum(0.0) {
        for (double const x : w) sum += x;
    }
    [[nodiscard]] std::size_t size() const { return w.size(); }
    [[nodiscard]] double operator[](token_id v) const { return w[static_cast<std::size_t>(v)]; }
    [[nodiscard]] double total() const { return sum; }
};
static_assert(weight_function<weights>);
static_assert(randomness<philox_randomness>);

/// Pearson's statistic of counts against probabilities; tokens of probability 0 must not occur at all.
double chi_square(std::vector<double> const& counts, weights const& w) {
    double n = 0.0, sum = 0.0;
    for (double const c : counts) n += c;
    for (std::size_t v = 0; v < counts.size(); ++v) {
        double const expected = n * w.w[v] / w.sum;
        if (expected == 0.0) {
            if (counts[v] != 0.0) return std::numeric_limits<double>::infinity();
            continue;
        }
        sum += (counts[v] - expected) * (counts[v] - expected) / expected;
    }
    return sum;
}

}  // namespace

TEST_CASE("Philox4x32-10: the known answers of Random123") {
    CHECK(philox4x32({0, 0, 0, 0}, 0) == words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
    std::uint32_t const ones = 0xffffffffu;
    CHECK(philox4x32({ones, ones, ones, ones}, ~std::uint64_t{0}) ==
          words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
    // Digits of pi; the first key word is the lower half of the 64-bit key.
    CHECK(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0x299f31d0a4093822u) ==
          words{0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("Philox for several counters: every table makes the bits of one counter after another") {
    support::dice roll(61);
    INFO("seed " << roll.seed());
    auto const word = [&] { return static_cast<std::uint32_t>(roll.below(std::size_t{1} << 32)); };
    std::span<philox_kernels const* const> const all = available_kernels<philox_kernels>();
    REQUIRE(all.back() == &scalar_kernels<philox_kernels>);
    CHECK(all.front() == &native_kernels<philox_kernels>());
    for (int trial = 0; trial < 2000; ++trial) {
        words counter{word(), word(), word(), word()};
        if (trial % 4 == 0) counter[0] = 0xffffffffu - static_cast<std::uint32_t>(roll.below(philox_lanes));  // wraps
        std::uint64_t const key = (std::uint64_t{word()} << 32) | word();
        for (philox_kernels const* const kernels : all) {
            INFO("table " << kernels->name << ", first lane " << counter[0]);
            philox_bits bits{};
            kernels->words(sureleap::detail::philox_words_from(counter[0]), counter, key, bits);
            for (std::size_t i = 0; i < philox_lanes; ++i) {
                words const one{counter[0] + static_cast<std::uint32_t>(i), counter[1], counter[2], counter[3]};
                REQUIRE(bits[i] == philox4x32(one, key));
            }
            philox_words first;
            for (std::uint32_t& lane : first) lane = word();
            kernels->words(first, counter, key, bits);
            for (std::size_t i = 0; i < philox_lanes; ++i) {
                REQUIRE(bits[i] == philox4x32({first[i], counter[1], counter[2], counter[3]}, key));
            }
        }
    }
}

TEST_CASE("keys: every field, and the lane, names other bits") {
    draw_key const base{.seed = 5, .position = 7, .index = 3, .use = purpose::accept};
    std::set<words> seen;
    std::size_t asked = 0;
    auto const ask = [&](draw_key const& key, std::uint32_t lane) {
        seen.insert(random_bits(key, lane));
        ++asked;
    };
    ask(base, 0);
    for (std::uint32_t bit = 0; bit < 64; ++bit) {
        draw_key key = base;
        key.seed ^= std::uint64_t{1} << bit;
        ask(key, 0);
        key = base;
        key.position ^= std::uint64_t{1} << bit;
        ask(key, 0);
    }
    for (std::uint32_t bit = 0; bit < 24; ++bit) {
        draw_key key = base;
        key.index ^= 1u << bit;
        ask(key, 0);
    }
    for (std::uint32_t bit = 0; bit < 32; ++bit) ask(base, 1u << bit);
    for (auto const use : {purpose::draft, purpose::residual, purpose::bonus, purpose::noise}) {
        draw_key key = base;
        key.use = use;
        ask(key, 0);
    }
    CHECK(seen.size() == asked);

    // All draws of a few rounds, densely: no two meet.
    seen.clear();
    asked = 0;
    for (std::uint64_t seed : {0u, 1u}) {
        for (std::uint64_t position = 0; position < 20; ++position) {
            for (std::uint32_t index = 0; index < 9; ++index) {
                for (auto const use :
                     {purpose::draft, purpose::accept, purpose::residual, purpose::bonus, purpose::noise}) {
                    for (std::uint32_t lane = 0; lane < 3; ++lane) ask({seed, position, index, use}, lane);
                }
            }
        }
    }
    CHECK(seen.size() == asked);
}

TEST_CASE("keys: a block's draws are named by its anchor, noise by the token's own position") {
    request_view request{.id = 1, .slot = 2, .anchor = 3, .position = 10, .seed = 77};
    CHECK(block_key(request, 2, purpose::accept) == draw_key{77, 10, 2, purpose::accept});
    CHECK(noise_key(request, 2) == draw_key{77, 13, 0, purpose::noise});
    // The same token reached from another anchor has the same noise and other block draws.
    request_view later = request;
    later.position = 12;
    CHECK(noise_key(later, 0) == noise_key(request, 2));
    CHECK_FALSE(block_key(later, 0, purpose::accept) == block_key(request, 2, purpose::accept));
    // Neither id, slot nor anchor token is part of a key.
    request_view other = request;
    other.id = 9;
    other.slot = 0;
    other.anchor = 1;
    CHECK(block_key(other, 1, purpose::draft) == block_key(request, 1, purpose::draft));
    CHECK(noise_key(other, 1) == noise_key(request, 1));
}

TEST_CASE("uniform: on [0, 1), multiples of 2^-53, without obvious bias") {
    double sum = 0.0, least = 1.0, most = 0.0;
    bool grid = true;
    constexpr int n = 200000;
    for (int i = 0; i < n; ++i) {
        double const u = uniform({9, static_cast<std::uint64_t>(i), 0, purpose::accept});
        sum += u;
        least = std::min(least, u);
        most = std::max(most, u);
        grid = grid && u * 0x1p53 == std::floor(u * 0x1p53);
    }
    CHECK(grid);
    CHECK(least >= 0.0);
    CHECK(most < 1.0);
    CHECK(least < 1e-4);
    CHECK(most > 1.0 - 1e-4);
    CHECK(std::abs(sum / n - 0.5) < 5.0 * std::sqrt(1.0 / 12.0 / n));
}

TEST_CASE("accepts: strict, so a probability of 0 is never accepted, not even by u = 0") {
    CHECK_FALSE(accepts(0.0, 0.0, 1.0));
    CHECK_FALSE(accepts(0.0, 0.0, 1e-300));
    CHECK(accepts(0.0, 1e-300, 1.0));
    double const largest = std::nextafter(1.0, 0.0);
    CHECK(accepts(largest, 1.0, 1.0));  // certain is certain
    CHECK(accepts(largest, 2.0, 1.0));
    CHECK(accepts(largest, 0.3, 0.3));
    CHECK_FALSE(accepts(0.5, 0.5, 1.0));
    CHECK(accepts(std::nextafter(0.5, 0.0), 0.5, 1.0));
    CHECK_FALSE(accepts(0.5, std::numeric_limits<double>::quiet_NaN(), 1.0));
}

TEST_CASE("inverse_cdf: the first index whose cumulative weight exceeds u total") {
    weights const w{{0.0, 1.0, 0.0, 2.0, 1.0, 0.0}};
    CHECK(inverse_cdf(w, 0.0) == 1);  // not the zero weight in front
    CHECK(inverse_cdf(w, std::nextafter(0.25, 0.0)) == 1);
    CHECK(inverse_cdf(w, 0.25) == 3);
    CHECK(inverse_cdf(w, std::nextafter(0.75, 0.0)) == 3);
    CHECK(inverse_cdf(w, 0.75) == 4);
    CHECK(inverse_cdf(w, std::nextafter(1.0, 0.0)) == 4);
    CHECK(inverse_cdf(weights{{0.0, 0.0}}, 0.5) == no_token);
    CHECK(inverse_cdf(weights{{}}, 0.5) == no_token);

    // A total that is larger than the sum, as rounding may leave it: the last positive weight, never what is behind.
    weights rounded{{0.25, 0.25, 0.0}};
    rounded.sum = 0.6;
    CHECK(inverse_cdf(rounded, 0.99) == 1);

    support::dice roll(4);
    INFO("seed " << roll.seed());
    bool positive = true, right = true;
    for (int trial = 0; trial < 20000; ++trial) {
        std::vector<double> values(1 + roll.below(12));
        for (double& x : values) x = roll.chance(0.4) ? 0.0 : roll.real() * (roll.chance(0.2) ? 1e-18 : 1.0);
        values[roll.below(values.size())] = 0.5;
        weights const random{values};
        double const u = roll.chance(0.1) ? 0.0 : roll.chance(0.1) ? std::nextafter(1.0, 0.0) : roll.real();
        token_id const v = inverse_cdf(random, u);
        positive = positive && v >= 0 && random[v] > 0.0;
        double below = 0.0;
        for (token_id i = 0; i < v; ++i) below += random[i];
        right = right && below <= u * random.sum && (below + random[v] > u * random.sum || u > 0.999);
    }
    CHECK(positive);
    CHECK(right);
}

TEST_CASE("categorical and race: the same law, each by its own draws") {
    philox_randomness const rng;
    weights const w{{3.0, 0.0, 0.5, 1.5, 0.25, 2.0, 1e-9, 0.75}};
    std::vector<double> by_cdf(w.size()), by_race(w.size());
    constexpr std::size_t n = 200000;
    std::size_t agree = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
        draw_key const key{6, i, 0, purpose::noise};
        auto const a = static_cast<std::size_t>(rng.categorical(key, w));
        auto const b = static_cast<std::size_t>(rng.gumbel_max(key, w));
        REQUIRE((a < w.size() && b < w.size()));
        ++by_cdf[a];
        ++by_race[b];
        agree += a == b;
    }
    // 6 degrees of freedom (token 6 hardly counts): 30 has probability 4e-5, and the keys are fixed.
    CHECK(chi_square(by_cdf, w) < 30.0);
    CHECK(chi_square(by_race, w) < 30.0);
    CHECK(agree < n / 2);  // two different functions of the bits
    CHECK(rng.gumbel_max({1, 2, 3, purpose::noise}, weights{{0.0, 0.0, 0.0}}) == no_token);
    CHECK(rng.gumbel_max({1, 2, 3, purpose::noise}, weights{{0.0, 0.0, 0.0, 0.0, 4.0, 0.0}}) == 4);
}

TEST_CASE("gumbel_max: the winner is that of the exponentials, of every token") {
    support::dice roll(5);
    INFO("seed " << roll.seed());
    for (std::uint64_t i = 0; i < 2000; ++i) {
        std::vector<double> values(1 + roll.below(400));
        for (double& x : values) x = roll.chance(0.3) ? 0.0 : roll.real();
        values[roll.below(values.size())] = 0.5;
        weights const w{values};
        draw_key const key{8, i, 1, purpose::noise};
        token_id expected = no_token;
        double best = 0.0;
        for (std::size_t v = 0; v < values.size(); ++v) {
            if (values[v] <= 0.0) continue;
            double const arrival = exponential(key, v) / values[v];
            if (expected == no_token || arrival < best) {
                best = arrival;
                expected = static_cast<token_id>(v);
            }
        }
        REQUIRE(philox_randomness{}.gumbel_max(key, w) == expected);
    }
}

TEST_CASE("gumbel_max: the exponentials of a group are independent ones of rate 1") {
    // One group, and the first token of the next.
    constexpr std::size_t tokens = row_group + 1;
    constexpr std::size_t n = 40'000;
    std::vector<double> places(row_group);
    std::vector<std::vector<double>> bins(tokens, std::vector<double>(16));
    std::vector<double> near(16),
        far(16);  // two tokens of the group by halves and quarters of their laws; and of two groups
    double smallest = 0.0;
    for (std::uint64_t i = 0; i < n; ++i) {
        draw_key const key{31, i, 0, purpose::noise};
        std::vector<double> u;  // uniform if E is exponential
        for (std::size_t v = 0; v < tokens; ++v) u.push_back(-std::expm1(-exponential(key, v)));
        for (std::size_t v = 0; v < tokens; ++v) ++bins[v][static_cast<std::size_t>(u[v] * 16.0)];
        auto const least = static_cast<std::size_t>(std::min_element(u.begin(), u.begin() + row_group) - u.begin());
        ++places[least];
        smallest += -std::log1p(-u[least]) * static_cast<double>(row_group) / static_cast<double>(n);
        auto const cell = [](double a, double b) {
            return static_cast<std::size_t>(a * 4.0) * 4 + static_cast<std::size_t>(b * 4.0);
        };
        ++near[cell(u[i % row_group], u[(i + 1 + i / row_group % (row_group - 1)) % row_group])];
        ++far[cell(u[i % row_group], u[row_group])];
    }
    CHECK(std::abs(smallest - 1.0) < 5.0 / std::sqrt(static_cast<double>(n)));
    weights const same_16{std::vector<double>(16, 1.0)};
    CHECK(chi_square(near, same_16) < 50.0);  // 15 degrees of freedom: 1 in 80,000
    CHECK(chi_square(far, same_16) < 50.0);
    CHECK(chi_square(places, weights{std::vector<double>(row_group, 1.0)}) < 210.0);  // 127: 5 deviations
    double all = 0.0, most = 0.0;
    for (auto const& counts : bins) {
        double const x = chi_square(counts, same_16);
        all += x;
        most = std::max(most, x);
    }
    // Of one token at a time they are independent over keys; tokens' statistics are nearly so.
    CHECK(most < 60.0);
    CHECK(std::abs(all / static_cast<double>(tokens) - 15.0) < 3.0);
}

TEST_CASE("gumbel_max: in the lower tail, where races are won, exponentials are as independent as anywhere") {
    // P(both of two tokens of a group below t) = (1 - exp(-t))^2, and the smallest of a pair says nothing of whose it
    // is.
    constexpr std::size_t n = 400'000;
    constexpr double t = 0.02;
    double const p = -std::expm1(-t);
    double one = 0.0, both = 0.0, first = 0.0;
    for (std::uint64_t i = 0; i < n; ++i) {
        draw_key const key{32, i, 0, purpose::noise};
        double const a = exponential(key, i % row_group);
        double const b = exponential(key, (i + 64) % row_group);
        one += a < t;
        both += a < t && b < t;
        first += a < b;
    }
    CHECK(std::abs(one / n - p) < 5.0 * std::sqrt(p / n));
    CHECK(std::abs(both / n - p * p) < 5.0 * p / std::sqrt(static_cast<double>(n)));
    CHECK(std::abs(first / n - 0.5) < 2.5 / std::sqrt(static_cast<double>(n)));
}

TEST_CASE("gumbel_max: exponentials have bits enough for a token of probability 1e-15") {
    support::dice roll(6);
    INFO("seed " << roll.seed());
    double least = 1.0;
    for (std::uint64_t i = 0; i < 100'000; ++i) {
        draw_key const key{8, roll.bits(), 0, purpose::noise};
        double const e = exponential(key, roll.below(200'000));
        REQUIRE(e > 0.0);
        REQUIRE(std::isfinite(e));
        least = std::min(least, e);
    }
    CHECK(least < 1e-3);
    // The smallest and the largest there are.
    detail::exponential_bits const low{0, 0}, high{0xffffffffu, 0xffffffffu};
    CHECK(low.value() > 0.0);
    CHECK(low.value() / static_cast<double>(row_group) < 1e-18);
    CHECK(std::isfinite(high.value()));
    CHECK(low.bound() <= low.value());
    CHECK(high.bound() <= high.value());
    draw_key const key{8, 1, 0, purpose::noise};
    draw_key const other{8, 2, 0, purpose::noise};
    CHECK(exponential(key, 5) != exponential(other, 5));
    CHECK(exponential(key, 5) != exponential(key, 4));
    CHECK(exponential(key, 5) != exponential(key, 6));
}

TEST_CASE("gumbel_max: a token of small probability wins as often as it should") {
    // 4e-6 of the mass: its noise has to be far below 2^-16.
    weights const w{{1.0, 4e-6}};
    std::size_t wins = 0;
    constexpr std::size_t n = 1'000'000;
    for (std::uint64_t i = 0; i < n; ++i) wins += philox_randomness{}.gumbel_max({9, i, 0, purpose::noise}, w) == 1;
    CHECK(wins >= 1);
    CHECK(wins <= 13);  // 4 expected; Poisson: beyond these bounds 1.8 % and 0.02 %, and the keys are fixed
}

TEST_CASE("gumbel_max: weights that are alike mostly get the same winner, and scaling changes nothing") {
    weights const p{{0.4, 0.3, 0.2, 0.1}};
    weights const q{{0.3, 0.4, 0.15, 0.15}};
    weights const scaled{{4.0, 3.0, 2.0, 1.0}};
    double tv = 0.0;
    for (std::size_t v = 0; v < 4; ++v) tv += 0.5 * std::abs(p.w[v] - q.w[v]);
    philox_randomness const rng;
    std::size_t agree = 0;
    bool same = true;
    constexpr std::size_t n = 100000;
    for (std::uint64_t i = 0; i < n; ++i) {
        draw_key const key{10, i, 0, purpose::noise};
        token_id const x = rng.gumbel_max(key, p);
        agree += x == rng.gumbel_max(key, q);
        same = same && x == rng.gumbel_max(key, scaled);
    }
    CHECK(same);
    // The guarantee of coupling without communication, less five standard deviations; and no more than any coupling
    // can.
    double const rate = static_cast<double>(agree) / n;
    CHECK(rate > (1.0 - tv) / (1.0 + tv) - 5.0 * 0.5 / std::sqrt(static_cast<double>(n)));
    CHECK(rate <= 1.0 - tv + 5.0 * 0.5 / std::sqrt(static_cast<double>(n)));
}

TEST_CASE("bernoulli: probability min(1, num/den), and the answer of a key does not change") {
    philox_randomness const rng;
    std::size_t hits = 0;
    constexpr std::size_t n = 100000;
    for (std::uint64_t i = 0; i < n; ++i) {
        draw_key const key{12, i, 2, purpose::accept};
        bool const hit = rng.bernoulli(key, 0.3, 1.5);
        hits += hit;
        REQUIRE(rng.bernoulli(key, 0.3, 1.5) == hit);
        REQUIRE(rng.bernoulli(key, 2.0, 1.5));
        REQUIRE_FALSE(rng.bernoulli(key, 0.0, 1.5));
    }
    CHECK(std::abs(static_cast<double>(hits) / n - 0.2) < 5.0 * std::sqrt(0.16 / n));
}
