// SPDX-License-Identifier: MIT
//
// One step of training a drafter on the documents of a frozen target (paper, section 5.1): from documents to gradients.
//
// Features and hidden states of the target are computed when they are needed and never stored. Block drafters and
// Eagle3 get the same documents, the same anchors and as many supervised tokens; they differ in what they are given of
// them, which is the two overloads of run_batch below.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/training/anchors.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/packing.hpp>

#include "causal_lm.hpp"
#include "documents.hpp"
#include "draft_model.hpp"
#include "eagle3_model.hpp"
#include "loss_text.hpp"
#include "run.hpp"

namespace train {

/// Blocks of some documents, with what the target makes of their tokens.
struct target_rows {
    sureleap::packed_batch const& packed;
    documents const& all;
    matrix_view<float> features;
    matrix_view<float> hidden;
};

struct batch_losses {
    loss_settings const& settings;
    double total_weight = 0;  ///< of everything the step averages over
    loss_report& report;
};

/// Forward and backward of a batch; adds to gradients and report.
inline void run_batch(draft_model<float> const& model, std::span<float const> values, target_rows const& rows,
                      batch_losses const& losses, draft_tape<float>& tape, std::span<float> gradients) {
    std::size_t const gamma = rows.packed.block_size();
    std::vector<token_id> previous(rows.packed.block_rows());
    std::vector<token_id> labels(rows.packed.block_rows());
    for (std::size_t b = 0; b < rows.packed.blocks().size(); ++b) {
        auto const& block = rows.packed.blocks()[b];
        auto const tokens = rows.all[rows.packed.sequences()[block.sequence].index].tokens;
        sureleap::block_previous(tokens, block.anchor, std::span(previous).subspan(b * gamma, gamma));
        sureleap::block_labels(tokens, block.anchor, std::span(labels).subspan(b * gamma, gamma));
    }
    auto const blocks = blocks_of(rows.packed);
    draft_batch<float> const batch{rows.features, rows.hidden, blocks, previous, labels};
    model.forward(values, batch, tape);
    model.backward(values, batch, losses.settings, losses.total_weight, tape, gradients, losses.report);
}
inline void run_batch(eagle3_model<float> const& model, std::span<float const> values, target_rows const& rows,
                      batch_losses const& losses, eagle3_tape<float>& tape, std::span<float> gradients) {
    std::vector<token_id> next;
    for (auto const& s : rows.packed.sequences()) {
        auto const tokens = rows.all[s.index].tokens.subspan(1, s.rows.size());
        next.insert(next.end(), tokens.begin(), tokens.end());
    }
    auto const blocks = blocks_of(rows.packed);
    eagle3_batch<float> const batch{rows.features, rows.hidden, blocks, next};
    model.forward(values, batch, tape);
    model.backward(values, batch, losses.settings, losses.total_weight, tape, gradients, losses.report);
}

struct draft_task_settings {
    loss_settings losses;
    /// Blocks of a document, per token that the drafter has to learn. A forward of the target is paid once for all.
    double anchors_per_token = 0.125;
    std::uint64_t seed = 1;
};

template <class Model, class Tape>
class draft_task {
public:
    /// Everything must outlive the task.
    draft_task(Model const& model, causal_lm<float> const& target, std::span<float const> target_values,
               std::span<int const> feature_layers, documents const& all, batch_plan& plan,
               sharded_gradients& gradients, draft_task_settings const& settings)
        : model_(model),
          target_(target),
          target_values_(target_values),
          feature_layers_(feature_layers),
          all_(all),
          plan_(plan),
          gradients_(gradients),
          settings_(settings),
          memory_(gradients.shards()) {}

    step_result operator()(std::size_t step, std::span<float const> values) {
        auto const batch = plan_.at(step);
        std::vector<std::vector<sureleap::anchored_block>> blocks(batch.members.size());
        std::vector<std::size_t> numbers(batch.members.size());
        double total_weight = 0;
        std::size_t tokens = 0;
        for (std::size_t m = 0; m < blocks.size(); ++m) {
            numbers[m] = m;
            blocks[m] = anchors_of(batch.members[m], batch.epoch);
            for (auto const& b : blocks[m]) {
                total_weight += sureleap::weight_sum(settings_.losses, supervised(model_, b));
            }
            tokens += all_[batch.members[m]].tokens.size();
        }
        auto const parts = divide(numbers, memory_.size(), [&](std::size_t m) {
            return sureleap::bounded_rows(blocks[m]) + model_.block_size() * blocks[m].size();
        });
        std::vector<loss_report> reports(memory_.size(), loss_report(settings_.losses, model_.block_size()));
        auto const sum = gradients_.sum([&](std::size_t shard, std::span<float> gradients) {
            sureleap::packed_batch packed(model_.block_size());
            for (std::size_t const m : parts[shard]) packed.add(batch.members[m], blocks[m]);
            if (packed.blocks().empty()) return;
            memory& m = memory_[shard];
            run_batch(model_, values, see(packed, m), {settings_.losses, total_weight, reports[shard]}, m.draft,
                      gradients);
        });
        for (std::size_t i = 1; i < reports.size(); ++i) reports[0].merge(reports[i]);
        return {sum, tokens, in_words(reports[0])};
    }

private:
    // Of a shard, kept from step to step.
    struct memory {
        causal_tape<float> target;
        Tape draft;
        matrix<float> features;
    };

    // Every visit of a document has anchors of its own.
    [[nodiscard]] std::vector<sureleap::anchored_block> anchors_of(std::size_t document, std::uint64_t epoch) const {
        auto const d = all_[document];
        std::vector<std::uint8_t> counts(d.tokens.size(), 1);
        std::fill_n(counts.begin(), d.prompt, std::uint8_t{0});
        auto const count = static_cast<std::size_t>(
            std::ceil(settings_.anchors_per_token * static_cast<double>(d.tokens.size() - d.prompt)));
        std::uint64_t const visit = epoch * all_.size() + document;
        return sureleap::sample_blocks(counts, count, model_.block_size(), [&](std::size_t t) {
            return sureleap::anchor_uniform(settings_.seed, visit, t);
        });
    }

    // What the target makes of the packed rows.
    [[nodiscard]] target_rows see(sureleap::packed_batch const& packed, memory& m) const {
        std::vector<token_id> tokens;
        std::vector<std::size_t> lengths;
        for (auto const& s : packed.sequences()) {
            if (s.rows.size() == 0) continue;
            auto const rows = all_[s.index].tokens.first(s.rows.size());
            tokens.insert(tokens.end(), rows.begin(), rows.end());
            lengths.push_back(rows.size());
        }
        target_.forward(target_values_, {tokens, lengths}, m.target);
        auto const features =
            m.features.resize(tokens.size(), feature_layers_.size() * target_.config().transformer.hidden_size);
        target_.features(m.target, feature_layers_, features);
        return {packed, all_, features, m.target.hidden.view()};
    }

    Model const& model_;
    causal_lm<float> const& target_;
    std::span<float const> target_values_;
    std::span<int const> feature_layers_;
    documents const& all_;
    batch_plan& plan_;
    sharded_gradients& gradients_;
    draft_task_settings settings_;
    std::vector<memory> memory_;
};

}  // namespace train
