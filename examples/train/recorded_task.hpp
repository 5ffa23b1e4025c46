// SPDX-License-Identifier: MIT
//
// One step of training a drafter on recorded texts (recorded_texts.hpp). It is draft_task.hpp without a target:
// features and laws are read, so that a step costs what the drafter costs.
//
// A drafter of a part of the vocabulary numbers its tokens itself. A law keeps what it has of them. Where the text has
// another token the block ends: behind it the drafter could not have got in decoding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/thread_pool.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/training/anchors.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/packing.hpp>

#include "documents.hpp"
#include "draft_model.hpp"
#include "eagle3_model.hpp"
#include "loss_text.hpp"
#include "recorded_texts.hpp"
#include "run.hpp"

namespace train {

struct recorded_task_settings {
    loss_settings losses{};
    /// Blocks of a text, per token that the drafter has to learn. The context is read once for all of them.
    double anchors_per_token = 0.125;
    std::uint64_t seed = 1;
};

/// Blocks of some texts as the model takes them.
class recorded_batch {
public:
    /// map: the drafter's tokens, or null if it drafts all.
    void fill(recorded_texts const& recorded, sureleap::packed_batch const& packed,
              sureleap::vocabulary_map const* map) {
        std::size_t const gamma = packed.block_size();
        auto const features = features_.resize(packed.rows(), recorded.width());
        for (auto const& s : packed.sequences()) {
            auto const from = recorded.features(s.index);
            for (std::size_t i = 0; i < s.rows.size(); ++i) widen(from.row(i), features.row(s.rows.begin + i));
        }
        next_.clear();
        for (auto const& s : packed.sequences()) {
            auto const tokens = recorded.texts()[s.index].tokens.subspan(1, s.rows.size());
            next_.insert(next_.end(), tokens.begin(), tokens.end());
        }
        previous_.resize(packed.block_rows());
        labels_.resize(packed.block_rows());
        begins_.assign(1, 0);
        tokens_.clear();
        shares_.clear();
        for (std::size_t b = 0; b < packed.blocks().size(); ++b) {
            auto const& block = packed.blocks()[b];
            std::size_t const index = packed.sequences()[block.sequence].index;
            auto const text = recorded.texts()[index].tokens;
            sureleap::block_previous(text, block.anchor, std::span(previous_).subspan(b * gamma, gamma));
            sureleap::block_labels(text, block.anchor, std::span(labels_).subspan(b * gamma, gamma));
            for (std::size_t k = 0; k < gamma; ++k) {
                if (k < block.positions) add(recorded.law_of(index, block.anchor + 1 + k), map);
                begins_.push_back(tokens_.size());
            }
        }
        if (map != nullptr) {
            for (token_id& label : labels_) label = map->to_draft(label);
        }
        blocks_ = blocks_of(packed);
    }

    [[nodiscard]] draft_batch<float> view_for(draft_model<float> const&) const noexcept {
        return {features_.view(), {}, blocks_, previous_, labels_, laws()};
    }
    [[nodiscard]] eagle3_batch<float> view_for(eagle3_model<float> const&) const noexcept {
        return {features_.view(), {}, blocks_, next_, laws(), labels_};
    }

private:
    static void widen(std::span<sureleap::half const> from, std::span<float> to) {
        using halves = Eigen::Array<Eigen::half, Eigen::Dynamic, 1>;
        static_assert(sizeof(Eigen::half) == sizeof(sureleap::half));
        eigen_array(to) = Eigen::Map<halves const>(reinterpret_cast<Eigen::half const*>(from.data()),
                                                   static_cast<Eigen::Index>(from.size()))
                              .cast<float>();
    }

    [[nodiscard]] known_laws<float> laws() const noexcept { return {begins_, tokens_, shares_}; }

    void add(recorded_texts::law const& law, sureleap::vocabulary_map const* map) {
        for (std::size_t i = 0; i < law.tokens.size() && law.shares[i] > 0.0f; ++i) {
            token_id const token = map == nullptr ? law.tokens[i] : map->to_draft(law.tokens[i]);
            if (token == sureleap::no_token) continue;
            tokens_.push_back(token);
            shares_.push_back(law.shares[i]);
        }
    }

    matrix<float> features_;
    std::vector<draft_block> blocks_;
    std::vector<token_id> next_;  // of every token row
    std::vector<token_id> previous_;
    std::vector<token_id> labels_;
    std::vector<std::size_t> begins_;
    std::vector<token_id> tokens_;
    std::vector<float> shares_;
};

draft_tape<float> tape_of(draft_model<float> const&);
eagle3_tape<float> tape_of(eagle3_model<float> const&);

/// Model: draft_model or eagle3_model.
template <class Model>
class recorded_task {
public:
    /// Everything must outlive the task; map may be null.
    recorded_task(Model const& model, recorded_texts const& recorded, sureleap::vocabulary_map const* map,
                  batch_plan& plan, sharded_gradients& gradients, recorded_task_settings const& settings)
        : model_(model),
          recorded_(recorded),
          map_(map),
          plan_(plan),
          gradients_(gradients),
          settings_(settings),
          memory_(gradients.shards()) {}

    step_result operator()(std::size_t step, std::span<float const> values) {
        auto const batch = plan_.at(step);
        std::vector<std::vector<sureleap::anchored_block>> blocks;
        std::vector<std::size_t> numbers;
        double total_weight = 0;
        std::size_t anchors = 0;
        for (std::size_t const text : batch.members) {
            numbers.push_back(blocks.size());
            blocks.push_back(blocks_of_text(recorded_, text, batch.epoch));
            anchors += blocks.back().size();
            for (auto const& b : blocks.back()) {
                total_weight += sureleap::weight_sum(settings_.losses, supervised(model_, b));
            }
        }
        auto const parts = divide(numbers, memory_.size(), [&](std::size_t m) { return cost_of(blocks[m]); });
        std::vector<loss_report> reports(memory_.size(), loss_report(settings_.losses, model_.block_size()));
        auto const sum = gradients_.sum([&](std::size_t shard, std::span<float> gradients) {
            sureleap::packed_batch packed(model_.block_size());
            for (std::size_t const m : parts[shard]) packed.add(batch.members[m], blocks[m]);
            run(recorded_, packed, values, total_weight, memory_[shard], gradients, reports[shard]);
        });
        for (std::size_t i = 1; i < reports.size(); ++i) reports[0].merge(reports[i]);
        return {sum, anchors, in_words(reports[0])};
    }

    /// Tau of every domain of texts that nothing was learnt from: the mean, over anchors that are the same in every
    /// call, of the tokens that a round is expected to emit.
    [[nodiscard]] std::string validate(recorded_texts const& unseen, std::span<float const> values) {
        std::string line;
        for (std::string const& domain : unseen.texts().domains()) {
            std::vector<std::size_t> members;
            for (std::size_t i = 0; i < unseen.texts().size(); ++i) {
                if (unseen.texts()[i].domain == domain) members.push_back(i);
            }
            auto const parts = divide(std::span<std::size_t const>(members), memory_.size(),
                                      [&](std::size_t i) { return unseen.texts()[i].tokens.size(); });
            std::vector<loss_report> reports(memory_.size(), loss_report(settings_.losses, model_.block_size()));
            gradients_.for_each_shard([&](std::size_t shard) {
                for (std::size_t const text : parts[shard]) {
                    sureleap::packed_batch packed(model_.block_size());
                    packed.add(text, blocks_of_text(unseen, text, 0));
                    run(unseen, packed, values, 1.0, memory_[shard], {}, reports[shard]);
                }
            });
            for (std::size_t i = 1; i < reports.size(); ++i) reports[0].merge(reports[i]);
            char text[64];
            std::snprintf(text, sizeof text, "%.3f (%.0f)", reports[0].tau().mean(), reports[0].tau().weight);
            line += (line.empty() ? "" : "  ") + domain + " " + text;
        }
        return line;
    }

private:
    // Of a shard, kept from step to step.
    struct memory {
        recorded_batch batch;
        decltype(tape_of(std::declval<Model const&>())) tape;
    };

    void run(recorded_texts const& recorded, sureleap::packed_batch const& packed, std::span<float const> values,
             double total_weight, memory& m, std::span<float> gradients, loss_report& report) const {
        if (packed.blocks().empty()) return;
        m.batch.fill(recorded, packed, map_);
        auto const batch = m.batch.view_for(model_);
        model_.forward(values, batch, m.tape);
        model_.backward(values, batch, settings_.losses, total_weight, m.tape, gradients, report);
    }

    // Every visit of a text has anchors of its own.
    [[nodiscard]] std::vector<sureleap::anchored_block> blocks_of_text(recorded_texts const& recorded, std::size_t text,
                                                                       std::uint64_t epoch) const {
        auto const d = recorded.texts()[text];
        std::vector<std::uint8_t> counts(d.tokens.size(), 1);
        std::fill_n(counts.begin(), d.prompt, std::uint8_t{0});
        auto const count = static_cast<std::size_t>(
            std::ceil(settings_.anchors_per_token * static_cast<double>(d.tokens.size() - d.prompt)));
        std::uint64_t const visit = epoch * recorded.texts().size() + text;
        auto blocks = sureleap::sample_blocks(counts, count, model_.block_size(), [&](std::size_t t) {
            return sureleap::anchor_uniform(settings_.seed, visit, t);
        });
        for (auto& block : blocks) {
            for (std::size_t k = 0; map_ != nullptr && k < block.positions; ++k) {
                if (map_->to_draft(d.tokens[block.anchor + 1 + k]) == sureleap::no_token) block.positions = k + 1;
            }
        }
        return blocks;
    }

    // What a text takes, in passes of a token of context: those of a block are some ten times as dear.
    [[nodiscard]] std::size_t cost_of(std::span<sureleap::anchored_block const> blocks) const {
        return sureleap::bounded_rows(blocks) + 10 * model_.block_size() * blocks.size();
    }

    Model const& model_;
    recorded_texts const& recorded_;
    sureleap::vocabulary_map const* map_;
    batch_plan& plan_;
    sharded_gradients& gradients_;
    recorded_task_settings settings_;
    std::vector<memory> memory_;
};

}  // namespace train
