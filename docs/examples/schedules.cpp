// SPDX-License-Identifier: MIT
//
// Every schedule of the library under one load: what it verifies, what of that is accepted, and how many steps it
// takes. A step of the toy engine takes the time of 24 rows besides its own, which are padded to stairs of eight.
#include <cstddef>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t vocabulary = 16;

void logits_behind(token_id last, float draft, std::span<float> logits) {
    auto const x = static_cast<std::size_t>(last);
    for (std::size_t v = 0; v < logits.size(); ++v) {
        logits[v] = static_cast<float>((5 * x + 3 * v) % 7) + draft * static_cast<float>((x + 2 * v) % 5);
    }
}

// A parallel backbone in miniature: the same logits at every position of a block.
struct toy_backbone {
    std::vector<float> rows;

    block_forward<float> forward(std::span<request_view const> requests) {
        rows.resize(requests.size() * 4 * vocabulary);
        for (std::size_t i = 0; i < requests.size() * 4; ++i) {
            logits_behind(requests[i / 4].anchor, 0.4f, std::span(rows).subspan(i * vocabulary, vocabulary));
        }
        return {.hidden = {}, .base_logits = {.values = {rows.data(), requests.size() * 4, vocabulary}}};
    }
};
static_assert(backbone<toy_backbone>);

void serve(char const* name, any_schedule schedule) {
    auto target =
        model_of<float>(vocabulary, [](auto context, auto logits) { logits_behind(context.back(), 0.0f, logits); });
    parallel drafter{toy_backbone{}, top1_confidence{}, {.block_size = 4, .vocabulary = vocabulary}};
    decoder dec{target, drafter, std::move(schedule), keyed_coupling{}, {.max_requests = 6}};
    for (token_id x = 0; x < 6; ++x) {
        dec.submit(std::vector<token_id>{x}, {.temperature = 0.5, .seed = 3, .max_new_tokens = 40});
    }
    while (dec.step()) {
    }
    std::printf("%-28s %4d verified, %4d accepted, %3d steps\n", name, static_cast<int>(dec.report().verified()),
                static_cast<int>(dec.report().accepted()), static_cast<int>(dec.report().target_calls()));
}

int main() {
    padded_cost const cost{additive_cost{{.fixed = 24e-4, .batch_token = 1e-4}}, {8, 16, 24, 32}};
    serve("fixed_schedule", fixed_schedule{});
    serve("fixed_schedule, 2", fixed_schedule{2});
    serve("threshold_schedule", threshold_schedule{0.5});
    serve("survival_threshold_schedule", survival_threshold_schedule{0.3});
    serve("greedy_schedule", greedy_schedule{cost});                // Algorithm 1: stops at the first stair
    serve("top_k_schedule", top_k_schedule{cost});                  // plans by tables of past rounds
    serve("planned_schedule", planned_schedule{cost});              // plans at the anchor
    serve("retrospective_schedule", retrospective_schedule{cost});  // looks ahead: for rules that do not mind
}

// Prints:
// fixed_schedule                536 verified,  100 accepted,  25 steps
// fixed_schedule, 2             282 verified,   96 accepted,  25 steps
// threshold_schedule            350 verified,   73 accepted,  29 steps
// survival_threshold_schedule   290 verified,   96 accepted,  25 steps
// greedy_schedule                66 verified,   46 accepted,  33 steps
// top_k_schedule                301 verified,   97 accepted,  25 steps
// planned_schedule              284 verified,   98 accepted,  25 steps
// retrospective_schedule        284 verified,   98 accepted,  25 steps
