// SPDX-License-Identifier: MIT
//
// DSpark in training on recorded laws, with a vocabulary of its own: gradients against finite differences of the loss
// by its definition, and against those of whole laws.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/config.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/packing.hpp>
#include <train/draft_model.hpp>
#include <train/recorded_loss.hpp>

#include "drafters.hpp"
#include "finite_differences.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using namespace drafters;
using sureleap::no_token;
using sureleap::token_id;
using train::draft_block;

constexpr std::size_t drafted = 9;  // tokens, of 23

// A random drafter of some tokens and a packed batch for it, with laws of which something is always missing.
struct random_case {
    random_case(engine::head_kind head, bool confidence, std::uint64_t seed)
        : roll(seed),
          config(shape(head, confidence)),
          embeddings(random_matrix<double>(roll, config.transformer.vocabulary, config.transformer.hidden_size, 1.0)),
          lm_head(random_matrix<double>(roll, drafted, config.transformer.hidden_size, 0.5)),
          model(config, embeddings.view(), lm_head.view(), 64),
          values(model.layout().size()) {
        model.layout().load(engine::make_in_memory(config, engine::storage::f64, seed), std::span(values));
        std::size_t const gamma = config.draft->block_size;
        sureleap::packed_batch packed(gamma);
        packed.add(0, std::vector<sureleap::anchored_block>{{3, 4}, {5, 2}, {30, 4}});
        packed.add(1, std::vector<sureleap::anchored_block>{{0, 3}, {9, 1}});
        blocks = train::blocks_of(packed);
        previous = tiny::random_tokens(roll, blocks.size() * gamma, config.transformer.vocabulary);
        features = random_matrix<double>(roll, packed.rows(),
                                         config.draft->target_layer_ids.size() * config.transformer.hidden_size, 1.0);
        begins.push_back(0);
        for (std::size_t i = 0; i < previous.size(); ++i) {
            labels.push_back(i % 5 == 2 ? no_token : static_cast<token_id>(roll.below(drafted)));
            double left = 0.9;
            for (token_id v = static_cast<token_id>(i % 3); v < static_cast<token_id>(drafted) && i % 7 != 4; v += 3) {
                tokens.push_back(v);
                shares.push_back(left * (0.2 + 0.6 * static_cast<double>(roll.below(1000)) / 1000));
                left -= shares.back();
            }
            begins.push_back(tokens.size());
        }
        for (auto const& block : blocks) total_weight += sureleap::weight_sum(settings, block.positions);
    }

    static engine::model_config shape(engine::head_kind head, bool confidence) {
        engine::model_config c;
        c.kind = engine::architecture::dspark;
        c.transformer = small_transformer(1);
        bool const markov = head != engine::head_kind::none;
        c.draft = engine::draft_config{.block_size = 4,
                                       .target_layer_ids = {-1, 1},
                                       .num_target_layers = 3,
                                       .mask_token = 22,
                                       .markov_rank = markov ? std::size_t{5} : 0,
                                       .head = head,
                                       .confidence = confidence,
                                       .confidence_with_markov = confidence && markov,
                                       .vocabulary = drafted};
        return c;
    }

    [[nodiscard]] train::draft_batch<double> batch() const {
        return {features.view(), {}, blocks, previous, labels, {begins, tokens, shares}};
    }
    [[nodiscard]] std::span<double const> parameters() const { return values; }

    outcome<double> run(sureleap::chunk_limits chunks = {}, bool with_gradients = true) {
        outcome<double> out;
        if (with_gradients) out.gradients.resize(values.size());
        model.forward(parameters(), batch(), tape);
        sureleap::loss_report report(settings, model.block_size());
        model.backward(parameters(), batch(), settings, total_weight, tape, std::span(out.gradients), report, chunks);
        out.loss = report.loss();
        tau = report.tau().mean();
        return out;
    }

    [[nodiscard]] std::vector<double> law(std::size_t row) const {
        std::vector<double> p(drafted);
        for (std::size_t j = begins[row]; j < begins[row + 1]; ++j) p[static_cast<std::size_t>(tokens[j])] = shares[j];
        return p;
    }
    std::vector<std::vector<double>> draft_laws() {
        model.forward(parameters(), batch(), tape);
        train::matrix<double> logits(previous.size(), drafted);
        model.logits(parameters(), tape, logits.span());
        std::vector<std::vector<double>> out;
        for (std::size_t i = 0; i < previous.size(); ++i) out.push_back(softmax(logits.view().row(i)));
        return out;
    }

    // What no gradient flows through: the label of the confidence, and the signs of q - p.
    struct constants {
        std::vector<double> labels;
        std::vector<std::vector<double>> signs;
    };
    constants constants_of_loss() {
        auto const q = draft_laws();
        constants out{std::vector<double>(q.size()), std::vector<std::vector<double>>(q.size())};
        for (std::size_t i = 0; i < q.size(); ++i) {
            auto const p = law(i);
            for (std::size_t v = 0; v < drafted; ++v) {
                out.labels[i] += std::min(p[v], q[i][v]);
                out.signs[i].push_back(q[i][v] > p[v] ? 1.0 : -1.0);
            }
        }
        return out;
    }

    double direct_loss(constants const& fixed) {
        auto const q = draft_laws();
        std::vector<double> confidence(previous.size());
        if (model.has_confidence()) model.confidence(parameters(), tape, confidence);
        double sum = 0;
        double weights = 0;
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            for (std::size_t k = 0; k < blocks[b].positions; ++k) {
                std::size_t const i = b * config.draft->block_size + k;
                auto const p = law(i);
                double lost = 1;  // what the law has beside the known tokens
                for (double const share : p) lost -= share;
                double loss = settings.total_variation * lost;
                if (labels[i] != no_token) {
                    loss -= settings.cross_entropy * std::log(q[i][static_cast<std::size_t>(labels[i])]);
                }
                for (std::size_t v = 0; v < drafted; ++v) {
                    loss += settings.total_variation * fixed.signs[i][v] * (q[i][v] - p[v]);
                }
                if (model.has_confidence()) {
                    double const c = 1 / (1 + std::exp(-confidence[i]));
                    double const label = fixed.labels[i];
                    loss -= settings.confidence * (label * std::log(c) + (1 - label) * std::log(1 - c));
                }
                double const weight = std::exp(-static_cast<double>(k) / settings.decay);
                sum += weight * loss;
                weights += weight;
            }
        }
        return sum / (weights + 1e-6);
    }

    support::dice roll;
    engine::model_config config;
    sureleap::loss_settings settings{.decay = 2.5};
    train::matrix<double> embeddings;
    train::matrix<double> lm_head;
    train::draft_model<double> model;
    std::vector<double> values;
    std::vector<draft_block> blocks;
    std::vector<token_id> previous;
    std::vector<token_id> labels;
    std::vector<std::size_t> begins;
    std::vector<token_id> tokens;
    std::vector<double> shares;
    train::matrix<double> features;
    double total_weight = 0;
    double tau = 0;
    train::draft_tape<double> tape;
};

}  // namespace

TEST_CASE("recorded laws and a draft vocabulary: gradients agree with finite differences", "[property][train]") {
    auto const head = GENERATE(engine::head_kind::none, engine::head_kind::vanilla, engine::head_kind::rnn);
    bool const confidence = GENERATE(true, false);
    std::uint64_t const seed = 13;
    INFO("head " << engine::name_of(head) << ", confidence " << confidence << ", seed " << seed);
    random_case c(head, confidence, seed);
    auto const base = c.run();
    auto const fixed = c.constants_of_loss();
    CHECK(std::abs(c.direct_loss(fixed) - base.loss) < 1e-12);
    support::check_gradients(c.model.layout(), c.values, base.gradients, c.roll, 2,
                             [&] { return c.direct_loss(fixed); });

    // Chunks change nothing, and what is made without gradients is the same loss.
    auto const chunked = c.run({.rows = 1, .slots = 3});
    check_same(chunked, base);
    double const tau = c.tau;
    CHECK(c.run({}, false).loss == base.loss);
    CHECK(c.tau == tau);
}

TEST_CASE("recorded laws: one that is known whole has the loss and gradient of any other", "[train]") {
    support::dice roll(3);
    INFO("seed " << roll.seed());
    sureleap::loss_settings const settings;
    for (std::size_t n = 0; n < 30; ++n) {
        std::size_t const V = 2 + roll.below(60);
        std::vector<double> logits;
        std::vector<double> target;
        std::vector<token_id> tokens;
        for (std::size_t v = 0; v < V; ++v) {
            logits.push_back(3 * roll.bell());
            target.push_back(3 * roll.bell());
            tokens.push_back(static_cast<token_id>(v));
        }
        auto const p = softmax(target);
        auto const label = static_cast<token_id>(roll.below(V));
        auto dense = logits;
        auto const expected = sureleap::draft_loss<double>(settings, 0.7, dense, {p}, label);
        auto sparse = logits;
        auto const got = train::recorded_loss<double>(settings, 0.7, sparse, {tokens, p}, label);
        CHECK(std::abs(got.cross_entropy - expected.cross_entropy) < 1e-12);
        CHECK(std::abs(got.distance - expected.distance) < 1e-12);
        CHECK(std::abs(got.acceptance - expected.acceptance) < 1e-12);
        for (std::size_t v = 0; v < V; ++v) CHECK(std::abs(sparse[v] - dense[v]) < 1e-13);

        // Of a part, the draft wins what it has in common with that part.
        std::size_t const known = 1 + roll.below(V);
        auto const q = softmax(logits);
        double common = 0;
        for (std::size_t v = 0; v < known; ++v) common += std::min(p[v], q[v]);
        sparse = logits;
        auto const part = train::recorded_loss<double>(
            settings, 0.7, sparse, {std::span(tokens).first(known), std::span(p).first(known)}, no_token);
        CHECK(std::abs(part.acceptance - common) < 1e-12);
        CHECK(std::abs(part.distance - 2 * (1 - common)) < 1e-12);
        CHECK(part.cross_entropy == 0.0);
    }
}

TEST_CASE("recorded laws: what does not fit is refused", "[train]") {
    random_case c(engine::head_kind::vanilla, true, 61);
    auto const error_of = [&](train::draft_batch<double> const& b) {
        return support::error_text([&] { c.model.forward(c.parameters(), b, c.tape); });
    };
    CHECK(error_of(c.batch()).empty());
    auto no_laws = c.batch();
    no_laws.laws = {};
    CHECK(error_of(no_laws) == "draft_batch: draft vocabulary without laws is 9, expected 0");
    auto few = c.batch();
    few.laws.begins = few.laws.begins.first(4);
    CHECK(error_of(few) == "draft_batch: length of laws is 3, expected 20");
    c.labels[6] = 9;
    CHECK(error_of(c.batch()) == "draft_batch: labels[6] is 9, expected a token below 9");
    c.labels[6] = no_token;
    c.tokens[1] = 9;
    CHECK(error_of(c.batch()) == "draft_batch: laws[1] is 9, expected a token below 9");
    c.tokens[1] = 8;
    c.previous[3] = no_token;
    CHECK(error_of(c.batch()) == "draft_batch: previous[3] is -1, expected a token below 23");
    CHECK(support::says(support::error_text([&] {
                            train::draft_model<double> const wrong(c.config, c.embeddings.view(), c.embeddings.view(),
                                                                   64);
                        }),
                        {"lm_head is [23, 12]", "expected [9, 12]"}));
}
