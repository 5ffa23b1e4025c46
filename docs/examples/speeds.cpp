// SPDX-License-Identifier: MIT
//
// Requests that were promised a speed. What a token of theirs is worth rises while they are behind, and a target
// that cannot be met is given up and reported.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

int main() {
    auto const model = [](float draft) {
        return model_of<float>(16, [=](std::span<token_id const> context, std::span<float> logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < logits.size(); ++v) {
                logits[v] = static_cast<float>((5 * x + 3 * v) % 7) + draft * static_cast<float>((x + 2 * v) % 5);
            }
        });
    };
    autoregressive drafter{model(0.4f), top1_confidence{}, {.block_size = 4, .vocabulary = 16}};
    // A step takes 20 ms and 2 ms a row, so few drafts are worth their rows.
    additive_cost const cost{{.fixed = 20e-3, .batch_token = 2e-3}};
    speed_targets schedule{top_k_schedule{cost}, speed_target_options{.step = 0.5, .patience = 20}};
    decoder dec{model(0.0f), drafter, schedule, token_rejection{}, {.max_requests = 3, .seed = 1}};
    for (double const promised : {0.0, 65.0, 1000.0}) {
        dec.submit(std::vector<token_id>{1},
                   {.temperature = 0.5, .max_new_tokens = 400, .tokens_per_second = promised});
    }
    for (int step = 0; step < 150; ++step) dec.step();
    for (std::size_t slot = 0; slot < 3; ++slot) {
        speed_report const report = dec.schedule().report(slot);
        std::printf("promised %4.0f tokens a second: gets %2.0f, %s\n", report.target, report.speed,
                    report.reachable ? "within reach" : "out of reach");
    }
}

// Prints:
// promised    0 tokens a second: gets 31, within reach
// promised   65 tokens a second: gets 67, within reach
// promised 1000 tokens a second: gets 32, out of reach
