// SPDX-License-Identifier: MIT
//
// The head part of a training step against stored gradients: LM head, embeddings, codes, W2, losses, confidence and all
// the way back to hidden states and every parameter, for every head kind. Double to 1e-11 of each gradient's largest
// value, float to 2e-5; where all are 0, of the terms they are summed from. The products with the vocabulary are the
// plain loops below, as a trainer's GEMM would do.
#include "support/catch.hpp"
#include "support/golden_weights.hpp"
#include "support/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/training/confidence_logit.hpp>
#include <sureleap/training/gated_code.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/markov_code.hpp>
#include <sureleap/training/rnn_code.hpp>
#include <sureleap/training/rows.hpp>

namespace {

using golden::matrix;
using sureleap::matrix_span;
using sureleap::matrix_view;
using sureleap::token_id;

template <class Real>
inline constexpr double bound = std::is_same_v<Real, double> ? 1e-11 : 2e-5;

template <class Real>
struct owned {
    std::vector<Real> values;
    std::size_t rows = 0;
    std::size_t cols = 0;

    owned(std::size_t row_count, std::size_t column_count)
        : values(row_count * column_count), rows(row_count), cols(column_count) {}
    [[nodiscard]] matrix_span<Real> span() { return {values.data(), rows, cols}; }
    [[nodiscard]] matrix_view<Real> view() const { return {values.data(), rows, cols}; }
};

/// out += a b^T, a [m, n] and b [v, n].
template <class Real>
void add_product_bt(matrix_view<Real> a, matrix_view<Real> b, matrix_span<Real> out) {
    for (std::size_t i = 0; i < a.rows; ++i) {
        for (std::size_t v = 0; v < b.rows; ++v) {
            for (std::size_t j = 0; j < a.cols; ++j) out.row(i)[v] += a.row(i)[j] * b.row(v)[j];
        }
    }
}
/// out += a b, a [m, v] and b [v, n].
template <class Real>
void add_product(matrix_view<Real> a, matrix_view<Real> b, matrix_span<Real> out) {
    for (std::size_t i = 0; i < a.rows; ++i) {
        for (std::size_t v = 0; v < b.rows; ++v) {
            for (std::size_t j = 0; j < b.cols; ++j) out.row(i)[j] += a.row(i)[v] * b.row(v)[j];
        }
    }
}
/// out += a^T b, a [m, v] and b [m, n].
template <class Real>
void add_product_at(matrix_view<Real> a, matrix_view<Real> b, matrix_span<Real> out) {
    for (std::size_t i = 0; i < a.rows; ++i) {
        for (std::size_t v = 0; v < a.cols; ++v) {
            for (std::size_t j = 0; j < b.cols; ++j) out.row(v)[j] += a.row(i)[v] * b.row(i)[j];
        }
    }
}

/// Whether every value is within `bound` of the gradient's largest. A gradient that is 0 throughout has no largest
/// value (a vocabulary of one token, no position that counts): there `terms` is the scale, the size of what it is
/// summed up from.
template <class Real>
bool close_to(std::span<double const> expected, std::span<Real const> got, double terms) {
    double largest = 0.0;
    for (double const x : expected) largest = std::max(largest, std::abs(x));
    double const scale = largest > 0.0 ? largest : terms;
    bool all = expected.size() == got.size();
    for (std::size_t i = 0; i < got.size() && all; ++i) {
        all = std::abs(static_cast<double>(got[i]) - expected[i]) <= bound<Real> * scale;
    }
    return all;
}

template <class Real>
void check_gradient(golden::file const& f, std::string const& name, std::span<Real const> got) {
    INFO("gradient of " << name);
    // A term is a product of three factors: a weight's share (at most 1 in all), the losses' derivatives, and entries
    // of hidden states and weights. Where no position counts there is none, and 0 has to be 0.
    double terms = 0.0;
    for (std::int32_t const counts : f.i32("eval_mask").values) terms = std::max(terms, static_cast<double>(counts));
    for (char const* const factor : {"hidden", "lm_head", "w.markov_head.markov_w1.weight",
                                     "w.markov_head.markov_w2.weight", "w.confidence_head.proj.weight"}) {
        double largest = 1.0;
        for (double const x : f.f64(factor).values) largest = std::max(largest, std::abs(x));
        terms *= largest;
    }
    CHECK(close_to<Real>(f.f64("grad." + name).values, got, terms));
}

/// `code` and `gradient` of one kind of head; everything else is common to the three.
template <class Real, class Code>
void check_step(golden::file const& f, Code const& code, typename Code::gradients const& code_gradients) {
    sureleap::loss_settings const settings{};  // the file's description: 0.1 / 0.9 / 1.0, decay 4
    auto const stored_hidden = f.f64("hidden");
    auto const stored_target = f.f64("target_logits");
    auto const ids = f.i32("ids");
    auto const mask = f.i32("eval_mask");
    auto const expected_logits = f.f64("logits");
    auto const expected_confidence = f.f64("conf");
    matrix<Real> const lm_head(f.f64("lm_head"));
    matrix<Real> const w1(f.f64("w.markov_head.markov_w1.weight"));
    matrix<Real> const w2(f.f64("w.markov_head.markov_w2.weight"));
    matrix<Real> const confidence_weight(f.f64("w.confidence_head.proj.weight"));
    matrix<Real> const confidence_bias(f.f64("w.confidence_head.proj.bias"));
    sureleap::confidence_logit<Real> const confidence(confidence_weight.view(), confidence_bias.values, w1.cols);

    std::size_t const d = lm_head.cols;
    std::size_t const r = w1.cols;
    std::size_t const vocabulary = lm_head.rows;
    std::size_t const samples = stored_hidden.dim(0);
    std::size_t const anchors = stored_hidden.dim(1);
    std::size_t const gamma = stored_hidden.dim(2);
    REQUIRE(code.rank() == r);

    owned<Real> d_hidden(samples * anchors * gamma, d), d_lm_head(vocabulary, d), d_w1(w1.rows, r), d_w2(vocabulary, r);
    std::vector<Real> d_confidence(d + r), d_confidence_bias(1);

    auto const positions_of = [&](std::size_t s, std::size_t b) {
        auto const row = mask.row(s, b);
        return static_cast<std::size_t>(std::count(row.begin(), row.end(), 1));
    };
    double denominator = sureleap::loss_epsilon;
    for (std::size_t s = 0; s < samples; ++s) {
        for (std::size_t b = 0; b < anchors; ++b) denominator += sureleap::weight_sum(settings, positions_of(s, b));
    }

    sureleap::loss_report report(settings, gamma);
    for (std::size_t s = 0; s < samples; ++s) {
        for (std::size_t b = 0; b < anchors; ++b) {
            INFO("sample " << s << ", block " << b);
            std::size_t const n = positions_of(s, b);
            auto const tokens = ids.row(s, b);
            auto const previous = tokens.first(n);
            owned<Real> h(n, d), e(n, r), z(n, r), logits(n, vocabulary);
            for (std::size_t k = 0; k < n; ++k) {
                std::ranges::transform(stored_hidden.row(s, b, k), h.span().row(k).begin(),
                                       [](double x) { return static_cast<Real>(x); });
            }
            sureleap::gather_rows(w1.view(), previous, e.span());
            std::vector<Real> tape(code.tape_size(n));
            code.forward({e.view(), h.view()}, z.span(), tape);
            add_product_bt(h.view(), lm_head.view(), logits.span());
            add_product_bt(z.view(), w2.view(), logits.span());

            owned<Real> dz(n, r), de(n, r);
            auto const dh = row_range(d_hidden.span(), (s * anchors + b) * gamma, n);
            std::vector<sureleap::position_loss> losses(n);
            for (std::size_t k = 0; k < n; ++k) {
                auto const row = logits.span().row(k);
                bool all = true;
                for (std::size_t v = 0; v < vocabulary; ++v) {
                    all = all && std::abs(static_cast<double>(row[v]) - expected_logits.at(s, b, k, v)) <= bound<Real>;
                }
                CHECK(all);

                double const weight = sureleap::position_weight(settings, k) / denominator;
                std::vector<Real> p(stored_target.row(s, b, k).begin(), stored_target.row(s, b, k).end());
                sureleap::row_softmax{}(std::span<Real const>(p), std::span<Real>(p));
                losses[k] = sureleap::draft_loss(settings, weight, row, sureleap::probability_row<Real>{p},
                                                 token_id{tokens[k + 1]});
                Real const logit = confidence(h.view().row(k), e.view().row(k));
                CHECK(std::abs(static_cast<double>(logit) - expected_confidence.at(s, b, k)) <= bound<Real>);
                Real const d_logit = sureleap::confidence_loss(settings, weight, logit, losses[k]);
                confidence.backward(h.view().row(k), e.view().row(k), d_logit, {d_confidence, d_confidence_bias},
                                    dh.row(k), de.span().row(k));
            }
            report.add(losses);

            add_product(logits.view(), lm_head.view(), dh);
            add_product(logits.view(), w2.view(), dz.span());
            add_product_at(logits.view(), h.view(), d_lm_head.span());
            add_product_at(logits.view(), z.view(), d_w2.span());
            code.backward({e.view(), h.view()}, z.view(), dz.view(), tape, code_gradients, {de.span(), dh});
            sureleap::scatter_add(de.view(), previous, d_w1.span());
        }
    }

    CHECK(std::abs(report.loss() - f.f64("loss")[0]) <= bound<Real>);
    check_gradient<Real>(f, "hidden", d_hidden.values);
    check_gradient<Real>(f, "lm_head", d_lm_head.values);
    check_gradient<Real>(f, "markov_head.markov_w1.weight", d_w1.values);
    check_gradient<Real>(f, "markov_head.markov_w2.weight", d_w2.values);
    check_gradient<Real>(f, "confidence_head.proj.weight", d_confidence);
    check_gradient<Real>(f, "confidence_head.proj.bias", d_confidence_bias);
}

template <class Real, class Code>
void check_projected(golden::file const& f, std::string const& projection) {
    std::string const name = "markov_head." + projection;
    matrix<Real> const weight(f.f64("w." + name + ".weight"));
    matrix<Real> const bias(f.f64("w." + name + ".bias"));
    owned<Real> d_weight(weight.rows, weight.cols);
    std::vector<Real> d_bias(bias.rows);
    check_step<Real>(f, Code(weight.view(), bias.values), {d_weight.span(), d_bias});
    check_gradient<Real>(f, name + ".weight", d_weight.values);
    check_gradient<Real>(f, name + ".bias", d_bias);
}

}  // namespace

TEMPLATE_TEST_CASE("gradients are compared on their own scale, and zeros on that of their terms", "[training]", double,
                   float) {
    auto const close = [](std::vector<double> const& expected, std::vector<TestType> const& got, double terms) {
        return close_to<TestType>(expected, std::span<TestType const>(got), terms);
    };
    auto const off = [](double by) { return static_cast<TestType>(by * bound<TestType>); };
    CHECK(close({0.0, 0.0}, {0, 0}, 0.0));
    CHECK_FALSE(close({0.0, 0.0}, {0, off(0.5)}, 0.0));
    CHECK(close({0.0, 0.0}, {0, off(0.5)}, 1.0));
    CHECK_FALSE(close({0.0, 0.0}, {0, off(2.0)}, 1.0));
    // The largest value decides as soon as there is one, however large the terms.
    CHECK(close({0.25, 0.0}, {TestType(0.25), off(0.2)}, 100.0));
    CHECK_FALSE(close({0.25, 0.0}, {TestType(0.25), off(0.3)}, 100.0));
    CHECK_FALSE(close({0.25, 0.0}, {TestType(0.25)}, 100.0));
}

TEMPLATE_TEST_CASE("golden: gradients of the Markov head", "[golden][training]", double, float) {
    golden::file const f("head_loss_vanilla");
    sureleap::markov_code<TestType> const code(f.f64("w.markov_head.markov_w1.weight").dim(1));
    check_step<TestType>(f, code, {});
}

TEMPLATE_TEST_CASE("golden: gradients of the gated head", "[golden][training]", double, float) {
    check_projected<TestType, sureleap::gated_code<TestType>>(golden::file("head_loss_gated"), "gate_proj");
}

TEMPLATE_TEST_CASE("golden: gradients of the RNN head", "[golden][training]", double, float) {
    check_projected<TestType, sureleap::rnn_code<TestType>>(golden::file("head_loss_rnn"), "joint_proj");
}
