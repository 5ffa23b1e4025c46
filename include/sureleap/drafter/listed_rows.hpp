// SPDX-License-Identifier: MIT
//
// Rows that run over short lists of tokens, which are kept beside them: memory of a drafter of one's own, and of a
// shortlist_head the row source (base_rows.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/base_rows.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Lists of at most shape.vocabulary tokens, ascending target ids. law(block, r, row, {list, target_vocabulary}) is q.
template <class Q>
class listed_rows : public draft_rows<Q> {
public:
    listed_rows() = default;
    listed_rows(workspace& ws, draft_shape const& shape, bool lent, bool lists) noexcept
        : draft_rows<Q>(ws, shape, lent),
          lists_(ws.take<token_id>(lists ? shape.requests * shape.kept_positions() : 0, shape.vocabulary)) {}
    template <class Drafter>
    listed_rows(workspace& ws, draft_shape const& shape, Drafter const&) noexcept
        : listed_rows(ws, shape, lends_rows_v<Drafter>, true) {}

    /// Where the list of the next position of request r goes.
    [[nodiscard]] std::span<token_id> next_list(draft_block<Q> const& block, std::size_t r) const noexcept {
        return list(this->place(r, block.size(r)));
    }
    [[nodiscard]] std::span<token_id> list(std::size_t place) const noexcept { return lists_[place]; }

private:
    carved_rows<token_id> lists_{};  // by place
};

/// What base logits choose of a position is the same behind every token: for trees it is kept. T: storage of base
/// logits.
template <class Head, class T>
class shortlist_rows : public listed_rows<typename Head::value_type> {
    using scratch_type = typename Head::scratch_type;

public:
    using value_type = typename Head::value_type;
    using numbers = std::span<value_type const>;
    using position = row_position<value_type>;
    static constexpr bool is_shared = false;

    shortlist_rows() = default;
    shortlist_rows(workspace& ws, draft_shape const& shape, Head const& head, std::size_t positions,
                   vocabulary_view over) noexcept
        : listed_rows<value_type>(ws, shape, false, true),
          over_(over ? over : vocabulary_view::slice(0, head.vocabulary(), head.vocabulary())),
          positions_(positions),
          candidates_(ws.take<token_id>(shape.workers(), scratch_type::candidate_count(head.best()))),
          values_(ws.take<value_type>(shape.workers(), scratch_type::value_count(head.best(), head.vocabulary()))),
          counts_(ws.take<std::size_t>(shape.requests)),
          best_(ws.take<token_id>(shape.trees ? shape.requests * positions : 0, head.best())),
          best_counts_(ws.take<std::size_t>(shape.trees ? shape.requests * positions : 0)) {}

    void begin(std::size_t r) const noexcept {
        if (!best_counts_.empty()) std::ranges::fill(best_counts_.subspan(r * positions_, positions_), 0u);
    }
    void want(Head const& head, std::span<T const> base, numbers hidden, position const& at) const noexcept {
        auto const tokens = unite(head, base, at, at.previous);
        head.evaluate(base, tokens, at.state, hidden, at.previous, this->row(at.place).first(tokens.size()));
        name(tokens);
    }
    [[nodiscard]] numbers made(std::span<T const>, position const& at) const noexcept {
        return this->row(at.place).first(counts_[at.r]);
    }
    [[nodiscard]] numbers anchor(Head const& head, std::span<T const> base, position const& at) const noexcept {
        auto const tokens = unite(head, base, at, no_token);
        head.copy(base, tokens, this->row(at.place));
        name(tokens);
        return made(base, at);
    }
    [[nodiscard]] vocabulary_view map(position const& at, vocabulary_view) const noexcept {
        auto const list = this->list(at.place).first(counts_[at.r]);
        if (list.empty()) return vocabulary_view::slice(0, 0, over_.target_size());
        return {list, over_.target_size()};
    }

private:
    /// The head's tokens become the target's.
    void name(std::span<token_id> tokens) const noexcept {
        for (token_id& x : tokens) x = over_.to_target(x);
    }
    [[nodiscard]] std::span<token_id> unite(Head const& head, std::span<T const> base, position const& at,
                                            token_id previous) const noexcept {
        counts_[at.r] = head.unite(best(head, base, at), previous, this->list(at.place));
        return this->list(at.place).first(counts_[at.r]);
    }
    [[nodiscard]] std::span<token_id const> best(Head const& head, std::span<T const> base,
                                                 position const& at) const noexcept {
        auto const choose = [&] { return head.choose_best(base, {candidates_[at.worker], values_[at.worker]}); };
        if (best_counts_.empty()) return choose();
        std::size_t const i = at.r * positions_ + at.k;
        if (best_counts_[i] == 0) {
            auto const chosen = choose();
            std::ranges::copy(chosen, best_[i].begin());
            best_counts_[i] = chosen.size();
        }
        return best_[i].first(best_counts_[i]);
    }

    vocabulary_view over_{};  // what the head has tokens of: all, or a slice
    std::size_t positions_ = 0;
    carved_rows<token_id> candidates_{};    // scratch of a choice, by worker
    carved_rows<value_type> values_{};      // by worker
    std::span<std::size_t> counts_{};       // [R] tokens of the last list
    carved_rows<token_id> best_{};          // by [R, positions] what base logits choose, of trees
    std::span<std::size_t> best_counts_{};  // 0: not known yet
};

SURELEAP_END_NAMESPACE
