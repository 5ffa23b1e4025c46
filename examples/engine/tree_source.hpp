// SPDX-License-Identifier: MIT
//
// What may follow a node of a draft tree, by a DSpark drafter. One backbone pass gives hidden states and base logits of all
// positions. The sequential head then adds, behind each node, the bias of that node's own path: children of siblings have
// laws of their own, and no further pass.
//
// How likely a child is to be accepted is the confidence behind its parent, times what such confidences turned out to be
// worth for a child of that rank: a ratio that is learned from round to round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/tree.hpp>

#include "dspark.hpp"
#include "heads.hpp"

namespace engine {

/// One request's source for sureleap::tree_growth. The model must outlive it.
template <class Real>
class tree_source {
public:
    /// `most`: drafted tokens of a tree. The file must have a confidence head.
    tree_source(dspark<Real>& model, std::size_t most)
        : model_(model),
          head_(load_head<Real>(model.source())),
          confidence_(load_confidence<Real>(model.source())),
          states_((most + 1) * head_.state_size()),
          rows_((most + 1) * model.vocabulary()),
          sums_((most + 1) * sureleap::row_blocks(model.vocabulary())),
          order_(model.vocabulary()) {
        if (auto const t = model.confidence_temperatures(); !t.empty())
            calibration_.emplace(std::vector(t.begin(), t.end()));
    }

    /// Positions of the longest path.
    [[nodiscard]] std::size_t depth() const noexcept { return model_.block_size(); }

    /// The backbone pass of a request, whose tokens are drawn from laws of that transform.
    void begin(sureleap::request_view const& request, sureleap::transform const& how) {
        forward_ = model_.forward({&request, 1});
        how_ = how;
    }
    /// q behind a node, whose parent was asked about before.
    [[nodiscard]] sureleap::distribution<Real> law(sureleap::draft_tree const& tree, sureleap::node_id n) {
        auto const at = static_cast<std::size_t>(n);
        std::size_t const size = head_.state_size();
        std::span const state = std::span(states_).subspan(at * size, size);
        if (n == sureleap::anchor_node) {
            head_.reset(state);
        } else {
            std::copy_n(states_.data() + static_cast<std::size_t>(tree.parent(n)) * size, size, state.data());
        }
        std::size_t const k = tree.depth(n);
        std::span const row = std::span(rows_).subspan(at * model_.vocabulary(), model_.vocabulary());
        std::ranges::copy(forward_.base_logits.values.row(k), row.begin());
        head_.add_bias(state, forward_.hidden.row(k), tree.token(n), row);
        std::size_t const blocks = sureleap::row_blocks(row.size());
        return {{row, {}},
                how_,
                order_,
                model_.map(),
                sureleap::native_kernels<sureleap::row_kernels>(),
                std::span(sums_).subspan(at * blocks, blocks)};
    }
    [[nodiscard]] double acceptance(sureleap::draft_tree const& tree, sureleap::node_id n, std::size_t rank) const {
        return std::min(confidence(tree, n) * worth(rank), 1.0);
    }
    /// The tree was judged, and `end` is its last node that is accepted. Later trees know what became of this one.
    void learn(sureleap::draft_tree const& tree, sureleap::node_id end) {
        std::vector<sureleap::node_id> path(tree.depth(end));
        static_cast<void>(tree.path(end, path));
        path.insert(path.begin(), sureleap::anchor_node);
        for (std::size_t i = 0; i < path.size(); ++i) {
            double const c = confidence(tree, path[i]);
            sureleap::node_id const kept = i + 1 < path.size() ? path[i + 1] : sureleap::no_node;
            std::size_t rank = 0;
            for (sureleap::node_id x = tree.first_child(path[i]); x != sureleap::no_node; x = tree.next_sibling(x)) {
                if (rank == accepted_.size()) grow_ranks();
                expected_[rank] += c;
                if (x == kept) accepted_[rank] += 1.0;
                if (x == kept) break;
                ++rank;
            }
        }
    }
    /// What a confidence is worth for the child of that rank, given that its elders were rejected.
    [[nodiscard]] double worth(std::size_t rank) const {
        rank = std::min(rank, accepted_.size() - 1);
        return accepted_[rank] / expected_[rank];
    }

private:
    [[nodiscard]] double confidence(sureleap::draft_tree const& tree, sureleap::node_id n) const {
        std::size_t const k = tree.depth(n);
        auto const c = static_cast<double>(confidence_(forward_.hidden.row(k), tree.token(n), k));
        return calibration_ ? (*calibration_)(k, c) : c;
    }
    // A further rank is thought of as the one before until it is seen.
    void grow_ranks() {
        accepted_.push_back(worth(accepted_.size() - 1));
        expected_.push_back(1.0);
    }

    dspark<Real>& model_;
    any_head<Real> head_;
    any_confidence<Real> confidence_;
    std::optional<sureleap::sequential_temperature_scaling> calibration_;
    sureleap::block_forward<Real> forward_{};
    sureleap::transform how_{};
    std::vector<Real> states_;               // [nodes, state_size]
    std::vector<Real> rows_;                 // [nodes, draft vocabulary]
    std::vector<double> sums_;               // [nodes, row_blocks]
    std::vector<sureleap::token_id> order_;  // [draft vocabulary]
    // By rank. Where nothing was seen: an elder child is accepted as often as its confidence says, others half as often.
    std::vector<double> accepted_{4.0, 2.0};
    std::vector<double> expected_{4.0, 4.0};
};

}  // namespace engine
