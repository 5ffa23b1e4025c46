// SPDX-License-Identifier: MIT
//
// Live traffic with all parts of serving: a queue in front of eight places, a schedule that plans by the price of a
// step, and a controller that keeps it from losing to plain decoding. Prices and confidences are corrected while
// serving, and there are counters for the dashboard. A burst interrupts a low rate of requests.
//
// The models are toys whose passes take virtual time: 10 ms a step and 0.4 ms a row, and 0.6 ms for a pass of the
// draft. The engine believes in half of that at first, and in confidences that promise too much.
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

namespace {

constexpr std::size_t vocabulary = 32;
constexpr std::size_t block_size = 5;
constexpr std::size_t places = 8;

double likes(token_id a, std::size_t b) {
    return static_cast<double>((7 * static_cast<std::size_t>(a) + 13 * b + 5) % 17) / 4.0;
}
// The target sees two tokens, the draft one.
constexpr auto draft_logits = [](std::span<token_id const> context, std::span<float> logits) {
    for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>(2.0 * likes(context.back(), v));
};
constexpr auto target_logits = [](std::span<token_id const> context, std::span<float> logits) {
    token_id const before = context.size() < 2 ? context.back() : context[context.size() - 2];
    for (std::size_t v = 0; v < logits.size(); ++v) {
        logits[v] = static_cast<float>(1.5 * likes(context.back(), v) + 0.7 * likes(before, v));
    }
};

/// A model whose passes take time on a clock that is ours.
template <class Model>
struct timed {
    Model model;
    double* now;
    double per_pass;
    double per_row;

    auto score(verify_batch const& batch) {
        *now += per_pass + per_row * static_cast<double>(batch.rows());
        return model.score(batch);
    }
    auto forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        *now += per_pass;
        return model.forward(requests, prefixes);
    }
};

}  // namespace

int main() {
    double now = 0.0;
    auto const clock = [&now]() noexcept { return now; };
    auto const language = [](auto logits) { return model_of<float>(vocabulary, logits); };
    timed target{language(target_logits), &now, 0.010, 0.0004};
    autoregressive drafter{timed{language(draft_logits), &now, 0.0006, 0.0},
                           top1_confidence{},
                           {.block_size = block_size, .vocabulary = vocabulary}};

    // What the engine believes, and what corrects it. Both are owned here and lent.
    refined_cost cost{additive_cost{{.fixed = 0.005, .batch_token = 0.0002, .draft_token = 0.0001}}};
    online_calibration calibration{block_size};
    serving_metrics metrics{block_size};

    auto const schedule = never_lose{top_k_schedule{cost_ref{cost}}};
    decoder engine{target, drafter, schedule, token_rejection<>{},
                   decoder_options{.max_requests = places, .seed = 1, .calibration = calibration, .clock = clock}};

    std::printf("%8s %8s %8s %11s %12s %11s\n", "step", "running", "waiting", "verified/r", "tokens/s", "cost error");
    serving_counts before = metrics.read();
    double since = now;
    for (std::size_t step = 1; step <= 900; ++step) {
        std::size_t const arrivals = step == 400 ? 40 : step % 30 == 0 ? 1 : 0;
        for (std::size_t i = 0; i < arrivals; ++i) {
            std::vector<token_id> const prompt{static_cast<token_id>(step % vocabulary),
                                               static_cast<token_id>(i % vocabulary)};
            engine.submit(prompt, {.temperature = 0.8, .max_new_tokens = 80, .priority = i % 8 == 0 ? 2.0 : 1.0});
        }
        if (engine.step()) {
            metrics.observe(engine.round(), cost);  // before it learns: what was predicted
            cost.observe(engine.round());
            calibration.observe(engine.round());
        } else {
            now += 0.02;  // nobody is there
        }
        if (step % 75 != 0) continue;
        serving_counts const recent = metrics.read().since(before);
        request_counts const counts = engine.counts();
        std::printf("%8zu %8zu %8zu %11.2f %12.0f %10.1f%%\n", step, counts.placed, counts.waiting,
                    static_cast<double>(recent.verified) / static_cast<double>(recent.request_rounds),
                    static_cast<double>(recent.emitted) / (now - since), 100.0 * cost.error().size);
        before = metrics.read();
        since = now;
    }

    request_counts const counts = engine.counts();
    std::printf("\n%zu requests came, %zu are done, %zu are here\n", static_cast<std::size_t>(counts.submitted),
                static_cast<std::size_t>(counts.finished), counts.placed + counts.waiting);
    std::string const text = metrics_text(metrics.read());
    std::printf("what a collector scrapes begins with\n%s...\n", text.substr(0, text.find('\n', 300) + 1).c_str());
    bool const complete = counts.submitted == counts.finished + counts.placed + counts.waiting;
    return complete ? 0 : 1;
}
