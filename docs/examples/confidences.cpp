// SPDX-License-Identifier: MIT
//
// Confidences and their calibration: a learned head, the draft's own top probability, and the maps that make them
// agree with how often drafts are accepted.
#include <array>
#include <cstddef>
#include <cstdio>
#include <type_traits>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

using head = confidence_head<float>;
static_assert(pre_token_confidence<head, float> && anchor_confidence<head, float>);
static_assert(confidence_estimate<top1_confidence, float> && anchor_confidence<top1_confidence, float>);
static_assert(calibrator<sequential_scaling>);

int main() {
    // c = sigmoid(w . [h ; W1[x]] + b): two hidden numbers, three tokens embedded by one number each.
    constexpr std::array<float, 3> w{1.0f, -1.0f, 0.5f};
    constexpr std::array<float, 3> w1{-2.0f, 0.0f, 2.0f};
    head const learned{{w.data(), 1, 3}, 0.25f, {w1.data(), 3, 1}};
    constexpr std::array<float, 2> hidden{1.5f, 0.5f};
    for (token_id x = 0; x < 3; ++x) {
        std::printf("behind token %d: %.3f\n", x, static_cast<double>(learned(hidden, x, 1)));
    }
    std::printf("known at the anchor: %.3f\n", static_cast<double>(learned.at_anchor(hidden, 2, 1)));

    constexpr std::array<float, 3> row{2.0f, 0.0f, 0.0f};
    distribution<float> const q{{.values = row}, transform{}, {}};
    std::printf("top1_confidence: %.3f\n", top1_confidence{}(q, 0));

    // A temperature says how sure the head may be; an offset besides how much is accepted altogether.
    sequential_scaling const temperatures = sequential_temperature_scaling({1.0, 2.0});
    sequential_scaling const platt =
        sequential_platt_scaling({{.temperature = 1.0}, {.temperature = 2.0, .offset = -0.5}});
    std::printf("0.9 at the second position: %.3f by a temperature, %.3f with an offset\n", temperatures(1, 0.9),
                platt(1, 0.9));

    // Lent to a decoder as decoder_options::calibration, or asked as here.
    calibration_ref const lent = platt;
    request_view const request{.id = 1};
    std::printf("it answers for %zu positions, and says %.3f\n", lent.positions(), lent(request, 1, 0.9));

    // A drafter without a confidence: schedules that need one do not compile with it.
    auto const model = model_of<float>(3, [](auto, auto logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>(v);
    });
    using unsure = autoregressive<std::remove_const_t<decltype(model)>, no_confidence>;
    std::printf("has_confidence: %s\n", unsure::has_confidence ? "yes" : "no");
}

// Prints:
// behind token 0: 0.562
// behind token 1: 0.777
// behind token 2: 0.905
// known at the anchor: 0.777
// top1_confidence: 0.787
// 0.9 at the second position: 0.750 by a temperature, 0.645 with an offset
// it answers for 2 positions, and says 0.645
// has_confidence: no
