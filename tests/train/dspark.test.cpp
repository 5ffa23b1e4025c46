// SPDX-License-Identifier: MIT
//
// DSpark in training against the reference: forward, loss and every gradient of its stored batch.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/checkpoint.hpp>
#include <sureleap/training/anchors.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/packing.hpp>
#include <train/draft_model.hpp>

#include "drafters.hpp"
#include "support/golden_engine.hpp"

namespace {

using namespace drafters;
using sureleap::token_id;
using train::draft_block;

template <class Real>
std::vector<Real> as(std::vector<double> const& x) {
    std::vector<Real> out;
    for (double const v : x) out.push_back(static_cast<Real>(v));
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("golden: the training forward of DSpark, its loss and all gradients", "[golden][train]", double,
                   float) {
    using Real = TestType;
    golden::file const f("tiny_train");
    engine::checkpoint const from{golden::tiny_drafter()};
    drafter<train::draft_model, Real> const draft(from);
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

    auto const got = draft.run(batch, {settings, total_weight}, tape, {.rows = 3, .slots = 5});
    CHECK(std::abs(got.loss - f.f64("loss")[0]) < tolerance<Real>);

    std::set<std::string> compared;
    for (auto const& entry : draft.model.layout().entries()) {
        auto const want = f.f64("grad." + entry.name);
        CAPTURE(entry.name);
        CHECK(entry.vector == (want.shape.size() == 1));
        double const largest =
            std::abs(*std::ranges::max_element(want.values, {}, [](double x) { return std::abs(x); }));
        CHECK(largest > 0);
        // Relative to the tensor's own largest gradient, some of which are small.
        auto const gradient = entry.place.values(std::span<Real const>(got.gradients));
        REQUIRE(gradient.size() == want.size());
        double worst = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            double const d = std::abs(static_cast<double>(gradient[i]) - want[i]);
            if (!(d <= worst)) worst = d;
        }
        CHECK(worst < 10 * tolerance<Real> * std::max(largest, 1e-3));
        compared.insert("grad." + entry.name);
    }
    for (std::string const& name : f.names()) {
        if (name.starts_with("grad.")) CHECK(compared.contains(name));
    }
}
