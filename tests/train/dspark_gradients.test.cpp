// SPDX-License-Identifier: MIT
//
// DSpark in training. Every gradient agrees with finite differences of the loss by its definition. That includes gated
// and RNN heads, of which the reference has no stored values. What must not change a gradient does not.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/config.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/training/anchors.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/packing.hpp>
#include <train/draft_model.hpp>

#include "drafters.hpp"
#include "finite_differences.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/golden_engine.hpp"
#include "support/tiny_models.hpp"

namespace {

using namespace drafters;
using sureleap::anchored_block;
using sureleap::token_id;
using train::draft_block;

// A random drafter and a packed batch of three sequences for it, with two dummy blocks.
struct random_case {
    random_case(engine::head_kind head, bool confidence, std::uint64_t seed)
        : roll(seed),
          config(shape(head, confidence)),
          draft(engine::make_in_memory(config, engine::storage::f64, seed)) {
        std::size_t const gamma = config.draft->block_size;
        sureleap::packed_batch packed(gamma);
        std::vector<std::vector<anchored_block>> chosen{{{3, 4}, {5, 2}, {30, 4}}, {{0, 3}, {9, 1}}, {{17, 4}}};
        for (std::size_t s = 0; s < chosen.size(); ++s) packed.add(s, chosen[s]);
        blocks = train::blocks_of(packed);
        blocks.insert(blocks.begin() + 2, draft_block{});  // in the middle: rows behind it must not shift
        blocks.push_back({});
        previous = tiny::random_tokens(roll, blocks.size() * gamma, config.transformer.vocabulary);
        labels = tiny::random_tokens(roll, previous.size(), config.transformer.vocabulary);
        std::size_t const d = config.transformer.hidden_size;
        features = random_matrix<double>(roll, packed.rows(), config.draft->target_layer_ids.size() * d, 1.0);
        target_hidden = random_matrix<double>(roll, packed.rows(), d, 0.5);
        for (auto const& block : blocks) total_weight += sureleap::weight_sum(settings, block.positions);
    }

    static engine::model_config shape(engine::head_kind head, bool confidence) {
        engine::model_config c;
        c.kind = engine::architecture::dspark;
        c.transformer = small_transformer(2);
        bool const markov = head != engine::head_kind::none;
        c.draft = engine::draft_config{.block_size = 4,
                                       .target_layer_ids = {-1, 1},
                                       .num_target_layers = 3,
                                       .mask_token = 22,
                                       .markov_rank = markov ? std::size_t{5} : 0,
                                       .head = head,
                                       .confidence = confidence,
                                       .confidence_with_markov = confidence && markov};
        return c;
    }

    [[nodiscard]] train::draft_batch<double> batch() const {
        return {features.view(), target_hidden.view(), blocks, previous, labels};
    }

    [[nodiscard]] averaging over() const { return {settings, total_weight}; }
    outcome<double> run(train::draft_batch<double> const& b, sureleap::chunk_limits chunks = {}) {
        return draft.run(b, over(), tape, chunks);
    }

    // The supervised rows, as f(block row, its position in the block, the target row that supervises it).
    template <class F>
    void for_each_supervised(F const& f) const {
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            for (std::size_t k = 0; k < blocks[b].positions; ++k) {
                f(b * config.draft->block_size + k, k, blocks[b].context.end + k);
            }
        }
    }

    [[nodiscard]] std::vector<double> target_law(std::size_t row) const {
        return law_of(draft.lm_head, target_hidden.view().row(row));
    }
    // Draft logits of all rows; the tape is then that of this forward.
    train::matrix<double> draft_logits() {
        draft.model.forward(draft.parameters(), batch(), tape);
        train::matrix<double> logits(previous.size(), config.transformer.vocabulary);
        draft.model.logits(draft.parameters(), tape, logits.span());
        return logits;
    }

    // What the gradient takes as constant in the loss. It is the label c* of the confidence, which nothing flows
    // through, and the signs of q - p. Where a sign changes there is no gradient that differences could find. [block
    // rows]
    struct constants {
        std::vector<double> labels;
        std::vector<std::vector<double>> signs;
    };
    constants constants_of_loss() {
        auto const logits = draft_logits();
        constants out{std::vector<double>(previous.size()), std::vector<std::vector<double>>(previous.size())};
        for_each_supervised([&](std::size_t i, std::size_t, std::size_t target_row) {
            auto const q = softmax(logits.view().row(i));
            auto const p = target_law(target_row);
            out.labels[i] = 1;
            for (std::size_t v = 0; v < q.size(); ++v) {
                out.labels[i] -= 0.5 * std::abs(q[v] - p[v]);
                out.signs[i].push_back(q[v] > p[v] ? 1.0 : -1.0);
            }
        });
        return out;
    }

    // The loss by its definition, from all logits: nothing of sureleap/training in it.
    double direct_loss(constants const& fixed) {
        auto const logits = draft_logits();
        auto const& model = draft.model;
        std::vector<double> confidence(previous.size());
        if (model.has_confidence()) model.confidence(draft.parameters(), tape, confidence);
        double sum = 0;
        double weights = 0;
        for_each_supervised([&](std::size_t i, std::size_t k, std::size_t target_row) {
            auto const q = softmax(logits.view().row(i));
            auto const p = target_law(target_row);
            double loss = -settings.cross_entropy * std::log(q[static_cast<std::size_t>(labels[i])]);
            for (std::size_t v = 0; v < q.size(); ++v) {
                loss += settings.total_variation * fixed.signs[i][v] * (q[v] - p[v]);
            }
            if (model.has_confidence()) {
                double const c = 1 / (1 + std::exp(-confidence[i]));
                double const label = fixed.labels[i];
                loss -= settings.confidence * (label * std::log(c) + (1 - label) * std::log(1 - c));
            }
            double const weight = std::exp(-static_cast<double>(k) / settings.decay);
            sum += weight * loss;
            weights += weight;
        });
        return sum / (weights + 1e-6);
    }

    support::dice roll;
    engine::model_config config;
    sureleap::loss_settings settings{.decay = 2.5};
    drafter<train::draft_model, double> draft;
    std::vector<draft_block> blocks;
    std::vector<token_id> previous;
    std::vector<token_id> labels;
    train::matrix<double> features;
    train::matrix<double> target_hidden;
    double total_weight = 0;
    train::draft_tape<double> tape;
};

}  // namespace

TEST_CASE("DSpark in training: gradients of every head agree with finite differences", "[property][train]") {
    auto const head =
        GENERATE(engine::head_kind::none, engine::head_kind::vanilla, engine::head_kind::gated, engine::head_kind::rnn);
    bool const confidence = GENERATE(true, false);
    std::uint64_t const seed = 11;
    INFO("head " << engine::name_of(head) << ", confidence " << confidence << ", seed " << seed);
    random_case c(head, confidence, seed);
    auto const base = c.run(c.batch());
    auto const fixed = c.constants_of_loss();
    CHECK(std::abs(c.direct_loss(fixed) - base.loss) < 1e-12);
    support::check_gradients(c.draft.model.layout(), c.draft.values, base.gradients, c.roll, 2,
                             [&] { return c.direct_loss(fixed); });
}

TEST_CASE("DSpark in training: dummies and the size of chunks change no gradient", "[property][train]") {
    auto const head = GENERATE(engine::head_kind::vanilla, engine::head_kind::rnn);
    std::uint64_t const seed = 21;
    INFO("head " << engine::name_of(head) << ", seed " << seed);
    random_case c(head, true, seed);
    auto const all = c.run(c.batch());
    for (double const g : all.gradients) REQUIRE(std::isfinite(g));

    auto const chunked = c.run(c.batch(), {.rows = 2, .slots = 3});
    check_same(chunked, all);

    std::size_t const gamma = c.config.draft->block_size;
    for (std::size_t b = c.blocks.size(); b-- > 0;) {
        if (c.blocks[b].positions > 0) continue;
        auto const at = static_cast<std::ptrdiff_t>(b);
        auto const first = static_cast<std::ptrdiff_t>(b * gamma);
        auto const last = first + static_cast<std::ptrdiff_t>(gamma);
        c.blocks.erase(c.blocks.begin() + at);
        c.previous.erase(c.previous.begin() + first, c.previous.begin() + last);
        c.labels.erase(c.labels.begin() + first, c.labels.begin() + last);
    }
    auto const without = c.run(c.batch());
    check_same(without, all);
}

TEST_CASE("DSpark in training: gradients of batches add up", "[property][train]") {
    std::uint64_t const seed = 31;
    INFO("seed " << seed);
    random_case c(engine::head_kind::gated, true, seed);
    auto const all = c.run(c.batch());
    std::size_t const gamma = c.config.draft->block_size;
    std::vector<std::size_t> positions;
    for (draft_block const& b : c.blocks) positions.push_back(b.positions);
    check_blocks_add_up(all, c.over(), positions, [&](std::size_t b) {
        auto part = c.batch();
        part.blocks = part.blocks.subspan(b, 1);
        part.previous = part.previous.subspan(b * gamma, gamma);
        part.labels = part.labels.subspan(b * gamma, gamma);
        return c.run(part);
    });
}

TEST_CASE("DSpark in training: what does not fit is refused", "[train]") {
    random_case c(engine::head_kind::vanilla, true, 61);
    auto const error_of = [&](train::draft_batch<double> const& b) {
        return support::error_text([&] { c.draft.model.forward(c.draft.parameters(), b, c.tape); });
    };
    auto short_labels = c.batch();
    short_labels.labels = short_labels.labels.first(3);
    CHECK(error_of(short_labels) == "draft_batch: length of labels is 3, expected 32");
    c.blocks[0].positions = 5;
    CHECK(error_of(c.batch()) ==
          "draft_batch: block 0 has 5 positions after token rows [0, 3), expected at most 4 within 65 rows");
    c.blocks[0].positions = 4;
    c.previous[7] = 23;
    CHECK(error_of(c.batch()) == "draft_batch: previous[7] is 23, expected a token below 23");
}
