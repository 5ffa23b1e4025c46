// SPDX-License-Identifier: MIT
//
// The sequential heads against stored reference values: teacher-forced biases, states and gates, greedy and sampled
// blocks. Double to 1e-12; float to 1e-5 of the double values; tokens equal. All sizes come from the files.
#include "support/catch.hpp"
#include "support/golden_weights.hpp"
#include "support/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>

namespace {

using golden::matrix;
using golden::tolerance;
using sureleap::matrix_view;
using sureleap::token_id;

/// Calls use(head, w2) with the head whose weights are stored under w. in the file.
template <class Real, class Backend, class Use>
void with_head(golden::file const& f, std::string const& kind, Backend const& backend, Use use) {
    matrix<Real> const w1(f.f64("w.markov_w1.weight"));
    matrix<Real> const w2(f.f64("w.markov_w2.weight"));
    if (kind == "gated") {
        matrix<Real> const gate(f.f64("w.gate_proj.weight"));
        matrix<Real> const bias(f.f64("w.gate_proj.bias"));
        use(sureleap::gated_head{w1.view(), w2.view(), gate.view(), bias.values, backend}, w1, w2);
    } else if (kind == "rnn") {
        matrix<Real> const joint(f.f64("w.joint_proj.weight"));
        matrix<Real> const bias(f.f64("w.joint_proj.bias"));
        use(sureleap::rnn_head{w1.view(), w2.view(), joint.view(), bias.values, backend}, w1, w2);
    } else {
        use(sureleap::markov_head{w1.view(), w2.view(), backend}, w1, w2);
    }
}

/// Largest |got - expected| / max(1, |expected|): 1e-12 and 1e-5 are absolute for values of order one.
template <class Real>
double difference(std::span<Real const> got, std::span<double const> expected) {
    REQUIRE(got.size() == expected.size());
    double largest = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        double const error = std::abs(static_cast<double>(got[i]) - expected[i]) / std::max(1.0, std::abs(expected[i]));
        if (!(error <= largest)) largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    }
    return largest;
}

template <class Real>
std::vector<Real> cast(std::span<double const> x) {
    return {x.begin(), x.end()};
}

/// softmax(logits / temperature) in double.
template <class Real>
std::vector<double> probabilities(std::span<Real const> logits, double temperature) {
    double const top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    std::vector<double> p(logits.size());
    double sum = 0.0;
    for (std::size_t v = 0; v < p.size(); ++v)
        sum += p[v] = std::exp((static_cast<double>(logits[v]) - top) / temperature);
    for (double& x : p) x /= sum;
    return p;
}

/// The first index whose cumulative probability exceeds u times the total.
token_id inverse_cdf(std::vector<double> const& p, double u) {
    double total = 0.0;
    for (double x : p) total += x;
    double sum = 0.0;
    for (std::size_t v = 0; v < p.size(); ++v) {
        sum += p[v];
        if (sum > u * total) return static_cast<token_id>(v);
    }
    return static_cast<token_id>(p.size()) - 1;
}

template <class Real, class Backend>
void check_kind(std::string const& kind, Backend const& backend) {
    golden::file const f("markov_" + kind);
    auto const hidden = f.f64("hidden");
    auto const base = f.f64("base_logits");
    std::size_t const batch = base.dim(0);
    std::size_t const gamma = base.dim(1);
    std::size_t const vocabulary = base.dim(2);
    REQUIRE(batch * gamma * vocabulary > 0);

    with_head<Real>(f, kind, backend, [&](auto const& head, matrix<Real> const& w1, matrix<Real> const& w2) {
        std::size_t const r = head.rank();
        REQUIRE(head.vocabulary() == vocabulary);
        REQUIRE((kind == "vanilla" || head.hidden_size() == hidden.dim(2)));
        std::vector<Real> state(head.state_size());

        // Teacher forcing.
        auto const previous = f.i32("prev_tokens");
        auto const first = f.i32("first_prev");
        auto const bias = f.f64("bias");
        auto const corrected = f.f64("corrected");
        auto const stateless = f.f64("stateless_bias");
        for (std::size_t b = 0; b < batch; ++b) {
            REQUIRE(previous.at(b, 0) == first.at(b));
            head.reset(state);
            for (std::size_t k = 0; k < gamma; ++k) {
                INFO(kind << ", request " << b << ", position " << k);
                auto const h = cast<Real>(hidden.row(b, k));
                token_id const x = previous.at(b, k);

                std::vector<Real> alone(vocabulary);
                std::vector<Real> fresh(head.state_size());
                head.reset(fresh);
                head.add_bias(fresh, h, x, alone);
                CHECK(difference<Real>(alone, stateless.row(b, k)) <= tolerance<Real>);

                std::vector<Real> added(vocabulary);
                std::vector<Real> same_state = state;
                head.add_bias(same_state, h, x, added);
                CHECK(difference<Real>(added, bias.row(b, k)) <= tolerance<Real>);

                auto logits = cast<Real>(base.row(b, k));
                head.add_bias(state, h, x, logits);
                CHECK(difference<Real>(logits, corrected.row(b, k)) <= tolerance<Real>);

                if (kind == "rnn") {
                    auto const s = std::span<Real const>(state).first(r);
                    CHECK(difference<Real>(s, f.f64("states").row(b, k)) <= tolerance<Real>);
                }
                if (kind == "gated") {  // the gate shows in B = W2 (g * e)
                    auto const g = f.f64("gate");
                    std::vector<double> expected(vocabulary);
                    for (std::size_t v = 0; v < vocabulary; ++v) {
                        for (std::size_t i = 0; i < r; ++i) {
                            expected[v] += static_cast<double>(w2.view().row(v)[i]) * g.at(b, k, i) *
                                           static_cast<double>(w1.view().row(static_cast<std::size_t>(x))[i]);
                        }
                    }
                    CHECK(difference<Real>(added, expected) <= tolerance<Real>);
                }
            }
        }

        // Free-running blocks: each token is chosen from the logits that the tokens before it corrected.
        auto const run = [&](std::string const& name, auto choose) {
            auto const tokens = f.i32(name + "_tokens");
            auto const expected = f.f64(name + "_logits");
            for (std::size_t b = 0; b < batch; ++b) {
                head.reset(state);
                token_id x = first.at(b);
                for (std::size_t k = 0; k < gamma; ++k) {
                    INFO(kind << " " << name << ", request " << b << ", position " << k);
                    auto logits = cast<Real>(base.row(b, k));
                    head.add_bias(state, cast<Real>(hidden.row(b, k)), x, logits);
                    CHECK(difference<Real>(logits, expected.row(b, k)) <= tolerance<Real>);
                    x = choose(std::span<Real const>(logits), b, k);
                    REQUIRE(x == tokens.at(b, k));
                }
            }
        };
        run("greedy", [](std::span<Real const> logits, std::size_t, std::size_t) {
            return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        });
        auto const q = f.f64("t08_probs");
        auto const u = f.f64("u_sample");
        REQUIRE(u.size() == batch * gamma);
        run("t08", [&](std::span<Real const> logits, std::size_t b, std::size_t k) {
            auto const p = probabilities(logits, 0.8);
            CHECK(difference<double>(p, q.row(b, k)) <= tolerance<Real>);
            return inverse_cdf(p, u[k * batch + b]);  // one uniform per draw, position by position
        });
    });
}

}  // namespace

TEMPLATE_TEST_CASE("golden: sequential heads", "[golden][head]", double, float) {
    for (char const* const kind : {"vanilla", "gated", "rnn"}) {
        check_kind<TestType>(kind, sureleap::scalar_backend{});
        check_kind<TestType>(kind, sureleap::native_backend{});
    }
}

namespace {

/// native_backend with a table that the test chooses.
struct table_backend {
    inline static sureleap::head_kernels const* table = nullptr;

    template <class W>
    static void gemv_add(matrix_view<W> weights, std::span<float const> x, std::span<float> y) noexcept {
        float const* const from = x.data();
        float* const to = y.data();
        table->product<W>()({weights.data, weights.stride, weights.cols, weights.rows, nullptr}, &from, &to, &to, 1);
    }
    template <class W>
    static void gemv(matrix_view<W> weights, std::span<float const> x, std::span<float> y) noexcept {
        std::fill(y.begin(), y.end(), 0.0f);
        gemv_add(weights, x, y);
    }
    template <class W>
    [[nodiscard]] static float dot(std::span<W const> weights, std::span<float const> x) noexcept {
        float sum = 0.0f;
        gemv_add(matrix_view<W>{weights.data(), 1, weights.size()}, x, {&sum, 1});
        return sum;
    }
};

}  // namespace

TEST_CASE("golden: sequential heads over every table of products", "[golden][head]") {
    for (sureleap::head_kernels const* const table : sureleap::available_kernels<sureleap::head_kernels>()) {
        INFO("table " << table->name);
        table_backend::table = table;
        for (char const* const kind : {"vanilla", "gated", "rnn"}) check_kind<float>(kind, table_backend{});
    }
}
