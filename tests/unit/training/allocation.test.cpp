// SPDX-License-Identifier: MIT
//
// What runs once a position or once a chunk allocates nothing: losses, codes, confidence, reports and chunked
// supervision under a global operator new that counts.
#include "support/catch.hpp"

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include <sureleap/training/confidence_logit.hpp>
#include <sureleap/training/gated_code.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/rnn_code.hpp>
#include <sureleap/training/supervision.hpp>

#include "support/allocations.hpp"

TEST_CASE("training: nothing inside a step allocates") {
    constexpr std::size_t n = 4, r = 3, d = 2, v = 11;
    std::vector<float> numbers(400);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.01f * static_cast<float>(i % 37) - 0.2f;
    std::size_t next = 0;
    auto const view = [&](std::size_t rows, std::size_t cols) {
        next += rows * cols;
        REQUIRE(next <= numbers.size());
        return sureleap::matrix_span<float>(numbers.data() + next - rows * cols, rows, cols);
    };
    auto const gate = view(r, d + r), joint = view(3 * r, 2 * r + d), weight = view(1, d + r), biases = view(1, 3 * r);
    sureleap::gated_code<float> const gated(gate.view(), biases.row(0).first(r));
    sureleap::rnn_code<float> const rnn(joint.view(), biases.row(0));
    sureleap::confidence_logit<float> const confidence(weight.view(), biases.row(0).first(1), r);
    auto const e = view(n, r), h = view(n, d), z = view(n, r);
    std::vector<float> tape(rnn.tape_size(n)), gradients(200), rows(n * v);
    sureleap::matrix_span<float> const de(gradients.data(), n, r), dh(gradients.data() + 12, n, d);
    sureleap::matrix_span<float> const dw(gradients.data() + 20, 3 * r, 2 * r + d), draft(rows.data(), n, v);
    std::span<float> const db = std::span(gradients).subspan(110, 3 * r), dc = std::span(gradients).subspan(130, d + r);

    sureleap::loss_settings const settings{};
    sureleap::loss_report report(settings, n);
    sureleap::target_supervision const supervision(std::vector<std::size_t>{0, 1, 1, 3}, {.rows = 2, .slots = 2});
    std::vector<float> chunk_numbers(2 * (d + v));
    sureleap::supervision_memory<float> const memory{{chunk_numbers.data(), 2, d},
                                                     {chunk_numbers.data() + 2 * d, 2, v}};
    std::vector<sureleap::position_loss> losses(n);

    std::size_t const before = allocations.load();
    auto const gate_gradient = row_range(sureleap::matrix_span<float>(dw.data, 3 * r, d + r), 0, r);
    gated.forward({e, h}, z, std::span(tape).first(gated.tape_size(n)));
    gated.backward({e, h}, z, z, std::span(tape).first(gated.tape_size(n)), {gate_gradient, db.first(r)}, {de, dh});
    rnn.forward({e, h}, z, tape);
    rnn.backward({e, h}, z, z, tape, {dw, db}, {de, dh});
    supervision.for_each_chunk(
        h.view(), memory,
        [](sureleap::matrix_view<float> states, sureleap::matrix_span<float> logits) {
            for (std::size_t i = 0; i < states.rows; ++i) {
                for (std::size_t j = 0; j < logits.cols; ++j) logits.row(i)[j] = states.row(i)[j % states.cols];
            }
        },
        [&](sureleap::supervised_chunk<float> const& chunk) {
            for (std::size_t i = 0; i < chunk.logits.rows; ++i) {
                sureleap::row_softmax{}(std::span<float const>(chunk.logits.row(i)), chunk.logits.row(i));
            }
            for (std::size_t i = 0; i < chunk.slots.size(); ++i) {
                std::size_t const k = chunk.slots[i];
                losses[k] = sureleap::draft_loss(settings, 1.0, draft.row(k),
                                                 sureleap::probability_row<float>{chunk.logits.row(chunk.rows[i])}, 2);
                float const logit = confidence(h.row(k), e.row(k));
                float const gradient = sureleap::confidence_loss(settings, 1.0, logit, losses[k]);
                confidence.backward(h.row(k), e.row(k), gradient, {dc, db.first(1)}, dh.row(k), de.row(k));
            }
        });
    report.add(losses);
    std::size_t const after = allocations.load();

    CHECK(after == before);
    CHECK(before > 0);  // the counter counts
    CHECK(report.loss() > 0.0);
}
