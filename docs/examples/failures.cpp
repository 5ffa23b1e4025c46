// SPDX-License-Identifier: MIT
//
// A drafter that fails in the middle of a block. The round goes on with what it had drafted, where that cannot bias
// the text, and the verdict says so.
#include <cstddef>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

int main() {
    constexpr std::size_t V = 4;
    int passes = 0;
    auto draft = model_of<float>(V, [&passes](auto context, auto logits) {
        if (++passes == 3) throw std::runtime_error("the device is gone");
        for (float& l : logits) l = 0.0f;
        logits[static_cast<std::size_t>(context.back() + 1) % V] = 9.0f;
    });
    auto target = model_of<float>(V, [](auto context, auto logits) {
        for (float& l : logits) l = 0.0f;
        logits[static_cast<std::size_t>(context.back() + 1) % V] = 9.0f;
    });
    autoregressive drafter{draft, {.block_size = 5, .vocabulary = V}};
    fixed_schedule schedule;
    token_rejection<> const rule;
    philox_randomness rng;
    round_memory<float, float> memory{drafter, schedule, rule, {}};

    request_settings const settings;
    std::vector<token_id> const text{0};
    request_view const request{.id = 1, .anchor = 0, .context = text, .seed = 1, .remaining = 9, .settings = &settings};
    if (!begin_round(schedule, std::span(&request, 1), memory)) return 1;
    try {
        draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
    } catch (std::exception const& failure) {
        std::printf("%s; the round may go on: %s\n", failure.what(), can_end_drafts(memory) ? "yes" : "no");
        end_drafts(memory);
    }
    auto const rows = target.score(admit(schedule, memory));
    accept(rule, rows, no_logits_hook{}, rng, memory);
    verdict const& v = end_round(schedule, memory, target, drafter).verdicts[0];
    std::printf("drafted %zu, emitted %zu, %s\n", v.drafted, v.emitted.size(),
                v.outcome == status::ok ? to_string(v.draft_outcome) : to_string(v.outcome));
}

// Prints:
// the device is gone; the round may go on: yes
// drafted 2, emitted 3, the drafter failed
