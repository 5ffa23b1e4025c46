// SPDX-License-Identifier: MIT
//
// Every table of passes over rows, against exp in long double, and what laws rest on: a weight is the same wherever it
// stands, sums are sums of these weights, rows without a law are seen.
//
// Compiled for another machine than this one (the table of xsimd is for what the unit is compiled for), it is skipped.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/sampling/distribution.hpp>
#if __has_include(<xsimd/xsimd.hpp>)
#include <sureleap/ext/xsimd.hpp>
#define SURELEAP_TEST_XSIMD 1
#endif

#include "support/dice.hpp"

using namespace sureleap;

namespace {

[[maybe_unused]] int const compiled_for_this_machine = [] {
#if defined(__x86_64__) && defined(__AVX512VL__)
    bool const runs = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
#elif defined(__x86_64__) && defined(__AVX2__)
    bool const runs = __builtin_cpu_supports("avx2");
#else
    bool const runs = true;
#endif
    if (!runs) {
        std::puts("skipped: compiled for another processor");
        std::exit(77);
    }
    return 0;
}();

/// Those that the machine runs, and that of xsimd.
std::vector<row_kernels const*> all_tables() {
    auto const own = available_kernels<row_kernels>();
    std::vector<row_kernels const*> all(own.begin(), own.end());
#if defined(SURELEAP_TEST_XSIMD)
    all.push_back(&xsimd_row_kernels<>);
#endif
    return all;
}

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

/// Around every width of a register, of a step and of a block.
std::vector<std::size_t> const sizes{1,  2,  7,  8,   9,   15,  16,   17,   31,   33,
                                     63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 3000};

template <class T>
std::vector<T> random_row(support::dice& roll, std::size_t size, double low = -40.0, double high = 10.0) {
    std::vector<T> row;
    for (std::size_t i = 0; i < size; ++i)
        row.push_back(static_cast<T>(static_cast<compute_t<T>>(roll.between(low, high))));
    return row;
}

template <class Real>
bool same_bits(Real a, Real b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T, class F>
void with_every_table(F const& f) {
    for (row_kernels const* const kernels : all_tables()) {
        INFO("kernels " << kernels->name);
        f(kernels->template get<T>());
    }
}

}  // namespace

TEST_CASE("row kernels: the reference is always there, the best comes first") {
    auto const all = available_kernels<row_kernels>();
    REQUIRE_FALSE(all.empty());
    CHECK(all.back() == &scalar_kernels<row_kernels>);
    CHECK(&native_kernels<row_kernels>() == all.front());
    std::vector<std::string> names;
    for (row_kernels const* const kernels : all) names.emplace_back(kernels->name);
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEMPLATE_TEST_CASE("row kernels: a weight is exp, the same at any place, and 0 for -inf", "", float, double, bf16,
                   half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(71);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : sizes) {
            INFO("size " << size);
            auto row = random_row<T>(roll, size + 1);
            if (size > 2) row[size / 2] = static_cast<T>(-std::numeric_limits<real>::infinity());
            // From an odd address, and nothing written behind the end.
            T const* const from = row.data() + 1;
            std::vector<real> out(size + 1, real(77));
            rows.weights(from, size, real(1.5), real(0.75), out.data());
            REQUIRE(out[size] == real(77));
            for (std::size_t i = 0; i < size; ++i) {
                long double const x = (static_cast<long double>(load(from[i])) - 1.5L) * 0.75L;
                long double const expected = std::exp(x);
                // What is rounded before exp counts as often as the argument is large.
                long double const unit = std::numeric_limits<real>::epsilon();
                if (expected == 0.0L) {
                    REQUIRE(out[i] == real(0));
                } else {
                    REQUIRE(std::fabs(out[i] - expected) <= expected * unit * (4.0L + 2.0L * std::fabs(x)));
                }
                real alone = 0;
                rows.weights(from + i, 1, real(1.5), real(0.75), &alone);
                REQUIRE(same_bits(alone, out[i]));
            }
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: sums are those of the weights, block by block", "", float, double, bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(72);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : sizes) {
            INFO("size " << size);
            auto const row = random_row<T>(roll, size);
            std::vector<real> weights(size);
            rows.weights(row.data(), size, real(2), real(0.5), weights.data());
            std::vector<double> sums(row_blocks(size) + 1, 77.0);
            double const total = rows.sum(row.data(), size, real(2), real(0.5), sums.data());
            REQUIRE(sums.back() == 77.0);
            REQUIRE(same_bits(rows.sum(row.data(), size, real(2), real(0.5), nullptr), total));
            double all = 0.0;
            for (std::size_t b = 0; b < row_blocks(size); ++b) {
                double expected = 0.0;
                for (std::size_t i = b * row_block; i < std::min(size, (b + 1) * row_block); ++i) {
                    expected += static_cast<double>(weights[i]);
                }
                REQUIRE(std::abs(sums[b] - expected) <= 2.0 * std::numeric_limits<real>::epsilon() * expected);
                all += sums[b];
            }
            REQUIRE(std::abs(total - all) <= 1e-15 * all);
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: a sum shows what has no law, and what is too large", "", float, double, bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(73);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : sizes) {
            auto const row = random_row<T>(roll, size);
            for (float const bad : {inf, nan_value}) {
                auto broken = row;
                broken[roll.below(size)] = static_cast<T>(static_cast<real>(bad));
                REQUIRE_FALSE(std::isfinite(rows.sum(broken.data(), size, real(0), real(1), nullptr)));
            }
            std::vector<T> const nothing(size, static_cast<T>(-std::numeric_limits<real>::infinity()));
            REQUIRE(rows.sum(nothing.data(), size, real(0), real(1), nullptr) == 0.0);
            auto large = row;
            large[roll.below(size)] = static_cast<T>(real(10));
            REQUIRE_FALSE(std::isfinite(rows.sum(large.data(), size, real(0), real(80), nullptr)));
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: the mode is the first of the largest, of rows that have a law", "", float, double,
                   bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(74);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : sizes) {
            INFO("size " << size);
            for (int trial = 0; trial < 20; ++trial) {
                auto row = random_row<T>(roll, size);
                for (T& l : row) {
                    if (roll.chance(0.2)) l = static_cast<T>(-std::numeric_limits<real>::infinity());
                }
                row[roll.below(size)] = static_cast<T>(real(20));  // the largest, perhaps twice
                row[roll.below(size)] = static_cast<T>(real(20));
                std::size_t expected = 0;
                while (load(row[expected]) != real(20)) ++expected;
                REQUIRE(rows.mode(row.data(), size) == expected);
                for (float const bad : {inf, nan_value}) {
                    auto broken = row;
                    broken[roll.below(size)] = static_cast<T>(static_cast<real>(bad));
                    REQUIRE(rows.mode(broken.data(), size) == size);
                }
            }
            std::vector<T> const nothing(size, static_cast<T>(-std::numeric_limits<real>::infinity()));
            REQUIRE(rows.mode(nothing.data(), size) == size);
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: the residual's mass is what the weights leave", "", float, double, bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(75);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : sizes) {
            INFO("size " << size);
            auto const p = random_row<T>(roll, size, -6.0, 6.0);
            auto const q = random_row<real>(roll, size, -6.0, 6.0);
            std::vector<real> wp(size);
            std::vector<real> wq(size);
            row_functions<real> const& plain = scalar_kernels<row_kernels>.template get<real>();
            rows.weights(p.data(), size, real(1), real(1), wp.data());
            plain.weights(q.data(), size, real(2), real(0.5), wq.data());
            row_side<real> const of_p{real(1), real(1), 0.75 / std::accumulate(wp.begin(), wp.end(), 0.0)};
            row_side<real> const of_q{real(2), real(0.5), 1.0 / std::accumulate(wq.begin(), wq.end(), 0.0)};
            std::vector<double> sums(row_blocks(size));
            double const mass = rows.residual(p.data(), of_p, q.data(), of_q, size, sums.data());
            double expected = 0.0;
            for (std::size_t i = 0; i < size; ++i) {
                expected +=
                    std::max(0.0, of_p.factor * static_cast<double>(wp[i]) - of_q.factor * static_cast<double>(wq[i]));
            }
            // Of a difference the error is that of its sides, whose mass is 1.
            REQUIRE(std::abs(mass - expected) <= 16.0 * std::numeric_limits<real>::epsilon());
            REQUIRE(std::abs(mass - std::accumulate(sums.begin(), sums.end(), 0.0)) <= 1e-15);
            if constexpr (std::is_same_v<T, real>)
                REQUIRE(rows.residual(p.data(), of_p, p.data(), of_p, size, nullptr) == 0.0);
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: bounds are near the sums and never below", "", float, double, bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(80);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        if (rows.bound == nullptr) return;
        auto lengths = sizes;
        lengths.insert(lengths.end(), {2048, 4096, 5000, 7 * row_block + 5});
        for (std::size_t const size : lengths) {
            INFO("size " << size);
            for (auto const& [shift, scale] : {std::pair{real(2), real(0.5)}, std::pair{real(-30), real(1)},
                                               std::pair{real(9), real(3)}, std::pair{real(0), real(0.01)}}) {
                auto row = random_row<T>(roll, size, -12.0, 10.0);
                for (T& l : row) {
                    if (roll.chance(0.1)) l = static_cast<T>(-std::numeric_limits<real>::infinity());
                }
                std::vector<double> sums(row_blocks(size));
                std::vector<double> bounds(row_blocks(size) + 1, 77.0);
                double const sum = rows.sum(row.data(), size, shift, scale, sums.data());
                double const bound = rows.bound(row.data(), size, shift, scale, bounds.data());
                REQUIRE(bounds.back() == 77.0);
                double all = 0.0;
                for (std::size_t b = 0; b < row_blocks(size); ++b) {
                    REQUIRE(bounds[b] >= sums[b]);
                    REQUIRE(bounds[b] <= sums[b] * loosest_bound + 0x1p-100);
                    all += bounds[b];
                }
                REQUIRE(std::abs(bound - all) <= 1e-14 * all);
                REQUIRE(bound >= sum);
                for (float const bad : {inf, nan_value, -nan_value}) {
                    auto broken = row;
                    broken[roll.below(size)] = static_cast<T>(static_cast<real>(bad));
                    REQUIRE_FALSE(std::isfinite(rows.bound(broken.data(), size, shift, scale, bounds.data())));
                }
                row[roll.below(size)] = static_cast<T>(real(60000));
                REQUIRE_FALSE(std::isfinite(rows.bound(row.data(), size, shift, scale, bounds.data())));
            }
            // A shift so far off that rounding it would cost more than the bounds leave.
            auto const row = random_row<T>(roll, size);
            std::vector<double> bounds(row_blocks(size));
            REQUIRE_FALSE(std::isfinite(rows.bound(row.data(), size, real(50000), real(1), bounds.data())));
        }
    });
}

TEST_CASE("row kernels: a bound holds for every weight") {
    with_every_table<float>([&](row_functions<float> const& rows) {
        if (rows.bound == nullptr) return;
        for (float const shift : {0.0f, 17.3f, -600.0f}) {
            bool above = true, near = true;
            for (int i = -420'000; i < 400'000; ++i) {
                float const logit = shift + static_cast<float>(i) * 2e-4f;
                float weight = 0.0f;
                double bound = 0.0;
                rows.weights(&logit, 1, shift, 1.0f, &weight);
                double const total = rows.bound(&logit, 1, shift, 1.0f, &bound);
                above = above && bound >= static_cast<double>(weight) && total == bound;
                near = near && bound <= static_cast<double>(weight) * loosest_bound + 0x1p-100;
            }
            CHECK(above);
            CHECK(near);
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: above lists every token that is, whatever is no number, and few others", "", float,
                   double, bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(78);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : sizes) {
            INFO("size " << size);
            for (double const scale : {1e-300, 1e-9, 1e-3, 1.0, 30.0}) {
                auto row = random_row<T>(roll, size, -12.0, 4.0);
                if (size > 2) row[size / 2] = static_cast<T>(-std::numeric_limits<real>::infinity());
                std::size_t const nan_at = roll.below(size);
                std::size_t const inf_at = roll.below(size);
                if (size > 20) {
                    row[nan_at] = static_cast<T>(std::numeric_limits<real>::quiet_NaN());
                    row[inf_at] = static_cast<T>(std::numeric_limits<real>::infinity());
                }
                std::vector<real> weights(size);
                rows.weights(row.data(), size, real(1), real(0.9), weights.data());
                std::vector<double> least;
                for (std::size_t g = 0; g * row_group < size; ++g) {
                    least.push_back(roll.chance(0.1) ? 0.0 : scale * roll.real());
                }
                std::vector<std::uint32_t> out(size + 1, 77);
                std::size_t const count = rows.above(row.data(), size, real(1), real(0.9), least.data(), out.data());
                REQUIRE(count <= size);
                REQUIRE(out[size] == 77);
                REQUIRE(std::is_sorted(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)));
                std::set<std::uint32_t> const listed(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count));
                REQUIRE(listed.size() == count);
                for (std::size_t i = 0; i < size; ++i) {
                    auto const weight = static_cast<double>(weights[i]);
                    bool const is_listed = listed.count(static_cast<std::uint32_t>(i)) == 1;
                    if (!(weight <= least[i / row_group])) REQUIRE(is_listed);
                    if (weight * 1.1 < least[i / row_group]) REQUIRE_FALSE(is_listed);
                }
            }
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: reach finds the token whose weight takes the sum over the threshold", "", float,
                   double, bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(81);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : sizes) {
            INFO("size " << size);
            auto row = random_row<T>(roll, size, -12.0, 4.0);
            row.back() = static_cast<T>(real(1));
            for (std::size_t i = 0; i + 1 < size; ++i) {
                if (roll.chance(0.3)) row[i] = static_cast<T>(-std::numeric_limits<real>::infinity());
            }
            std::vector<real> weights(size);
            rows.weights(row.data(), size, real(1), real(0.9), weights.data());
            double const total = rows.sum(row.data(), size, real(1), real(0.9), nullptr);
            std::size_t first = 0;
            while (!(weights[first] > real(0))) ++first;
            REQUIRE(rows.reach(row.data(), size, real(1), real(0.9), 0.0) == first);
            REQUIRE(rows.reach(row.data(), size, real(1), real(0.9), total * 1.001) == size);
            double const rounding = total * 2.0 * std::numeric_limits<real>::epsilon();
            for (int trial = 0; trial < 50; ++trial) {
                double const threshold = total * roll.between(0.0, 0.999);
                std::size_t const found = rows.reach(row.data(), size, real(1), real(0.9), threshold);
                if (found == size)
                    continue;  // at the edge of a part, where sums are rounded otherwise: rare, see below
                REQUIRE(weights[found] > real(0));
                double before = 0.0;
                for (std::size_t i = 0; i < found; ++i) before += static_cast<double>(weights[i]);
                REQUIRE(before <= threshold + rounding);
                REQUIRE(before + static_cast<double>(weights[found]) > threshold - rounding);
            }
            std::size_t missed = 0;
            for (int trial = 0; trial < 1000; ++trial) {
                missed += rows.reach(row.data(), size, real(1), real(0.9), total * roll.between(0.0, 0.999)) == size;
            }
            REQUIRE(missed <= 1);
            for (float const bad : {nan_value, -nan_value}) {
                std::vector<T> const broken(size, static_cast<T>(static_cast<real>(bad)));
                REQUIRE(rows.reach(broken.data(), size, real(1), real(0.9), 1.0) == size);
            }
        }
    });
}

TEMPLATE_TEST_CASE("distribution: a race over a row is the race over its weights", "", float, double, bf16) {
    using T = TestType;
    using real = compute_t<T>;
    // The weights alone, one at a time.
    struct bare {
        distribution<T> const& law;
        [[nodiscard]] std::size_t size() const { return law.size(); }
        [[nodiscard]] real operator[](token_id v) const { return law[v]; }
        [[nodiscard]] double total() const { return law.total(); }
    };
    support::dice roll(79);
    INFO("seed " << roll.seed());
    for (row_kernels const* const kernels : all_tables()) {
        INFO("kernels " << kernels->name);
        for (std::size_t const size : {std::size_t{3}, std::size_t{128}, std::size_t{129}, std::size_t{5000}}) {
            auto const row = random_row<T>(roll, size, -4.0, 4.0);
            for (transform const& how : {transform{}, transform{.temperature = 0.3}, transform{.top_k = 30}}) {
                std::vector<token_id> order(size);
                std::vector<double> sums(row_blocks(size));
                distribution<T> const law{{row, {}}, how, order, nullptr, *kernels};
                distribution<T> const bounded{{row, {}}, how, order, nullptr, *kernels, sums, totals::bounded};
                distribution<T> const unsummed{{row, {}}, how, order, nullptr, *kernels, {}, totals::none};
                for (std::uint64_t i = 0; i < 20; ++i) {
                    draw_key const key{3, i, 0, purpose::noise};
                    token_id const winner = philox_randomness{}.gumbel_max(key, bare{law});
                    REQUIRE(philox_randomness{}.gumbel_max(key, law) == winner);
                    REQUIRE(philox_randomness{}.gumbel_max(key, bounded) == winner);
                    REQUIRE(philox_randomness{}.gumbel_max(key, unsummed) == winner);
                    auto const guess = static_cast<token_id>(roll.below(size));
                    REQUIRE(philox_randomness{}.gumbel_max(key, unsummed, guess) == winner);
                    REQUIRE(philox_randomness{}.gumbel_max(key, unsummed, winner) == winner);
                }
            }
        }
    }
}

TEMPLATE_TEST_CASE("distribution: block sums find the token that a search of the row finds", "", float, double, bf16) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(76);
    INFO("seed " << roll.seed());
    for (row_kernels const* const kernels : all_tables()) {
        INFO("kernels " << kernels->name);
        for (std::size_t const size : {std::size_t{5}, std::size_t{1024}, std::size_t{1025}, std::size_t{5000}}) {
            auto row = random_row<T>(roll, size, -5.0, 5.0);
            for (std::size_t i = 0; i < size; ++i) {
                bool const masked = size > 3000 && i / row_block == 2;  // a whole block without weight
                if (masked || roll.chance(0.3)) row[i] = static_cast<T>(-std::numeric_limits<real>::infinity());
            }
            row[size / 3] = static_cast<T>(real(1));  // some law there is
            for (transform const& how : {transform{}, transform{.temperature = 0.6}, transform{.top_k = 40}}) {
                std::vector<token_id> order(size);
                std::vector<double> sums(row_blocks(size));
                distribution<T> const law{{row, {}}, how, order, nullptr, *kernels, sums};
                distribution<T> const slow{{row, {}}, how, order, nullptr, *kernels};
                REQUIRE(law.valid());
                REQUIRE(law.total() == slow.total());
                for (int trial = 0; trial < 200; ++trial) {
                    double const u = trial == 0 ? 0.0 : roll.between(0.0, 1.0);
                    token_id const x = inverse_cdf(law, u);
                    REQUIRE(x >= 0);
                    REQUIRE(law[x] > real(0));
                    // The same token but where the threshold is as near to a boundary as sums are rounded.
                    double before = 0.0;
                    for (token_id v = 0; v < x; ++v) before += law.probability(v);
                    REQUIRE(u >= before - 1e-6);
                    REQUIRE(u < before + law.probability(x) + 1e-6);
                }
                token_id const last = inverse_cdf(law, std::nextafter(1.0, 0.0));
                REQUIRE(law[last] > real(0));
                REQUIRE(slow[inverse_cdf(slow, std::nextafter(1.0, 0.0))] > real(0));
            }
        }
    }
}

TEST_CASE("distribution: a producer's normaliser and block sums are taken as they are, without reading the row") {
    support::dice roll(77);
    INFO("seed " << roll.seed());
    std::size_t const size = 2500;
    auto row = random_row<float>(roll, size, -5.0, 5.0);
    std::vector<double> made(row_blocks(size));
    distribution<float> const own{{row, {}}, {}, {}, nullptr, native_kernels<row_kernels>(), made};
    std::vector<float> given;
    for (double const sum : made) given.push_back(static_cast<float>(sum / own.total()));
    auto const normaliser = static_cast<float>(static_cast<double>(row[0]) - own.log_probability(0));

    std::vector<double> sums(row_blocks(size));
    distribution<float> const law{{row, normaliser, given}, {}, {}, nullptr, native_kernels<row_kernels>(), sums};
    REQUIRE(law.valid());
    for (int trial = 0; trial < 500; ++trial) {
        double const u = roll.between(0.0, 1.0);
        token_id const x = inverse_cdf(law, u);
        REQUIRE(std::abs(law.probability(x) - own.probability(x)) < 1e-5);
        double before = 0.0;
        for (token_id v = 0; v < x; ++v) before += own.probability(v);
        REQUIRE(u >= before - 1e-5);
        REQUIRE(u < before + own.probability(x) + 1e-5);
    }
    // Wrong sums show that nothing else was read: all mass in the last block.
    std::vector<float> const wrong{0.0f, 0.0f, 1.0f};
    distribution<float> const believed{{row, normaliser, wrong}, {}, {}, nullptr, native_kernels<row_kernels>(), sums};
    CHECK(inverse_cdf(believed, 0.0) >= 2048);
    // Another transform cannot use them.
    distribution<float> const cold{
        {row, normaliser, wrong}, {.temperature = 0.5}, {}, nullptr, native_kernels<row_kernels>(), sums};
    CHECK(inverse_cdf(cold, 0.0) < 2048);
}

TEMPLATE_TEST_CASE("row kernels: reach finds the token that sums in double find, however small beside others", "",
                   float, double, bf16, half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(82);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        for (std::size_t const size : {std::size_t{17}, std::size_t{300}, row_block, 3 * row_block + 70}) {
            INFO("size " << size);
            // One token that dominates, others down to 1e-10 of it, some masked: in sums of floats most are lost.
            auto row = random_row<T>(roll, size, -23.0, -14.0);
            for (T& l : row) {
                if (roll.chance(0.2)) l = static_cast<T>(-std::numeric_limits<real>::infinity());
            }
            for (std::size_t const heavy : {std::size_t{0}, size / 2}) {
                row[heavy] = static_cast<T>(real(0));
                std::vector<real> weights(size);
                rows.weights(row.data(), size, real(0), real(1), weights.data());
                double before = 0.0;
                std::size_t small = 0;
                for (std::size_t i = 0; i < size; ++i) {
                    auto const w = static_cast<double>(weights[i]);
                    if (w == 0.0) continue;
                    small += w < 1e-7;
                    if (size < row_block || i % 13 == 0 || i % row_block > row_block - 10) {
                        REQUIRE(rows.reach(row.data(), size, real(0), real(1), before + w / 2.0) == i);
                    }
                    before += w;
                }
                REQUIRE(small > size / 3);
                REQUIRE(rows.reach(row.data(), size, real(0), real(1), before * (1.0 + 1e-12)) == size);
            }
        }
    });
}

TEMPLATE_TEST_CASE("row kernels: sums are near enough for the room that draws leave them", "", float, double, bf16,
                   half) {
    using T = TestType;
    using real = compute_t<T>;
    support::dice roll(83);
    INFO("seed " << roll.seed());
    with_every_table<T>([&](row_functions<T> const& rows) {
        std::vector<real> weights(row_block);
        for (int trial = 0; trial < 60; ++trial) {
            // Where roundings are largest: eight of a kind, and one beside many that are half its last digit.
            auto row = random_row<T>(roll, row_block, -1.0, 1.0);
            if (trial % 3 == 1) std::fill(row.begin(), row.end(), row[0]);
            if (trial % 3 == 2) {
                for (T& l : row) l = static_cast<T>(static_cast<real>(-16.6 + 0.1 * roll.real()));
                for (std::size_t i = 0; i < row_block; i += 1 + roll.below(40)) row[i] = static_cast<T>(real(0));
            }
            rows.weights(row.data(), row_block, real(0), real(1), weights.data());
            double exact = 0.0;
            for (real const w : weights) exact += static_cast<double>(w);
            double const sum = rows.sum(row.data(), row_block, real(0), real(1), nullptr);
            REQUIRE(std::abs(sum - exact) <= sum_rounding_of<real>(row_block) * exact);
            // The same block beside others.
            row.resize(row_block + 1, static_cast<T>(-std::numeric_limits<real>::infinity()));
            double sums[2] = {};
            static_cast<void>(rows.sum(row.data(), row.size(), real(0), real(1), sums));
            REQUIRE(std::abs(sums[0] - exact) <= sum_rounding_of<real>(row.size()) * exact);
        }
    });
}

namespace {

/// The numbers u of [begin, end) that stand for token x, by bisection, where tokens grow with u.
template <class Law>
double share_of(Law const& law, token_id x, double begin, double end) {
    auto const first = [&](token_id least) {
        double low = begin, high = end;
        for (int i = 0; i < 60; ++i) {
            double const middle = 0.5 * (low + high);
            (law.quantile(middle) >= least ? high : low) = middle;
        }
        return high;
    };
    return first(x + 1) - first(x);
}

}  // namespace

TEMPLATE_TEST_CASE("distribution: every token is drawn as often as sums in double say, wherever it stands in a block",
                   "", float, bf16, half) {
    using T = TestType;
    support::dice roll(84);
    INFO("seed " << roll.seed());
    std::size_t const size = 2 * row_block + 300;
    for (row_kernels const* const kernels : all_tables()) {
        INFO("kernels " << kernels->name);
        auto row = random_row<T>(roll, size, -20.0, -16.0);
        row[row_block / 2] = static_cast<T>(0.0f);
        row[row_block + 40] = static_cast<T>(-1.5f);
        std::vector<double> sums(row_blocks(size));
        distribution<T> const law{{row, {}}, {}, {}, nullptr, *kernels, sums};
        distribution<T> const whole{{row, {}}, {}, {}, nullptr, *kernels};
        std::vector<double> weights(row_blocks(size));
        double exact = 0.0;
        for (std::size_t v = 0; v < size; ++v) {
            weights[v / row_block] += static_cast<double>(law[static_cast<token_id>(v)]);
            exact += static_cast<double>(law[static_cast<token_id>(v)]);
        }
        // Behind these numbers is what rounding leaves over, spread over the row: 1e-6 of a block at most.
        auto const end_of = [](double sum) { return sum / (1.0 + sum_rounding<float>)*(1.0 - 1e-12); };
        for (std::size_t const at : {row_block / 2 + 1, row_block / 2 + 9, row_block - 2, row_block - 1, row_block,
                                     row_block + 41, 2 * row_block - 1, 2 * row_block, size - 2, size - 1}) {
            INFO("token " << at);
            auto const x = static_cast<token_id>(at);
            double const p = static_cast<double>(law[x]) / exact;
            CHECK(std::abs(share_of(whole, x, 0.0, end_of(exact) / whole.total()) - p) <= 1e-6 * p + 3e-12);
            double before = 0.0;
            for (std::size_t b = 0; b < at / row_block; ++b) before += sums[b];
            double const begin = before / law.total();
            double const end = begin + end_of(weights[at / row_block]) / law.total();
            CHECK(std::abs(share_of(law, x, begin, end) - p) <= 1e-6 * p + 3e-12);
        }
        // The last ones of a block and of the row are found at all, and what is left over is not theirs alone.
        std::size_t last = 0, others = 0;
        for (int i = 0; i < 200; ++i) {
            double const u = 1.0 - roll.real() * 1e-8;
            for (auto const* const l : {&law, &whole}) {
                token_id const x = l->quantile(u);
                REQUIRE(x >= 0);
                REQUIRE((*l)[x] > 0);
                (static_cast<std::size_t>(x) == size - 1 ? last : others) += 1;
            }
        }
        CHECK(others >= 200);
    }
}

TEST_CASE("row kernels mutant: sums of eight floats put small tokens out of reach", "[mutant]") {
    // reach as it was: what is looked for in sums of eight weights in float is found up to their rounding.
    auto const reach_in_float = [](std::span<float const> weights, double threshold) {
        constexpr std::size_t together = 8;
        double sum = 0.0;
        for (std::size_t i = 0; i < weights.size(); i += together) {
            float here = 0.0f;
            for (std::size_t k = i; k < i + together; ++k) here += weights[k];
            if (sum + static_cast<double>(here) > threshold) {
                for (std::size_t k = i; k < i + together; ++k) {
                    if ((sum += static_cast<double>(weights[k])) > threshold) return k;
                }
            }
            sum += static_cast<double>(here);
        }
        return weights.size();
    };
    std::vector<float> row(32, -inf), weights(32);
    row[2] = 0.0f;
    for (std::size_t const small : {3u, 7u, 20u}) row[small] = -19.0f;  // 6e-9
    with_every_table<float>([&](row_functions<float> const& rows) {
        rows.weights(row.data(), row.size(), 0.0f, 1.0f, weights.data());
        double before = 0.0;
        std::size_t lost = 0;
        for (std::size_t i = 0; i < row.size(); ++i) {
            auto const w = static_cast<double>(weights[i]);
            if (w > 0.0) {
                CHECK(rows.reach(row.data(), row.size(), 0.0f, 1.0f, before + w / 2.0) == i);
                lost += reach_in_float(weights, before + w / 2.0) != i;
            }
            before += w;
        }
        CHECK(lost >= 2);
    });
}
