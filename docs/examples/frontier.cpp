// SPDX-License-Identifier: MIT
//
// The causal frontier, by hand: of each request it shows the next position that may be verified. Survivals are
// integers, so lengths come out the same on every machine.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Takes the likeliest position while it survives in at least every second round.
struct likely_schedule {
    void admit(causal_frontier& frontier) const noexcept {
        while (!frontier.empty()) {
            candidate const best = frontier.best();
            if (best.survival < certain / 2) return;
            frontier.admit(best.request);
        }
    }
};
static_assert(frontier_scheduler<likely_schedule> && scheduler<likely_schedule>);
static_assert(!table_scheduler<likely_schedule>);

int main() {
    // Two requests of three drafted positions each.
    constexpr std::array<double, 6> c{0.9, 0.8, 0.5, 0.7, 0.75, 0.9};
    std::array<fixed_probability, 6> confidence{};
    std::array<fixed_probability, 6> survival{};
    for (std::size_t i = 0; i < c.size(); ++i) {
        if (!quantise(c[i], confidence[i])) return 1;  // it is no probability
        survival[i] = extend_survival(i % 3 == 0 ? certain : survival[i - 1], confidence[i]);
    }
    constexpr std::array<std::uint32_t, 2> sizes{3, 3};
    survival_table const table{.block_size = 3, .sizes = sizes, .confidence = confidence, .survival = survival};

    workspace counted;  // counts what a walk needs, then carves it
    (void)frontier_memory::carve(counted, 2);
    std::vector<std::byte> bytes(counted.used());
    workspace ws{bytes};
    frontier_memory const memory = frontier_memory::carve(ws, 2);

    causal_frontier frontier{table, memory};
    while (!frontier.empty()) {
        candidate const next = frontier.best();
        std::printf("request %zu, position %zu: survival %.2f\n", next.request, next.position,
                    static_cast<double>(next.survival) / certain);
        frontier.admit(next.request);
    }
    auto const lengths = admit(likely_schedule{}, draft_table{.survivals = table}, {}, memory);
    std::printf("likely_schedule verifies %d and %d\n", static_cast<int>(lengths[0]), static_cast<int>(lengths[1]));
}

// Prints:
// request 0, position 0: survival 0.90
// request 0, position 1: survival 0.72
// request 1, position 0: survival 0.70
// request 1, position 1: survival 0.52
// request 1, position 2: survival 0.47
// request 0, position 2: survival 0.36
// likely_schedule verifies 2 and 2
