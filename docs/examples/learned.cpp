// SPDX-License-Identifier: MIT
//
// A drafter without a head, whose model is far too sure of itself: what its top-1 probability is worth as a confidence,
// and what learned_confidence makes of the same rows while it serves.
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

/// Serves eight texts, and returns how good the confidences of the second half were.
template <class Drafter>
calibration_metrics serve(Drafter& drafter) {
    auto target = language(0.0f);
    decoder dec{target, drafter, fixed_schedule{}, token_rejection{}, {.max_requests = places}};
    for (token_id i = 0; i < static_cast<token_id>(places); ++i) {
        dec.submit(std::vector<token_id>{i}, {.seed = static_cast<std::uint64_t>(i), .max_new_tokens = 800});
    }
    calibration_recorder recorder{block_size};
    for (std::size_t round = 0; dec.step(); ++round) {
        if (round < 200) continue;
        round_record const record = dec.round();
        for (std::size_t r = 0; r < record.size(); ++r) {
            verdict const& v = record.verdicts[r];
            std::vector<double> confidences;
            std::vector<std::uint8_t> labels;
            for (std::size_t k = 0; k < v.verified; ++k) {
                confidences.push_back(record.raw_confidence(r, k));
                labels.push_back(k < v.accepted ? 1 : 0);
            }
            (void)recorder.observe(confidences, labels, v.verified);
        }
    }
    return recorder.mean();
}

}  // namespace

int main() {
    autoregressive unlearned{language(3.0f), top1_confidence{}, shape};
    calibration_metrics const top1 = serve(unlearned);

    static_assert(learning_confidence<learned_confidence, distribution<float>>);
    learned_confidence confidence{block_size, learned_confidence_settings{.max_requests = places}};
    autoregressive learning{language(3.0f), confidence, shape};  // by reference: it can be asked what it learned
    calibration_metrics const learned = serve(learning);

    std::printf("top1_confidence:    error %.2f, AUROC %.2f\n", top1.ece, top1.auroc);
    std::printf("learned_confidence: error %.2f, AUROC %.2f\n", learned.ece, learned.auroc);
    std::printf("a third of the error: %s; drifts in the last round: %zu\n",
                learned.ece < top1.ece / 3.0 ? "yes" : "no", confidence.drifts().size());
    online_map const& map = confidence.maps().map(0);
    std::printf("its first position relies on entropy with weight %.1f\n", map.entropy);

    // One that knows the drafted token is refused by rules that sample, at compile time where the types say all.
    autoregressive in_token{language(3.0f), token_confidence{block_size}, shape};
    auto const fits = [&](auto const& rule) {
        return misfit_of(traits_of(in_token), traits_of(threshold_schedule{0.5}), traits_of(rule)) == misfit::none;
    };
    std::printf("token_confidence with token_rejection: %s\n", fits(token_rejection<>{}) ? "fits" : "refused");
    std::printf("token_confidence with keyed_coupling:  %s\n", fits(keyed_coupling{}) ? "fits" : "refused");
}

// Prints:
// top1_confidence:    error 0.13, AUROC 0.63
// learned_confidence: error 0.03, AUROC 0.63
// a third of the error: yes; drifts in the last round: 0
// its first position relies on entropy with weight 0.7
// token_confidence with token_rejection: refused
// token_confidence with keyed_coupling:  fits
