// SPDX-License-Identifier: MIT
//
// How a planner decides before a block is drawn: from the tables of past rounds it searches the budget that emits
// the most tokens per second. A budget of one's own may come from any such table.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Plans like top_k_schedule, and never more than two positions a request.
struct modest_schedule {
    using origin = top_k_schedule<analytic_capacity, 1>::origin;  // tables of the last round
    analytic_capacity capacity;

    [[nodiscard]] std::size_t budget(planning_table<origin> const& past) const noexcept {
        return std::min(best_budget(past, capacity), 2 * past.requests());
    }
};
static_assert(planner<modest_schedule> && !frontier_scheduler<modest_schedule>);

int main() {
    constexpr std::size_t slots = 2;
    constexpr std::size_t block_size = 4;
    workspace counted;
    (void)planning_memory::carve(counted, slots, block_size);
    std::vector<std::byte> bytes(counted.used());
    workspace ws{bytes};
    planning_memory memory = planning_memory::carve(ws, slots, block_size);

    request_settings const settings;
    std::array<request_view, slots> requests{};
    for (std::size_t r = 0; r < slots; ++r) {
        requests[r] = {.id = r + 1, .slot = r, .anchor = 0, .position = 9, .remaining = 90, .settings = &settings};
    }

    // Before there is a past, every position is assumed to be accepted with the prior.
    survival_history history{slots, block_size, 1, 0.6};
    modest_schedule const modest{analytic_capacity{8000.0, 8.0}};
    top_k_schedule<analytic_capacity, 1> const top_k{analytic_capacity{8000.0, 8.0}, 0.6};
    auto const show = [&](char const* when) {
        auto const table = history.lagged<1>(requests, memory);
        std::printf("%s: survival %.2f, top_k_schedule verifies %zu, modest_schedule %zu\n", when,
                    static_cast<double>(table.survivals().at(0, 3).survival) / certain, top_k.budget(table),
                    modest.budget(table));
    };
    show("no past   ");

    // A round whose drafts were sure is over.
    memory.start(requests);
    for (std::size_t r = 0; r < slots; ++r) {
        memory.begin(r);
        for (std::size_t k = 0; k < block_size; ++k) (void)memory.append(r, 0.95);
    }
    history.push(requests, memory.view());
    show("sure drafts");
}

// Prints:
// no past   : survival 0.13, top_k_schedule verifies 4, modest_schedule 4
// sure drafts: survival 0.81, top_k_schedule verifies 8, modest_schedule 4
