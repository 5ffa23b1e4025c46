// SPDX-License-Identifier: MIT
//
// Target supervision from hidden states: the target's head is applied to a chunk of rows at a time, and each law is
// made once for all positions that it supervises.
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>
#include <sureleap/training.hpp>

using namespace sureleap;

int main() {
    constexpr std::size_t d = 2;
    constexpr std::size_t V = 3;
    std::vector<float> const states{1, 0, 0, 1, 1, 1, 2, 0};  // of four tokens
    std::vector<float> const lm_head{1, 0, 0, 1, -1, -1};     // [V, d]

    // Five supervised positions, by the row of the token that each one is supervised by.
    std::vector<std::size_t> const sources{0, 1, 1, 3, 2};
    target_supervision const supervision{sources, {.rows = 2, .slots = 8}};
    std::printf("%zu positions by %zu rows in %zu chunks\n", supervision.slots(), supervision.rows(),
                supervision.chunks());

    workspace counted;
    (void)carve_supervision<float>(counted, {.rows = 2, .slots = 8}, d, V);
    std::vector<std::byte> bytes(counted.used());
    workspace ws{bytes};
    supervision_memory<float> const memory = carve_supervision<float>(ws, {.rows = 2, .slots = 8}, d, V);

    auto const product = [&](matrix_view<float> hidden, auto logits) {  // a trainer's GEMM
        for (std::size_t i = 0; i < hidden.rows; ++i) {
            scalar_backend::gemv(matrix_view<float>{lm_head.data(), V, d}, hidden.row(i), logits.row(i));
        }
    };
    supervision.for_each_chunk(matrix_view<float>{states.data(), 4, d}, memory, product, [](auto const& chunk) {
        for (std::size_t i = 0; i < chunk.slots.size(); ++i) {
            auto const row = chunk.logits.row(chunk.rows[i]);
            std::printf("position %zu: logits %2.0f %2.0f %2.0f\n", chunk.slots[i], static_cast<double>(row[0]),
                        static_cast<double>(row[1]), static_cast<double>(row[2]));
        }
    });
}

// Prints:
// 5 positions by 4 rows in 2 chunks
// position 0: logits  1  0 -1
// position 1: logits  0  1 -1
// position 2: logits  0  1 -1
// position 4: logits  1  1 -2
// position 3: logits  2  0 -2
