// SPDX-License-Identifier: MIT
//
// A loop of one's own over the stages of a round, from begin_round to end_round, for two requests. The engine keeps
// the texts; nothing of them changes before a round has ended.
#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

int main() {
    constexpr std::size_t V = 8;
    auto const model = [](float taste) {
        return model_of<float>(V, [taste](auto context, auto logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < V; ++v) {
                logits[v] = static_cast<float>((3 * x + 5 * v) % 8) + taste * static_cast<float>(v);
            }
        });
    };
    auto target = model(0.0f);
    autoregressive drafter{model(0.4f), top1_confidence{}, {.block_size = 3, .vocabulary = V}};
    top_k_schedule schedule{analytic_capacity{8000.0, 64.0}};
    block_verification<> const rule;
    philox_randomness rng;
    double now = 0.0;
    auto const clock = [&now]() noexcept { return now; };
    round_memory<float, float> memory{drafter, schedule, rule,
                                      round_limits{.max_requests = 2, .clock = clock_ref{clock}}};

    request_settings const settings{.temperature = 0.7, .max_new_tokens = 12};
    check_settings(settings, traits_of(rule));
    std::array<std::vector<token_id>, 2> texts{{{0}, {5}}};
    round_report report{drafter.block_size()};
    for (std::size_t slot = 0; slot < 2; ++slot) memory.join(slot);

    for (;;) {
        std::vector<request_view> requests;
        for (std::size_t slot = 0; slot < 2; ++slot) {
            std::vector<token_id> const& text = texts[slot];
            if (text.size() == 13) continue;
            requests.push_back({.id = slot + 1,
                                .slot = slot,
                                .anchor = text.back(),
                                .position = text.size() - 1,
                                .context = text,
                                .seed = slot,
                                .remaining = 13 - text.size(),
                                .settings = &settings});
        }
        if (requests.empty()) break;
        if (begin_round(schedule, requests, memory)) {
            auto const forward = drafter.forward(memory.requests());
            plan(schedule, drafter, forward, memory);
            draw(drafter, forward, rule, rng, memory);
        }
        verify_batch const& batch = admit(schedule, memory);
        auto const rows = target.score(batch);
        now += 0.01;  // a clock of the engine
        accept(rule, rows, no_logits_hook{}, rng, memory);
        round_record const round = end_round(schedule, memory);
        commit_to(drafter, round.verdicts, memory);  // or name the models in end_round
        for (verdict const& v : round.verdicts) {
            texts[v.slot].insert(texts[v.slot].end(), v.emitted.begin(), v.emitted.end());
        }
        report.record(round.verdicts);
        std::printf("%zu rows in %.2f s:", round.load.batch_tokens, round.seconds);
        for (verdict const& v : round.verdicts) {
            std::printf("  request %d +%zu", static_cast<int>(v.id), v.emitted.size());
        }
        std::printf("\n");
    }
    std::printf("%.2f tokens a round\n", report.tau());
}

// Prints:
// 8 rows in 0.01 s:  request 1 +3  request 2 +3
// 8 rows in 0.01 s:  request 1 +2  request 2 +2
// 8 rows in 0.01 s:  request 1 +2  request 2 +4
// 7 rows in 0.01 s:  request 1 +4  request 2 +1
// 3 rows in 0.01 s:  request 1 +1  request 2 +2
// 2.40 tokens a round
