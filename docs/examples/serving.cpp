// SPDX-License-Identifier: MIT
//
// What learns while serving, and what watches it: prices that measured steps correct, confidences that outcomes
// correct, and counts for a collector. All of them read the record that a round leaves.
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

// The engine's steps take twice as long as it was told.
template <class Model>
struct timed {
    Model model;
    double* now;

    auto score(verify_batch const& batch) {
        *now += 0.02 + 0.0004 * static_cast<double>(batch.rows());
        return model.score(batch);
    }
};

int main() {
    auto const model = [](float draft) {
        return model_of<float>(16, [=](std::span<token_id const> context, std::span<float> logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < logits.size(); ++v) {
                logits[v] = static_cast<float>((5 * x + 3 * v) % 7) + draft * static_cast<float>((x + 2 * v) % 5);
            }
        });
    };
    double now = 0.0;
    auto const clock = [&now]() noexcept { return now; };
    autoregressive drafter{model(0.4f), top1_confidence{}, {.block_size = 3, .vocabulary = 16}};

    refined_cost cost{additive_cost{{.fixed = 0.01, .batch_token = 0.0002}}, refined_cost_settings{.memory = 32.0}};
    online_calibration calibration{3, online_calibration_settings{.tenants = 8}};
    serving_metrics metrics{3, serving_metrics_settings{.bins = 10}};
    never_lose schedule{top_k_schedule{cost_ref{cost}}, never_lose_options{.probing = 0.01}};
    decoder dec{timed{model(0.0f), &now},
                drafter,
                schedule,
                token_rejection{},
                {.max_requests = 4, .seed = 1, .calibration = calibration, .clock = clock}};
    static_assert(round_observer<refined_cost<additive_cost>>);

    for (token_id x = 0; x < 4; ++x) dec.submit(std::vector<token_id>{x}, {.max_new_tokens = 400, .tenant = 7});
    while (dec.step()) {
        metrics.observe(dec.round(), cost);  // before it learns: what was predicted
        cost.observe(dec.round());
        calibration.observe(dec.round());
        for (calibration_drift const& drift : calibration.drifts()) {
            drift_report const& what = drift.what;
            std::printf("position %zu drifts since round %d\n", what.position, static_cast<int>(what.since));
        }
    }

    prediction_error const& error = cost.error();
    std::printf("the prices are %.0f %% off, with what was learned %.0f %%\n", 100 * error.unrefined, 100 * error.size);
    std::printf("the tenant has a map of its own: %s\n", calibration.of_tenant(7) != nullptr ? "yes" : "no");
    serving_counts const counts = metrics.read();
    std::printf("%d tokens\n", static_cast<int>(counts.emitted));
    std::string const text = metrics_text(counts, metrics_text_options{.prefix = "toy_"});
    std::string same;
    write_metrics_text(std::back_inserter(same), counts, {.prefix = "toy_"});
    std::size_t const at = text.find("\ntoy_emitted_tokens_total") + 1;
    std::printf("%s; by an iterator %s\n", text.substr(at, text.find('\n', at) - at).c_str(),
                same == text ? "the same" : "other");
}

// Prints:
// the prices are 100 % off, with what was learned 0 %
// the tenant has a map of its own: yes
// 1600 tokens
// toy_emitted_tokens_total 1600; by an iterator the same
