// SPDX-License-Identifier: MIT
//
// A drafter without a head, whose model is far too sure of itself: what its top-1 probability is worth as a confidence,
// and what an online calibration makes of it while it serves.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/training.hpp>

using namespace sureleap;

namespace {

constexpr std::size_t block_size = 4;
constexpr std::size_t vocabulary = 12;
constexpr std::size_t places = 8;
constexpr drafter_options shape{.block_size = block_size, .vocabulary = vocabulary};

/// What both models know, and what the draft imagines beside it. Some contexts are clear to both, others are not.
auto language(float imagined) {
    return model_of<float>(vocabulary, [imagined](std::span<token_id const> context, std::span<float> logits) {
        auto const last = static_cast<std::uint64_t>(context.back());
        auto const before = static_cast<std::uint64_t>(context.size() > 1 ? context[context.size() - 2] : 0);
        auto const drawn = [&](std::uint64_t seed, std::size_t v) {
            return static_cast<float>(uniform({.seed = seed,
                                               .position = last * vocabulary + before,
                                               .index = static_cast<std::uint32_t>(v),
                                               .use = purpose::own}));
        };
        float const clarity = 1.0f + static_cast<float>(last % 4) * 8.0f;
        float const sureness = imagined > 0.0f ? 1.6f : 1.0f;
        for (std::size_t v = 0; v < vocabulary; ++v) {
            logits[v] = sureness * (clarity * drawn(1, v) + imagined * drawn(2, v));
        }
    });
}

/// Serves eight texts, and returns how good the confidences of the later rounds were.
calibration_metrics serve(online_calibration* calibration) {
    auto target = language(0.0f);
    autoregressive drafter{language(3.0f), top1_confidence{}, shape};
    decoder_options options{.max_requests = places};
    if (calibration != nullptr) options.calibration = *calibration;
    decoder dec{target, drafter, fixed_schedule{}, token_rejection{}, options};
    for (token_id i = 0; i < static_cast<token_id>(places); ++i) {
        dec.submit(std::vector<token_id>{i}, {.seed = static_cast<std::uint64_t>(i), .max_new_tokens = 800});
    }
    calibration_recorder recorder{block_size};
    for (std::size_t round = 0; dec.step(); ++round) {
        round_record const record = dec.round();
        if (calibration != nullptr) calibration->observe(record);
        if (round < 200) continue;
        for (std::size_t r = 0; r < record.size(); ++r) {
            verdict const& v = record.verdicts[r];
            std::vector<double> confidences;
            std::vector<std::uint8_t> labels;
            for (std::size_t k = 0; k < v.verified; ++k) {
                confidences.push_back(std::ldexp(record.survivals.confidence[r * block_size + k], -24));
                labels.push_back(k < v.accepted ? 1 : 0);
            }
            (void)recorder.observe(confidences, labels, v.verified);
        }
    }
    return recorder.mean();
}

}  // namespace

int main() {
    calibration_metrics const top1 = serve(nullptr);

    online_calibration calibration{block_size, {.max_requests = places}};
    calibration_metrics const calibrated = serve(&calibration);

    std::printf("top-1:      error %.2f, AUROC %.2f\n", top1.ece, top1.auroc);
    std::printf("calibrated: error %.2f, AUROC %.2f\n", calibrated.ece, calibrated.auroc);
    std::printf("less than half of the error: %s; drifts in the last round: %zu\n",
                calibrated.ece < top1.ece / 2.0 ? "yes" : "no", calibration.drifts().size());
    online_map const& map = calibration.shared().map(0);
    std::printf("its first position divides logits by %.1f and adds %.1f\n", 1.0 / map.slope, map.offset);
}

// Prints:
// top-1:      error 0.13, AUROC 0.63
// calibrated: error 0.05, AUROC 0.64
// less than half of the error: yes; drifts in the last round: 0
// its first position divides logits by 3.5 and adds 0.5
