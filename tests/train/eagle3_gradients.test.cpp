// SPDX-License-Identifier: MIT
//
// Eagle3 in training. Every gradient agrees with finite differences of the loss by its definition. What must not change
// a gradient does not. A trained model loads into the engine.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/causal_lm.hpp>
#include <engine/checkpoint.hpp>
#include <engine/eagle3.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/ext/safetensors_writer.hpp>
#include <sureleap/training/losses.hpp>
#include <train/eagle3_model.hpp>

#include "drafters.hpp"
#include "eagle3_chains.hpp"
#include "finite_differences.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/golden_engine.hpp"

namespace {

using namespace drafters;

// A random drafter with a small batch, and the loss by its definition.
struct random_case {
    explicit random_case(std::uint64_t seed)
        : roll(seed),
          config(shape()),
          draft(engine::make_in_memory(config, engine::storage::f64, seed)),
          data(roll, config,
               {{34, {{3, 4}, {5, 2}, {0, 0}, {30, 4}}},
                {12, {{0, 3}, {9, 1}, {2, 4}}},
                {21, {{17, 4}, {1, 3}}},
                {1, {{0, 0}}}}) {
        for (auto const& b : data.blocks) total_weight += sureleap::weight_sum(settings, train::chain_steps(b));
    }

    static engine::model_config shape() {
        engine::model_config c;
        c.kind = engine::architecture::eagle3;
        c.transformer = small_transformer(1);
        c.draft = engine::draft_config{.block_size = 4, .target_layer_ids = {-1, 1}, .num_target_layers = 3};
        return c;
    }

    [[nodiscard]] averaging over() const { return {settings, total_weight}; }
    outcome<double> run(train::eagle3_batch<double> const& batch, sureleap::chunk_limits chunks = {}) {
        return draft.run(batch, over(), tape, chunks);
    }

    [[nodiscard]] std::vector<double> target_law(std::size_t row) const {
        return law_of(draft.lm_head, data.target_hidden.view().row(row));
    }

    // From all logits: nothing of sureleap/training in it. The total variation has no gradient where a sign of q - p
    // changes. So the signs are read from `signs` if it holds any, and else written to it.
    double direct_loss(std::vector<std::vector<double>>& signs) {
        auto const logits = logits_of(draft, data.batch(), tape);
        bool const first = signs.empty();
        double sum = 0;
        double weights = 0;
        for (std::size_t b = 0, i = 0; b < data.blocks.size(); ++b) {
            draft_block const& block = data.blocks[b];
            for (std::size_t k = 0; block.context.size() > 0 && k < block.positions; ++k, ++i) {
                auto const q = softmax(logits.view().row(b * config.draft->block_size + k));
                auto const p = target_law(block.context.end + k);
                if (first) signs.emplace_back();
                double loss = 0;
                for (std::size_t v = 0; v < q.size(); ++v) {
                    if (first) signs[i].push_back(q[v] > p[v] ? 1.0 : -1.0);
                    loss -= settings.cross_entropy * p[v] * std::log(q[v]);
                    loss += settings.total_variation * signs[i][v] * (q[v] - p[v]);
                }
                double const weight = std::pow(0.8, k);
                sum += weight * loss;
                weights += weight;
            }
        }
        return sum / (weights + 1e-6);
    }

    support::dice roll;
    engine::model_config config;
    sureleap::loss_settings settings = train::eagle3_losses();
    eagle3_drafter<double> draft;
    packed_sequences<double> data;
    double total_weight = 0;
    train::eagle3_tape<double> tape;
};

}  // namespace

TEST_CASE("eagle3 in training: gradients agree with finite differences", "[property][train]") {
    auto const seed = GENERATE(as<std::uint64_t>{}, 11, 12, 13);
    double const total_variation = GENERATE(0.0, 0.7);
    INFO("seed " << seed << ", total variation " << total_variation);
    random_case c(seed);
    c.settings.total_variation = total_variation;
    auto const base = c.run(c.data.batch());
    std::vector<std::vector<double>> signs;
    CHECK(std::abs(c.direct_loss(signs) - base.loss) < 1e-12);
    REQUIRE(signs.size() == 22);
    support::check_gradients(c.draft.model.layout(), c.draft.values, base.gradients, c.roll, 4,
                             [&] { return c.direct_loss(signs); });
}

TEST_CASE("eagle3 in training: gradients of recorded laws agree with finite differences", "[property][train]") {
    // Of every law some tokens are known, of some laws none, and some labels are none of the drafter's.
    std::uint64_t const seed = GENERATE(as<std::uint64_t>{}, 14, 15);
    INFO("seed " << seed);
    random_case c(seed);
    c.settings.total_variation = 0.9;
    std::size_t const gamma = c.config.draft->block_size;
    std::vector<std::size_t> begins{0};
    std::vector<sureleap::token_id> tokens, labels;
    std::vector<double> shares;
    for (std::size_t i = 0; i < c.data.blocks.size() * gamma; ++i) {
        labels.push_back(i % 5 == 2 ? sureleap::no_token : static_cast<sureleap::token_id>(c.roll.below(23)));
        double left = 0.9;
        for (auto v = static_cast<sureleap::token_id>(i % 3); v < 23 && i % 7 != 4; v += 3) {
            tokens.push_back(v);
            shares.push_back(left * (0.2 + 0.6 * static_cast<double>(c.roll.below(1000)) / 1000));
            left -= shares.back();
        }
        begins.push_back(tokens.size());
    }
    auto batch = c.data.batch();
    batch.target_hidden = {};
    batch.laws = {begins, tokens, shares};
    batch.labels = labels;
    std::vector<std::vector<double>> signs;
    auto const direct_loss = [&] {
        auto const logits = logits_of(c.draft, batch, c.tape);
        bool const first = signs.empty();
        double sum = 0;
        double weights = 0;
        std::size_t n = 0;
        for (std::size_t b = 0; b < batch.blocks.size(); ++b) {
            for (std::size_t k = 0; k < train::chain_steps(batch.blocks[b]); ++k, ++n) {
                std::size_t const i = b * gamma + k;
                auto const q = softmax(logits.view().row(i));
                std::vector<double> p(q.size());
                for (std::size_t j = begins[i]; j < begins[i + 1]; ++j) {
                    p[static_cast<std::size_t>(tokens[j])] = shares[j];
                }
                if (first) signs.emplace_back();
                double loss = labels[i] == sureleap::no_token ? 0 : -std::log(q[static_cast<std::size_t>(labels[i])]);
                double lost = 1;  // what the law has beside the known tokens
                for (std::size_t v = 0; v < q.size(); ++v) {
                    if (first) signs[n].push_back(q[v] > p[v] ? 1.0 : -1.0);
                    loss += 0.9 * signs[n][v] * (q[v] - p[v]);
                    lost -= p[v];
                }
                sum += std::pow(0.8, k) * (loss + 0.9 * lost);
                weights += std::pow(0.8, k);
            }
        }
        return sum / (weights + 1e-6);
    };
    auto const base = c.run(batch);
    CHECK(std::abs(direct_loss() - base.loss) < 1e-12);
    support::check_gradients(c.draft.model.layout(), c.draft.values, base.gradients, c.roll, 4, direct_loss);
    check_same(c.run(batch, {.rows = 2, .slots = 3}), base);

    // Without gradients the report is the same.
    sureleap::loss_report report(c.settings, gamma);
    c.draft.model.forward(c.draft.parameters(), batch, c.tape);
    c.draft.model.backward(c.draft.parameters(), batch, c.settings, c.total_weight, c.tape, {}, report);
    CHECK(report.loss() == base.loss);

    using Catch::Contains;
    auto const error_of = [&](train::eagle3_batch<double> const& b) {
        return support::error_text([&] { c.draft.model.forward(c.draft.parameters(), b, c.tape); });
    };
    auto wrong = batch;
    wrong.labels = wrong.labels.first(3);
    CHECK_THAT(error_of(wrong), Contains("length of labels is 3"));
    std::vector<sureleap::token_id> beyond = labels;
    beyond[7] = 23;
    wrong.labels = beyond;
    CHECK_THAT(error_of(wrong), Contains("labels[7] is 23, expected a token below 23"));
}

TEST_CASE("eagle3 in training: dummies, anchors without a past, chunks and old tapes change no gradient",
          "[property][train]") {
    std::uint64_t const seed = 21;
    INFO("seed " << seed);
    random_case c(seed);
    auto const all = c.run(c.data.batch());
    for (double const g : all.gradients) REQUIRE(std::isfinite(g));
    auto const chunked = c.run(c.data.batch(), {.rows = 2, .slots = 3});
    check_same(chunked, all);

    // Nor does what a tape holds from before, be it of parameters that had diverged.
    auto const values = std::exchange(c.draft.values, std::vector<double>(c.draft.values.size(), NAN));
    auto const blocks = c.data.blocks;
    for (draft_block& b : c.data.blocks) b.positions = b.context.size() > 0 ? 4 : 0;
    CHECK(std::isnan(c.run(c.data.batch()).loss));
    c.draft.values = values;
    c.data.blocks = blocks;
    CHECK(golden::difference(c.run(c.data.batch()).gradients, all.gradients) < 1e-13);

    std::erase_if(c.data.blocks, [](draft_block const& b) { return train::chain_steps(b) == 0; });
    REQUIRE(c.data.blocks.size() == 7);
    auto const without = c.run(c.data.batch());
    check_same(without, all);

    // Nothing but dummies, and nothing at all, are batches too.
    std::vector<draft_block> const dummies(3);
    for (std::size_t const count : {std::size_t{3}, std::size_t{0}}) {
        auto batch = c.data.batch();
        batch.blocks = std::span(dummies).first(count);
        auto const none = c.run(batch);
        CHECK(none.loss == 0.0);
        CHECK(std::ranges::all_of(none.gradients, [](double g) { return g == 0.0; }));
    }
}

TEST_CASE("eagle3 in training: gradients of batches add up", "[property][train]") {
    std::uint64_t const seed = 31;
    INFO("seed " << seed);
    random_case c(seed);
    auto const all = c.run(c.data.batch());
    std::vector<std::size_t> positions;
    for (draft_block const& b : c.data.blocks) positions.push_back(train::chain_steps(b));
    check_blocks_add_up(all, c.over(), positions, [&](std::size_t b) {
        auto part = c.data.batch();
        part.blocks = part.blocks.subspan(b, 1);
        return c.run(part);
    });
}

TEST_CASE("eagle3 in training: steps lower the loss, and the engine loads what was trained", "[train]") {
    std::uint64_t const seed = 41;
    INFO("seed " << seed);
    random_case c(seed);
    double const before = c.run(c.data.batch()).loss;
    std::vector<double> mean(c.draft.values.size());
    std::vector<double> square(mean.size());
    for (int n = 1; n <= 60; ++n) {
        auto const g = c.run(c.data.batch()).gradients;
        for (std::size_t i = 0; i < g.size(); ++i) {
            mean[i] += 0.1 * (g[i] - mean[i]);
            square[i] += 0.001 * (g[i] * g[i] - square[i]);
            double const m = mean[i] / (1 - std::pow(0.9, n));
            double const s = square[i] / (1 - std::pow(0.999, n));
            c.draft.values[i] -= 0.01 * m / (std::sqrt(s) + 1e-8);
        }
    }
    // The least there is: the entropy of the target's laws, when the drafter knows them all.
    double least = 0;
    double weights = 0;
    for (draft_block const& b : c.data.blocks) {
        for (std::size_t k = 0; k < train::chain_steps(b); ++k) {
            double const weight = sureleap::position_weight(c.settings, k);
            for (double const p : c.target_law(b.context.end + k)) least -= weight * p * std::log(p);
            weights += weight;
        }
    }
    least /= weights;
    double const after = c.run(c.data.batch()).loss;
    CAPTURE(before, after, least);
    CHECK(after > least);
    CHECK(after - least < 0.2 * (before - least));

    // A file of exactly the layout's tensors: embedding and LM head are the target's.
    namespace st = sureleap::safetensors;
    std::vector<st::tensor_spec> specs;
    for (auto const& e : c.draft.model.layout().entries()) {
        auto const shape = e.vector ? std::vector{e.place.cols} : std::vector{e.place.rows, e.place.cols};
        specs.push_back({e.name, st::dtype::f64, shape});
    }
    auto const path = std::filesystem::temp_directory_path() /
                      ("sureleap-eagle3-" + std::to_string(std::random_device{}()) + ".safetensors");
    st::writer out(path, specs);
    for (auto const& e : c.draft.model.layout().entries()) {
        out.append(std::as_bytes(e.place.values(c.draft.parameters())));
    }
    out.finish();
    std::vector<st::file> files;
    files.push_back(st::file::map(path));
    std::filesystem::remove(path);
    auto target_config = c.config;
    target_config.kind = engine::architecture::qwen3;
    target_config.transformer.layers = 3;
    target_config.draft.reset();
    engine::thread_pool pool(1);
    engine::serving_limits const limits{.slots = 12, .context_length = 120, .max_rows = 120};
    engine::causal_lm<double> served(engine::make_in_memory(target_config, engine::storage::f64, 5),
                                     c.config.draft->target_layer_ids, pool, limits);
    auto from = engine::checkpoint::from_files(c.config, std::move(files));
    eagle3_drafter<double> const same(from, served.embeddings(), served.output_head());
    CHECK(same.values == c.draft.values);
    engine::eagle3<double> model(std::move(from), served, pool, limits);
    auto const got = logits_of(same, c.data.batch(), c.tape);
    CHECK(check_equal(c.data, c.config.draft->block_size, got, engine_logits(model, c.data)) == 22);
}

TEST_CASE("eagle3 in training: what does not fit is refused", "[train]") {
    random_case c(51);
    auto const error_of = [&](train::eagle3_batch<double> const& b) {
        return support::error_text([&] { c.draft.model.forward(c.draft.parameters(), b, c.tape); });
    };
    auto batch = c.data.batch();
    batch.next_tokens = batch.next_tokens.first(3);
    CHECK(error_of(batch) == "eagle3_batch: length of next_tokens is 3, expected 68");
    c.data.blocks[0].positions = 5;
    CHECK(error_of(c.data.batch()) ==
          "eagle3_batch: block 0 has 5 positions after token rows [0, 3), expected at most 4 within 68 rows");
    c.data.blocks[0].positions = 4;
    c.data.next_tokens[7] = 23;
    CHECK(error_of(c.data.batch()) == "eagle3_batch: next_tokens[7] is 23, expected a token below 23");
    c.data.next_tokens[7] = 22;
    CHECK(error_of(c.data.batch()).empty());

    auto const made = [&](engine::model_config const& config, std::size_t max_positions) {
        return support::error_text([&] {
            train::eagle3_model<double> const model(config, c.draft.embeddings.view(), c.draft.lm_head.view(),
                                                    max_positions);
            model.forward(c.draft.parameters(), c.data.batch(), c.tape);
        });
    };
    CHECK(made(c.config, 34).empty());
    CHECK(made(c.config, 33) == "eagle3_batch: block 3 reaches position 33, expected below 33");
    auto other = c.config;
    other.kind = engine::architecture::dspark;
    CHECK(made(other, 34) == "eagle3_model: architecture is Qwen3DSparkModel, expected Qwen3Eagle3Model");
    other = c.config;
    other.transformer.vocabulary = 24;
    CHECK(made(other, 34) == "eagle3_model: embeddings is [23, 12], expected [24, 12] (vocabulary x hidden)");
}
