// SPDX-License-Identifier: MIT
//
// Laws behind nodes some of whose children are known, on rows of several blocks: what segments and proposals give is
// what the formulas say, of dense rows, of rows over a list, and of rows over another vocabulary. Two seconds.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verify/remaining.hpp>

#include "support/catch.hpp"
#include "support/chi_square.hpp"
#include "support/dice.hpp"

using namespace sureleap;
using support::dice;

namespace {

constexpr std::size_t vocabulary = 2500;

/// p over all tokens, and q over all, over a list, or over a vocabulary of its own. A few tokens have most of both.
struct laws {
    std::vector<float> target = std::vector<float>(vocabulary);
    std::vector<float> draft;
    std::vector<token_id> list;
    std::vector<token_id> order = std::vector<token_id>(vocabulary);
    std::vector<double> sums_p = std::vector<double>(row_blocks(vocabulary));
    std::vector<double> sums_q = std::vector<double>(row_blocks(vocabulary));
    std::optional<vocabulary_map> map;
    distribution<float> p;
    distribution<float> q;

    enum class of { all, a_list, a_map };

    laws(dice& roll, of what, int top_k = 0) {
        std::vector<float> both(vocabulary);
        for (float& l : both) l = static_cast<float>(3.0 * roll.bell());
        for (int i = 0; i < 5; ++i) both[roll.below(vocabulary)] += 9.0F;
        for (std::size_t v = 0; v < vocabulary; ++v) target[v] = both[v] + static_cast<float>(roll.bell());
        p = {{target, {}}, transform{.top_k = top_k}, order, {}, native_kernels<row_kernels>(), sums_p};
        vocabulary_view over;
        if (what == of::all) {
            draft = both;
        } else {
            list.resize(vocabulary);
            std::iota(list.begin(), list.end(), 0);
            std::sort(list.begin(), list.end(), [&](token_id a, token_id b) {
                return both[static_cast<std::size_t>(a)] > both[static_cast<std::size_t>(b)];
            });
            list.resize(what == of::a_list ? 60 : 1800);
            if (what == of::a_list) std::sort(list.begin(), list.end());
            for (token_id const v : list) draft.push_back(both[static_cast<std::size_t>(v)]);
            if (what == of::a_map) map.emplace(list, vocabulary);
            over = what == of::a_list ? vocabulary_view(list, vocabulary) : vocabulary_view(&*map);
        }
        sums_q.resize(row_blocks(draft.size()));
        q = {{draft, {}}, transform{}, order, over, native_kernels<row_kernels>(), sums_q};
    }
    laws(laws const&) = delete;
    laws& operator=(laws const&) = delete;
};

/// Counts of draws against probabilities: tokens above a hundredth one by one, the others together.
template <class Draw>
void check_law(std::vector<double> const& expected, int draws, Draw const& draw) {
    std::vector<double> counts(expected.size());
    for (int i = 0; i < draws; ++i) {
        token_id const x = draw(static_cast<std::uint64_t>(i));
        if (x == no_token) FAIL("draw " << i << " has no token");
        counts[static_cast<std::size_t>(x)] += 1.0;
    }
    support::check_counts(expected, counts, draws, 0.01);
}

}  // namespace

TEST_CASE("what a further child is drawn from") {
    for (auto const what : {laws::of::all, laws::of::a_list, laws::of::a_map}) {
        dice roll{11};
        laws const of(roll, what);
        philox_randomness const rng;
        std::vector<token_id> elders;
        for (std::uint64_t children = 0; children < 4; ++children) {
            undrawn const weights{of.q, elders};
            std::vector<double> expected(vocabulary);
            double total = 0.0;
            token_id likeliest = 0;
            for (token_id v = 0; v < static_cast<token_id>(vocabulary); ++v) {
                bool const there = std::find(elders.begin(), elders.end(), v) != elders.end();
                double const w = there ? 0.0 : static_cast<double>(of.q[v]);
                if (static_cast<double>(weights[v]) != w) FAIL("token " << v << " weighs " << weights[v]);
                expected[static_cast<std::size_t>(v)] = w;
                total += w;
                if (w > expected[static_cast<std::size_t>(likeliest)]) likeliest = v;
            }
            CHECK(weights.total() == Approx(total));
            CHECK(weights.mode() == likeliest);
            for (double& w : expected) w /= total;
            auto const key = [&](std::uint64_t i) { return draw_key{7 + children, i, 3, purpose::draft}; };
            check_law(expected, 2000, [&](std::uint64_t i) { return draw_undrawn(weights, key(i), rng); });
            check_law(expected, 100, [&](std::uint64_t i) { return rng.categorical(key(i), weights); });
            check_law(expected, 100, [&](std::uint64_t i) { return rng.gumbel_max(key(i), weights); });
            elders.push_back(weights.mode());
        }
    }
}

TEST_CASE("what is left of the target's law behind rejected children") {
    for (auto const what : {laws::of::all, laws::of::a_list, laws::of::a_map}) {
        for (int const trial : {0, 1, 2, 3}) {
            double const scale = trial % 2 == 0 ? 1.0 : 0.8;
            dice roll{12};
            laws const of(roll, what, trial < 2 ? 0 : 20);
            philox_randomness const rng;
            std::vector<rejected_child> room(4);
            remaining<categorical_draft, distribution<float>, distribution<float>> left{of.p, of.q, room};
            std::vector<double> expected(vocabulary);
            std::vector<double> drafted(vocabulary);
            for (token_id v = 0; v < static_cast<token_id>(vocabulary); ++v) {
                expected[static_cast<std::size_t>(v)] = of.p.probability(v);
                drafted[static_cast<std::size_t>(v)] = of.q.probability(v);
            }
            for (std::uint64_t children = 0; children < 4; ++children) {
                std::vector<double> some(100);
                left.evaluate(1000, some);
                for (std::size_t v = 0; v < vocabulary; ++v) {
                    double const here = left[static_cast<token_id>(v)];
                    // Sums of a row of floats are rounded: what is left of one has that error.
                    if (!(std::abs(here - expected[v]) <= 2e-5 * expected[v] + 1e-9)) {
                        FAIL("token " << v << " has " << here << ", expected " << expected[v]);
                    }
                    if (v >= 1000 && v < 1100) CHECK(some[v - 1000] == Approx(here).margin(1e-15));
                }
                auto const key = [&](std::uint64_t i) { return draw_key{5 + children, i, 2, purpose::residual}; };
                check_law(expected, 2000, [&](std::uint64_t i) { return draw_remaining(left, key(i), rng); });
                check_law(expected, 100, [&](std::uint64_t i) { return rng.categorical(key(i), left); });

                // The likeliest token that q has left is rejected.
                auto const x =
                    static_cast<token_id>(std::max_element(drafted.begin(), drafted.end()) - drafted.begin());
                CHECK(left.drawn_with(x) == Approx(drafted[static_cast<std::size_t>(x)]));
                double mass = 0.0;
                for (std::size_t v = 0; v < vocabulary; ++v) {
                    expected[v] = std::max(scale * expected[v] - drafted[v], 0.0);
                    mass += expected[v];
                }
                for (double& w : expected) w /= mass;
                CHECK(left.reject(x, scale) == Approx(mass).epsilon(2e-5));
                double const taken = drafted[static_cast<std::size_t>(x)];
                drafted[static_cast<std::size_t>(x)] = 0.0;
                for (double& w : drafted) w /= 1.0 - taken;
            }
        }
    }
}
