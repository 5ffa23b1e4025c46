// SPDX-License-Identifier: MIT
//
// The confidence head against stored reference values: logits, confidences, survivals, threshold prefixes.
#include "support/catch.hpp"
#include "support/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/confidence/head.hpp>

namespace {

using sureleap::matrix_view;

template <class Real>
constexpr double tolerance = std::is_same_v<Real, double> ? 1e-12 : 1e-5;

bool close(double got, double expected, double bound) {
    return std::abs(got - expected) <= bound * std::max(1.0, std::abs(expected));
}

/// Checks one variant and returns its confidences [B, gamma].
template <class Real, class Head>
std::vector<Real> check_variant(golden::file const& f, std::string const& variant, Head const& head) {
    auto const hidden = f.f64("hidden");
    auto const previous = f.i32("prev_tokens");
    auto const logits = f.f64(variant + ".logits");
    auto const c = f.f64(variant + ".c");
    auto const survival = f.f64(variant + ".survival");
    double const bound = tolerance<Real>;
    REQUIRE(head.hidden_size() == hidden.dim(2));
    std::vector<Real> out;
    for (std::size_t b = 0; b < hidden.dim(0); ++b) {
        double product = 1.0;
        for (std::size_t k = 0; k < hidden.dim(1); ++k) {
            INFO(variant << ", request " << b << ", position " << k);
            auto const row = hidden.row(b, k);
            std::vector<Real> const h(row.begin(), row.end());
            out.push_back(head(h, previous.at(b, k), k));
            product *= static_cast<double>(out.back());
            CHECK(close(static_cast<double>(head.logit(h, previous.at(b, k))), logits.at(b, k), bound));
            CHECK(close(static_cast<double>(out.back()), c.at(b, k), bound));
            CHECK(close(product, survival.at(b, k), bound));
            if (k == 0) CHECK(head.at_anchor(h, previous.at(b, 0), 0) == out.back());
        }
    }
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("golden: confidence head", "[golden][confidence]", double, float) {
    using real = TestType;
    golden::file const f("confidence_head");
    auto const cast = [](golden::tensor<double> const& t) {
        return std::vector<real>(t.values.begin(), t.values.end());
    };
    auto const stored_w1 = f.f64("w1");
    auto const w1 = cast(stored_w1);
    auto const with_weight = cast(f.f64("with_markov.weight"));
    auto const plain_weight = cast(f.f64("plain.weight"));
    sureleap::confidence_head<real> const with_markov(matrix_view<real>(with_weight.data(), 1, with_weight.size()),
                                                      static_cast<real>(f.f64("with_markov.bias")[0]),
                                                      matrix_view<real>(w1.data(), stored_w1.dim(0), stored_w1.dim(1)));
    sureleap::confidence_head<real> const plain(matrix_view<real>(plain_weight.data(), 1, plain_weight.size()),
                                                static_cast<real>(f.f64("plain.bias")[0]));
    check_variant<real>(f, "plain", plain);
    auto const c = check_variant<real>(f, "with_markov", with_markov);

    // Length of the prefix before the first confidence below a threshold. In float a confidence may round to the
    // other side of a threshold, so there only those further away than the tolerance decide.
    auto const thresholds = f.f64("thresholds");
    auto const expected = f.i32("prefix_len");
    auto const reference = f.f64("with_markov.c");
    std::size_t const gamma = reference.dim(1);
    for (std::size_t b = 0; b < reference.dim(0); ++b) {
        for (std::size_t t = 0; t < thresholds.size(); ++t) {
            INFO("request " << b << ", threshold " << thresholds[t]);
            std::size_t length = 0;
            bool decided = true;
            while (length < gamma &&
                   (thresholds[t] <= 0.0 || !(static_cast<double>(c[b * gamma + length]) < thresholds[t]))) {
                ++length;
            }
            for (std::size_t k = 0; k < gamma; ++k) {
                decided = decided && (std::is_same_v<real, double> ||
                                      std::abs(reference.at(b, k) - thresholds[t]) > tolerance<real>);
            }
            if (decided) CHECK(static_cast<int>(length) == expected.at(b, t));
        }
    }
}
