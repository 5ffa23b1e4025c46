// SPDX-License-Identifier: MIT
//
// The target in training against the target that decodes, and its gradients against finite differences.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/causal_lm.hpp>
#include <engine/synthetic.hpp>
#include <engine/thread_pool.hpp>
#include <train/causal_lm.hpp>

#include "finite_differences.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::token_id;

using support::dice;
using support::error_text;

struct texts {
    std::vector<token_id> tokens;
    std::vector<std::size_t> lengths;

    [[nodiscard]] train::token_batch batch() const { return {tokens, lengths}; }
};

// One of a single token, one that fills more than one tile of the attention, a short one.
texts random_texts(dice& roll, std::size_t vocabulary) {
    texts t;
    t.lengths = {1, 60 + roll.below(30), 5};
    t.tokens = tiny::random_tokens(roll, t.lengths[0] + t.lengths[1] + t.lengths[2], vocabulary);
    return t;
}

tiny::shape random_shape(dice& roll) {
    std::size_t const kv = 1 + roll.below(2);
    std::size_t const layers = 2 + roll.below(2);
    std::size_t const hidden = 8 + 8 * roll.below(2);
    std::size_t const heads = kv * (1 + roll.below(2));
    return {.layers = layers,
            .hidden = hidden,
            .intermediate = 12,
            .heads = heads,
            .kv_heads = kv,
            .head_dim = 4,
            .vocabulary = 300,  // more than a chunk of the loss has rows
            .tied = roll.chance(0.5)};
}

struct loaded {
    loaded(tiny::shape const& shape, engine::checkpoint const& from)
        : model(tiny::target_config(shape)), values(model.layout().size()) {
        model.layout().load(from, std::span(values));
    }
    [[nodiscard]] double loss(texts const& t) {
        model.forward(values, t.batch(), tape);
        return model.loss(values, t.batch(), tape, 1.0);
    }

    train::causal_lm<double> model;
    std::vector<double> values;
    train::causal_tape<double> tape;
};

double difference(std::span<double const> x, std::span<double const> y) {
    REQUIRE(x.size() == y.size());
    double most = 0;
    for (std::size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
    return most;
}

}  // namespace

TEST_CASE("the target in training has the features, laws and loss of the one that decodes", "[train]") {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        dice roll(seed);
        auto const shape = random_shape(roll);
        INFO("seed " << roll.seed() << ": " << shape);
        auto from = engine::make_in_memory(tiny::target_config(shape), engine::storage::f64, seed);
        loaded trained(shape, from);
        auto const t = random_texts(roll, shape.vocabulary);
        double const loss = trained.loss(t);

        std::vector<int> const layers = tiny::feature_layers(shape);
        train::matrix<double> features(t.tokens.size(), layers.size() * shape.hidden);
        trained.model.features(trained.tape, layers, features.span());
        train::matrix<double> logits(t.tokens.size(), shape.vocabulary);
        std::span<double const> const values = trained.values;
        train::multiply(trained.tape.hidden.view(), trained.model.lm_head().of(values), logits.span());

        engine::thread_pool pool(1);
        engine::causal_lm<double> target(std::move(from), layers, pool, {t.lengths.size(), 128, 128});
        std::vector<tiny::segment> segments;
        std::size_t row = 0;
        for (std::size_t s = 0; s < t.lengths.size(); ++s) {
            segments.push_back({s,
                                0,
                                {t.tokens.begin() + static_cast<std::ptrdiff_t>(row),
                                 t.tokens.begin() + static_cast<std::ptrdiff_t>(row + t.lengths[s])}});
            row += t.lengths[s];
        }
        tiny::flat_batch const batch(segments);
        auto const scored = target.score(batch.batch());
        double expected = 0;
        row = 0;
        for (std::size_t const length : t.lengths) {
            for (std::size_t i = 0; i < length; ++i, ++row) {
                CHECK(difference(logits.view().row(row), scored.values.row(row)) < 1e-11);
                CHECK(difference(features.view().row(row), target.features().row(row)) < 1e-11);
                if (i + 1 == length) continue;
                double total = 0;
                for (double const l : scored.values.row(row)) total += std::exp(l);
                expected += std::log(total) - scored.values.row(row)[static_cast<std::size_t>(t.tokens[row + 1])];
            }
        }
        CHECK(std::abs(loss - expected) < 1e-9);
    }
}

TEST_CASE("the target in training: gradients against finite differences", "[train]") {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        dice roll(seed);
        auto const shape = random_shape(roll);
        INFO("seed " << roll.seed() << ": " << shape);
        loaded trained(shape, engine::make_in_memory(tiny::target_config(shape), engine::storage::f64, seed));
        auto const t = random_texts(roll, shape.vocabulary);
        double const scale = 0.25;
        std::vector<double> gradients(trained.values.size(), 3.0);  // added to, not overwritten
        trained.model.forward(trained.values, t.batch(), trained.tape);
        static_cast<void>(trained.model.loss(trained.values, t.batch(), trained.tape, scale, gradients));
        for (auto const& e : trained.model.layout().entries()) {
            for (int sample = 0; sample < 6; ++sample) {
                std::size_t i = e.place.offset + roll.below(e.place.size());
                if (e.place.rows == shape.vocabulary) {  // most tokens do not occur: take one that does
                    auto const token = static_cast<std::size_t>(t.tokens[roll.below(t.tokens.size())]);
                    i = e.place.offset + token * e.place.cols + roll.below(e.place.cols);
                }
                double const expected =
                    scale * support::slope(trained.values[i], 1e-5, [&] { return trained.loss(t); });
                INFO(e.name << " at " << i - e.place.offset << ": " << gradients[i] - 3.0 << ", expected " << expected);
                CHECK(std::abs(gradients[i] - 3.0 - expected) < 1e-6 * (1.0 + std::abs(expected)));
            }
        }
    }
}

TEST_CASE("the target in training refuses texts that are none", "[train]") {
    tiny::shape const shape;
    loaded trained(shape, engine::make_in_memory(tiny::target_config(shape), engine::storage::f64, 1));
    auto const with = [&](std::vector<token_id> tokens, std::vector<std::size_t> lengths) {
        return [&trained, tokens, lengths] { trained.model.forward(trained.values, {tokens, lengths}, trained.tape); };
    };
    CHECK(error_text(with({1, 61, 2}, {3})) == "token_batch: tokens[1] is 61, expected a token below 61");
    CHECK(error_text(with({1, 2}, {2, 0})) == "token_batch: document 1 has 0 tokens, expected 1 .. 4096");
    CHECK(error_text(with({1, 2}, {1})) == "token_batch: lengths add up to 1, expected the 2 tokens");
    CHECK(error_text([&] { train::causal_lm<double> const model(tiny::dspark_config(shape, {})); }) ==
          "causal_lm: architecture is Qwen3DSparkModel, expected Qwen3ForCausalLM");
}
