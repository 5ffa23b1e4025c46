// SPDX-License-Identifier: MIT
//
// The parts of a training step before and after the transformer, against stored reference values. They are anchors
// drawn with given uniforms, labels, evaluation masks and the aligned target logits from hidden states. The last is the
// loss of stored draft logits and confidences. All go through the packed batch and the chunked target supervision.
// Double, 1e-12.
#include "support/catch.hpp"
#include "support/golden_weights.hpp"
#include "support/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <sureleap/head/linear.hpp>
#include <sureleap/training/anchors.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/packing.hpp>
#include <sureleap/training/supervision.hpp>

namespace {

using sureleap::anchored_block;
using sureleap::token_id;

constexpr double bound = 1e-12;

struct sample {
    std::vector<std::uint8_t> loss_mask;
    std::vector<anchored_block> blocks;  // without dummies
};

std::vector<sample> draw(golden::file const& f) {
    auto const mask = f.i32("loss_mask");
    auto const u = f.f64("u_anchor");
    auto const anchors = f.i32("anchors");
    std::size_t const gamma = f.i32("target_ids").dim(2);
    std::vector<sample> out(mask.dim(0));
    for (std::size_t s = 0; s < out.size(); ++s) {
        out[s].loss_mask.assign(mask.row(s).begin(), mask.row(s).end());
        out[s].blocks =
            sureleap::sample_blocks(out[s].loss_mask, anchors.dim(1), gamma, [&](std::size_t t) { return u.at(s, t); });
    }
    return out;
}

}  // namespace

TEST_CASE("golden: anchors, labels and evaluation masks", "[golden][training]") {
    golden::file const f("tiny_train");
    auto const anchors = f.i32("anchors");
    auto const keep = f.i32("keep");
    auto const ids = f.i32("input_ids");
    auto const labels = f.i32("target_ids");
    auto const mask = f.i32("eval_mask");
    std::size_t const gamma = labels.dim(2);
    auto const samples = draw(f);
    std::size_t dummies = 0;
    for (std::size_t s = 0; s < samples.size(); ++s) {
        auto blocks = samples[s].blocks;
        blocks.resize(anchors.dim(1));  // the file has a fixed shape
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            INFO("sample " << s << ", block " << b);
            CHECK(blocks[b].anchor == static_cast<std::size_t>(anchors.at(s, b)));
            CHECK((blocks[b].positions > 0) == (keep.at(s, b) != 0));
            for (std::size_t k = 0; k < gamma; ++k) CHECK((k < blocks[b].positions) == (mask.at(s, b, k) != 0));
            if (blocks[b].positions == 0) {
                ++dummies;
                continue;  // the labels of a dummy are whatever fills the shape
            }
            std::vector<token_id> got(gamma), previous(gamma);
            sureleap::block_labels(ids.row(s), blocks[b].anchor, got);
            sureleap::block_previous(ids.row(s), blocks[b].anchor, previous);
            CHECK(std::ranges::equal(got, labels.row(s, b)));
            CHECK(previous[0] == ids.at(s, blocks[b].anchor));
            CHECK(std::equal(previous.begin() + 1, previous.end(), got.begin()));
        }
    }
    CHECK(dummies == static_cast<std::size_t>(std::ranges::count(keep.values, 0)));
}

TEST_CASE("golden: the loss of given draft logits, target laws from hidden states", "[golden][training]") {
    golden::file const f("tiny_train");
    golden::file const checkpoint(golden::path() + "/tiny_dspark_ckpt/model.safetensors");
    golden::matrix<double> const lm_head(checkpoint.f64("lm_head.weight"));
    auto const ids = f.i32("input_ids");
    auto const stored_hidden = f.f64("target_last");
    auto const draft = f.f64("draft_logits");
    auto const confidence = f.f64("confidence");
    auto const sums = f.f64("target_logits_sum");
    std::size_t const gamma = draft.dim(2);
    std::size_t const d = lm_head.cols;
    std::size_t const vocabulary = lm_head.rows;

    // Pack both samples into one batch and bring the target's states into its rows.
    auto const samples = draw(f);
    sureleap::packed_batch batch(gamma);
    for (std::size_t s = 0; s < samples.size(); ++s) batch.add(s, samples[s].blocks);
    std::vector<double> hidden(batch.rows() * d);
    for (auto const& sequence : batch.sequences()) {
        for (std::size_t t = 0; t < sequence.rows.size(); ++t) {
            std::ranges::copy(stored_hidden.row(sequence.index, t),
                              hidden.begin() + static_cast<std::ptrdiff_t>((sequence.rows.begin + t) * d));
        }
    }
    struct place {
        std::size_t sample, block, k;
        std::size_t packed_block;
    };
    std::vector<place> slots;
    std::vector<std::size_t> sources;
    sureleap::loss_settings const settings{};  // the file's description: 0.1 / 0.9 / 1.0, decay 4
    double denominator = sureleap::loss_epsilon;
    std::vector<std::size_t> blocks_of_sample(samples.size());
    for (std::size_t b = 0; b < batch.blocks().size(); ++b) {
        auto const& block = batch.blocks()[b];
        std::size_t const within = blocks_of_sample[block.sequence]++;  // dummies come last, so the file's index too
        for (std::size_t k = 0; k < block.positions; ++k) {
            slots.push_back({batch.sequences()[block.sequence].index, within, k, b});
            sources.push_back(batch.target_row(b * gamma + k));
        }
        denominator += sureleap::weight_sum(settings, block.positions);
    }
    REQUIRE(!slots.empty());

    sureleap::chunk_limits const limits{.rows = 3, .slots = 4};
    sureleap::workspace sizer;
    std::ignore = sureleap::carve_supervision<double>(sizer, limits, d, vocabulary);
    std::vector<std::byte> bytes(sizer.used());
    sureleap::workspace ws(bytes);
    auto const memory = sureleap::carve_supervision<double>(ws, limits, d, vocabulary);

    std::vector<sureleap::position_loss> losses(slots.size());
    sureleap::target_supervision const supervision(sources, limits);
    supervision.for_each_chunk(
        sureleap::matrix_view<double>(hidden.data(), batch.rows(), d), memory,
        [&](sureleap::matrix_view<double> rows, sureleap::matrix_span<double> logits) {
            for (std::size_t i = 0; i < rows.rows; ++i) {
                sureleap::scalar_backend::gemv(lm_head.view(), rows.row(i), logits.row(i));
            }
        },
        [&](sureleap::supervised_chunk<double> const& chunk) {
            for (std::size_t i = 0; i < chunk.slots.size(); ++i) {
                auto const [s, b, k, packed] = slots[chunk.slots[i]];
                INFO("sample " << s << ", block " << b << ", position " << k);
                auto const logits = chunk.logits.row(chunk.rows[i]);
                bool const first_use = i == 0 || chunk.rows[i] != chunk.rows[i - 1];
                if (first_use) {
                    CHECK(std::abs(std::accumulate(logits.begin(), logits.end(), 0.0) - sums.at(s, b, k)) <= bound);
                    sureleap::row_softmax{}(std::span<double const>(logits), logits);
                }
                std::vector<token_id> labels(gamma);
                sureleap::block_labels(ids.row(s), batch.blocks()[packed].anchor, labels);
                std::vector<double> q(draft.row(s, b, k).begin(), draft.row(s, b, k).end());
                auto& loss = losses[chunk.slots[i]];
                double const weight = sureleap::position_weight(settings, k) / denominator;
                loss = sureleap::draft_loss(settings, weight, std::span<double>(q),
                                            sureleap::probability_row<double>{logits}, labels[k]);
                std::ignore = sureleap::confidence_loss(settings, weight, confidence.at(s, b, k), loss);
            }
        });

    sureleap::loss_report report(settings, gamma);
    std::size_t slot = 0;
    for (auto const& block : batch.blocks()) {
        report.add(std::span(losses).subspan(slot, block.positions));
        slot += block.positions;
    }
    CHECK(slot == losses.size());
    CHECK(std::abs(report.loss() - f.f64("loss")[0]) <= bound);
}
