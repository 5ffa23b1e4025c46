// SPDX-License-Identifier: MIT
//
// A drafter whose tokens were drawn elsewhere: a chain or a tree of one request, with the rows of q that it was drawn
// from. Each token goes through the draw of the library, from a source of randomness that answers with it. So it is
// recorded together with its q, or not at all. A tree grows in the shape that it has.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/sureleap.hpp>

namespace sureleap_verify {
using namespace sureleap;

/// Answers a draw with a token that was drawn elsewhere, and with none from a law in which nobody draws it.
struct given_token {
    token_id token;
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const&, Weights const& weights) const noexcept {
        return static_cast<double>(weights[token]) > 0.0 ? token : no_token;
    }
};

/// What one request brings.
struct given_request {
    std::span<token_id const> tokens{};   // [length]
    std::span<node_id const> parents{};   // [length] of a tree
    float const* q = nullptr;             // the row of the first token
    std::size_t q_pitch = 0;              // to the next one
    std::uint32_t const* mask = nullptr;  // the words of the anchor's row
    std::size_t mask_pitch = 0;

    /// The row behind these tokens.
    [[nodiscard]] std::size_t row(std::span<token_id const> drafted) const noexcept {
        if (parents.empty()) return drafted.size();
        std::size_t n = 0;
        for (token_id const x : drafted) {
            std::size_t i = 0;
            while (parents[i] != static_cast<node_id>(n) || tokens[i] != x) ++i;
            n = i + 1;
        }
        return n;
    }
};

/// Drafts what it is handed. Models drafter.
class given_drafts {
public:
    using value_type = float;
    struct forward_type {};

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;

    /// `columns`: of q, 0 where nobody reads one.
    given_drafts(std::size_t block_size, std::size_t vocabulary, bool trees, std::size_t columns, bool probabilities)
        : block_size_(block_size),
          target_vocabulary_(vocabulary),
          vocabulary_(columns > 0 || !trees ? columns : block_size),
          trees_(trees),
          has_q_(columns > 0),
          probabilities_(probabilities),
          level_(trees ? block_size : 0) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return vocabulary_; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return target_vocabulary_; }
    [[nodiscard]] drafter_traits traits() const noexcept { return {.drafts_trees = trees_}; }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }

    struct memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, given_drafts const& drafter) noexcept
            : rows(ws, shape, !drafter.probabilities_),
              tree(ws, shape.trees ? shape.block_size : 0),
              growth(ws, shape.trees ? shape.block_size : 0),
              prefix(ws.take<token_id>(shape.trees ? shape.block_size : 0)) {}

        draft_rows<float> rows{};
        mutable draft_tree tree{};
        mutable tree_growth<float> growth{};
        std::span<token_id> prefix{};
    };

    /// What the next round drafts.
    void hand(given_request const& request) {
        request_ = request;
        if (!trees_ || has_q_) return;
        listed_.assign(request.tokens.begin(), request.tokens.end());
        std::sort(listed_.begin(), listed_.end());
        listed_.erase(std::unique(listed_.begin(), listed_.end()), listed_.end());
    }

    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule how, draft_block<float>& block, memory_type const& memory, Rng&) const noexcept {
        if (trees_) return draw_tree(how, block, memory);
        for (std::size_t k = 0; k < request_.tokens.size() && block.drafts(0, k); ++k) {
            token_id const x = request_.tokens[k];
            if (has_q_) {
                given_token source{x};
                block.draw(0, categorical_draft{}, law(block, memory, k, k, block.mask(0)), 1.0, source);
            } else if (!block.append_found(0, x, target_vocabulary_)) {
                return;
            }
        }
    }

private:
    // The part of a source that growth asks for in a shape that is given: nobody reads the values.
    struct values {
        [[nodiscard]] double acceptance(draft_tree const&, node_id, std::size_t) const noexcept { return 1.0; }
    };
    template <class DraftRule>
    void draw_tree(DraftRule how, draft_block<float>& block, memory_type const& memory) const noexcept {
        auto& [rows, tree, growth, prefix] = memory;
        std::size_t const nodes = request_.tokens.size();
        request_view request = block.requests()[0];
        request.shape = request_.parents;
        values source;
        growth.begin(tree, request, {.nodes = nodes, .depth = nodes, .children = nodes}, source);
        for (node_id n = growth.next(tree); n != no_node; n = growth.next(tree)) {
            std::size_t const i = tree.size() - 1;
            if (growth.lacks_law()) {
                auto const mask = mask_behind(request, tree.prefix(n, prefix));
                growth.give(law(block, memory, i, static_cast<std::size_t>(n), mask));
            }
            given_token token{request_.tokens[i]};
            growth.draw(tree, request, source, token, categorical_draft{});
            if (tree.size() > i + 1) continue;
            if (has_q_) block.reject(0, status::invalid_draft);
            break;
        }
        block.take_tree(0, how, tree, growth, [](node_id) noexcept { return 1.0; });
    }
    /// q of draft i, at its place in memory. Where nobody reads one, a law that has every token of the tree.
    [[nodiscard]] distribution<float> law(draft_block<float> const& block, memory_type const& memory, std::size_t i,
                                          std::size_t node, row_mask const& mask) const noexcept {
        std::size_t const place = memory.rows.place(0, node);
        if (!has_q_) {
            vocabulary_view const list{listed_, target_vocabulary_};
            return memory.rows.law(0, place, std::span(level_).first(listed_.size()), list, {}, mask);
        }
        std::span<float const> row{request_.q + i * request_.q_pitch, vocabulary_};
        if (probabilities_) {
            std::span<float> const kept = memory.rows.row(place);
            std::transform(row.begin(), row.end(), kept.begin(), [](float x) { return std::log(x); });
            row = kept;
        }
        return memory.rows.law(0, place, row, {}, block.requests()[0].settings->draft_transform(), mask);
    }

    std::size_t block_size_;
    std::size_t target_vocabulary_;
    std::size_t vocabulary_;
    bool trees_;
    bool has_q_;
    bool probabilities_;
    given_request request_{};
    std::vector<float> level_;      // logits 0
    std::vector<token_id> listed_;  // the tree's tokens, ascending
};

}  // namespace sureleap_verify
