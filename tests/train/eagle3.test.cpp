// SPDX-License-Identifier: MIT
//
// Eagle3 in training: chains equal what the engine's drafter makes of the same tokens, and what the reference made of
// its own; every gradient agrees with finite differences; what is trained loads into the engine.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/checkpoint.hpp>
#include <engine/eagle3.hpp>
#include <engine/qwen3.hpp>
#include <engine/stand_in.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/ext/safetensors_writer.hpp>
#include <sureleap/training/losses.hpp>
#include <train/eagle3_model.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/golden_engine.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::token_id;
using train::draft_block;

template <class Real>
constexpr double tolerance = std::is_same_v<Real, double> ? 1e-12 : 2e-5;

template <class Real>
train::matrix<Real> table(engine::weight const& stored) {
    train::matrix<Real> out(stored.rows, stored.cols);
    for (std::size_t i = 0; i < out.rows(); ++i) engine::load_row(stored, i, out.span().row(i).data());
    return out;
}

template <class Real>
train::matrix<Real> random_matrix(support::dice& roll, std::size_t rows, std::size_t cols, double size) {
    train::matrix<Real> out(rows, cols);
    for (std::size_t i = 0; i < rows * cols; ++i) out.span().data[i] = static_cast<Real>(size * roll.bell());
    return out;
}

// A drafter with its parameters and the tables it shares with its target.
template <class Real>
struct drafter {
    drafter(engine::checkpoint const& from, engine::weight const& embedding_table, engine::weight const& output_head)
        : embeddings(table<Real>(embedding_table)),
          lm_head(table<Real>(output_head)),
          model(from.config(), embeddings.view(), lm_head.view(), 256),
          values(model.layout().size()) {
        model.layout().load(from, std::span(values));
    }
    // With the tables of its own file.
    explicit drafter(engine::checkpoint const& from) : drafter(from, own(from, "embed_tokens"), own(from, "lm_head")) {}

    static engine::weight own(engine::checkpoint const& from, std::string const& name) {
        auto const& t = from.config().transformer;
        return from.matrix(name + ".weight", t.vocabulary, t.hidden_size);
    }
    [[nodiscard]] std::span<Real const> parameters() const { return values; }
    // Logits of every chain row; the tape is then that of this forward.
    train::matrix<Real> logits(train::eagle3_batch<Real> const& batch, train::eagle3_tape<Real>& tape) const {
        model.forward(parameters(), batch, tape);
        train::matrix<Real> out(tape.hidden.rows(), lm_head.rows());
        model.logits(tape, out.span());
        return out;
    }

    train::matrix<Real> embeddings;
    train::matrix<Real> lm_head;
    train::eagle3_model<Real> model;
    std::vector<Real> values;
};

// Sequences packed one behind the other, with the blocks of all of them.
template <class Real>
struct packed_sequences {
    struct sequence {
        std::size_t length;                                       // token rows; there is one token more
        std::vector<std::pair<std::size_t, std::size_t>> blocks;  // anchor, positions
    };

    packed_sequences(support::dice& roll, engine::model_config const& config, std::vector<sequence> const& sequences) {
        auto const& t = config.transformer;
        std::size_t rows = 0;
        for (auto const& s : sequences) {
            first.push_back(rows);
            for (auto const& [anchor, positions] : s.blocks) blocks.push_back({{rows, rows + anchor}, positions});
            rows += s.length;
        }
        next_tokens = tiny::random_tokens(roll, rows, t.vocabulary);
        features = random_matrix<Real>(roll, rows, config.draft->target_layer_ids.size() * t.hidden_size, 1.0);
        target_hidden = random_matrix<Real>(roll, rows, t.hidden_size, 0.5);
    }
    [[nodiscard]] train::eagle3_batch<Real> batch() const {
        return {features.view(), target_hidden.view(), blocks, next_tokens};
    }

    std::vector<std::size_t> first;
    std::vector<draft_block> blocks;
    std::vector<token_id> next_tokens;
    train::matrix<Real> features;
    train::matrix<Real> target_hidden;
};

// Logits of the engine's drafter in the place of every chain row: each block in a slot of its own that has observed its
// context, row by row or at once, all of them drafting together.
template <class Real>
train::matrix<Real> engine_logits(engine::eagle3<Real>& model, packed_sequences<Real> const& data) {
    std::size_t const gamma = model.block_size();
    std::vector<tiny::segment> segments;
    std::vector<std::size_t> who;
    for (std::size_t b = 0; b < data.blocks.size(); ++b) {
        auto const& context = data.blocks[b].context;
        if (context.size() == 0) continue;
        std::vector<engine::batch_row> rows;
        for (std::size_t i = 0; i < context.size(); ++i) {
            rows.push_back({static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(i), 0});
        }
        std::size_t const piece = b % 2 == 0 ? rows.size() : 1;
        for (std::size_t i = 0; i < rows.size(); i += piece) {
            model.observe(std::span(rows).subspan(i, piece), data.features.view().row(context.begin + i).data(),
                          std::span(data.next_tokens).subspan(context.begin + i, piece));
        }
        who.push_back(b);
        segments.push_back({b, context.size(), {data.next_tokens[context.end - 1]}});
    }
    tiny::flat_batch const batch(segments);
    std::vector<token_id> drafts;  // of every request, gamma - 1
    for (std::size_t const b : who) {
        for (std::size_t k = 0; k + 1 < gamma; ++k) {
            std::size_t const row = data.blocks[b].context.end + k;
            drafts.push_back(row < data.next_tokens.size() ? data.next_tokens[row] : 0);
        }
    }
    train::matrix<Real> out(data.blocks.size() * gamma, model.config().vocabulary);
    for (std::size_t k = 0; k < gamma; ++k) {
        auto const got = model.forward(batch.requests(), {drafts.data(), gamma - 1, k});
        for (std::size_t r = 0; r < who.size(); ++r) {
            std::ranges::copy(got.values.row(r), out.span().row(who[r] * gamma + k).begin());
        }
    }
    return out;
}

template <class Real>
std::size_t check_equal(packed_sequences<Real> const& data, std::size_t gamma, train::matrix<Real> const& got,
                        train::matrix<Real> const& expected) {
    std::size_t compared = 0;
    for (std::size_t b = 0; b < data.blocks.size(); ++b) {
        for (std::size_t k = 0; k < train::chain_steps(data.blocks[b]); ++k) {
            CAPTURE(b, k);
            std::size_t const row = b * gamma + k;
            CHECK(golden::difference(got.view().row(row), expected.view().row(row)) < tolerance<Real>);
            ++compared;
        }
    }
    return compared;
}

std::vector<tiny::shape> shapes() {
    return {{},
            {.hidden = 24, .intermediate = 20, .heads = 6, .kv_heads = 1, .head_dim = 6, .vocabulary = 37, .theta = 50},
            {.hidden = 16, .heads = 3, .kv_heads = 3, .head_dim = 10, .vocabulary = 29, .tied = true, .epsilon = 1e-3}};
}

constexpr engine::serving_limits limits{.slots = 12, .context_length = 120, .max_rows = 120};

}  // namespace

TEMPLATE_TEST_CASE("eagle3 in training: a chain is what the engine drafts of the same tokens", "[train]", double,
                   float) {
    using Real = TestType;
    engine::thread_pool pool(2);
    for (std::size_t i = 0; tiny::shape const& s : shapes()) {
        tiny::drafter_shape const d{.block_size = 3 + 2 * i, .output = tiny::lm_head::own};
        support::dice roll(70 + i++);
        INFO(s << ", seed " << roll.seed());
        auto const config = tiny::eagle3_config(s, d);
        auto const make = [&] { return engine::make_in_memory(config, engine::storage::f64, roll.seed()); };
        engine::qwen3<Real> served(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1),
                                   tiny::feature_layers(s), pool, limits);
        engine::eagle3<Real> model(make(), served, pool, limits);
        drafter<Real> const draft(make());
        // Anchors at the first possible position and right after another; a short chain at the end of a sequence, a
        // dummy, an anchor with nothing before it, and more rows than a tile of the attention has.
        std::size_t const gamma = d.block_size;
        packed_sequences<Real> const data(roll, config,
                                          {{40, {{1, gamma}, {2, gamma}, {17, gamma}, {38, 2}}},
                                           {12, {{0, gamma}, {3, 1}, {0, 0}, {5, gamma}}},
                                           {100, {{99, 1}, {90, gamma}}}});
        train::eagle3_tape<Real> tape;
        auto const got = draft.logits(data.batch(), tape);
        CHECK(check_equal(data, gamma, got, engine_logits(model, data)) == 5 * gamma + 4);
    }
}

TEST_CASE("eagle3 in training: many chains of one sequence", "[train]") {
    engine::thread_pool pool(2);
    tiny::shape const s;
    auto const config = tiny::eagle3_config(s, {.block_size = 4});
    support::dice roll(80);
    engine::qwen3<double> served(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1),
                                 tiny::feature_layers(s), pool, {.slots = 90, .context_length = 120, .max_rows = 120});
    engine::eagle3<double> model(engine::make_in_memory(config, engine::storage::f64, 2), served, pool,
                                 {.slots = 90, .context_length = 120, .max_rows = 120});
    drafter<double> const draft(engine::make_in_memory(config, engine::storage::f64, 2));
    packed_sequences<double>::sequence all{100, {}};
    for (std::size_t anchor = 1; anchor <= 90; ++anchor) all.blocks.emplace_back(anchor, 4);
    packed_sequences<double> const data(roll, config, {all});
    train::eagle3_tape<double> tape;
    auto const got = draft.logits(data.batch(), tape);
    CHECK(check_equal(data, 4, got, engine_logits(model, data)) == 360);
    // Nor does it matter what batch a tape had before.
    auto part = data.batch();
    part.blocks = part.blocks.subspan(20, 7);
    draft.logits(part, tape);
    auto const again = draft.logits(data.batch(), tape);
    CHECK(golden::difference(again.view().row(359), got.view().row(359)) < 1e-13);
}

TEMPLATE_TEST_CASE("golden: Eagle3's draft logits come from a training forward", "[golden][train]", double, float) {
    using Real = TestType;
    golden::file const f("eagle3_loop");
    auto const shape = [&](std::string const& name) { return f.f64("w." + name).shape; };
    engine::model_config config;
    config.kind = engine::architecture::eagle3;
    auto& t = config.transformer;
    t.vocabulary = shape("embed_tokens.weight")[0];
    t.hidden_size = shape("embed_tokens.weight")[1];
    t.intermediate_size = shape("layers.0.mlp.gate_proj.weight")[0];
    t.layers = 1;
    t.head_dim = shape("layers.0.self_attn.q_norm.weight")[0];
    t.heads = shape("layers.0.self_attn.q_proj.weight")[0] / t.head_dim;
    t.kv_heads = shape("layers.0.self_attn.k_proj.weight")[0] / t.head_dim;
    t.max_positions = 4096;
    t.rope_theta = 1e6;
    t.rms_norm_eps = 1e-6;
    std::size_t const gamma = std::stoul(golden::stated("eagle3_loop", "", R"(ttt_length ([0-9]+))", "7"));
    config.draft = engine::draft_config{.block_size = gamma, .target_layer_ids = {}};
    for (std::size_t i = 0; i < shape("fc.weight")[1] / t.hidden_size; ++i) {
        config.draft->target_layer_ids.push_back(static_cast<int>(i));
    }
    drafter<Real> const draft(golden::copy_of(f, "w.", config));
    golden::weight_store store;
    engine::thread_pool pool(1);
    engine::stand_in<Real> served(store.target<Real>(f, store.matrix(f, "w.embed_tokens.weight")),
                                  config.draft->target_layer_ids, pool,
                                  {.slots = 1, .context_length = 128, .max_rows = 128});
    for (std::size_t number = 0; f.contains("s" + std::to_string(number) + ".prompt"); ++number) {
        std::string const sample = "s" + std::to_string(number) + ".";
        INFO(sample);
        auto const expected = f.f64(sample + "draft_logits");
        auto const output = f.i32(sample + "output").values;
        auto const uniforms = f.f64(sample + "u_sample").values;
        auto const accepted = f.i32(sample + "acceptance_lengths").values;
        auto const proposed = f.i32(sample + "proposal_lengths").values;
        // A block a round, of what the reference drafted: its draws, from its own logits. A whole block, of which the
        // stored rows may be the beginning; a round that a stop token ended is known by its length alone.
        std::size_t anchor = f.i32(sample + "prompt").size();
        std::size_t row = 0;
        std::size_t drawn = 1;  // the prompt's next token
        for (std::size_t round = 0; round < proposed.size() && row < expected.dim(0); ++round) {
            auto const drafts = static_cast<std::size_t>(proposed[round]);
            std::size_t const known = std::min(drafts, expected.dim(0) - row);
            std::vector<token_id> tokens(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(anchor) + 1);
            for (std::size_t k = 0; k < known; ++k) {
                auto const logits = expected.row(row + k);
                std::vector<double> weights;
                for (double const l : logits) weights.push_back(std::exp(l));
                double const u = uniforms[drawn + k] * std::accumulate(weights.begin(), weights.end(), 0.0);
                std::partial_sum(weights.begin(), weights.end(), weights.begin());
                tokens.push_back(static_cast<token_id>(std::ranges::upper_bound(weights, u) - weights.begin()));
            }
            served.prefill(0, 0, std::span<token_id const>(tokens).first(tokens.size() - 1));
            auto const features = served.features();
            train::matrix<Real> const unused(features.rows, t.hidden_size);
            std::vector<draft_block> const blocks{{{0, anchor}, known}};
            train::eagle3_tape<Real> tape;
            auto const got =
                draft.logits({features, unused.view(), blocks, std::span<token_id const>(tokens).subspan(1)}, tape);
            for (std::size_t k = 0; k < known; ++k) {
                CAPTURE(round, k);
                CHECK(golden::difference(got.view().row(k), expected.row(row + k)) < 10 * tolerance<Real>);
            }
            row += known;
            drawn += drafts + 1;
            anchor += static_cast<std::size_t>(accepted[round]);
        }
        CHECK(row == expected.dim(0));
    }
}

namespace {

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
        c.transformer = {.vocabulary = 23,
                         .hidden_size = 12,
                         .intermediate_size = 10,
                         .layers = 1,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 6,
                         .max_positions = 256,
                         .rope_theta = 1e3,
                         .rms_norm_eps = 1e-5,
                         .tied_embeddings = false};
        c.draft = engine::draft_config{.block_size = 4, .target_layer_ids = {-1, 1}, .num_target_layers = 3};
        return c;
    }

    struct outcome {
        std::vector<double> gradients;
        double loss = 0;
    };
    outcome run(train::eagle3_batch<double> const& batch, sureleap::chunk_limits chunks = {}) {
        outcome out;
        out.gradients.resize(draft.values.size());
        draft.model.forward(draft.parameters(), batch, tape);
        sureleap::loss_report report(settings, draft.model.block_size());
        draft.model.backward(draft.parameters(), batch, settings, total_weight, tape, std::span(out.gradients), report,
                             chunks);
        out.loss = report.loss();
        return out;
    }

    static std::vector<double> softmax(std::span<double const> logits) {
        std::vector<double> out;
        double total = 0;
        for (double const x : logits) total += out.emplace_back(std::exp(x));
        for (double& x : out) x /= total;
        return out;
    }
    [[nodiscard]] std::vector<double> target_law(std::size_t row) const {
        std::vector<double> logits(config.transformer.vocabulary);
        for (std::size_t v = 0; v < logits.size(); ++v) {
            for (std::size_t j = 0; j < config.transformer.hidden_size; ++j) {
                logits[v] += data.target_hidden.view().row(row)[j] * draft.lm_head.view().row(v)[j];
            }
        }
        return softmax(logits);
    }

    // From all logits: nothing of sureleap/training in it. `signs` of q - p, at whose changes the total variation has
    // no gradient that differences could find, are taken from there if there are any, and else put there.
    double direct_loss(std::vector<std::vector<double>>& signs) {
        auto const logits = draft.logits(data.batch(), tape);
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
    drafter<double> draft;
    packed_sequences<double> data;
    double total_weight = 0;
    train::eagle3_tape<double> tape;
};

// (f(x + h) - f(x - h)) / 2h, improved by the same at 2h: the error falls with h^4.
template <class F>
double derivative(double& x, F const& f) {
    constexpr double h = 2e-4;
    double const at = x;
    auto const slope = [&](double by) {
        x = at + by;
        double const above = f();
        x = at - by;
        double const below = f();
        x = at;
        return (above - below) / (2 * by);
    };
    return (4 * slope(h) - slope(2 * h)) / 3;
}

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
    for (auto const& entry : c.draft.model.layout().entries()) {
        CAPTURE(entry.name);
        double largest = 0;
        for (double const g : entry.place.values(std::span<double const>(base.gradients))) {
            largest = std::max(largest, std::abs(g));
        }
        CHECK(largest > 0);
        for (int n = 0; n < 4; ++n) {
            std::size_t const i = entry.place.offset + c.roll.below(entry.place.size());
            double const found = derivative(c.draft.values[i], [&] { return c.direct_loss(signs); });
            CAPTURE(i, found, base.gradients[i]);
            CHECK(std::abs(found - base.gradients[i]) < 1e-7 * std::max(largest, 1e-2));
        }
    }
}

TEST_CASE("eagle3 in training: dummies, anchors without a past, chunks and old tapes change no gradient",
          "[property][train]") {
    std::uint64_t const seed = 21;
    INFO("seed " << seed);
    random_case c(seed);
    auto const all = c.run(c.data.batch());
    for (double const g : all.gradients) REQUIRE(std::isfinite(g));
    auto const chunked = c.run(c.data.batch(), {.rows = 2, .slots = 3});
    CHECK(golden::difference(chunked.gradients, all.gradients) < 1e-13);
    CHECK(std::abs(chunked.loss - all.loss) < 1e-13);

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
    CHECK(golden::difference(without.gradients, all.gradients) < 1e-13);
    CHECK(std::abs(without.loss - all.loss) < 1e-13);

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
    std::vector<double> sum(all.gradients.size());
    double loss = 0;
    for (std::size_t b = 0; b < c.data.blocks.size(); ++b) {
        auto part = c.data.batch();
        part.blocks = part.blocks.subspan(b, 1);
        auto const one = c.run(part);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one.gradients[i];
        double const weight = sureleap::weight_sum(c.settings, train::chain_steps(c.data.blocks[b]));
        loss += one.loss * (weight + sureleap::loss_epsilon) / (c.total_weight + sureleap::loss_epsilon);
    }
    CHECK(golden::difference(sum, all.gradients) < 1e-13);
    CHECK(std::abs(loss - all.loss) < 1e-13);
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
    engine::qwen3<double> served(engine::make_in_memory(target_config, engine::storage::f64, 5),
                                 c.config.draft->target_layer_ids, pool, limits);
    auto from = engine::checkpoint::from_files(c.config, std::move(files));
    drafter<double> const same(from, served.embeddings(), served.output_head());
    CHECK(same.values == c.draft.values);
    engine::eagle3<double> model(std::move(from), served, pool, limits);
    auto const got = same.logits(c.data.batch(), c.tape);
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
