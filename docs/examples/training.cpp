// SPDX-License-Identifier: MIT
//
// The parts of a training step: where blocks start in a sequence, how sequences are packed into a batch, and the
// losses of a drafted position with their gradients.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/training.hpp>

using namespace sureleap;

int main() {
    constexpr std::size_t block_size = 3;
    // Tokens of the prompt are not learned, those of the answer are.
    std::vector<std::uint8_t> const learned{0, 0, 1, 1, 1, 1, 1, 1, 1, 0};
    auto const blocks = sample_blocks(learned, 2, block_size, [](std::size_t t) { return anchor_uniform(1, 0, t); });
    for (auto const& block : blocks) {
        std::printf("anchor %zu supervises %zu positions\n", block.anchor, block.positions);
    }

    // Sequences of so many rows, in batches of at most ten.
    std::vector<std::size_t> const rows{6, 3, 7, 4};
    for (auto const& batch : pack_sequences(rows, 10)) {
        std::printf("batch:");
        for (std::size_t const i : batch) std::printf(" sequence %zu", i);
        std::printf("\n");
    }
    packed_batch batch{block_size};
    batch.add(0, blocks);
    std::printf("%zu token rows, %zu block rows\n", batch.rows(), batch.block_rows());

    // One position. The row of draft logits becomes the gradient with respect to it.
    loss_settings const settings{.decay = 4.0};
    check_losses(settings);
    std::array<double, 3> draft{1.0, 0.0, 0.0};
    std::array<double, 3> const target{0.5, 0.25, 0.25};
    auto loss = draft_loss(settings, 1.0, std::span<double>(draft), probability_row<double>{target}, 0);
    double const of_confidence = confidence_loss(settings, 1.0, 0.5, loss);
    std::printf("loss %.3f, gradients %.3f %.3f %.3f and %.3f of the confidence\n", total_loss(settings, loss),
                draft[0], draft[1], draft[2], of_confidence);
    loss_report report{settings, block_size};
    report.add(std::span(&loss, 1));
    std::printf("mean %.3f\n", report.loss());
}

// Prints:
// anchor 2 supervises 3 positions
// anchor 5 supervises 3 positions
// batch: sequence 2 sequence 1
// batch: sequence 0 sequence 3
// 8 token rows, 6 block rows
// loss 0.704, gradients 0.397 -0.199 -0.199 and -0.301 of the confidence
// mean 0.704
