// SPDX-License-Identifier: MIT
//
// Eagle3 in training: chains equal what the engine's drafter makes of the same tokens, and what the reference made of
// its own.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/causal_lm.hpp>
#include <engine/checkpoint.hpp>
#include <engine/eagle3.hpp>
#include <engine/stand_in.hpp>
#include <engine/synthetic.hpp>
#include <train/eagle3_model.hpp>

#include "drafters.hpp"
#include "eagle3_chains.hpp"
#include "support/dice.hpp"
#include "support/golden_engine.hpp"
#include "support/tiny_models.hpp"

namespace {

using namespace drafters;

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
        engine::causal_lm<Real> served(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1),
                                       tiny::feature_layers(s), pool, limits);
        engine::eagle3<Real> model(make(), served, pool, limits);
        eagle3_drafter<Real> const draft(make());
        // Anchors at the first possible position and right after another; a short chain at the end of a sequence, a
        // dummy, an anchor with nothing before it, and more rows than a tile of the attention has.
        std::size_t const gamma = d.block_size;
        packed_sequences<Real> const data(roll, config,
                                          {{40, {{1, gamma}, {2, gamma}, {17, gamma}, {38, 2}}},
                                           {12, {{0, gamma}, {3, 1}, {0, 0}, {5, gamma}}},
                                           {100, {{99, 1}, {90, gamma}}}});
        train::eagle3_tape<Real> tape;
        auto const got = logits_of(draft, data.batch(), tape);
        CHECK(check_equal(data, gamma, got, engine_logits(model, data)) == 5 * gamma + 4);
    }
}

TEST_CASE("eagle3 in training: many chains of one sequence", "[train]") {
    engine::thread_pool pool(2);
    tiny::shape const s;
    auto const config = tiny::eagle3_config(s, {.block_size = 4});
    support::dice roll(80);
    engine::causal_lm<double> served(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1),
                                     tiny::feature_layers(s), pool,
                                     {.slots = 90, .context_length = 120, .max_rows = 120});
    engine::eagle3<double> model(engine::make_in_memory(config, engine::storage::f64, 2), served, pool,
                                 {.slots = 90, .context_length = 120, .max_rows = 120});
    eagle3_drafter<double> const draft(engine::make_in_memory(config, engine::storage::f64, 2));
    packed_sequences<double>::sequence all{100, {}};
    for (std::size_t anchor = 1; anchor <= 90; ++anchor) all.blocks.emplace_back(anchor, 4);
    packed_sequences<double> const data(roll, config, {all});
    train::eagle3_tape<double> tape;
    auto const got = logits_of(draft, data.batch(), tape);
    CHECK(check_equal(data, 4, got, engine_logits(model, data)) == 360);
    // Nor does it matter what batch a tape had before.
    auto part = data.batch();
    part.blocks = part.blocks.subspan(20, 7);
    logits_of(draft, part, tape);
    auto const again = logits_of(draft, data.batch(), tape);
    CHECK(golden::difference(again.view().row(359), got.view().row(359)) < 1e-13);
}

TEMPLATE_TEST_CASE("golden: Eagle3's draft logits come from a training forward", "[golden][train]", double, float) {
    using Real = TestType;
    golden::file const f("eagle3_loop");
    engine::model_config const config = golden::eagle3_config(f);
    eagle3_drafter<Real> const draft(golden::copy_of(f, "w.", config));
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
            train::matrix<Real> const unused(features.rows, config.transformer.hidden_size);
            std::vector<draft_block> const blocks{{{0, anchor}, known}};
            train::eagle3_tape<Real> tape;
            auto const got =
                logits_of(draft, {features, unused.view(), blocks, std::span<token_id const>(tokens).subspan(1)}, tape);
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
