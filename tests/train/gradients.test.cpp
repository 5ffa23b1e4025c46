// SPDX-License-Identifier: MIT
//
// The trainer's models: forward, loss and every gradient of a DSpark drafter against stored reference values, and
// against finite differences for what the stored values do not have (gated and RNN heads, long tiles, causal rows).
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/checkpoint.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/training/anchors.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/packing.hpp>
#include <train/draft_model.hpp>
#include <train/layer.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/golden_engine.hpp"

namespace {

using sureleap::anchored_block;
using sureleap::token_id;
using train::draft_block;
using train::row_span;

template <class Real>
constexpr double tolerance = std::is_same_v<Real, double> ? 1e-12 : 2e-5;

template <class Real>
std::vector<Real> as(std::vector<double> const& x) {
    std::vector<Real> out;
    for (double const v : x) out.push_back(static_cast<Real>(v));
    return out;
}

// A frozen table of a checkpoint.
template <class Real>
train::matrix<Real> table(engine::checkpoint const& from, std::string const& name) {
    auto const& t = from.config().transformer;
    train::matrix<Real> out(t.vocabulary, t.hidden_size);
    auto const stored = from.matrix(name, out.rows(), out.cols());
    for (std::size_t i = 0; i < out.rows(); ++i) engine::load_row(stored, i, out.span().row(i).data());
    return out;
}

// A drafter with its parameters.
template <class Real>
struct drafter {
    explicit drafter(engine::checkpoint const& from)
        : embeddings(table<Real>(from, "embed_tokens.weight")),
          lm_head(table<Real>(from, "lm_head.weight")),
          model(from.config(), embeddings.view(), lm_head.view(), from.config().transformer.max_positions),
          values(model.layout().size()) {
        model.layout().load(from, std::span(values));
    }
    [[nodiscard]] std::span<Real const> parameters() const { return values; }

    train::matrix<Real> embeddings;
    train::matrix<Real> lm_head;
    train::draft_model<Real> model;
    std::vector<Real> values;
};

}  // namespace

TEMPLATE_TEST_CASE("golden: the training forward of DSpark, its loss and all gradients", "[golden][train]", double,
                   float) {
    using Real = TestType;
    golden::file const f("tiny_train");
    engine::checkpoint const from{golden::tiny_drafter()};
    drafter<Real> draft(from);
    std::size_t const gamma = draft.model.block_size();

    // The batch, with the blocks that the file's uniforms choose.
    auto const tokens = f.i32("input_ids");
    auto const mask = f.i32("loss_mask");
    auto const uniforms = f.f64("u_anchor");
    auto const anchors = f.i32("anchors");
    auto const keep = f.i32("keep");
    auto const eval_mask = f.i32("eval_mask");
    auto const target_ids = f.i32("target_ids");
    std::size_t const sequences = tokens.dim(0);
    std::size_t const length = tokens.dim(1);
    std::size_t const count = anchors.dim(1);
    std::vector<draft_block> blocks;
    std::vector<token_id> previous;
    std::vector<token_id> labels;
    double total_weight = 0;
    sureleap::loss_settings const settings;
    for (std::size_t s = 0; s < sequences; ++s) {
        std::vector<std::uint8_t> counts;
        for (auto const m : mask.row(s)) counts.push_back(static_cast<std::uint8_t>(m));
        auto chosen = sureleap::sample_blocks(counts, count, gamma, [&](std::size_t t) { return uniforms.at(s, t); });
        chosen.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            REQUIRE(chosen[i].anchor == static_cast<std::size_t>(anchors.at(s, i)));
            REQUIRE((chosen[i].positions > 0) == (keep.at(s, i) != 0));
            blocks.push_back({{s * length, s * length + chosen[i].anchor}, chosen[i].positions});
            total_weight += sureleap::weight_sum(settings, chosen[i].positions);
            std::vector<token_id> row(gamma);
            sureleap::block_previous(tokens.row(s), chosen[i].anchor, row);
            if (chosen[i].positions == 0) std::ranges::fill(row, tokens.at(s, std::size_t{0}));  // as the file has it
            previous.insert(previous.end(), row.begin(), row.end());
            sureleap::block_labels(tokens.row(s), chosen[i].anchor, row);
            labels.insert(labels.end(), row.begin(), row.end());
            for (std::size_t k = 0; k < gamma; ++k) {
                REQUIRE((k < chosen[i].positions) == (eval_mask.at(s, i, k) != 0));
                if (k < chosen[i].positions) REQUIRE(row[k] == target_ids.at(s, i, k));
            }
        }
    }
    auto const features = as<Real>(f.f64("ctx").values);
    auto const target_hidden = as<Real>(f.f64("target_last").values);
    std::size_t const rows = sequences * length;
    train::draft_batch<Real> const batch{{features.data(), rows, features.size() / rows},
                                         {target_hidden.data(), rows, target_hidden.size() / rows},
                                         blocks,
                                         previous,
                                         labels};

    train::draft_tape<Real> tape;
    draft.model.forward(draft.parameters(), batch, tape);

    auto const expected_logits = f.f64("draft_logits");
    train::matrix<Real> logits(previous.size(), from.config().transformer.vocabulary);
    draft.model.logits(draft.parameters(), tape, logits.span());
    std::vector<Real> confidence(previous.size());
    draft.model.confidence(draft.parameters(), tape, confidence);
    auto const expected_confidence = f.f64("confidence");
    for (std::size_t i = 0; i < previous.size(); ++i) {
        auto const want = std::span(expected_logits.values).subspan(i * logits.cols(), logits.cols());
        CHECK(golden::difference(logits.view().row(i), want) < tolerance<Real>);
        CHECK(std::abs(static_cast<double>(confidence[i]) - expected_confidence[i]) < tolerance<Real>);
    }

    std::vector<Real> gradients(draft.values.size());
    sureleap::loss_report report(settings, gamma);
    draft.model.backward(draft.parameters(), batch, settings, total_weight, tape, std::span(gradients), report,
                         {.rows = 3, .slots = 5});
    CHECK(std::abs(report.loss() - f.f64("loss")[0]) < tolerance<Real>);

    std::set<std::string> compared;
    for (auto const& entry : draft.model.layout().entries()) {
        auto const want = f.f64("grad." + entry.name);
        CAPTURE(entry.name);
        CHECK(entry.vector == (want.shape.size() == 1));
        double const largest =
            std::abs(*std::ranges::max_element(want.values, {}, [](double x) { return std::abs(x); }));
        CHECK(largest > 0);
        // Relative to the tensor's own largest gradient, some of which are small.
        auto const got = entry.place.values(std::span<Real const>(gradients));
        REQUIRE(got.size() == want.size());
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            double const d = std::abs(static_cast<double>(got[i]) - want[i]);
            if (!(d <= worst)) worst = d;
        }
        CHECK(worst < 10 * tolerance<Real> * std::max(largest, 1e-3));
        compared.insert("grad." + entry.name);
    }
    for (std::string const& name : f.names()) {
        if (name.starts_with("grad.")) CHECK(compared.contains(name));
    }
}

namespace {

// A random drafter and a packed batch of three sequences for it, with two dummy blocks at the end.
struct random_case {
    random_case(engine::head_kind head, bool confidence, std::uint64_t seed)
        : roll(seed), config(shape(head, confidence)) {
        engine::checkpoint const from = engine::make_in_memory(config, engine::storage::f64, seed);
        draft.emplace_back(from);
        std::size_t const gamma = config.draft->block_size;
        sureleap::packed_batch packed(gamma);
        std::vector<std::vector<anchored_block>> chosen{{{3, 4}, {5, 2}, {30, 4}}, {{0, 3}, {9, 1}}, {{17, 4}}};
        for (std::size_t s = 0; s < chosen.size(); ++s) packed.add(s, chosen[s]);
        blocks = train::blocks_of(packed);
        blocks.insert(blocks.begin() + 2, draft_block{});  // in the middle: rows behind it must not shift
        blocks.push_back({});
        previous.resize(blocks.size() * gamma);
        labels.resize(previous.size());
        for (token_id& x : previous) x = static_cast<token_id>(roll.below(config.transformer.vocabulary));
        for (token_id& x : labels) x = static_cast<token_id>(roll.below(config.transformer.vocabulary));
        std::size_t const d = config.transformer.hidden_size;
        fill(features, packed.rows(), config.draft->target_layer_ids.size() * d, 1.0);
        fill(target_hidden, packed.rows(), d, 0.5);
        for (auto const& block : blocks) total_weight += sureleap::weight_sum(settings, block.positions);
    }

    static engine::model_config shape(engine::head_kind head, bool confidence) {
        engine::model_config c;
        c.kind = engine::architecture::dspark;
        c.transformer = {.vocabulary = 23,
                         .hidden_size = 12,
                         .intermediate_size = 10,
                         .layers = 2,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 6,
                         .max_positions = 256,
                         .rope_theta = 1e3,
                         .rms_norm_eps = 1e-5,
                         .tied_embeddings = false};
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

    void fill(train::matrix<double>& m, std::size_t rows, std::size_t cols, double size) {
        auto const all = m.resize(rows, cols);
        for (std::size_t i = 0; i < rows * cols; ++i) all.data[i] = size * roll.bell();
    }

    [[nodiscard]] train::draft_batch<double> batch() const {
        return {features.view(), target_hidden.view(), blocks, previous, labels};
    }

    struct outcome {
        std::vector<double> gradients;
        double loss = 0;
    };
    outcome run(std::span<double const> values, train::draft_batch<double> const& b,
                sureleap::chunk_limits limits = {}) {
        outcome out;
        out.gradients.resize(values.size());
        auto const& model = draft.front().model;
        model.forward(values, b, tape);
        sureleap::loss_report report(settings, model.block_size());
        model.backward(values, b, settings, total_weight, tape, std::span(out.gradients), report, limits);
        out.loss = report.loss();
        return out;
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
                logits[v] += target_hidden.view().row(row)[j] * draft.front().lm_head.view().row(v)[j];
            }
        }
        return softmax(logits);
    }
    // Draft logits of all rows at the given parameters; the tape is then that of this forward.
    train::matrix<double> draft_logits(std::span<double const> values) {
        draft.front().model.forward(values, batch(), tape);
        train::matrix<double> logits(previous.size(), config.transformer.vocabulary);
        draft.front().model.logits(values, tape, logits.span());
        return logits;
    }

    // What of the loss is a constant to its gradient: the label c* of the confidence, which nothing flows through, and
    // the signs of q - p, at whose changes there is no gradient that differences could find. [block rows]
    struct constants {
        std::vector<double> labels;
        std::vector<std::vector<double>> signs;
    };
    constants constants_at(std::span<double const> values) {
        auto const logits = draft_logits(values);
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
    double direct_loss(std::span<double const> values, constants const& fixed) {
        auto const logits = draft_logits(values);
        auto const& model = draft.front().model;
        std::vector<double> confidence(previous.size());
        if (model.has_confidence()) model.confidence(values, tape, confidence);
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
    std::vector<drafter<double>> draft;
    std::vector<draft_block> blocks;
    std::vector<token_id> previous;
    std::vector<token_id> labels;
    train::matrix<double> features;
    train::matrix<double> target_hidden;
    double total_weight = 0;
    train::draft_tape<double> tape;
};

// (f(x + h) - f(x - h)) / 2h, improved by the same at 2h: the error falls with h^4.
template <class F>
double derivative(double& x, F const& f) {
    constexpr double h = 2e-4;
    double const at = x;
    auto const slope = [&](double step) {
        x = at + step;
        double const above = f();
        x = at - step;
        double const below = f();
        x = at;
        return (above - below) / (2 * step);
    };
    return (4 * slope(h) - slope(2 * h)) / 3;
}

}  // namespace

TEST_CASE("training gradients of every head agree with finite differences", "[property][train]") {
    auto const head =
        GENERATE(engine::head_kind::none, engine::head_kind::vanilla, engine::head_kind::gated, engine::head_kind::rnn);
    bool const confidence = GENERATE(true, false);
    std::uint64_t const seed = 11;
    INFO("head " << engine::name_of(head) << ", confidence " << confidence << ", seed " << seed);
    random_case c(head, confidence, seed);
    std::vector<double> values = c.draft.front().values;
    auto const base = c.run(values, c.batch());
    auto const fixed = c.constants_at(values);
    CHECK(std::abs(c.direct_loss(values, fixed) - base.loss) < 1e-12);
    // Two elements of every tensor, so that none is left out.
    for (auto const& entry : c.draft.front().model.layout().entries()) {
        CAPTURE(entry.name);
        double largest = 0;
        for (double const g : entry.place.values(std::span<double const>(base.gradients))) {
            largest = std::max(largest, std::abs(g));
        }
        CHECK(largest > 0);
        for (int n = 0; n < 2; ++n) {
            std::size_t const i = entry.place.offset + c.roll.below(entry.place.size());
            double const found = derivative(values[i], [&] { return c.direct_loss(values, fixed); });
            CAPTURE(i, found, base.gradients[i]);
            CHECK(std::abs(found - base.gradients[i]) < 1e-7 * std::max(largest, 1e-2));
        }
    }
}

TEST_CASE("dummy blocks and the size of chunks change no gradient", "[property][train]") {
    auto const head = GENERATE(engine::head_kind::vanilla, engine::head_kind::rnn);
    std::uint64_t const seed = 21;
    INFO("head " << engine::name_of(head) << ", seed " << seed);
    random_case c(head, true, seed);
    std::vector<double> const values = c.draft.front().values;
    auto const all = c.run(values, c.batch());
    for (double const g : all.gradients) REQUIRE(std::isfinite(g));

    auto const chunked = c.run(values, c.batch(), {.rows = 2, .slots = 3});
    CHECK(golden::difference(chunked.gradients, all.gradients) < 1e-13);
    CHECK(std::abs(chunked.loss - all.loss) < 1e-13);

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
    auto const without = c.run(values, c.batch());
    CHECK(golden::difference(without.gradients, all.gradients) < 1e-13);
    CHECK(std::abs(without.loss - all.loss) < 1e-13);
}

TEST_CASE("gradients of batches add up", "[property][train]") {
    random_case c(engine::head_kind::gated, true, 31);
    std::vector<double> const values = c.draft.front().values;
    auto const all = c.run(values, c.batch());
    std::vector<double> sum(values.size());
    double loss = 0;
    std::size_t const gamma = c.config.draft->block_size;
    auto const whole = c.batch();
    for (std::size_t b = 0; b < c.blocks.size(); ++b) {
        auto part = whole;
        part.blocks = whole.blocks.subspan(b, 1);
        part.previous = whole.previous.subspan(b * gamma, gamma);
        part.labels = whole.labels.subspan(b * gamma, gamma);
        auto const one = c.run(values, part);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one.gradients[i];
        double const weight = sureleap::weight_sum(c.settings, c.blocks[b].positions);
        loss += one.loss * (weight + sureleap::loss_epsilon) / (c.total_weight + sureleap::loss_epsilon);
    }
    CHECK(golden::difference(sum, all.gradients) < 1e-13);
    CHECK(std::abs(loss - all.loss) < 1e-13);
}

namespace {

// One layer with random weights over rows of three sequences: two causal ones, and blocks over context rows between.
struct layer_case {
    explicit layer_case(std::uint64_t seed)
        : roll(seed),
          config(random_case::shape(engine::head_kind::none, false).transformer),
          layer(layout, "", config) {
        values.resize(layout.size());
        for (double& v : values) v = 0.4 * roll.bell();
        for (std::size_t s = 0; s < std::size(lengths); ++s) {
            std::size_t const first = sees.size();
            for (std::size_t i = 0; i < lengths[s]; ++i) {
                bool const causal = s != 1;
                std::size_t const block = first + i / 5 * 5;  // blocks of 5, the context of each longer
                row_span const own = causal ? row_span{first, first + i + 1} : row_span{block, block + 5};
                sees.push_back({causal ? row_span{} : row_span{4, 5 + i / 5}, own});
                positions.push_back(static_cast<std::uint32_t>(i));
            }
        }
        sees[3] = {};  // sees nothing, though others see it
        for (std::size_t i = 0; i < contexts; ++i) context_positions.push_back(static_cast<std::uint32_t>(i));
        for (auto* const m : {&x, &direction}) fill(*m, sees.size());
        fill(context, contexts);
    }

    void fill(train::matrix<double>& m, std::size_t rows) {
        auto const all = m.resize(rows, config.hidden_size);
        for (std::size_t i = 0; i < rows * config.hidden_size; ++i) all.data[i] = roll.bell();
    }
    [[nodiscard]] train::layer_pass<double> pass() const {
        return {angles, sees, positions, context.view(), context_positions};
    }
    // The output along a random direction.
    double objective() {
        layer.forward(std::span<double const>(values), pass(), x.view(), tape);
        double sum = 0;
        for (std::size_t i = 0; i < x.rows(); ++i) {
            for (std::size_t j = 0; j < x.cols(); ++j) sum += tape.output.view().row(i)[j] * direction.view().row(i)[j];
        }
        return sum;
    }

    static constexpr std::size_t lengths[] = {150, 20, 7};  // the first takes more than one tile
    static constexpr std::size_t contexts = 10;
    support::dice roll;
    engine::transformer_config config;
    train::parameter_layout layout;
    train::decoder_layer layer;
    train::rotary<double> angles{6, 1e3, 256};
    std::vector<double> values;
    std::vector<train::visible_rows> sees;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint32_t> context_positions;
    train::matrix<double> x;
    train::matrix<double> direction;
    train::matrix<double> context;
    train::layer_tape<double> tape;
};

}  // namespace

TEST_CASE("a layer's gradients agree with finite differences, causal and over a context", "[property][train]") {
    std::uint64_t const seed = 41;
    INFO("seed " << seed);
    layer_case c(seed);
    c.objective();
    std::vector<double> gradients(c.values.size());
    train::layer_scratch<double> scratch;
    train::matrix<double> dx = c.direction;
    train::matrix<double> d_context;
    d_context.resize_zeroed(c.context.rows(), c.context.cols());
    c.layer.backward(std::span<double const>(c.values), c.pass(), c.x.view(), c.tape, scratch, std::span(gradients),
                     dx.span(), d_context.span());

    auto const check = [&](double& variable, double gradient) {
        double const found = derivative(variable, [&] { return c.objective(); });
        CAPTURE(found, gradient);
        CHECK(std::abs(found - gradient) < 1e-6 * std::max(1.0, std::abs(gradient)));
    };
    for (auto const& entry : c.layout.entries()) {
        CAPTURE(entry.name);
        for (int n = 0; n < 3; ++n) {
            std::size_t const i = entry.place.offset + c.roll.below(entry.place.size());
            check(c.values[i], gradients[i]);
        }
    }
    for (std::size_t const row : std::array<std::size_t, 8>{0, 3, 70, 149, 150, 163, 170, 176}) {
        CAPTURE(row);
        std::size_t const j = c.roll.below(c.x.cols());
        check(c.x.span().row(row)[j], dx.view().row(row)[j]);
    }
    for (std::size_t row = 0; row < c.context.rows(); ++row) {
        CAPTURE(row);
        std::size_t const j = c.roll.below(c.context.cols());
        double const gradient = d_context.view().row(row)[j];
        CHECK((gradient != 0.0) == (4 <= row && row < 8));  // the rows that some block sees
        check(c.context.span().row(row)[j], gradient);
    }
}

TEST_CASE("a row's output depends on what it sees alone", "[property][train]") {
    std::uint64_t const seed = 51;
    INFO("seed " << seed);
    layer_case c(seed);
    c.objective();
    train::matrix<double> const all = c.tape.output;
    // A causal sequence cut at any row ends like the whole one: in a batch, across tiles, and in a tile of its own.
    for (std::size_t const length : std::array<std::size_t, 7>{1, 3, 5, 64, 65, 130, 150}) {
        CAPTURE(length);
        c.sees.resize(length);
        c.positions.resize(length);
        auto const rows = sureleap::row_range(c.x.view(), 0, length);
        auto cut = c.pass();
        cut.context = {};
        cut.context_positions = {};
        c.layer.forward(std::span<double const>(c.values), cut, rows, c.tape);
        CHECK(golden::difference(c.tape.output.view().row(length - 1), all.view().row(length - 1)) < 1e-13);
        c = layer_case(seed);
    }
}

TEST_CASE("a batch whose parts do not fit is refused", "[train]") {
    random_case c(engine::head_kind::vanilla, true, 61);
    std::span<double const> const values = c.draft.front().values;
    auto const& model = c.draft.front().model;
    auto const error_of = [&](train::draft_batch<double> const& b) {
        return support::error_text([&] { model.forward(values, b, c.tape); });
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
