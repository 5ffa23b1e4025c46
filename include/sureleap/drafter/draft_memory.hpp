// SPDX-License-Identifier: MIT
//
// What a drafter keeps of a round beside its drafts: rows that tokens are drawn from, states of a head, trees, and what
// it has noted for its commit. It lies in the round's own memory, since rounds may overlap. A drafter says what it
// needs by a type of its own, or is handed rows, where it takes them:
//
//     struct memory_type {
//         memory_type() = default;
//         memory_type(workspace& ws, draft_shape const& shape, my_drafter const& drafter);
//     };
//     template <class DraftRule, class Rng>
//     void draw(forward_type const&, DraftRule rule, draft_block<float>& block, draft_rows<float> const& rows, Rng& rng) {
//         auto const row = rows.next(block, r);  // the logits of request r go there
//         block.draw(r, rule, rows.law(block, r, row), confidence, rng);
//     }
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/row_mask.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Rows of shape.vocabulary numbers. A view of workspace memory.
template <class Q>
class draft_rows {
public:
    draft_rows() = default;
    /// `lent`: rows lie with the drafter's model until the round is over, so there is room for masked ones alone.
    draft_rows(workspace& ws, draft_shape const& shape, bool lent) noexcept
        : positions_(shape.kept_positions()),
          kernels_(shape.kernels),
          rows_(ws.take<Q>(lent && !shape.constrained ? 0 : shape.requests * positions_, shape.vocabulary)),
          sums_(ws.take<double>(shape.requests * positions_, row_blocks(shape.vocabulary))),
          order_(ws.take<token_id>(shape.workers(), shape.vocabulary)) {}
    template <class Drafter>
    draft_rows(workspace& ws, draft_shape const& shape, Drafter const&) noexcept
        : draft_rows(ws, shape, lends_rows_v<Drafter>) {}

    /// Where the logits of the next position of request r go. It holds what an earlier one left.
    [[nodiscard]] std::span<Q> next(draft_block<Q> const& block, std::size_t r) const noexcept {
        return row(place(r, block.size(r)));
    }
    /// q of such a row, or of one that is lent, as the settings of request r say.
    [[nodiscard]] distribution<Q> law(draft_block<Q> const& block, std::size_t r, std::span<Q const> row,
                                      vocabulary_view map = {}) const noexcept {
        return law(block.worker(), place(r, block.size(r)), row, map, block.requests()[r].settings->draft_transform(),
                   block.mask(r));
    }

    // By places, for who draws trees:

    /// Of position k of request r, or of node k of its tree. If nobody reads a row after its draw, those of a chain
    /// share one.
    [[nodiscard]] std::size_t place(std::size_t r, std::size_t k) const noexcept {
        return positions_ > 1 ? r * positions_ + k : r;
    }
    [[nodiscard]] std::span<Q> row(std::size_t place) const noexcept { return rows_[place]; }
    /// q of a row that is kept at a place, or is lent. One that is masked is changed where it is kept, or copied there
    /// before. Where the mask allows one token alone, q has no row; of an empty row there is no law.
    [[nodiscard]] distribution<Q> law(std::size_t worker, std::size_t place, std::span<Q const> row,
                                      vocabulary_view map, transform const& how, row_mask const& mask) const noexcept {
        if (row.empty()) return {};
        std::size_t const vocabulary = map ? map.target_size() : row.size();
        if (token_id const forced = mask.only(vocabulary); forced != no_token) {
            return distribution<Q>::one_hot(vocabulary, forced);
        }
        row = masked(place, row, map, mask);
        return {{row, {}}, how, order_[worker], map, *kernels_, sums_[place].first(row_blocks(row.size()))};
    }
    /// What a rank has of q, where each has some of its tokens (ranks/sharded_rows.hpp): `over`, perhaps none.
    [[nodiscard]] distribution<Q> slice(std::size_t place, std::span<Q const> row, vocabulary_view over,
                                        double temperature, row_mask const& mask) const noexcept {
        if (token_id const forced = mask.only(over.target_size()); forced != no_token) {
            return distribution<Q>::one_hot(over.target_size(), forced);
        }
        return distribution<Q>::slice(masked(place, row, over, mask), temperature, over, *kernels_);
    }

private:
    [[nodiscard]] std::span<Q const> masked(std::size_t place, std::span<Q const> row, vocabulary_view map,
                                            row_mask const& mask) const noexcept {
        if (!mask) return row;
        auto const kept = rows_[place].first(row.size());
        if (kept.data() != row.data()) std::copy(row.begin(), row.end(), kept.begin());
        mask.apply(kept, map);
        return kept;
    }

    std::size_t positions_ = 1;  // of a request that have a place of their own
    row_kernels const* kernels_ = nullptr;
    carved_rows<Q> rows_{};          // by place
    carved_rows<double> sums_{};     // by place
    carved_rows<token_id> order_{};  // by worker
};

namespace detail {
/// Numbers that a drafter's head keeps for a request; 0 of a drafter that has none.
template <class Drafter>
[[nodiscard]] std::size_t state_size_of(Drafter const& d) noexcept {
    if constexpr (requires { d.state_size(); }) return d.state_size();
    return 0;
}
template <class Drafter, class Q>
struct draft_memory {
    using type = draft_rows<Q>;
};
template <class Drafter, class Q>
    requires requires { typename Drafter::memory_type; }
struct draft_memory<Drafter, Q> {
    using type = typename Drafter::memory_type;
};
}  // namespace detail

/// Drafter::memory_type; of a drafter that names none, rows. Q: compute type of the round's drafts.
template <class Drafter, class Q>
using draft_memory_t = typename detail::draft_memory<Drafter, Q>::type;

// A drafter that has no use for its memory leaves the argument out.

template <class Drafter, class Forward, class Q>
void plan_block(Drafter const& drafter, Forward const& forward, draft_block<Q> const& block,
                draft_memory_t<Drafter, Q> const& memory, planning_memory& planning) {
    if constexpr (requires { drafter.plan(forward, block, memory, planning); }) {
        drafter.plan(forward, block, memory, planning);
    } else {
        drafter.plan(forward, block, planning);
    }
}
template <class Drafter, class Forward, class DraftRule, class Q, class Rng>
void draw_block(Drafter& drafter, Forward const& forward, DraftRule rule, draft_block<Q>& block,
                draft_memory_t<Drafter, Q> const& memory, Rng& rng) {
    if constexpr (requires { drafter.draw(forward, rule, block, memory, rng); }) {
        drafter.draw(forward, rule, block, memory, rng);
    } else {
        constexpr bool fits = requires { drafter.draw(forward, rule, block, rng); };
        static_assert(
            fits,
            "draw: the drafter cannot fill this round's block. It needs `template <class DraftRule, class Rng> void "
            "draw(<what forward returns>, DraftRule, draft_block<Q>& block, Rng& rng)`, with `draft_rows<Q> const& "
            "rows` or its memory_type before the last if it draws from rows, where Q is its value_type and the "
            "round_memory's second parameter; and the forward pass has to be the drafter's own");
        if constexpr (fits) drafter.draw(forward, rule, block, rng);
    }
}
/// Commits verdicts to a drafter, if it wants to know.
template <class Drafter, class Q>
void commit_block(Drafter& drafter, std::span<verdict const> verdicts, draft_block<Q> const& block,
                  draft_memory_t<Drafter, Q> const& memory) noexcept {
    if constexpr (requires { drafter.commit(verdicts, block, memory); }) {
        detail::expect_commit<noexcept(drafter.commit(verdicts, block, memory))>();
        drafter.commit(verdicts, block, memory);
    } else {
        detail::commit_to(drafter, verdicts);
    }
}

SURELEAP_END_NAMESPACE
