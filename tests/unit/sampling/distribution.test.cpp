// SPDX-License-Identifier: MIT
//
// Laws made from logits against a reference that materialises, sorts and renormalises everything in double.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/gumbel_max.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;

namespace {

static_assert(weight_function<distribution<float>>);
static_assert(std::is_trivially_copyable_v<distribution<double>>);

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

struct reference_law {
    bool valid = false;
    std::vector<double> p;
    token_id mode = no_token;
    double margin = 1.0;  ///< how close a truncation came to keeping one token more or less
};

reference_law reference(std::vector<double> const& logits, transform const& how) {
    reference_law out;
    bool finite = false;
    for (double const l : logits) {
        if (std::isnan(l) || l == inf) return out;
        finite = finite || std::isfinite(l);
    }
    if (!finite) return out;
    out.valid = true;
    out.p.assign(logits.size(), 0.0);

    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    out.mode = static_cast<token_id>(order[0]);
    if (how.temperature < 1e-5) {
        out.p[order[0]] = 1.0;
        return out;
    }
    while (logits[order.back()] == -inf) order.pop_back();
    if (how.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(how.top_k)));
    auto const renormalised = [&] {
        std::vector<double> p;
        double sum = 0.0;
        for (std::size_t const i : order) {
            p.push_back(std::exp((logits[i] - logits[order[0]]) / how.temperature));
            sum += p.back();
        }
        for (double& x : p) x /= sum;
        return p;
    };
    if (how.top_p < 1.0) {
        auto const p = renormalised();
        std::size_t keep = 0;
        for (double mass = 0.0; keep < order.size() && mass < how.top_p;) {
            mass += p[keep++];
            out.margin = std::min(out.margin, std::abs(mass - how.top_p));
        }
        order.resize(keep);
    }
    if (how.min_p > 0.0) {
        auto const p = renormalised();
        std::size_t keep = 0;
        for (std::size_t k = 0; k < order.size(); ++k) {
            if (k > 0) out.margin = std::min(out.margin, std::abs(p[k] / p[0] - how.min_p));
            if (p[k] >= how.min_p * p[0] || k == 0) ++keep;
        }
        order.resize(keep);
    }
    auto const p = renormalised();
    for (std::size_t k = 0; k < order.size(); ++k) out.p[order[k]] = p[k];
    return out;
}

template <class T>
T narrowed(double x) {
    if constexpr (std::is_same_v<T, double>)
        return x;
    else
        return T(static_cast<float>(x));
}

/// Everything a law says, against the reference. `kept_exactly` is off where rounding may move a truncation.
template <class T>
bool agrees(distribution<T> const& law, reference_law const& expected, std::size_t size, double tolerance,
            double summing = 1e-15) {
    if (law.valid() != expected.valid) return false;
    if (!law.valid()) return true;
    bool good = law.size() == size && law.mode() == expected.mode;
    double sum = 0.0;
    for (std::size_t v = 0; v < size; ++v) {
        auto const x = static_cast<token_id>(v);
        double const p = expected.p[v];
        sum += static_cast<double>(law[x]);
        good = good && std::abs(law.probability(x) - p) <= tolerance;
        if (p == 0.0) {
            good = good && law[x] == 0 && law.probability(x) == 0.0;
        } else if (p > 1e-30) {
            good = good && law[x] > 0 && std::abs(law.log_probability(x) - std::log(p)) <= 40.0 * tolerance;
        }
    }
    // A total is the sum of the weights, of which a table adds eight in their own type first.
    double const rounding = std::is_same_v<compute_t<T>, double> ? summing : 2e-7;
    return good && std::abs(sum - law.total()) <= rounding * law.total();
}

transform random_transform(support::dice& roll, std::size_t size) {
    transform how;
    double const temperatures[] = {0.0, 1.0, 1.0, 0.3, 0.7, 1.5, 4.0, 0.05};
    how.temperature = temperatures[roll.below(std::size(temperatures))];
    if (roll.chance(0.5)) how.top_k = static_cast<int>(roll.below(size + 3));
    if (roll.chance(0.5)) how.top_p = roll.between(0.02, 1.0);
    if (roll.chance(0.1)) how.top_p = 1e-9;
    if (roll.chance(0.4)) how.min_p = roll.chance(0.1) ? 1.0 : roll.real();
    return how;
}

template <class T>
std::vector<T> random_row(support::dice& roll, std::size_t size) {
    double const scale = roll.chance(0.5) ? 4.0 : 1.0;
    bool const coarse = roll.chance(0.4);  // ties
    std::vector<T> row;
    for (std::size_t v = 0; v < size; ++v) {
        double x = scale * roll.bell();
        if (coarse) x = std::round(x);
        row.push_back(narrowed<T>(roll.chance(0.15) ? -inf : x));
    }
    if (roll.chance(0.9)) row[roll.below(size)] = narrowed<T>(1.0);
    return row;
}

std::vector<double> widened(auto const& row) {
    std::vector<double> out;
    for (auto const& x : row) out.push_back(static_cast<double>(load(x)));
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("distribution: every transform on random rows", "", double, float, bf16, half) {
    using T = TestType;
    constexpr bool exact = std::is_same_v<T, double>;
    support::dice roll(41);
    INFO("seed " << roll.seed());
    std::size_t truncated = 0, invalid = 0, skipped = 0;
    for (int trial = 0; trial < 20000; ++trial) {
        std::size_t const size = 1 + roll.below(30);
        auto row = random_row<T>(roll, size);
        if (roll.chance(0.03)) row[roll.below(size)] = narrowed<T>(roll.chance(0.5) ? nan_value : inf);
        transform const how = random_transform(roll, size);
        auto const expected = reference(widened(row), how);
        if (expected.margin < (exact ? 1e-12 : 1e-4)) {
            ++skipped;
            continue;
        }
        std::vector<token_id> scratch(size, -77);
        distribution<T> const law{{row, {}}, how, scratch};
        if (!agrees(law, expected, size, exact ? 1e-13 : 2e-6)) {
            INFO("trial " << trial << ", temperature " << how.temperature << ", top_k " << how.top_k << ", top_p "
                          << how.top_p << ", min_p " << how.min_p << ", size " << size);
            REQUIRE(false);
        }
        truncated += expected.valid && how.truncates() && std::count(expected.p.begin(), expected.p.end(), 0.0) > 0;
        invalid += !expected.valid;
    }
    CHECK(truncated > 1000);
    CHECK(invalid > 100);
    CHECK(skipped < 1000);
}

TEMPLATE_TEST_CASE("distribution: a draft vocabulary is mapped to the target's", "", double, float) {
    using T = TestType;
    support::dice roll(42);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 3000; ++trial) {
        std::size_t const target_size = 2 + roll.below(20);
        std::size_t const draft_size = 1 + roll.below(target_size);
        // Draft tokens in random order, so that a tie among them is broken by draft id.
        std::vector<token_id> ids(target_size);
        std::iota(ids.begin(), ids.end(), 0);
        for (std::size_t i = target_size; i-- > 1;) std::swap(ids[i], ids[roll.below(i + 1)]);
        ids.resize(draft_size);
        vocabulary_map const map{ids, target_size};

        auto const row = random_row<T>(roll, draft_size);
        transform const how = random_transform(roll, draft_size);
        auto const draft = reference(widened(row), how);
        if (draft.margin < 1e-4) continue;
        reference_law expected{draft.valid, std::vector<double>(target_size), no_token, 1.0};
        if (draft.valid) {
            expected.mode = ids[static_cast<std::size_t>(draft.mode)];
            for (std::size_t d = 0; d < draft_size; ++d) expected.p[static_cast<std::size_t>(ids[d])] = draft.p[d];
        }
        std::vector<token_id> scratch(draft_size);
        distribution<T> const law{{row, {}}, how, scratch, &map};
        INFO("trial " << trial);
        REQUIRE(agrees(law, expected, target_size, std::is_same_v<T, double> ? 1e-13 : 2e-6));
        for (std::size_t v = 0; v < target_size && law.valid(); ++v) {
            auto const x = static_cast<token_id>(v);
            if (map.to_draft(x) == no_token) REQUIRE(law.log_probability(x) == -inf);
        }
    }
}

TEMPLATE_TEST_CASE("distribution: a normaliser the producer has is used, and only where it applies", "", double, float,
                   bf16) {
    using T = TestType;
    using real = compute_t<T>;
    double const tolerance = std::is_same_v<T, double> ? 1e-13 : 2e-6;
    support::dice roll(43);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 2000; ++trial) {
        std::size_t const size = 1 + roll.below(20);
        auto const row = random_row<T>(roll, size);
        transform const how = roll.chance(0.5) ? transform{} : random_transform(roll, size);
        auto const wide = widened(row);
        auto const expected = reference(wide, how);
        if (expected.margin < 1e-4) continue;
        double const largest = *std::max_element(wide.begin(), wide.end());
        double sum = 0.0;
        for (double const x : wide) sum += std::exp(x - largest);
        auto const normaliser = static_cast<real>(largest + std::log(sum));
        std::vector<token_id> scratch(size);
        distribution<T> const law{{row, normaliser}, how, scratch};
        INFO("trial " << trial);
        REQUIRE(law.valid() == expected.valid);
        if (!law.valid()) continue;
        REQUIRE(law.mode() == expected.mode);
        for (std::size_t v = 0; v < size; ++v) {
            REQUIRE(std::abs(law.probability(static_cast<token_id>(v)) - expected.p[v]) < 2.0 * tolerance);
        }
    }
    std::vector<T> const row(3, narrowed<T>(0.5));
    for (double const bad : {nan_value, inf, -inf}) {
        CHECK_FALSE((distribution<T>{{row, static_cast<real>(bad)}, {}, {}}.valid()));
    }
    // One that is a little off shows that it was used, weights being exp(l - normaliser), and does no harm.
    auto const normaliser = static_cast<real>(0.5 + std::log(3.0) + 0.9 * normaliser_tolerance);
    distribution<T> const believed{{row, normaliser}, {}, {}};
    CHECK(std::abs(static_cast<double>(believed[1]) * 3.0 - std::exp(-0.9 * normaliser_tolerance)) < 1e-6);
    CHECK(std::abs(believed.probability(1) - 1.0 / 3.0) < 1e-15);
    // One that is far off is another row's.
    for (double const off : {-1.2, 1.2, -1e3, 1e3}) {
        auto const wrong = static_cast<real>(0.5 + std::log(3.0) + off * normaliser_tolerance);
        CHECK_FALSE((distribution<T>{{row, wrong}, {}, {}}.valid()));
    }
    distribution<T> const ignored{{row, real(0.5)}, {.temperature = 0.5}, {}};
    CHECK(std::abs(ignored.probability(1) - 1.0 / 3.0) < 1e-6);
}

TEST_CASE("distribution: ties are broken by id, in truncation and in the mode") {
    std::vector<double> const row{1.0, 3.0, 3.0, 0.0, 3.0, 1.0};
    std::vector<token_id> scratch(row.size());
    auto const kept = [&](transform const& how) {
        distribution<double> const law{{row, {}}, how, scratch};
        std::vector<token_id> out;
        for (token_id v = 0; v < 6; ++v) {
            if (law[v] > 0) out.push_back(v);
        }
        return out;
    };
    using ids = std::vector<token_id>;
    CHECK(kept({.top_k = 1}) == ids{1});
    CHECK(kept({.top_k = 2}) == ids{1, 2});
    CHECK(kept({.top_k = 3}) == ids{1, 2, 4});
    CHECK(kept({.top_k = 4}) == ids{0, 1, 2, 4});
    CHECK(kept({.top_k = 6}) == ids{0, 1, 2, 3, 4, 5});
    CHECK(kept({.top_k = 60}).size() == 6);
    CHECK(kept({.top_p = 0.31}) == ids{1, 2});
    CHECK(kept({.top_p = 1e-12}) == ids{1});
    std::vector<double> const level(4, 0.25);  // masses exactly 1/4: reaching top_p is enough
    CHECK((distribution<double>{{level, {}}, {.top_p = 0.5}, scratch}.probability(1)) == 0.5);
    CHECK((distribution<double>{{level, {}}, {.top_p = 0.5}, scratch}.probability(2)) == 0.0);
    CHECK(kept({.min_p = 1.0}) == ids{1, 2, 4});  // as probable as the most probable
    CHECK(kept({.min_p = 0.13}) == ids{0, 1, 2, 4, 5});
    CHECK(kept({.top_k = 2, .min_p = 0.5}) == ids{1, 2});
    CHECK(kept({.temperature = 0.0, .top_k = 3}) == ids{1});
    distribution<double> const greedy{{row, {}}, {.temperature = 0.0}, {}};
    CHECK(greedy.is_one_hot());
    CHECK(greedy.mode() == 1);
    CHECK(greedy.probability(1) == 1.0);
    CHECK(greedy.log_probability(1) == 0.0);
    CHECK(greedy.log_probability(2) == -inf);
}

TEST_CASE("distribution: top-p counts the mass that top-k left") {
    // Masses 0.4, 0.3, 0.2, 0.1: of the first two alone the first has 4/7 = 0.571.
    std::vector<double> row;
    for (double const p : {0.4, 0.3, 0.2, 0.1}) row.push_back(std::log(p));
    std::vector<token_id> scratch(4);
    distribution<double> const one{{row, {}}, {.top_k = 2, .top_p = 0.57}, scratch};
    CHECK(one.probability(0) == 1.0);
    distribution<double> const two{{row, {}}, {.top_k = 2, .top_p = 0.58}, scratch};
    CHECK(std::abs(two.probability(0) - 4.0 / 7.0) < 1e-15);
    // The temperature comes first: at 0.5 the masses are squares, 16 : 9 : 4 : 1.
    distribution<double> const cold{{row, {}}, {.temperature = 0.5, .top_p = 0.53}, scratch};
    CHECK(cold.probability(0) == 1.0);
}

/// Weights and nothing else, so that a race visits all of them.
template <class T>
struct bare_weights {
    using weight_type = compute_t<T>;
    distribution<T> const& law;
    [[nodiscard]] std::size_t size() const noexcept { return law.size(); }
    [[nodiscard]] weight_type operator[](token_id v) const noexcept { return law[v]; }
};

TEMPLATE_TEST_CASE("distribution: long truncated rows keep what they should, and are raced over as all their weights",
                   "", double, float, bf16, half) {
    using T = TestType;
    support::dice roll(45);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 15; ++trial) {
        std::size_t const size = 1 + roll.below(20'000);  // several pieces of a search for candidates
        std::vector<T> row;
        for (std::size_t v = 0; v < size; ++v) row.push_back(narrowed<T>(roll.between(-8.0, 4.0)));
        transform how{.temperature = roll.chance(0.1) ? 0.0 : roll.between(0.1, 1.5), .top_p = roll.between(0.1, 1.0)};
        if (roll.chance(0.3)) how.top_k = 1 + static_cast<int>(roll.below(300));
        if (roll.chance(0.3)) how.min_p = roll.between(0.0, 0.5);
        std::vector<token_id> scratch(size);
        std::vector<double> logits;
        for (T const& l : row) logits.push_back(static_cast<double>(load(l)));
        auto const expected = reference(logits, how);
        if (expected.margin < 1e-5) continue;  // rounding may decide
        std::vector<double> sums(roll.chance(0.5) ? row_blocks(size) : 0);
        distribution<T> const law({row, {}}, how, scratch, {}, native_kernels<row_kernels>(), sums);
        INFO("trial " << trial << ", size " << size << ", top-p " << how.top_p);
        // So many numbers one after another, in two orders.
        REQUIRE(agrees(law, expected, size, 1e-5, static_cast<double>(size) * 0x1p-53));
        double of_blocks = 0.0;
        for (double const sum : sums) of_blocks += sum;
        if (!sums.empty() && !law.is_one_hot()) REQUIRE(std::abs(of_blocks - law.total()) <= 1e-12 * law.total());
        for (std::uint32_t i = 0; i < 8; ++i) {
            draw_key const key{7, static_cast<std::uint64_t>(trial), i, purpose::noise};
            token_id const winner = gumbel_max(key, bare_weights<T>{law});
            for (token_id const guess : {no_token, law.mode(), static_cast<token_id>(roll.below(size))}) {
                REQUIRE(gumbel_max(key, law, guess) == winner);
            }
        }
    }
}

TEMPLATE_TEST_CASE("distribution: rows over a part of the vocabulary are raced over as all their weights", "", double,
                   float) {
    using T = TestType;
    support::dice roll(46);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 40; ++trial) {
        std::size_t const size = 1 + roll.below(9'000);
        std::vector<token_id> drafted;  // from nearly all tokens to a few far apart, and from stretches of both
        double share = roll.between(0.0, 1.0);
        for (std::size_t v = 0; v < size; ++v) {
            if (roll.chance(0.002)) share = roll.chance(0.3) ? 0.001 : roll.between(0.0, 1.0);
            if (roll.chance(share)) drafted.push_back(static_cast<token_id>(v));
        }
        if (drafted.empty()) drafted.push_back(static_cast<token_id>(size - 1));
        bool const ascending = trial % 4 != 0;
        if (!ascending)
            std::reverse(drafted.begin(), drafted.begin() + static_cast<std::ptrdiff_t>(drafted.size() / 2));
        vocabulary_map const map(drafted, size);
        CHECK(map.ascends() == std::is_sorted(drafted.begin(), drafted.end()));
        std::vector<T> row;
        for (std::size_t i = 0; i < drafted.size(); ++i) row.push_back(static_cast<T>(roll.between(-8.0, 4.0)));
        transform const how{.temperature = roll.between(0.1, 1.5),
                            .top_p = roll.chance(0.5) ? 1.0 : roll.between(0.1, 1.0)};
        std::vector<token_id> scratch(row.size());
        std::vector<double> sums(roll.chance(0.5) ? row_blocks(row.size()) : 0);
        bool const listed = ascending && roll.chance(0.3);
        vocabulary_view const view = listed ? vocabulary_view(drafted, size) : vocabulary_view(&map);
        distribution<T> const law({row, {}}, how, scratch, view, native_kernels<row_kernels>(), sums);
        REQUIRE(law.valid());
        INFO("trial " << trial << ", " << drafted.size() << " of " << size << " tokens, top-p " << how.top_p);
        for (std::uint32_t i = 0; i < 8; ++i) {
            draw_key const key{8, static_cast<std::uint64_t>(trial), i, purpose::noise};
            token_id const winner = gumbel_max(key, bare_weights<T>{law});
            for (token_id const guess : {no_token, law.mode(), static_cast<token_id>(roll.below(size))}) {
                REQUIRE(gumbel_max(key, law, guess) == winner);
            }
        }
    }
}

TEMPLATE_TEST_CASE("distribution: rows without a law are refused under every transform", "", double, float, bf16,
                   half) {
    using T = TestType;
    support::dice roll(44);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 500; ++trial) {
        std::size_t const size = 1 + roll.below(12);
        transform const how = random_transform(roll, size);
        std::vector<token_id> scratch(size);
        std::vector<T> row(size, narrowed<T>(-inf));
        CHECK_FALSE((distribution<T>{{row, {}}, how, scratch}.valid()));  // nothing to draw
        for (T& x : row) x = narrowed<T>(roll.bell());
        CHECK((distribution<T>{{row, {}}, how, scratch}.valid()));
        row[roll.below(size)] = narrowed<T>(roll.chance(0.5) ? nan_value : inf);
        CHECK_FALSE((distribution<T>{{row, {}}, how, scratch}.valid()));
    }
    CHECK_FALSE((distribution<T>{{{}, {}}, {}, {}}.valid()));
    CHECK_FALSE(distribution<T>{}.valid());
}

TEST_CASE("distribution: extreme logits and temperatures neither overflow nor vanish") {
    float const huge = std::numeric_limits<float>::max();
    std::vector<float> const row{-huge, huge, 0.0f, huge};
    distribution<float> const law{{row, {}}, {}, {}};
    REQUIRE(law.valid());
    CHECK(law.probability(1) == 0.5);
    CHECK(law.probability(3) == 0.5);
    CHECK(law.probability(0) == 0.0);

    std::vector<double> const steep{0.0, -500.0, -1000.0};
    distribution<double> const cold{{steep, {}}, {.temperature = 1.1e-5}, {}};
    CHECK(cold.probability(0) == 1.0);
    distribution<double> const far{{steep, {}}, {}, {}};
    CHECK(std::abs(far.log_probability(2) + 1000.0) < 1e-12);  // below what exp can say
    distribution<double> const hot{{steep, {}}, {.temperature = 1e9}, {}};
    CHECK(std::abs(hot.probability(2) - 1.0 / 3.0) < 1e-6);
}

TEMPLATE_TEST_CASE("distribution: truncated rows have a law however large their logits are, over every table", "",
                   double, float, bf16) {
    using T = TestType;
    constexpr std::size_t longest = row_block + 1;
    std::vector<token_id> order(longest);
    // Products of logits and 1 / temperature are rounded to a thousandth at 1e3, to more than any weight says at 1e12.
    for (double const off : {0.0, 1e3, -1e5, 1e6, -1e7, 1e8, 1e12, -1e12, 1e20, -1e20, 3e38, -3e38}) {
        for (std::size_t const size : {std::size_t{1}, std::size_t{5}, longest}) {
            std::vector<T> row(size, narrowed<T>(off));
            for (std::size_t v = 1; v < std::min<std::size_t>(size, 4); ++v) {
                row[v] = narrowed<T>(std::abs(off) > 1e30 ? off / 2.0 : off + static_cast<double>(v % 3));
            }
            for (transform const& how :
                 {transform{.top_k = 2}, transform{.temperature = 0.1, .top_p = 0.999999},
                  transform{.temperature = 1.1e-5, .top_k = 1}, transform{.top_p = 1e-9},
                  transform{.temperature = 1e-4, .top_p = 0.5}, transform{.temperature = 100.0, .min_p = 1e-6},
                  transform{.temperature = 1e6, .top_k = 3, .top_p = 0.999}}) {
                auto const expected = reference(widened(row), how);
                if (expected.margin < 1e-9) continue;  // ties at the limit
                for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
                    std::vector<double> sums(row_blocks(size));
                    distribution<T> const law{{row, {}}, how, order, {}, *kernels, sums};
                    INFO(kernels->name << ", logits near " << off << ", size " << size << ", temperature "
                                       << how.temperature << ", top-p " << how.top_p);
                    REQUIRE(law.valid());
                    REQUIRE(agrees(law, expected, size, 2e-6, static_cast<double>(size) * 0x1p-53));
                    for (double const u : {0.0, 0.5, 0.999999}) REQUIRE(law.probability(law.quantile(u)) > 0.0);
                }
            }
        }
    }
}

// What a top-p leaves out may be less than the sum of a row of floats is rounded by, and than exponents are.
TEMPLATE_TEST_CASE("distribution: a top-p leaves out as much as it may, over every table", "", double, float, bf16) {
    using T = TestType;
    support::dice roll(48);
    INFO("seed " << roll.seed());
    std::vector<double> weights;
    std::size_t left_out = 0;
    for (int trial = 0; trial < 20; ++trial) {
        std::size_t const size = trial % 3 == 0 ? 700 : 2500;
        double const off = trial % 2 == 0 ? 0.0 : 1000.0;
        transform const how{.temperature = trial % 4 < 2 ? 1.0 : 0.1,
                            .top_p = 1.0 - std::pow(10.0, -1.0 - static_cast<double>(trial % 10))};
        std::vector<T> row;
        for (std::size_t v = 0; v < size; ++v) row.push_back(narrowed<T>(off + 2.0 * how.temperature * roll.bell()));
        row[0] = narrowed<T>(off + 22.0 * how.temperature);
        std::vector<token_id> order(size);
        for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
            distribution<T> const law{{row, {}}, how, order, {}, *kernels};
            REQUIRE(law.valid());
            double total = 0.0, out = 0.0, least = 1.0;  // least: of a token that is kept
            for (std::size_t v = 0; v < size; ++v) {
                auto const difference = static_cast<double>(load(row[v]) - load(row[0]));
                double const weight = std::exp(difference / how.temperature);
                total += weight;
                bool const kept = law[static_cast<token_id>(v)] > 0;
                out += kept ? 0.0 : weight;
                if (kept) least = std::min(least, weight);
            }
            INFO(kernels->name << ", trial " << trial << ", top-p 1 - " << 1.0 - how.top_p << ", left out "
                               << out / total);
            double const allowed = (1.0 - how.top_p) * total;
            CHECK(out <= allowed * (1.0 + 1e-5));
            CHECK(out + least > allowed * (1.0 - 1e-5));
            left_out += out > 0.0;
        }
    }
    CHECK(left_out > 10);
}

// A float says no more than 100,000 +- 0.004, and a probability by it would be off by as much.
TEMPLATE_TEST_CASE("distribution: a normaliser that is rounded to more than it may be off is not used", "", double,
                   float) {
    using T = TestType;
    support::dice roll(49);
    INFO("seed " << roll.seed());
    for (double const off : {1e3, 3e3, -1e4, 1e5, -1e6, 1e7}) {
        for (int trial = 0; trial < 20; ++trial) {
            std::vector<T> row;
            for (int v = 0; v < 40; ++v) row.push_back(static_cast<T>(off + roll.between(-3.0, 3.0)));
            double sum = 0.0;
            for (T const l : row) sum += std::exp(static_cast<double>(l) - off);
            logits_row<T> const brought{row, static_cast<T>(off + std::log(sum)), {}};
            for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
                INFO(kernels->name << ", logits near " << off);
                distribution<T> const law{brought, {}, {}, {}, *kernels, {}, totals::bounded};
                REQUIRE(law.valid());
                double weights = 0.0;
                for (token_id v = 0; v < 40; ++v) weights += static_cast<double>(law[v]);
                // What decisions take it to be.
                CHECK(law.mass().low <= weights * (1.0 + 1e-6));
                CHECK(weights <= law.mass().high * (1.0 + 1e-6));
            }
        }
    }
}

// Or a run over another table than the best would show nothing.
TEST_CASE("distribution: the tables are those that SURELEAP_TEST_KERNELS names") {
    char const* const name = std::getenv("SURELEAP_TEST_KERNELS");
    if (name == nullptr) return;
    std::string const wanted{name};
    CHECK(native_kernels<row_kernels>().name == wanted);
    CHECK(native_kernels<head_kernels>().name == wanted);
    bool const is_neon = wanted == "neon";  // which has neither of these
    CHECK(native_kernels<philox_kernels>().name == (is_neon ? "scalar" : wanted));
    CHECK(native_kernels<survival_kernels>().name == (is_neon ? "scalar" : wanted == "avx512" ? "avx2" : wanted));
    CHECK(std::string{available_kernels<row_kernels>().back()->name} == "scalar");
}

TEST_CASE("distribution: one_hot") {
    auto const law = distribution<float>::one_hot(5, 3);
    CHECK(law.valid());
    CHECK(law.is_one_hot());
    CHECK(law.size() == 5);
    CHECK(law.mode() == 3);
    CHECK(law.total() == 1.0);
    for (token_id v = 0; v < 5; ++v) {
        CHECK(law.probability(v) == (v == 3 ? 1.0 : 0.0));
        CHECK(law.log_probability(v) == (v == 3 ? 0.0 : -inf));
    }
}

TEMPLATE_TEST_CASE("distribution: the peak is the largest probability, of a greedy law the softmax behind it", "",
                   double, float) {
    using T = TestType;
    double const tolerance = std::is_same_v<T, double> ? 1e-13 : 2e-6;
    support::dice roll(46);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 1000; ++trial) {
        std::size_t const size = 1 + roll.below(20);
        auto const row = random_row<T>(roll, size);
        transform const how = random_transform(roll, size);
        auto const expected = reference(widened(row), how.greedy() ? transform{} : how);
        if (!expected.valid || expected.margin < 1e-4) continue;
        std::vector<token_id> scratch(size);
        distribution<T> const law{{row, {}}, how, scratch};
        INFO("trial " << trial);
        REQUIRE(std::abs(law.peak() - *std::max_element(expected.p.begin(), expected.p.end())) < tolerance);
    }
    CHECK(distribution<T>::one_hot(3, 1).peak() == 1.0);
    for (double const off : {1e5, 1e7, -1e12, 1e20, 3e38}) {  // where products are rounded to more than a weight says
        INFO("logits near " << off);
        std::vector<T> const level(4, narrowed<T>(off));
        for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
            distribution<T> const greedy{{level, {}}, {.temperature = 0.0}, {}, {}, *kernels};
            REQUIRE(greedy.is_one_hot());
            CHECK(std::abs(greedy.peak() - 0.25) < tolerance);
        }
    }
}

TEST_CASE("total variation and overlap") {
    support::dice roll(45);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 1000; ++trial) {
        std::size_t const size = 1 + roll.below(20);
        auto const a = random_row<double>(roll, size);
        auto const b = random_row<float>(roll, size);
        transform const how_a = random_transform(roll, size), how_b = random_transform(roll, size);
        std::vector<token_id> scratch(size);
        distribution<double> const p{{a, {}}, how_a, scratch};
        distribution<float> const q{{b, {}}, how_b, scratch};
        if (!p.valid() || !q.valid()) continue;
        double distance = 0.0, common = 0.0;
        for (std::size_t v = 0; v < size; ++v) {
            auto const x = static_cast<token_id>(v);
            distance += std::abs(p.probability(x) - q.probability(x)) / 2.0;
            common += std::min(p.probability(x), q.probability(x));
        }
        INFO("trial " << trial);
        REQUIRE(std::abs(total_variation(p, q) - distance) < 1e-12);
        REQUIRE(std::abs(total_variation(q, p) - distance) < 1e-12);
        REQUIRE(std::abs(overlap(p, q) - common) < 1e-12);
        REQUIRE(std::abs(overlap(p, q) + total_variation(p, q) - 1.0) < 1e-6);
        REQUIRE(total_variation(p, p) == 0.0);
    }
    auto const x = distribution<double>::one_hot(4, 1);
    auto const y = distribution<double>::one_hot(4, 2);
    CHECK(total_variation(x, y) == 1.0);
    CHECK(overlap(x, y) == 0.0);
    CHECK(overlap(x, x) == 1.0);
}

TEMPLATE_TEST_CASE("distribution: a row whose weights add up to no number has no law, and no token is drawn", "",
                   double, float, bf16, half) {
    using T = TestType;
    // 1 / temperature underflows to 0 in the compute type, and 0 times -inf, the exponent of a masked token, is no
    // number.
    double const hot = std::is_same_v<T, double> ? std::numeric_limits<double>::infinity() : 1e50;
    for (std::size_t const size : {std::size_t{3}, std::size_t{3000}}) {
        std::vector<T> row(size, narrowed<T>(0.5));
        row[1] = narrowed<T>(-inf);
        std::vector<token_id> order(size);
        for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
            INFO("size " << size << ", kernels " << kernels->name);
            for (totals const made : {totals::exact, totals::bounded, totals::none}) {
                for (int const top_k : {0, 2, static_cast<int>(size)}) {
                    std::vector<double> sums(row_blocks(size));
                    distribution<T> law{{row, {}}, {.temperature = hot, .top_k = top_k}, order, {}, *kernels, sums,
                                        made};
                    law.settle();
                    double const total = law.total();
                    CHECK(law.valid() == (std::isfinite(total) && total > 0.0));
                    for (double const u : {0.0, 0.3, 0.999}) CHECK((inverse_cdf(law, u) == no_token) != law.valid());
                }
            }
        }
    }
    // Whoever is no law draws nothing.
    CHECK(inverse_cdf(distribution<T>{}, 0.5) == no_token);
    std::vector<T> const broken(3, narrowed<T>(nan_value));
    CHECK(inverse_cdf(distribution<T>{{broken, {}}, {}, {}}, 0.5) == no_token);
}

TEST_CASE("settings: temperatures beyond what laws can hold are refused, of target and draft") {
    auto const text = [](request_settings const& s) { return support::error_text([&] { check_settings(s); }); };
    CHECK(text({.temperature = largest_temperature}).empty());
    CHECK(text({.draft = transform{.temperature = largest_temperature}}).empty());
    CHECK(text({.temperature = least_temperature}).empty());
    CHECK(text({.temperature = 0.0}).empty());
    for (double const t : {std::nextafter(largest_temperature, 1e9), 1e45, 1e300, -1e-300, inf, nan_value}) {
        INFO("temperature " << t);
        CHECK(text({.temperature = t}).find("request_settings: temperature is ") != std::string::npos);
        CHECK(text({.temperature = t}).find("expected a finite number >= 0 and at most 1000000") != std::string::npos);
        request_settings drafts;
        drafts.draft = transform{.temperature = t};
        CHECK(text(drafts).find("request_settings: draft temperature is ") != std::string::npos);
    }
    // Greedy below the least temperature, and not from there on.
    CHECK(transform{.temperature = std::nextafter(least_temperature, 0.0)}.greedy());
    CHECK_FALSE(transform{.temperature = least_temperature}.greedy());
    // At both ends of what is allowed every row with a law has one, masked tokens or not.
    support::dice roll(47);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 200; ++trial) {
        std::size_t const size = 1 + roll.below(40);
        auto const row = random_row<float>(roll, size);
        bool const lawful = std::any_of(row.begin(), row.end(), [](float l) { return std::isfinite(l); });
        for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
            for (double const t : {least_temperature, largest_temperature}) {
                distribution<float> const law{{row, {}}, {.temperature = t}, {}, {}, *kernels};
                REQUIRE(law.valid() == lawful);
                if (lawful) REQUIRE(law[inverse_cdf(law, roll.real())] > 0.0f);
            }
        }
    }
}
