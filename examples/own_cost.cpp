// SPDX-License-Identifier: MIT
//
// A cost model of your own: one function, the seconds that a step takes. Schedules that weigh verified rows against
// time ask it. What they decide is exact whatever it says; a wrong cost costs time and nothing else.
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// A step takes 4 ms and 20 us a row, and for each tile of 16 rows that is begun as much as the caller says.
struct tiled_cost {
    double tile;

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        std::size_t const rows = load.batch_tokens;  // verified in this step: an anchor of each request, and drafts
        return 4e-3 + 20e-6 * static_cast<double>(rows) + tile * static_cast<double>((rows + 15) / 16);
    }
};
static_assert(cost_model<tiled_cost>);

template <class Schedule>
void serve(char const* name, Schedule schedule) {
    constexpr std::size_t vocabulary = 16;
    auto const model = [](std::size_t taste) {
        return model_of<float>(vocabulary, [taste](auto context, auto logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < logits.size(); ++v) {
                logits[v] = static_cast<float>((5 * x + 3 * v) % 7) + 0.3f * static_cast<float>((taste * v) % 5);
            }
        });
    };
    autoregressive drafter{model(1), top1_confidence{}, {.block_size = 4, .vocabulary = vocabulary}};
    decoder dec{model(2), drafter, schedule, token_rejection{}, {.max_requests = 8, .seed = 1}};
    for (token_id x = 0; x < 8; ++x) dec.submit(std::vector<token_id>{x}, {.max_new_tokens = 200});
    while (dec.step()) {
    }
    round_report const& report = dec.report();
    double const rows = static_cast<double>(report.rounds() + report.verified());
    std::printf("%-28s %5.1f rows a step, %.2f tokens per request and step\n", name,
                rows / static_cast<double>(report.target_calls()), report.tau());
}

int main() {
    // Algorithm 1 stops before the first row that costs more than it brings, so it fills a tile and begins none.
    serve("greedy, tiles for nothing", greedy_schedule{tiled_cost{0.0}});
    serve("greedy, tiles of 3 ms", greedy_schedule{tiled_cost{3e-3}});
    serve("greedy, tiles of 0.2 ms", greedy_schedule{tiled_cost{0.2e-3}});
    // A planner decides how many rows before the block is drawn, and may see beyond the end of a tile.
    serve("top-k, tiles of 0.2 ms", top_k_schedule{tiled_cost{0.2e-3}});
}
