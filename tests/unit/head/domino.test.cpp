// SPDX-License-Identifier: MIT
//
// The Domino head: a worked example, an independent evaluation of its formula, state, and bad weights.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/head/domino.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/linear.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

namespace {

using support::says;
using sureleap::bf16;
using sureleap::domino_head;
using sureleap::half;
using sureleap::matrix_view;
using sureleap::token_id;

static_assert(sureleap::factored_head<domino_head<bf16>> && std::is_trivially_copyable_v<domino_head<float>>);
static_assert(std::is_same_v<domino_head<bf16>::value_type, float>);

/// Sizes that all differ, and weights that are exact in every storage: multiples of 1/64 in [-1, 1].
template <class Weight>
struct weights {
    static constexpr std::size_t targets = 13, drafts = 9, d = 7, g = 4, r = 5;
    std::vector<Weight> embedding, input, recurrent, projection, w2;

    explicit weights(std::uint64_t seed) {
        support::dice roll(seed);
        auto const fill = [&](std::vector<Weight>& out, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                out.push_back(static_cast<Weight>((static_cast<float>(roll.below(129)) - 64.0f) / 64.0f));
            }
        };
        fill(embedding, targets * d), fill(input, 3 * g * d), fill(recurrent, 3 * g * g);
        fill(projection, r * (d + g)), fill(w2, drafts * r);
    }
    template <class Real>
    [[nodiscard]] auto head(std::size_t uncorrected) const {
        return domino_head<Weight, Real>{{embedding.data(), targets, d}, {input.data(), 3 * g, d},
                                         {recurrent.data(), 3 * g, g},   {projection.data(), r, d + g},
                                         {w2.data(), drafts, r},         uncorrected};
    }
};

template <class Weight>
std::vector<double> product(std::vector<Weight> const& w, std::vector<double> const& x) {
    std::vector<double> y(w.size() / x.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
        y[i / x.size()] += static_cast<double>(sureleap::load(w[i])) * x[i % x.size()];
    }
    return y;
}
double logistic(double x) {
    return 0.5 * (1.0 + std::tanh(0.5 * x));
}

/// A block as the formula says it. Every position runs the GRU over all tokens before it, from nothing.
template <class Weight>
std::vector<double> reference(weights<Weight> const& w, std::vector<token_id> const& tokens,
                              std::vector<double> const& h, std::size_t uncorrected) {
    constexpr std::size_t d = weights<Weight>::d, g = weights<Weight>::g;
    std::vector<double> s(g);
    for (token_id const x : tokens) {
        std::vector<double> e;
        for (std::size_t i = 0; i < d; ++i) {
            e.push_back(static_cast<double>(sureleap::load(w.embedding[static_cast<std::size_t>(x) * d + i])));
        }
        auto const in = product(w.input, e), again = product(w.recurrent, s);
        for (std::size_t i = 0; i < g; ++i) {
            double const reset = logistic(in[i] + again[i]), update = logistic(in[g + i] + again[g + i]);
            s[i] = (1.0 - update) * std::tanh(in[2 * g + i] + reset * again[2 * g + i]) + update * s[i];
        }
    }
    if (tokens.size() <= uncorrected) return std::vector<double>(weights<Weight>::drafts);
    std::vector<double> both = h;
    both.insert(both.end(), s.begin(), s.end());
    auto code = product(w.projection, both);
    for (double& x : code) x *= logistic(x);
    return product(w.w2, code);
}

}  // namespace

TEST_CASE("Domino: a bias by hand", "[head]") {
    // All of size 1. The update gate is half open and the reset gate open, so s = s / 2 + tanh(1 + 3 s) / 2.
    std::vector<double> const embedding{1.0, 0.0};
    std::vector<double> const input{1000, 0, 1}, recurrent{0, 0, 3}, projection{0, 1}, w2{2};
    domino_head const head{matrix_view<double>{embedding.data(), 2, 1},
                           {input.data(), 3, 1},
                           {recurrent.data(), 3, 1},
                           {projection.data(), 1, 2},
                           {w2.data(), 1, 1},
                           1};
    std::vector<double> state(head.state_size());
    std::vector<double> const hidden{7.0};
    auto const bias = [&](token_id previous) {
        std::vector<double> logits{10.0};
        head.add_bias(state, hidden, previous, logits);
        return logits[0] - 10.0;
    };
    head.reset(state);
    CHECK(bias(0) == 0.0);  // the first position is left as it is, but seen
    double s = std::tanh(1.0) / 2.0;
    CHECK(state[0] == s);
    s = s / 2.0 + std::tanh(1.0 + 3.0 * s) / 2.0;
    CHECK(std::abs(bias(0) - 2.0 * s * logistic(s)) < 1e-14);
    s = s / 2.0 + std::tanh(0.5 * 3.0 * s) / 2.0;  // an embedding of 0: the reset gate is half open too
    CHECK(std::abs(bias(1) - 2.0 * s * logistic(s)) < 1e-14);
}

TEMPLATE_TEST_CASE("Domino: the head follows its formula for every storage", "[head]", (std::pair<double, double>),
                   (std::pair<float, double>), (std::pair<bf16, double>), (std::pair<half, double>),
                   (std::pair<double, float>), (std::pair<float, float>), (std::pair<bf16, float>),
                   (std::pair<half, float>)) {
    using weight = typename TestType::first_type;
    using real = typename TestType::second_type;
    using sizes = weights<weight>;
    double const bound = std::is_same_v<real, double> ? 1e-13 : 2e-5;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        INFO("seed " << seed);
        sizes const w(seed);
        std::size_t const uncorrected = seed - 1;
        auto const head = w.template head<real>(uncorrected);
        REQUIRE(head.rank() == sizes::r);
        REQUIRE(head.vocabulary() == sizes::drafts);
        REQUIRE(head.previous_vocabulary() == sizes::targets);
        REQUIRE(head.hidden_size() == sizes::d);
        support::dice roll(seed);
        std::vector<real> state(head.state_size(), std::numeric_limits<real>::quiet_NaN());
        for (int block = 0; block < 2; ++block) {  // the second begins with a used state
            head.reset(state);
            std::vector<token_id> tokens;
            for (std::size_t k = 0; k < 5; ++k) {
                tokens.push_back(static_cast<token_id>(roll.below(sizes::targets)));
                std::vector<double> h(sizes::d);
                for (double& x : h) x = (static_cast<double>(roll.below(257)) - 128.0) / 64.0;
                std::vector<real> const hidden(h.begin(), h.end());
                std::vector<real> logits(sizes::drafts, real(1));
                auto again = state;
                head.add_bias(state, hidden, tokens.back(), logits);
                auto const expected = reference(w, tokens, h, uncorrected);
                for (std::size_t v = 0; v < logits.size(); ++v) {
                    REQUIRE(std::abs(static_cast<double>(logits[v]) - 1.0 - expected[v]) <= bound);
                }
                // Some tokens alone, by the code.
                std::vector<token_id> const some{8, 2};
                std::vector<real> listed(2, real(1));
                head.output().add_at(some, head.code(again, hidden, tokens.back()), listed);
                CHECK(listed == std::vector<real>{logits[8], logits[2]});
            }
        }
    }
}

TEST_CASE("Domino: the state of a request is its own, and a tree may copy it", "[head]") {
    weights<float> const w(5);
    auto const head = w.head<float>(1);
    std::vector<float> const hidden(head.hidden_size(), 0.5f);
    auto const run = [&](std::vector<float>& state, token_id previous) {
        std::vector<float> logits(head.vocabulary());
        head.add_bias(state, hidden, previous, logits);
        return logits;
    };
    std::vector<float> a(head.state_size()), b(head.state_size());
    head.reset(a), head.reset(b);
    CHECK(run(a, 1) == run(b, 3));  // nothing, at the first position
    auto sibling = a;
    auto const a2 = run(a, 2);
    CHECK(run(b, 2) != a2);
    CHECK(run(sibling, 4) != a2);
    head.reset(b);
    run(b, 1);
    CHECK(run(b, 2) == a2);
}

TEST_CASE("Domino: W2 in eight bits", "[head]") {
    weights<float> const w(6);
    using sizes = weights<float>;
    sureleap::int8_matrix const eight_bits{matrix_view<float>{w.w2.data(), sizes::drafts, sizes::r}};
    sureleap::int8_view const w2 = eight_bits.view();
    domino_head const head{matrix_view<float>{w.embedding.data(), sizes::targets, sizes::d},
                           {w.input.data(), 3 * sizes::g, sizes::d},
                           {w.recurrent.data(), 3 * sizes::g, sizes::g},
                           {w.projection.data(), sizes::r, sizes::d + sizes::g},
                           w2,
                           0};
    std::vector<float> state(head.state_size()), hidden(head.hidden_size(), 0.25f), logits(head.vocabulary());
    head.reset(state);
    head.add_bias(state, hidden, 3, logits);
    auto const expected = reference(w, {3}, std::vector<double>(sizes::d, 0.25), 0);
    for (std::size_t v = 0; v < logits.size(); ++v) CHECK(std::abs(static_cast<double>(logits[v]) - expected[v]) < 0.1);
}

#if SURELEAP_EXCEPTIONS
TEST_CASE("Domino: wrong shapes and weights that are not finite are refused with tensor, place and expectation",
          "[head][error]") {
    using view = matrix_view<float>;
    constexpr std::size_t V = weights<float>::targets, d = weights<float>::d, g = weights<float>::g,
                          r = weights<float>::r;
    weights<float> w(7);
    view embedding{w.embedding.data(), V, d}, input{w.input.data(), 3 * g, d}, recurrent{w.recurrent.data(), 3 * g, g},
        projection{w.projection.data(), r, d + g}, w2{w.w2.data(), weights<float>::drafts, r};
    auto const refused = [&] {
        return support::error_text(
            [&] { static_cast<void>(domino_head<float>{embedding, input, recurrent, projection, w2, 1}); });
    };
    auto const with = [&](view& part, view by) {
        view const good = std::exchange(part, by);
        std::string const text = refused();
        part = good;
        return text;
    };
    CHECK(refused().empty());
    CHECK(with(embedding, {}) ==
          "domino_head: embedding is [0, 0], expected at least one row and one column (target vocabulary x hidden "
          "size)");
    CHECK(with(input, {w.input.data(), g, d}) ==
          "domino_head: input is [4, 7], expected [12, 7] (3 units x hidden size)");
    CHECK(with(recurrent, {w.recurrent.data(), 2 * g, g}) ==
          "domino_head: recurrent is [8, 4], expected [12, 4] (3 units x units)");
    CHECK(says(with(recurrent, {w.recurrent.data(), 3 * g, g - 1}), "domino_head: input is [12, 7], expected [9, 7]"));
    CHECK(with(projection, {w.projection.data(), r, d}) ==
          "domino_head: projection is [5, 7], expected [5, 11] (rank x (hidden size + units))");
    CHECK(says(with(w2, {w.w2.data(), 9, r - 1}), "domino_head: w2 is [9, 4], expected [9, 5]"));
    CHECK(says(with(w2, {nullptr, 9, r}), "domino_head: w2 points to no data"));

    auto const with_nan = [&](std::vector<float>& part, std::size_t i) {
        float const good = std::exchange(part[i], std::numeric_limits<float>::quiet_NaN());
        std::string const text = refused();
        part[i] = good;
        return text;
    };
    CHECK(with_nan(w.embedding, 2 * d + 3) == "domino_head: embedding is not finite at row 2, column 3: got nan");
    CHECK(with_nan(w.input, 11 * d) == "domino_head: input is not finite at row 11, column 0: got nan");
    CHECK(with_nan(w.recurrent, 9 * g + 1) == "domino_head: recurrent is not finite at row 9, column 1: got nan");
    CHECK(with_nan(w.projection, 4 * (d + g) + 10) ==
          "domino_head: projection is not finite at row 4, column 10: got nan");
    CHECK(with_nan(w.w2, 8 * r + 4) == "domino_head: w2 is not finite at row 8, column 4: got nan");
}
#endif
