// SPDX-License-Identifier: MIT
//
// Whole decoding loops against stored ones: prompts in, tokens out, with the drafts and draws of every round in
// between. The server runs them as it runs anything, with a random source that hands out the uniforms the files were
// made with.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/parts.hpp>
#include <engine/server.hpp>
#include <sureleap/fit/confidence_metrics.hpp>

#include "support/golden_engine.hpp"

namespace {

using sureleap::purpose;
using sureleap::token_id;

// The uniforms of one sample. Draws of tokens take the next of u_sample, except that a one-hot draft takes none; the
// test of draft k in a round takes u_accept[drafts verified before + k].
struct script {
    std::vector<double> sample;
    std::vector<double> accept;
    std::size_t sampled = 0;
    std::size_t verified_before = 0;
    bool greedy = false;
};

struct scripted {
    script* s;

    bool bernoulli(sureleap::draw_key const& key, double num, double den) const {
        REQUIRE(key.use == purpose::accept);
        // As the reference: u < min(1, p / max(q, 1e-8)).
        return s->accept.at(s->verified_before + key.index) * std::max(den, 1e-8) < num;
    }
    template <class W>
    token_id categorical(sureleap::draw_key const& key, W const& w) const {
        double const total = w.total();
        double const u = key.use == purpose::draft && s->greedy ? 0.5 : s->sample.at(s->sampled++);
        double sum = 0;
        for (std::size_t v = 0; v < w.size(); ++v) {
            sum += w[static_cast<token_id>(v)];
            if (sum > u * total) return static_cast<token_id>(v);
        }
        return static_cast<token_id>(w.size() - 1);
    }
    template <class W>
    token_id gumbel_max(sureleap::draw_key const& key, W const& w) const {
        return categorical(key, w);
    }
};

// What a sample's rounds did, counted as the reference counts: a stop token among the accepted drafts ends the sample
// there, and the proposal counts as that long.
struct rounds {
    std::vector<std::int32_t> acceptance, proposal, accepted;
    std::vector<token_id> tokens;
};

std::vector<std::string> samples(golden::file const& f) {
    std::vector<std::string> out;
    for (std::size_t i = 0; f.contains("s" + std::to_string(i) + ".prompt"); ++i) {
        out.push_back("s" + std::to_string(i) + ".");
    }
    REQUIRE_FALSE(out.empty());
    return out;
}

// What a file's samples were made with: the new tokens they were cut at, which is what the longest has, and stop
// tokens.
struct recipe {
    std::size_t wanted = 0;
    std::vector<token_id> stops;
    engine::serving_limits limits{.slots = 1, .context_length = 0, .max_rows = 64};

    recipe(golden::file const& f, std::string const& name) {
        std::size_t longest = 0;
        for (std::string const& sample : samples(f)) {
            std::size_t const output = f.i32(sample + "output").size();
            wanted = std::max(wanted, output - f.i32(sample + "prompt").size());
            longest = std::max(longest, output);
        }
        limits.context_length = longest + wanted + 64;
        std::stringstream list(golden::stated(name, "loop_t1", R"(stop \[([0-9, ]+)\])", "3,11"));
        for (std::string token; std::getline(list, token, ',');) stops.push_back(std::stoi(token));
    }
};

template <class Real>
using scripted_server = engine::server<Real, scripted>;

// Runs one sample of a file. after_round(proposal, accepted) sees the server after every round with a block.
template <class Real, class AfterRound>
rounds run_sample(golden::file const& f, std::string const& sample, scripted_server<Real>& server,
                  engine::any_drafter<Real> const& drafter, script& s, double temperature, recipe const& made,
                  AfterRound after_round) {
    auto const prompt = f.i32(sample + "prompt");
    std::size_t const wanted = made.wanted;
    std::size_t const block_size = server.block_size();
    s = {.sample = f.f64(sample + "u_sample").values,
         .accept = f.f64(sample + "u_accept").values,
         .sampled = 0,
         .verified_before = 0,
         .greedy = temperature == 0.0};
    rounds out;
    // The reference stops when its anchor is `wanted` positions beyond the prompt, drafts whole blocks until then and
    // cuts the output afterwards. Its blocks go on behind a stop token, as here behind what ends a stop text; its
    // chains of Eagle3 end there, as all do here.
    auto const ends = [&](sureleap::request_view const&, std::span<token_id const> emitted) noexcept {
        return std::find(made.stops.begin(), made.stops.end(), emitted.back()) != made.stops.end();
    };
    sureleap::request_settings settings{
        .temperature = temperature, .seed = 1, .max_new_tokens = wanted + block_size + 2};
    if (std::holds_alternative<engine::eagle3_drafter<Real>>(drafter)) {
        settings.stop_tokens = made.stops;
    } else {
        settings.text_end = ends;
    }
    auto const id = server.submit(prompt.values, settings);
    bool first = true;
    for (bool finished = false; !finished && out.tokens.size() <= wanted;) {
        REQUIRE(server.step());
        for (auto const& event : server.events()) {
            REQUIRE(event.outcome == sureleap::status::ok);
            auto const& verdict = server.last_round().verdicts[0];
            auto const emitted = static_cast<std::int32_t>(event.tokens.size());
            finished = event.finished;
            out.tokens.insert(out.tokens.end(), event.tokens.begin(), event.tokens.end());
            if (first) {  // the token that the prompt predicts: a plain step, no round of the reference
                REQUIRE(verdict.drafted == 0);
                REQUIRE(emitted == 1);
                first = false;
                continue;
            }
            bool const ended_inside = verdict.accepted >= event.tokens.size();
            auto const accepted = ended_inside ? emitted : static_cast<std::int32_t>(verdict.accepted);
            auto const proposal = ended_inside ? emitted : static_cast<std::int32_t>(verdict.verified);
            out.acceptance.push_back(emitted);
            out.proposal.push_back(proposal);
            out.accepted.push_back(accepted);
            after_round(static_cast<std::size_t>(proposal), static_cast<std::size_t>(accepted));
            s.verified_before += verdict.verified;
        }
    }
    server.leave(id);
    if (out.tokens.size() > wanted) out.tokens.resize(wanted);
    return out;
}

void check_sample(golden::file const& f, std::string const& sample, rounds const& got) {
    auto const prompt = f.i32(sample + "prompt").values;
    auto expected = f.i32(sample + "output").values;
    REQUIRE(std::equal(prompt.begin(), prompt.end(), expected.begin()));
    expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
    CHECK(got.tokens == expected);
    CHECK(got.acceptance == f.i32(sample + "acceptance_lengths").values);
    CHECK(got.proposal == f.i32(sample + "proposal_lengths").values);
    if (f.contains(sample + "accepted_draft_lengths")) {
        CHECK(got.accepted == f.i32(sample + "accepted_draft_lengths").values);
    }
}

void check_close(double got, double expected) {
    CHECK(std::abs(got - expected) <= 1e-10);
}

template <class Real>
void check_dspark_loop(std::string const& name, double temperature, double threshold) {
    golden::file const f(name);
    engine::thread_pool pool(2);
    engine::checkpoint draft{golden::tiny_drafter()};
    engine::checkpoint const same{golden::tiny_drafter()};
    auto const config = draft.config();
    std::size_t const gamma = config.draft->block_size;
    std::size_t const V = config.transformer.vocabulary;
    golden::weight_store store;
    recipe const made(f, name);
    engine::serving_limits const& limits = made.limits;
    auto weights = store.target<Real>(f, same.matrix("embed_tokens.weight", V, config.transformer.hidden_size));
    weights.bigram_in = same.matrix("markov_head.markov_w1.weight", V, config.draft->markov_rank);
    weights.bigram_out = same.matrix("markov_head.markov_w2.weight", V, config.draft->markov_rank);
    engine::stand_in<Real> served(weights, config.draft->target_layer_ids, pool, limits);
    engine::dspark<Real> model(std::move(draft), served, pool, limits);
    engine::any_drafter<Real> drafter = engine::make_drafter(model);
    auto const confidence = engine::load_confidence<Real>(model.source());
    sureleap::any_schedule schedule = sureleap::fixed_schedule{};
    if (threshold > 0) schedule = sureleap::threshold_schedule{threshold};

    script s;
    scripted_server<Real> server(served, drafter, &model, schedule, sureleap::token_rejection<>{}, pool, {&s});
    sureleap::calibration_recorder recorder(gamma);
    std::uint64_t samples_seen = 0, proposals = 0, sum_acceptance = 0, sum_proposal = 0;
    std::vector<std::int32_t> proposals_at(gamma), accepted_at(gamma);
    for (std::string const& sample : samples(f)) {
        INFO(name << " " << sample);
        auto const got = run_sample<Real>(
            f, sample, server, drafter, s, temperature, made, [&](std::size_t proposal, std::size_t accepted) {
                for (std::size_t k = 0; k < proposal; ++k) {
                    ++proposals_at[k];
                    if (k < accepted) ++accepted_at[k];
                }
                // Confidences as the drafter computed them: from its last pass, whose block is still in its buffers.
                auto const request = server.last_round().requests[0];
                auto const tokens = server.last_block().tokens(0);
                auto const hidden = model.last_forward().hidden;
                std::vector<double> c;
                std::vector<std::uint8_t> labels;
                for (std::size_t k = 0; k < proposal; ++k) {
                    token_id const previous = k == 0 ? request.anchor : tokens[k - 1];
                    c.push_back(1.0 /
                                (1.0 + std::exp(-static_cast<double>(confidence.logit(hidden.row(k), previous)))));
                    labels.push_back(k < accepted ? 1 : 0);
                }
                REQUIRE(recorder.observe(c, labels, proposal) == sureleap::status::ok);
            });
        check_sample(f, sample, got);
        ++samples_seen;
        proposals += got.acceptance.size();
        for (auto const a : got.acceptance) sum_acceptance += static_cast<std::uint64_t>(a);
        for (auto const l : got.proposal) sum_proposal += static_cast<std::uint64_t>(l);
    }

    auto const counts = f.i32("m.counts").values;
    CHECK(std::vector<std::uint64_t>(counts.begin(), counts.end()) ==
          std::vector<std::uint64_t>{samples_seen, proposals, sum_acceptance, sum_proposal});
    CHECK(proposals_at == f.i32("m.proposals_at_pos").values);
    CHECK(accepted_at == f.i32("m.accepted_at_pos").values);
    check_close(static_cast<double>(sum_acceptance) / static_cast<double>(proposals), f.f64("m.tau")[0]);
    check_close(static_cast<double>(sum_acceptance) / static_cast<double>(sum_proposal + proposals),
                f.f64("m.verify_rate")[0]);
    check_close(static_cast<double>(sum_proposal) / static_cast<double>(proposals),
                f.f64("m.draft_tokens_per_proposal")[0]);
    auto const rates = f.f64("m.accept_rates_by_position");
    for (std::size_t k = 0; k < gamma; ++k) {
        if (proposals_at[k] > 0) check_close(static_cast<double>(accepted_at[k]) / proposals_at[k], rates[k]);
    }
    // The released code records confidences only where the whole block is proposed.
    if (!std::is_same_v<Real, double> || threshold > 0 || !f.contains("conf.ece")) return;
    for (std::size_t k = 0; k < gamma; ++k) {
        auto const m = recorder.position(k);
        CHECK(static_cast<double>(m.count) == f.f64("conf.total_weight")[k]);
        if (m.count == 0) continue;
        check_close(m.ece, f.f64("conf.ece")[k]);
        if (!std::isnan(f.f64("conf.auc")[k])) check_close(m.auroc, f.f64("conf.auc")[k]);
        check_close(m.brier, f.f64("conf.brier")[k]);
        check_close(m.mean_prediction, f.f64("conf.pred_mean")[k]);
        check_close(m.mean_label, f.f64("conf.target_mean")[k]);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("golden: DSpark decoding at temperature 1", "[golden][engine]", double, float) {
    check_dspark_loop<TestType>("loop_t1", 1.0, 0.0);
}

TEMPLATE_TEST_CASE("golden: DSpark decoding with a confidence threshold", "[golden][engine]", double, float) {
    double const threshold = std::stod(golden::stated("loop_t1_thr", "", R"(confidence_threshold ([0-9.]+))", "0.45"));
    check_dspark_loop<TestType>("loop_t1_thr", 1.0, threshold);
}

TEMPLATE_TEST_CASE("golden: DSpark decoding, greedy", "[golden][engine]", double, float) {
    check_dspark_loop<TestType>("loop_greedy", 0.0, 0.0);
}

TEMPLATE_TEST_CASE("golden: Eagle3 decoding at temperature 1", "[golden][engine]", double, float) {
    using Real = TestType;
    golden::file const f("eagle3_loop");
    engine::thread_pool pool(2);

    engine::model_config const config = golden::eagle3_config(f);
    golden::weight_store store;
    recipe const made(f, "eagle3_loop");
    engine::serving_limits const& limits = made.limits;
    engine::stand_in<Real> served(store.target<Real>(f, store.matrix(f, "w.embed_tokens.weight")),
                                  config.draft->target_layer_ids, pool, limits);
    engine::eagle3<Real> model(golden::copy_of(f, "w.", config), served, pool, limits);
    engine::any_drafter<Real> drafter = engine::make_drafter(model);
    script s;
    scripted_server<Real> server(served, drafter, &model, sureleap::fixed_schedule{}, sureleap::token_rejection<>{},
                                 pool, {&s});
    for (std::string const& sample : samples(f)) {
        INFO(sample);
        // Logits of the first draft rows, taken from the laws they became: log q is the logits up to a constant.
        auto const expected = f.f64(sample + "draft_logits");
        std::size_t row = 0;
        auto const got = run_sample<Real>(f, sample, server, drafter, s, 1.0, made, [&](std::size_t, std::size_t) {
            for (auto const& q : server.last_block().laws(0)) {
                if (row == expected.dim(0)) return;
                auto const logits = expected.row(row++);
                double largest = -INFINITY, sum = 0;
                for (double const l : logits) largest = std::max(largest, l);
                for (double const l : logits) sum += std::exp(l - largest);
                std::vector<double> log_q, wanted;
                for (std::size_t v = 0; v < logits.size(); ++v) {
                    log_q.push_back(q.log_probability(static_cast<token_id>(v)));
                    wanted.push_back(logits[v] - largest - std::log(sum));
                }
                CHECK(golden::difference(log_q, wanted) < (std::is_same_v<Real, double> ? 1e-10 : 2e-5));
            }
        });
        check_sample(f, sample, got);
        CHECK(row > 0);
    }
}
