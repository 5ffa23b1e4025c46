// SPDX-License-Identifier: MIT
//
// The training losses against stored reference values: total, gradients of logits and confidences, labels c*, weights
// and every logged metric, for four settings (DSpark, DFlash, no position decay, no confidence head). Double to 1e-12.
// Float to 2e-6 of the double values: a loss of size 10 and gradients of size 0.2 after a softmax of 97 logits.
#include "support/catch.hpp"
#include "support/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>

namespace {

using sureleap::loss_report;
using sureleap::loss_settings;
using sureleap::position_loss;
using sureleap::weighted_sum;

template <class Real>
inline constexpr double bound = std::is_same_v<Real, double> ? 1e-12 : 2e-6;

bool close(double got, double expected, double tolerance) {
    return std::abs(got - expected) <= tolerance * std::max(1.0, std::abs(expected));
}

/// Leading ones of an evaluation mask; the mask has to be one run of them.
std::size_t leading_ones(std::span<std::int32_t const> mask) {
    auto const end = std::find(mask.begin(), mask.end(), 0);
    REQUIRE(std::find(end, mask.end(), 1) == mask.end());
    return static_cast<std::size_t>(end - mask.begin());
}

template <class Real>
void check(std::string const& variant) {
    INFO("variant " << variant);
    golden::file const f("losses");
    auto const draft = f.f64("draft_logits");
    auto const target = f.f64("target_logits");
    auto const labels = f.i32("target_ids");
    auto const confidence = f.f64("confidence_logits");
    auto const keep = f.i32("block_keep_mask");
    auto const mask = f.i32("eval_mask");
    auto const c_star = f.f64("c_star");
    std::size_t const blocks = draft.dim(1);
    std::size_t const gamma = draft.dim(2);
    std::size_t const vocabulary = draft.dim(3);

    auto const params = f.f64(variant + ".params");
    loss_settings const settings{
        .cross_entropy = params[1], .total_variation = params[2], .confidence = params[3], .decay = params[0]};
    bool const has_confidence = params[4] != 0.0;

    double denominator = sureleap::loss_epsilon;
    for (std::size_t s = 0; s < draft.dim(0); ++s) {
        for (std::size_t b = 0; b < blocks; ++b) {
            denominator += sureleap::weight_sum(settings, leading_ones(mask.row(s, b)));
        }
    }

    auto const grad_logits = f.f64(variant + ".grad_logits");
    auto const weights = f.f64("weights_gamma4");
    auto const grad_confidence = has_confidence ? f.f64(variant + ".grad_conf") : golden::tensor<double>{};
    loss_report report(settings, gamma);
    for (std::size_t s = 0; s < draft.dim(0); ++s) {
        for (std::size_t b = 0; b < blocks; ++b) {
            std::size_t const positions = leading_ones(mask.row(s, b));
            REQUIRE((keep.at(s, b) != 0 || positions == 0));
            std::vector<position_loss> block;
            for (std::size_t k = 0; k < gamma; ++k) {
                INFO("sample " << s << ", block " << b << ", position " << k);
                double const w = k < positions ? sureleap::position_weight(settings, k) : 0.0;
                if (settings.decay == 4.0) CHECK(close(w, weights.at(s, b, k), 1e-15));

                std::vector<Real> q(draft.row(s, b, k).begin(), draft.row(s, b, k).end());
                std::vector<Real> p(target.row(s, b, k).begin(), target.row(s, b, k).end());
                sureleap::row_softmax{}(std::span<Real const>(p), std::span<Real>(p));
                position_loss loss = sureleap::draft_loss(settings, w / denominator, std::span<Real>(q),
                                                          sureleap::probability_row<Real>{p}, labels.at(s, b, k));
                CHECK(close(loss.acceptance, c_star.at(s, b, k), bound<Real>));
                bool all = true;
                for (std::size_t v = 0; v < vocabulary; ++v) {
                    all = all && close(static_cast<double>(q[v]), grad_logits.at(s, b, k, v), bound<Real>);
                }
                CHECK(all);
                if (has_confidence) {
                    Real const gradient = sureleap::confidence_loss(settings, w / denominator,
                                                                    static_cast<Real>(confidence.at(s, b, k)), loss);
                    CHECK(close(static_cast<double>(gradient), grad_confidence.at(s, b, k), bound<Real>));
                }
                if (k < positions) block.push_back(loss);
            }
            report.add(block);
        }
    }

    CHECK(close(report.loss(), f.f64(variant + ".loss")[0], bound<Real>));
    CHECK(close(report.loss(), f.f64(variant + ".m.loss")[0], bound<Real>));
    std::size_t compared = 1;
    auto const check_metric = [&](std::string const& name, weighted_sum const& got) {
        INFO(name);
        std::string const stored = variant + ".m." + name;
        REQUIRE(f.contains(stored + ".num"));
        CHECK(close(got.sum, f.f64(stored + ".num")[0], bound<Real>));
        CHECK(close(got.weight, f.f64(stored + ".den")[0], 1e-12));
        compared += 2;
    };
    for (std::size_t k = 0; k < gamma; ++k) check_metric("accept_rate@" + std::to_string(k), report.acceptance(k));
    check_metric("tau_probabilistic", report.tau());
    check_metric("ce_loss", report.cross_entropy());
    if (settings.total_variation > 0.0) check_metric("l1_loss", report.distance());
    if (has_confidence) {
        check_metric("confidence_abs_error", report.confidence_error());
        check_metric("confidence_bias", report.confidence_bias());
        check_metric("confidence_cumprod_bias", report.survival_bias());
        check_metric("confidence_loss", report.confidence_loss());
    } else {
        CHECK(report.confidence_loss().weight == 0.0);
    }
    auto const names = f.names();
    auto const logged = std::count_if(names.begin(), names.end(),
                                      [&](std::string const& name) { return name.starts_with(variant + ".m."); });
    CHECK(compared == static_cast<std::size_t>(logged));
}

}  // namespace

TEMPLATE_TEST_CASE("golden: training losses, their gradients and metrics", "[golden][training]", double, float) {
    for (char const* const variant : {"dspark", "dflash", "nodecay", "noconf"}) check<TestType>(variant);
}
