// SPDX-License-Identifier: MIT
//
// The recorder against stored metrics of the released evaluation code, to 1e-12. Every size comes from the file.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sureleap/fit/confidence_metrics.hpp>

#include "support/safetensors.hpp"

namespace {

// Equal to 1e-12, where two undefined values are equal too.
bool same(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b));
}

}  // namespace

TEST_CASE("golden: confidence metrics", "[golden][confidence]") {
    golden::file const file("confidence_metrics");
    auto const logits = file.f64("logits");
    auto const lengths = file.i32("lengths");
    auto const mask = file.i32("prefix_mask");
    std::size_t const n = logits.dim(0);
    std::size_t const gamma = logits.dim(1);
    auto const counts = file.f64("coarse_count");
    REQUIRE(n > 0);
    REQUIRE(mask.shape == logits.shape);
    REQUIRE(lengths.shape == std::vector<std::size_t>{n});
    REQUIRE(counts.dim(0) == gamma);

    sureleap::calibration_recorder recorder(gamma, {.bins = counts.dim(1)});
    std::vector<double> confidences(gamma);
    std::vector<std::uint8_t> labels(gamma);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < gamma; ++k) {
            confidences[k] = 1.0 / (1.0 + std::exp(-logits.at(i, k)));
            labels[k] = mask.at(i, k) != 0 ? 1 : 0;
        }
        auto const length = static_cast<std::size_t>(lengths[i]);
        REQUIRE(recorder.observe(confidences, labels, length) == sureleap::status::ok);
    }

    auto const total = file.f64("total_weight");
    auto const ece = file.f64("ece");
    auto const auc = file.f64("auc");
    auto const brier = file.f64("brier");
    auto const prediction = file.f64("pred_mean");
    auto const label = file.f64("target_mean");
    auto const sum_predictions = file.f64("coarse_pred");
    auto const sum_labels = file.f64("coarse_target");
    for (std::size_t k = 0; k < gamma; ++k) {
        INFO("position " << k);
        auto const metrics = recorder.position(k);
        CHECK(static_cast<double>(metrics.count) == total[k]);
        CHECK(same(metrics.ece, ece[k]));
        CHECK(same(metrics.auroc, auc[k]));
        CHECK(same(metrics.brier, brier[k]));
        CHECK(same(metrics.mean_prediction, prediction[k]));
        CHECK(same(metrics.mean_label, label[k]));
        auto const bins = recorder.reliability(k);
        REQUIRE(bins.size() == counts.dim(1));
        for (std::size_t b = 0; b < bins.size(); ++b) {
            INFO("bin " << b);
            CHECK(static_cast<double>(bins[b].count) == counts.at(k, b));
            CHECK(same(bins[b].sum_predictions, sum_predictions.at(k, b)));
            CHECK(same(bins[b].sum_labels, sum_labels.at(k, b)));
        }
    }

    // The weighted means, in the order the file describes: ece, auc, brier, prediction, label.
    auto const summary = file.f64("summary");
    REQUIRE(summary.size() == 5);
    auto const mean = recorder.mean();
    CHECK(same(mean.ece, summary[0]));
    CHECK(same(mean.auroc, summary[1]));
    CHECK(same(mean.brier, summary[2]));
    CHECK(same(mean.mean_prediction, summary[3]));
    CHECK(same(mean.mean_label, summary[4]));
}
