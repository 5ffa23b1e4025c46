// SPDX-License-Identifier: MIT
//
// The losses of one position: worked examples, masked logits, gradients against central differences, sums against plain
// loops in double; and the report that adds them up.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using support::error_text;
using support::says;
using sureleap::loss_settings;
using sureleap::position_loss;
using sureleap::probability_row;
using sureleap::token_id;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

template <class Real>
std::vector<Real> softmax(std::vector<Real> logits) {
    sureleap::row_softmax{}(std::span<Real const>(logits), std::span<Real>(logits));
    return logits;
}

struct outcome {
    position_loss loss;
    std::vector<double> gradient;
};

/// One call of draft_loss on copies.
outcome evaluate(loss_settings const& settings, double weight, std::vector<double> draft,
                 std::vector<double> const& target, token_id label) {
    auto const p = softmax(target);
    position_loss const loss =
        sureleap::draft_loss(settings, weight, std::span<double>(draft), probability_row<double>{p}, label);
    return {loss, draft};
}

bool all_finite(std::span<double const> values) {
    return std::ranges::all_of(values, [](double x) { return std::isfinite(x); });
}

}  // namespace

TEST_CASE("training losses: a worked example with ties and masks on both sides") {
    // q = (1/2, 1/2, 0, 0) and p = (1/2, 0, 1/2, 0): v = 0 ties, v = 1 has q > p, v = 2 is masked by the draft only, v
    // = 3 by both. s = (0, 1, -1, 0), sum s q = 1/2. All exact in binary.
    std::vector<double> const draft{3.0, 3.0, -inf, -inf};
    std::vector<double> const target{-1.0, -inf, -1.0, -inf};

    auto const variation =
        evaluate({.cross_entropy = 0.0, .total_variation = 1.0, .confidence = 0.0}, 2.0, draft, target, 0);
    CHECK(variation.loss.distance == 1.0);
    CHECK(variation.loss.acceptance == 0.5);
    CHECK(variation.gradient == std::vector<double>{-0.5, 0.5, 0.0, 0.0});

    auto const entropy =
        evaluate({.cross_entropy = 1.0, .total_variation = 0.0, .confidence = 0.0}, 2.0, draft, target, 0);
    CHECK(std::abs(entropy.loss.cross_entropy - std::log(2.0)) < 1e-15);
    CHECK(entropy.gradient == std::vector<double>{-1.0, 1.0, 0.0, 0.0});

    auto const both =
        evaluate({.cross_entropy = 0.5, .total_variation = 1.0, .confidence = 0.0}, 2.0, draft, target, 0);
    CHECK(both.gradient == std::vector<double>{-1.0, 1.0, 0.0, 0.0});
    CHECK(std::abs(total_loss({.cross_entropy = 0.5, .total_variation = 1.0}, both.loss) -
                   (0.5 * std::log(2.0) + 1.0)) < 1e-15);
}

TEST_CASE("training losses: equal laws have no distance and no gradient of it") {
    std::vector<double> const logits{0.3, -1.7, 2.2, -inf, 0.0};
    auto const same =
        evaluate({.cross_entropy = 0.0, .total_variation = 0.9, .confidence = 0.0}, 1.0, logits, logits, 1);
    CHECK(same.loss.distance == 0.0);
    CHECK(same.loss.acceptance == 1.0);
    CHECK(std::ranges::all_of(same.gradient, [](double g) { return g == 0.0; }));
}

TEST_CASE("training losses: disjoint laws") {
    auto const apart = evaluate({}, 1.0, {0.0, -inf, 1.0}, {-inf, 5.0, -inf}, 2);
    CHECK(std::abs(apart.loss.distance - 2.0) < 1e-15);
    CHECK(apart.loss.acceptance >= 0.0);
    CHECK(apart.loss.acceptance < 1e-15);
    CHECK(all_finite(apart.gradient));
}

TEST_CASE("training losses: c* is never below 0, however sums round") {
    support::dice roll(23);
    INFO("seed " << roll.seed());
    bool beyond = false;
    for (int trial = 0; trial < 200; ++trial) {
        std::vector<double> draft(20, -inf), target(20, -inf);
        for (std::size_t v = 0; v < 20; ++v) (v % 2 == 0 ? draft : target)[v] = roll.bell();
        auto const apart = evaluate({}, 1.0, draft, target, 0);
        beyond = beyond || apart.loss.distance > 2.0;
        REQUIRE(apart.loss.acceptance >= 0.0);
    }
    CHECK(beyond);  // or the case never occurred
}

TEST_CASE("training losses: a masked label costs infinity, but no NaN") {
    std::vector<double> const draft{0.0, -inf, 1.0};
    std::vector<double> const target{0.5, 2.0, -inf};
    auto const masked = evaluate({}, 0.25, draft, target, 1);
    CHECK(masked.loss.cross_entropy == inf);
    CHECK(all_finite(masked.gradient));
    CHECK(masked.gradient[1] == -0.25 * 0.1);
    CHECK(total_loss({}, masked.loss) == inf);
    CHECK(std::isfinite(total_loss({.cross_entropy = 0.0}, masked.loss)));
}

TEST_CASE("training losses: a row without a law is never hidden") {
    auto const reports_nan = [](std::vector<double> const& draft, std::vector<double> const& target) {
        auto const got = evaluate({}, 1.0, draft, target, 0);
        return std::isnan(got.loss.distance) && std::isnan(got.loss.acceptance) && std::isnan(got.gradient[0]);
    };
    std::vector<double> const good{0.0, 1.0, 2.0};
    CHECK(reports_nan({0.0, no_number, 2.0}, good));
    CHECK(reports_nan({0.0, inf, 2.0}, good));
    CHECK(reports_nan({-inf, -inf, -inf}, good));
    CHECK(reports_nan(good, {0.0, no_number, 2.0}));
    CHECK(reports_nan(good, {-inf, -inf, -inf}));
}

TEST_CASE("training losses: a weight of zero gives a gradient of zero") {
    auto const silent = evaluate({}, 0.0, {0.0, 1.0, -inf}, {1.0, 0.0, 0.5}, 1);
    CHECK(std::ranges::all_of(silent.gradient, [](double g) { return g == 0.0; }));
    CHECK(silent.loss.distance > 0.1);
}

TEST_CASE("training losses: gradients are central differences") {
    // The loss is smooth between kinks at q_v = p_v; rows that come closer to one than a step can move q are drawn
    // again. With a step of 1e-5 and a loss of at most 10, truncation (h^2 / 6 times a third derivative of order one)
    // and rounding (1e-15 / h) both stay below 1e-9.
    constexpr double step = 1e-5;
    constexpr double bound = 2e-9;
    support::dice roll(20250607);
    INFO("seed " << roll.seed());
    std::size_t checked = 0;
    for (int trial = 0; trial < 300; ++trial) {
        INFO("trial " << trial);
        std::size_t const size = 2 + roll.below(30);
        std::vector<double> draft(size), target(size);
        for (double& l : draft) l = roll.chance(0.1) ? -inf : 3.0 * roll.bell();
        for (double& l : target) l = roll.chance(0.1) ? -inf : 3.0 * roll.bell();
        auto const label = static_cast<token_id>(roll.below(size));
        draft[static_cast<std::size_t>(label)] = roll.bell();
        target[roll.below(size)] = roll.bell();
        auto const q = softmax(draft);
        auto const p = softmax(target);
        bool near_kink = false;
        for (std::size_t v = 0; v < size; ++v) near_kink |= q[v] > 0.0 && std::abs(q[v] - p[v]) < 2.0 * step;
        if (near_kink) continue;

        loss_settings const settings{.cross_entropy = roll.real(), .total_variation = roll.real(), .confidence = 0.0};
        double const weight = roll.between(0.1, 2.0);
        auto const loss = [&] {
            return weight * total_loss(settings, evaluate(settings, weight, draft, target, label).loss);
        };
        auto const gradient = evaluate(settings, weight, draft, target, label).gradient;
        double sum = 0.0;
        for (std::size_t v = 0; v < size; ++v) {
            INFO("logit " << v << " of " << size);
            sum += gradient[v];
            if (draft[v] == -inf) {
                CHECK(gradient[v] == 0.0);
                continue;
            }
            double const at = draft[v];
            draft[v] = at + step;
            double const above = loss();
            draft[v] = at - step;
            double const below = loss();
            draft[v] = at;
            CHECK(std::abs(gradient[v] - (above - below) / (2.0 * step)) <= bound);
            ++checked;
        }
        CHECK(std::abs(sum) <= 1e-14);  // adding a constant to all logits changes nothing
    }
    CHECK(checked > 2000);
}

TEST_CASE("training losses: float agrees with double at every length of a row") {
    // Lengths around the lanes and segments of the sums, and one of a real vocabulary. 1e-5 is 2e-5 relative of a
    // distance near 1 after float exponentials; a lost or repeated element of the shorter rows is far larger.
    support::dice roll(11);
    INFO("seed " << roll.seed());
    std::vector<std::size_t> sizes{1023, 1024, 1025, 1039, 1040, 2048, 2049, 151936};
    for (std::size_t size = 1; size <= 50; ++size) sizes.push_back(size);
    for (std::size_t const size : sizes) {
        INFO("size " << size);
        std::vector<double> draft(size), target(size);
        for (double& l : draft) l = 2.0 * roll.bell();
        for (double& l : target) l = 2.0 * roll.bell();
        auto const label = static_cast<token_id>(roll.below(size));
        auto const q = softmax(draft);
        auto const p = softmax(target);
        double distance = 0.0;
        double signed_draft = 0.0;
        for (std::size_t v = 0; v < size; ++v) {
            distance += std::abs(q[v] - p[v]);
            signed_draft += q[v] > p[v] ? q[v] : q[v] < p[v] ? -q[v] : 0.0;
        }
        double const entropy = -std::log(q[static_cast<std::size_t>(label)]);

        loss_settings const settings{.cross_entropy = 0.3, .total_variation = 0.7, .confidence = 0.0};
        auto const exact = evaluate(settings, 1.0, draft, target, label);
        CHECK(std::abs(exact.loss.distance - distance) <= 1e-13);
        CHECK(std::abs(exact.loss.cross_entropy - entropy) <= 1e-13);
        bool all = true;
        for (std::size_t v = 0; v < size; ++v) {
            double const sign = q[v] > p[v] ? 1.0 : q[v] < p[v] ? -1.0 : 0.0;
            double const expected =
                q[v] * (0.3 + 0.7 * (sign - signed_draft)) - (static_cast<token_id>(v) == label ? 0.3 : 0.0);
            all = all && std::abs(expected - exact.gradient[v]) <= 1e-15;
        }
        CHECK(all);

        std::vector<float> draft_f(draft.begin(), draft.end());
        std::vector<float> target_f(target.begin(), target.end());
        target_f = softmax(target_f);
        auto const single =
            sureleap::draft_loss(settings, 1.0, std::span<float>(draft_f), probability_row<float>{target_f}, label);
        CHECK(std::abs(single.distance - distance) <= 1e-5);
        CHECK(std::abs(single.cross_entropy - entropy) <= 1e-5);
    }
}

TEST_CASE("training losses: the softmax is whoever the caller brings") {
    struct counting {
        int* calls;
        double operator()(std::span<double const> logits, std::span<double> out) const noexcept {
            ++*calls;
            return sureleap::row_softmax{}(logits, out);
        }
    };
    int calls = 0;
    std::vector<double> draft{1.0, 2.0, 0.5};
    std::vector<double> const p{0.25, 0.5, 0.25};
    auto const plain = draft;
    auto const loss =
        sureleap::draft_loss({}, 1.0, std::span<double>(draft), probability_row<double>{p}, 0, counting{&calls});
    CHECK(calls == 1);
    auto again = plain;
    CHECK(loss.distance ==
          sureleap::draft_loss({}, 1.0, std::span<double>(again), probability_row<double>{p}, 0).distance);
    CHECK(again == draft);
}

TEST_CASE("training losses: softmax returns its normaliser") {
    std::vector<double> logits{1000.0, 999.0, -inf, 998.0};
    std::vector<double> p(4);
    double const normaliser = sureleap::row_softmax{}(std::span<double const>(logits), std::span<double>(p));
    double const total = 1.0 + std::exp(-1.0) + std::exp(-2.0);
    CHECK(std::abs(normaliser - (1000.0 + std::log(total))) <= 1e-12);
    CHECK(p[2] == 0.0);
    CHECK(std::abs(p[0] - 1.0 / total) <= 1e-15);
    CHECK(std::abs(p[0] + p[1] + p[3] - 1.0) <= 1e-15);
}

TEST_CASE("training losses: confidence against its definition, a difference, and the far ends") {
    support::dice roll(5);
    INFO("seed " << roll.seed());
    loss_settings const settings{.confidence = 0.7};
    for (int trial = 0; trial < 200; ++trial) {
        double const x = 12.0 * roll.bell();
        double const label = trial % 10 == 0 ? 0.0 : trial % 10 == 1 ? 1.0 : roll.real();
        INFO("logit " << x << ", label " << label);
        auto const bce = [&](double logit) {
            position_loss loss{.acceptance = label};
            std::ignore = sureleap::confidence_loss(settings, 1.0, logit, loss);
            return loss;
        };
        auto const at = bce(x);
        double const c = 1.0 / (1.0 + std::exp(-x));
        CHECK(at.has_confidence);
        CHECK(std::abs(at.confidence - c) <= 1e-15);
        // log c and log(1 - c), each without cancellation.
        double const expected = label * std::log1p(std::exp(-x)) + (1.0 - label) * std::log1p(std::exp(x));
        CHECK(std::abs(at.confidence_loss - expected) <= 1e-13 * std::max(1.0, expected));
        position_loss loss{.acceptance = label};
        double const gradient = sureleap::confidence_loss(settings, 1.5, x, loss);
        double const difference = 1.5 * 0.7 * (bce(x + 1e-5).confidence_loss - bce(x - 1e-5).confidence_loss) / 2e-5;
        CHECK(std::abs(gradient - difference) <= 2e-9);  // truncation 1e-11, rounding of a loss of 25: 1e-9
    }
    for (double const x : {-1000.0, 1000.0}) {
        for (double const label : {0.0, 0.25, 1.0}) {
            position_loss loss{.acceptance = label};
            double const gradient = sureleap::confidence_loss({}, 1.0, x, loss);
            CHECK(loss.confidence_loss == (x > 0.0 ? 1000.0 * (1.0 - label) : 1000.0 * label));
            CHECK(gradient == (x > 0.0 ? 1.0 : 0.0) - label);
        }
    }
}

TEST_CASE("training losses: position weights") {
    CHECK(sureleap::position_weight({}, 0) == 1.0);
    CHECK(sureleap::position_weight({.decay = 4.0}, 3) == std::exp(-0.75));
    for (double const decay : {0.0, -1.0}) CHECK(sureleap::position_weight({.decay = decay}, 6) == 1.0);
    CHECK(sureleap::weight_sum({.decay = 0.0}, 5) == 5.0);
    CHECK(sureleap::weight_sum({}, 0) == 0.0);
    CHECK(std::abs(sureleap::weight_sum({.decay = 2.0}, 3) - (1.0 + std::exp(-0.5) + std::exp(-1.0))) <= 1e-15);
}

TEST_CASE("training losses: settings that mean nothing") {
    auto const text = [](loss_settings const& settings) {
        return error_text([&] { sureleap::check_losses(settings); });
    };
    CHECK(text({}).empty());
    CHECK(text({.cross_entropy = 1.0, .total_variation = 0.0, .confidence = 0.0, .decay = -1.0}).empty());
    CHECK(text({.decay = inf}).empty());
    CHECK(says(text({.cross_entropy = -1.0}), "loss_settings: cross_entropy is -1, expected a finite number >= 0"));
    CHECK(says(text({.total_variation = no_number}), "loss_settings: total_variation is"));
    CHECK(says(text({.confidence = inf}), "loss_settings: confidence is inf"));
    CHECK(says(text({.decay = no_number}), "loss_settings: decay is nan"));
    CHECK(says(error_text([] { sureleap::loss_report({.cross_entropy = -1.0}, 7); }), "cross_entropy is -1"));
    CHECK(says(error_text([] { sureleap::loss_report({}, 0); }), "loss_report: block size is 0, expected at least 1"));
}

TEST_CASE("loss report: a worked example") {
    sureleap::loss_report report({.cross_entropy = 1.0, .total_variation = 2.0, .confidence = 3.0, .decay = 0.0}, 3);
    CHECK(report.loss() == 0.0);
    CHECK(std::isnan(report.tau().mean()));
    // In the order of the fields: CE, L1, c*, c, BCE.
    std::array<position_loss, 2> const first{position_loss{1.0, 0.5, 0.75, 0.5, 0.25, true},
                                             position_loss{2.0, 1.0, 0.5, 0.75, 0.5, true}};
    std::array<position_loss, 1> const second{position_loss{4.0, 2.0, 0.0, 0.25, 1.0, true}};
    report.add(first);
    report.add({});  // a dummy
    report.add(second);
    CHECK(report.cross_entropy().mean() == 7.0 / 3.0);
    CHECK(report.distance().sum == 3.5);
    CHECK(report.confidence_loss().sum == 1.75);
    CHECK(report.loss() == (7.0 + 2.0 * 3.5 + 3.0 * 1.75) / (3.0 + 1e-6));
    CHECK(report.acceptance(0).sum == 0.75);
    CHECK(report.acceptance(0).weight == 2.0);
    CHECK(report.acceptance(1).mean() == 0.5);
    CHECK(report.acceptance(2).weight == 0.0);
    CHECK(report.tau().sum == (1.0 + 0.75 + 0.375) + 1.0);
    CHECK(report.tau().weight == 2.0);
    CHECK(report.confidence_error().sum == 0.25 + 0.25 + 0.25);
    CHECK(report.confidence_bias().sum == -0.25 + 0.25 + 0.25);
    CHECK(report.survival_bias().sum == (0.5 - 0.75) + (0.375 - 0.375) + 0.25);

    std::array<position_loss, 1> const silent{position_loss{.cross_entropy = 1.0, .acceptance = 0.5}};
    report.add(silent);  // a draft without confidence counts for the rest
    CHECK(report.cross_entropy().weight == 4.0);
    for (auto const& sum :
         {report.confidence_loss(), report.confidence_error(), report.confidence_bias(), report.survival_bias()}) {
        CHECK(sum.weight == 3.0);
    }
}

TEST_CASE("loss report: merging equals adding") {
    support::dice roll(7);
    INFO("seed " << roll.seed());
    loss_settings const settings{};
    sureleap::loss_report all(settings, 5), left(settings, 5), right(settings, 5);
    double weight = 0.0;
    double sum = 0.0;
    for (int b = 0; b < 40; ++b) {
        std::vector<position_loss> block(roll.below(6));
        for (std::size_t k = 0; k < block.size(); ++k) {
            bool const has = roll.chance(0.8);
            block[k] = {roll.real(), roll.real(), roll.real(), has ? roll.real() : 0.0, has ? roll.real() : 0.0, has};
            double const w = sureleap::position_weight(settings, k);
            weight += w;
            sum += w * total_loss(settings, block[k]);
        }
        all.add(block);
        (b % 2 == 0 ? left : right).add(block);
    }
    left.merge(right);
    auto const equal = [](sureleap::weighted_sum const& a, sureleap::weighted_sum const& b) {
        return a.weight > 0.0 && std::abs(a.sum - b.sum) <= 1e-12 && std::abs(a.weight - b.weight) <= 1e-12;
    };
    CHECK(std::abs(all.loss() - sum / (weight + sureleap::loss_epsilon)) <= 1e-13);
    CHECK(std::abs(left.loss() - all.loss()) <= 1e-13);
    CHECK(equal(left.cross_entropy(), all.cross_entropy()));
    CHECK(equal(left.distance(), all.distance()));
    CHECK(equal(left.confidence_loss(), all.confidence_loss()));
    CHECK(equal(left.confidence_error(), all.confidence_error()));
    CHECK(equal(left.confidence_bias(), all.confidence_bias()));
    CHECK(equal(left.survival_bias(), all.survival_bias()));
    CHECK(equal(left.tau(), all.tau()));
    for (std::size_t k = 0; k < 5; ++k) CHECK(equal(left.acceptance(k), all.acceptance(k)));
}
