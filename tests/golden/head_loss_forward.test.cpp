// SPDX-License-Identifier: MIT
//
// The head part of a training step against stored reference values: LM head, transition bias and confidence under
// teacher forcing, for every head kind.
#include "support/catch.hpp"
#include "support/golden_weights.hpp"
#include "support/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>

namespace {

using golden::matrix;
using golden::tolerance;
using sureleap::matrix_view;
using sureleap::token_id;

bool close(double got, double expected, double bound) {
    return std::abs(got - expected) <= bound * std::max(1.0, std::abs(expected));
}

template <class Real, class Head>
void check_forward(golden::file const& f, Head const& head, matrix<Real> const& w1) {
    matrix<Real> const lm_head(f.f64("lm_head"));
    matrix<Real> const weight(f.f64("w.confidence_head.proj.weight"));
    sureleap::confidence_head<Real> const confidence(
        weight.view(), static_cast<Real>(f.f64("w.confidence_head.proj.bias")[0]), w1.view());
    auto const hidden = f.f64("hidden");
    auto const ids = f.i32("ids");
    auto const expected_logits = f.f64("logits");
    auto const expected_confidence = f.f64("conf");
    REQUIRE(hidden.shape.size() == 4);
    REQUIRE(ids.dim(2) == hidden.dim(2) + 1);

    std::vector<Real> state(head.state_size());
    std::vector<Real> logits(head.vocabulary());
    REQUIRE(logits.size() == lm_head.rows);
    for (std::size_t sample = 0; sample < hidden.dim(0); ++sample) {
        for (std::size_t block = 0; block < hidden.dim(1); ++block) {
            head.reset(state);
            for (std::size_t k = 0; k < hidden.dim(2); ++k) {
                INFO("sample " << sample << ", block " << block << ", position " << k);
                auto const row = hidden.row(sample, block, k);
                std::vector<Real> const h(row.begin(), row.end());
                token_id const previous = ids.at(sample, block, k);
                sureleap::scalar_backend::gemv(lm_head.view(), h, std::span<Real>(logits));
                head.add_bias(state, h, previous, logits);
                auto const expected = expected_logits.row(sample, block, k);
                bool all = expected.size() == logits.size();
                for (std::size_t v = 0; all && v < logits.size(); ++v) {
                    all = close(static_cast<double>(logits[v]), expected[v], tolerance<Real>);
                }
                CHECK(all);
                CHECK(close(static_cast<double>(confidence.logit(h, previous)),
                            expected_confidence.at(sample, block, k), tolerance<Real>));
            }
        }
    }
}

template <class Real>
void check_kind(std::string const& kind) {
    INFO(kind);
    golden::file const f("head_loss_" + kind);
    std::string const prefix = "w.markov_head.";
    matrix<Real> const w1(f.f64(prefix + "markov_w1.weight"));
    matrix<Real> const w2(f.f64(prefix + "markov_w2.weight"));
    if (kind == "gated") {
        matrix<Real> const gate(f.f64(prefix + "gate_proj.weight"));
        matrix<Real> const bias(f.f64(prefix + "gate_proj.bias"));
        check_forward<Real>(f, sureleap::gated_head{w1.view(), w2.view(), gate.view(), bias.values}, w1);
    } else if (kind == "rnn") {
        matrix<Real> const joint(f.f64(prefix + "joint_proj.weight"));
        matrix<Real> const bias(f.f64(prefix + "joint_proj.bias"));
        check_forward<Real>(f, sureleap::rnn_head{w1.view(), w2.view(), joint.view(), bias.values}, w1);
    } else {
        check_forward<Real>(f, sureleap::markov_head{w1.view(), w2.view()}, w1);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("golden: logits and confidences of the training forward", "[golden][head]", double, float) {
    check_kind<TestType>("vanilla");
    check_kind<TestType>("gated");
    check_kind<TestType>("rnn");
}
