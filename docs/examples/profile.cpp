// SPDX-License-Identifier: MIT
//
// Start-up profiling: steps of an engine are timed over a grid, prices are fitted to the times, and a table keeps
// both. The clock here is virtual, so that the program prints the same everywhere.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>
#include <sureleap/training.hpp>

using namespace sureleap;

struct virtual_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<virtual_clock>;
    static constexpr bool is_steady = true;
    static inline time_point at{};
    static time_point now() noexcept { return at; }
};

// A step of the engine: 5 ms, 100 us a token of the batch, and 30 us a drafted one.
void dry_run(step_load const& load) {
    virtual_clock::at += std::chrono::microseconds(5000 + 100 * load.batch_tokens + 30 * load.draft_tokens);
}

int main() {
    // A curve of the batch alone.
    auto const curve = profile<linear_step_time, virtual_clock>(
        [](std::size_t tokens) { dry_run({.requests = tokens, .batch_tokens = tokens}); }, {1, 8, 64},
        profile_settings{.warm_up = 1, .repeats = 3});
    std::printf("a step of 20 rows takes %.1f ms\n", 1e3 * curve.step_seconds(20));

    // Or the time of whole steps, and the prices that explain it.
    std::vector<step_load> const grid =
        profile_grid(profile_grid_settings{.max_requests = 8, .block_size = 4, .contexts = {128, 1024}});
    auto const timed = profile_steps<virtual_clock>(dry_run, grid);
    std::vector<cost_sample> const samples = timed.samples();
    auto const fit = fit_additive_cost(samples);
    auto const& prices = fit.cost.prices();
    std::printf("%zu loads: %.2f ms a step, %.3f ms a row, %.3f ms a drafted token\n", grid.size(), 1e3 * prices.fixed,
                1e3 * prices.batch_token, 1e3 * prices.draft_token);

    // What is kept, with the machine and the time it was measured on; ext/cost_json.hpp saves it.
    cost_table const table{.prices = prices,
                           .cells = samples,
                           .token_sizes = {8, 16, 32, 64},
                           .measured_on = {{"device", "toy"}},
                           .measured_at = unix_now()};
    profiled_cost const model = table.model();
    std::printf("9 rows, padded to 16: %.1f ms\n", 1e3 * model.step_seconds({.requests = 4, .batch_tokens = 9}));
}

// Prints:
// a step of 20 rows takes 7.0 ms
// 72 loads: 5.00 ms a step, 0.100 ms a row, 0.030 ms a drafted token
// 9 rows, padded to 16: 6.6 ms
