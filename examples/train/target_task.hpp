// SPDX-License-Identifier: MIT
//
// One step of training a target: from documents to gradients.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "causal_lm.hpp"
#include "documents.hpp"
#include "run.hpp"

namespace train {

/// Next-token cross entropy over all tokens of a batch, prompts included: a target continues any text.
class target_task {
public:
    target_task(causal_lm<float> const& model, documents const& all, batch_plan& plan, sharded_gradients& gradients)
        : model_(model), all_(all), plan_(plan), gradients_(gradients), tapes_(gradients.shards()) {}

    step_result operator()(std::size_t step, std::span<float const> values) {
        auto const batch = plan_.at(step);
        auto const parts = divide(batch.members, tapes_.size(), [&](std::size_t i) { return all_[i].tokens.size(); });
        std::size_t rows = 0;
        for (std::size_t const i : batch.members) rows += all_[i].tokens.size();
        double const predicted = static_cast<double>(rows - batch.members.size());
        std::vector<double> losses(parts.size());
        auto const sum = gradients_.sum([&](std::size_t shard, std::span<float> gradients) {
            losses[shard] = shard_loss(values, parts[shard], 1.0 / predicted, tapes_[shard], gradients);
        });
        double loss = 0;
        for (double const l : losses) loss += l;
        char text[64];
        std::snprintf(text, sizeof text, "loss %.4f", loss / predicted);
        return {sum, rows, text};
    }

    /// Mean loss of these documents, without gradients.
    [[nodiscard]] double loss_of(std::span<float const> values, std::span<std::size_t const> members) {
        double total = 0;
        double predicted = 0;
        for (std::size_t const i : members) {
            total += shard_loss(values, std::span(&i, 1), 0.0, tapes_[0], {});
            predicted += static_cast<double>(all_[i].tokens.size() - 1);
        }
        return total / predicted;
    }

private:
    double shard_loss(std::span<float const> values, std::span<std::size_t const> members, double scale,
                      causal_tape<float>& tape, std::span<float> gradients) const {
        std::vector<token_id> tokens;
        std::vector<std::size_t> lengths;
        for (std::size_t const i : members) {
            auto const document = all_[i].tokens;
            tokens.insert(tokens.end(), document.begin(), document.end());
            lengths.push_back(document.size());
        }
        token_batch const batch{tokens, lengths};
        model_.forward(values, batch, tape);
        return model_.loss(values, batch, tape, scale, gradients);
    }

    causal_lm<float> const& model_;
    documents const& all_;
    batch_plan& plan_;
    sharded_gradients& gradients_;
    std::vector<causal_tape<float>> tapes_;
};

}  // namespace train
