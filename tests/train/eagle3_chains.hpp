// SPDX-License-Identifier: MIT
//
// Random chains for Eagle3 in training, and the same chains as the engine's drafter makes them.
#pragma once

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <engine/config.hpp>
#include <engine/eagle3.hpp>
#include <train/eagle3_model.hpp>

#include "drafters.hpp"
#include "support/dice.hpp"
#include "support/golden_engine.hpp"
#include "support/tiny_models.hpp"

namespace drafters {

using sureleap::token_id;
using train::draft_block;

template <class Real>
using eagle3_drafter = drafter<train::eagle3_model, Real>;

/// Logits of every chain row; the tape is then that of this forward.
template <class Real>
train::matrix<Real> logits_of(eagle3_drafter<Real> const& draft, train::eagle3_batch<Real> const& batch,
                              train::eagle3_tape<Real>& tape) {
    draft.model.forward(draft.parameters(), batch, tape);
    train::matrix<Real> out(tape.hidden.rows(), draft.lm_head.rows());
    draft.model.logits(tape, out.span());
    return out;
}

/// Sequences packed one behind the other, with the blocks of all of them.
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

    std::vector<draft_block> blocks;
    std::vector<token_id> next_tokens;
    train::matrix<Real> features;
    train::matrix<Real> target_hidden;
};

/// Logits of the engine's drafter in the place of every chain row: each block in a slot of its own that has observed
/// its context, row by row or at once, all of them drafting together.
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

/// Compares the rows that have a loss, and says how many they are.
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

}  // namespace drafters
