// SPDX-License-Identifier: MIT
//
// The oracle of the exactness tests is itself tested against closed forms.
#include <sureleap/testing/enumerator.hpp>

#include <cmath>
#include <map>
#include <vector>

#include <sureleap/concepts.hpp>

#include "support/catch.hpp"

using namespace sureleap;

namespace {

struct weights {
    std::vector<double> w;
    [[nodiscard]] std::size_t size() const { return w.size(); }
    [[nodiscard]] double operator[](token_id v) const { return w[static_cast<std::size_t>(v)]; }
    [[nodiscard]] double total() const {
        double sum = 0.0;
        for (double const x : w) sum += x;
        return sum;
    }
};

bool near(double a, double b) {
    return std::abs(a - b) < 1e-13;
}

/// The joint law of what run() returns.
template <class Run>
std::map<std::vector<int>, double> law_of(enumerator::noise kind, Run&& run) {
    std::map<std::vector<int>, double> law;
    enumerator walk{kind};
    walk.for_each_path([&] {
        auto const seen = run(walk.handle());
        law[seen] += walk.weight();
    });
    return law;
}

constexpr draw_key key{1, 2, 3, purpose::draft};
constexpr draw_key other{1, 2, 4, purpose::draft};

}  // namespace

static_assert(randomness<enumerator::source>);
static_assert(weight_function<weights>);

TEST_CASE("enumerator: one draw has the law it is asked for") {
    for (auto const kind : {enumerator::noise::fresh, enumerator::noise::keyed}) {
        auto coin = law_of(kind, [](auto rng) { return std::vector<int>{rng.bernoulli(key, 1.0, 4.0)}; });
        CHECK(near(coin[{1}], 0.25));
        CHECK(near(coin[{0}], 0.75));
        auto sure = law_of(kind, [](auto rng) { return std::vector<int>{rng.bernoulli(key, 3.0, 2.0)}; });
        CHECK(sure.size() == 1);
        for (weights const& w : {weights{{1, 0, 3, 4}}, weights{{0, 2, 0}}, weights{{5}}}) {
            auto law = law_of(kind, [&](auto rng) { return std::vector<int>{rng.categorical(key, w)}; });
            double sum = 0.0;
            for (auto const& [v, p] : law) {
                CHECK(near(p, w[v[0]] / w.total()));
                sum += p;
            }
            CHECK(near(sum, 1.0));
        }
        weights const three{{1, 2, 5}};
        auto drawn = law_of(kind, [&](auto rng) { return std::vector<int>{rng.gumbel_max(key, three)}; });
        for (int v = 0; v < 3; ++v) CHECK(near(drawn[{v}], three[v] / 8.0));
    }
}

TEST_CASE("enumerator: draws of different keys are independent") {
    weights const w{{1, 3}};
    auto law = law_of(enumerator::noise::keyed, [&](auto rng) {
        return std::vector<int>{rng.categorical(key, w), rng.categorical(other, w), rng.gumbel_max(key, w),
                                rng.gumbel_max(other, w)};
    });
    CHECK(law.size() == 16);
    for (auto const& [o, p] : law) {
        double product = 1.0;
        for (int const v : o) product *= v == 0 ? 0.25 : 0.75;
        CHECK(near(p, product));
    }
}

TEST_CASE("enumerator: keyed noise gives one answer to one question, fresh noise does not") {
    weights const w{{1, 1, 2}};
    auto const twice = [&](auto rng) {
        return std::vector<int>{rng.categorical(key, w), rng.categorical(key, w), rng.gumbel_max(key, w),
                                rng.gumbel_max(key, w)};
    };
    for (auto const& [o, p] : law_of(enumerator::noise::keyed, twice)) CHECK((o[0] == o[1] && o[2] == o[3]));
    CHECK(law_of(enumerator::noise::fresh, twice).size() == 81);
}

TEST_CASE("enumerator: one uniform answers two questions by its position") {
    // u < 1/2 and then u in [1/4, 3/4): only the overlap is left.
    weights const quarters{{1, 2, 1}};
    auto law = law_of(enumerator::noise::keyed, [&](auto rng) {
        return std::vector<int>{rng.bernoulli(key, 1.0, 2.0), rng.categorical(key, quarters)};
    });
    CHECK(law.size() == 4);
    for (auto const& [o, p] : law) CHECK(near(p, 0.25));
    CHECK(law.count({1, 2}) == 0);
    CHECK(law.count({0, 0}) == 0);
}

TEST_CASE("enumerator: two races over one noise agree as exponentials do") {
    // P(both choose i) = 1 / sum_v max(p_v / p_i, q_v / q_i).
    std::vector<std::pair<weights, weights>> const pairs{
        {{{1, 3}}, {{2, 2}}}, {{{0.2, 0.5, 0.3}}, {{0.6, 0.1, 0.3}}}, {{{0.2, 0.8, 0.0}}, {{0.5, 0.25, 0.25}}}};
    for (auto const& [p, q] : pairs) {
        auto law = law_of(enumerator::noise::keyed,
                          [&](auto rng) { return std::vector<int>{rng.gumbel_max(key, p), rng.gumbel_max(key, q)}; });
        auto const size = static_cast<token_id>(p.size());
        double sum = 0.0;
        for (auto const& [o, probability] : law) sum += probability;
        CHECK(near(sum, 1.0));
        for (token_id i = 0; i < size; ++i) {
            double marginal = 0.0;
            for (token_id j = 0; j < size; ++j) marginal += law[{i, j}];
            CHECK(near(marginal, p[i] / p.total()));
            if (!(p[i] > 0.0) || !(q[i] > 0.0)) continue;
            double rate = 0.0;
            for (token_id v = 0; v < size; ++v) rate += std::max(p[v] / p[i], q[v] / q[i]);
            CHECK(near(law[{i, i}], 1.0 / rate));
        }
    }
}
