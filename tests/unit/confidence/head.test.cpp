// SPDX-License-Identifier: MIT
//
// The confidence head with and without Markov embedding, its estimate at the anchor, the analytic label, and what
// it refuses.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/confidence/head.hpp>

namespace {

using sureleap::bf16;
using sureleap::half;
using sureleap::matrix_view;
using sureleap::token_id;

double uniform(std::mt19937_64& bits) {
    return static_cast<double>(bits() >> 11) * 0x1p-53;
}

template <class T>
std::vector<T> random_weights(std::size_t count, std::mt19937_64& bits) {
    std::vector<T> out;
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back(static_cast<T>((static_cast<float>(bits() % 129) - 64.0f) / 64.0f));
    }
    return out;
}

template <class T>
double at(std::vector<T> const& stored, std::size_t i) {
    return static_cast<double>(sureleap::load(stored.at(i)));
}

double logistic(double x) {
    return 0.5 * (1.0 + std::tanh(0.5 * x));
}

template <class Real>
Real label(std::vector<Real> const& p, std::vector<Real> const& q) {
    return sureleap::acceptance_label(sureleap::probability_row<Real>{p}, sureleap::probability_row<Real>{q});
}

}  // namespace

TEST_CASE("a confidence by hand", "[confidence]") {
    std::vector<float> const weight{1, -2, 3};  // hidden size 2, rank 1
    std::vector<float> const w1{0.5f, -1.0f, 2.0f};
    matrix_view<float> const w1_view(w1.data(), 3, 1);
    sureleap::confidence_head const head{matrix_view<float>(weight.data(), 1, 3), 0.25f, w1_view};
    STATIC_REQUIRE(std::is_same_v<decltype(head), sureleap::confidence_head<float, float> const>);
    std::vector<float> const h{2, 1};
    CHECK(head.with_markov());
    CHECK(head.hidden_size() == 2);
    CHECK(head.previous_vocabulary() == 3);
    CHECK(head.logit(h, 0) == 0.25f + 0.0f + 1.5f);
    CHECK(head.logit(h, 1) == 0.25f + 0.0f - 3.0f);
    CHECK(head(h, 1, 4) == sureleap::sigmoid(-2.75f));
    // At the anchor: exact for k = 0, then the mean row 0.5 whatever the anchor is.
    CHECK(head.at_anchor(h, 2, 0) == head(h, 2, 0));
    CHECK(head.at_anchor(h, 2, 1) == sureleap::sigmoid(0.25f + 1.5f));
    CHECK(head.at_anchor(h, 0, 5) == head.at_anchor(h, 2, 1));

    sureleap::confidence_head const plain{matrix_view<float>(weight.data(), 1, 2), 0.25f};
    CHECK_FALSE(plain.with_markov());
    CHECK(plain.previous_vocabulary() == 0);
    CHECK(plain.logit(h, sureleap::no_token) == 0.25f);
    CHECK(plain(h, 123456, 0) == plain(h, 0, 3));
    CHECK(plain.at_anchor(h, 0, 3) == plain(h, 0, 0));
}

TEMPLATE_TEST_CASE("the confidence head follows its formula for every storage", "[confidence]",
                   (std::pair<double, double>), (std::pair<float, double>), (std::pair<bf16, double>),
                   (std::pair<half, double>), (std::pair<double, float>), (std::pair<float, float>),
                   (std::pair<bf16, float>), (std::pair<half, float>)) {
    using stored = typename TestType::first_type;
    using real = typename TestType::second_type;
    double const bound = std::is_same_v<real, double> ? 1e-14 : 1e-5;
    std::uint64_t const seed = 11;
    INFO("seed " << seed);
    std::mt19937_64 bits(seed);
    std::size_t const targets = 19;
    std::size_t const r = 6;
    std::size_t const d = 21;
    auto const weight = random_weights<stored>(d + r, bits);
    auto const w1 = random_weights<stored>(targets * r, bits);
    matrix_view<stored> const weight_view(weight.data(), 1, d + r);
    sureleap::confidence_head<stored, real> const head(weight_view, real(-0.5),
                                                       matrix_view<stored>(w1.data(), targets, r));
    std::vector<double> mean(r);
    for (std::size_t v = 0; v < targets; ++v) {
        for (std::size_t i = 0; i < r; ++i) mean[i] += at(w1, v * r + i) / static_cast<double>(targets);
    }
    for (std::size_t k = 0; k < 20; ++k) {
        auto const hidden = random_weights<real>(d, bits);
        auto const previous = static_cast<token_id>(bits() % targets);
        double base = -0.5;
        for (std::size_t j = 0; j < d; ++j) base += at(weight, j) * static_cast<double>(hidden[j]);
        double logit = base;
        double expected = base;
        for (std::size_t i = 0; i < r; ++i) {
            logit += at(weight, d + i) * at(w1, static_cast<std::size_t>(previous) * r + i);
            expected += at(weight, d + i) * mean[i];
        }
        CHECK(std::abs(static_cast<double>(head.logit(hidden, previous)) - logit) <= bound);
        CHECK(std::abs(static_cast<double>(head(hidden, previous, k)) - logistic(logit)) <= bound);
        CHECK(std::abs(static_cast<double>(head.at_anchor(hidden, previous, 0)) - logistic(logit)) <= bound);
        CHECK(std::abs(static_cast<double>(head.at_anchor(hidden, previous, k + 1)) - logistic(expected)) <= bound);
    }
}

TEST_CASE("confidences stay in [0, 1], and NaN is not hidden", "[confidence]") {
    std::vector<float> const weight{1};
    sureleap::confidence_head const head{matrix_view<float>(weight.data(), 1, 1), 0.0f};
    for (float h :
         {0.0f, 1e30f, -1e30f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        float const c = head(std::span<float const>(&h, 1), 0, 0);
        CHECK(c >= 0.0f);
        CHECK(c <= 1.0f);
    }
    float const nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(head(std::span<float const>(&nan, 1), 0, 0)));
}

TEST_CASE("a copied confidence head works on", "[confidence]") {
    std::vector<float> const weight{1, 1};
    std::vector<float> const w1{4, 8};
    auto original = std::make_unique<sureleap::confidence_head<float>>(matrix_view<float>(weight.data(), 1, 2), 0.0f,
                                                                       matrix_view<float>(w1.data(), 2, 1));
    auto const copy = *original;
    original.reset();
    std::vector<float> const h{1};
    CHECK(copy.logit(h, 1) == 9.0f);
}

TEST_CASE("the analytic label is the overlap of p and q", "[confidence]") {
    using row = std::vector<double>;
    CHECK(label(row{0.5, 0.5}, row{0.5, 0.5}) == 1.0);
    CHECK(label(row{1.0, 0.0}, row{0.0, 1.0}) == 0.0);
    CHECK(std::abs(label(row{0.7, 0.2, 0.1}, row{0.1, 0.3, 0.6}) - 0.4) < 1e-15);
    CHECK(label(std::vector<float>{0.25f, 0.75f}, std::vector<float>{0.75f, 0.25f}) == 0.5f);
    // Rounding may carry the sums past 1; a label is a probability all the same.
    CHECK(label(row{0.5000001, 0.5000001}, row{0.5000001, 0.5000001}) == 1.0);
    double const nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(std::isnan(label(row{nan, 0.5}, row{0.5, 0.5})));
    CHECK(std::isnan(label(row{0.5, 0.5}, row{0.5, nan})));

    // It is what token rejection accepts: sum over v of q(v) min(1, p(v) / q(v)); and eq. 8's other form.
    std::uint64_t const seed = 12;
    INFO("seed " << seed);
    std::mt19937_64 bits(seed);
    for (int repeat = 0; repeat < 50; ++repeat) {
        row p(17);
        row q(17);
        double p_sum = 0.0;
        double q_sum = 0.0;
        for (std::size_t v = 0; v < p.size(); ++v) {
            p_sum += p[v] = uniform(bits);
            q_sum += q[v] = uniform(bits);
        }
        double accepted = 0.0;
        double distance = 0.0;
        for (std::size_t v = 0; v < p.size(); ++v) {
            p[v] /= p_sum;
            q[v] /= q_sum;
            accepted += q[v] * std::min(1.0, p[v] / q[v]);
            distance += std::abs(p[v] - q[v]);
        }
        CHECK(std::abs(label(p, q) - accepted) < 1e-14);
        CHECK(std::abs(label(p, q) - (1.0 - 0.5 * distance)) < 1e-14);
    }
}

#if SURELEAP_EXCEPTIONS
TEST_CASE("a confidence head refuses wrong shapes and weights that are not finite", "[confidence][error]") {
    std::vector<float> weight{1, 2, 3};
    std::vector<float> w1{1, 2, 3, 4};
    using view = matrix_view<float>;
    auto const message = [](auto make) -> std::string {
        try {
            static_cast<void>(make());
        } catch (sureleap::error const& failure) {
            return failure.what();
        }
        return "no error";
    };
    auto const mentions = [](std::string const& text, std::initializer_list<char const*> parts) {
        for (char const* part : parts) {
            if (text.find(part) == std::string::npos) return false;
        }
        return true;
    };
    auto const with = [&](view a, float bias, view b) {
        return message([&] { return sureleap::confidence_head{a, bias, b}; });
    };
    auto const plain = [&](view a, float bias) { return message([&] { return sureleap::confidence_head{a, bias}; }); };
    float const nan = std::numeric_limits<float>::quiet_NaN();
    view const good(weight.data(), 1, 3);
    view const embedding(w1.data(), 2, 2);

    CHECK(with(good, 0.0f, embedding) == "no error");
    CHECK(plain(good, 0.0f) == "no error");
    CHECK(mentions(with(view(weight.data(), 1, 2), 0.0f, embedding), {"confidence_head", "weight", "2 columns"}));
    CHECK(mentions(with(view(weight.data(), 3, 3), 0.0f, embedding), {"weight", "[3, 3]", "[1, 3]"}));
    CHECK(mentions(with(good, 0.0f, view(w1.data(), 0, 2)), {"confidence_head", "w1", "[0, 2]"}));
    CHECK(mentions(plain(view(weight.data(), 3, 1), 0.0f), {"confidence_head", "weight", "[3, 1]", "[1, 1]"}));
    CHECK(mentions(plain(view(weight.data(), 1, 0), 0.0f), {"confidence_head", "weight", "[1, 0]"}));
    CHECK(mentions(plain(good, nan), {"confidence_head", "bias", "nan"}));
    w1[3] = nan;
    CHECK(mentions(with(good, 0.0f, embedding), {"confidence_head: w1", "row 1", "column 1", "nan"}));
    weight[2] = std::numeric_limits<float>::infinity();
    CHECK(mentions(plain(good, 0.0f), {"confidence_head: weight", "row 0", "column 2", "inf"}));
}
#endif
