// SPDX-License-Identifier: MIT
//
// The costs that schedules reckon with: curves of the batch alone, and models of a whole step. They go into each
// other, from prices over measured cells to the padding of captured graphs.
#include <cstddef>
#include <cstdio>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

template <step_cost Cost>
void show(char const* name, Cost const& cost) {
    std::printf("%-34s", name);
    for (std::size_t const tokens : {8u, 9u, 12u, 16u}) {
        step_load const load{.requests = 4, .batch_tokens = tokens, .drafting = 4, .draft_tokens = 12};
        auto const& curve = curve_of(cost, load);  // steps per second as a function of the batch alone
        std::printf(" %6.2f", 1e3 / curve.steps_per_second(tokens));
    }
    std::printf("\n");
}

int main() {
    std::printf("%-34s %6d %6d %6d %6d\n", "milliseconds of a step with B =", 8, 9, 12, 16);
    analytic_capacity const closed{10000.0, 100.0};  // (100 + B) / 10000 seconds
    show("analytic_capacity", closed);
    show("capacity_table, lines", capacity_table<>{{{8, 0.010}, {16, 0.014}}});
    show("capacity_table, stairs", capacity_table<staircase>{{{8, 0.010}, {16, 0.014}}});

    additive_cost const prices{{.fixed = 9e-3, .batch_token = 2e-4, .draft_fixed = 1e-3, .draft_token = 5e-5}};
    show("additive_cost", prices);
    show("padded_cost", padded_cost{prices, {8, 16, 32}});
    show("of_batch, with a draft", of_batch(closed, {.fixed = 1e-3}));

    // One step was measured, and took longer than its prices say.
    cost_sample const measured{{.requests = 4, .batch_tokens = 12, .drafting = 4, .draft_tokens = 12}, 0.0150};
    cell_cost const corrected{prices, {measured}};
    show("cell_cost", corrected);
    show("cost_ref, lent to several schedules", cost_ref{corrected});

    static_assert(capacity_curve<analytic_capacity> && cost_model<batch_cost<analytic_capacity>>);
    static_assert(capacity_curve<priced_round<additive_cost>>);  // what curve_of makes of a model
}

// Prints:
// milliseconds of a step with B =         8      9     12     16
// analytic_capacity                   10.80  10.90  11.20  11.60
// capacity_table, lines               10.00  10.50  12.00  14.00
// capacity_table, stairs              10.00  14.00  14.00  14.00
// additive_cost                       12.20  12.40  13.00  13.80
// padded_cost                         12.20  13.80  13.80  13.80
// of_batch, with a draft              11.80  11.90  12.20  12.60
// cell_cost                           14.20  14.40  15.00  15.80
// cost_ref, lent to several schedules  14.20  14.40  15.00  15.80
