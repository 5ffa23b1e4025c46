// SPDX-License-Identifier: MIT
//
// Drafts of ranks that have slices of the vocabulary: columns of the backbone's base logits, and rows of the head's W2.
// Each rank makes its own columns of q, and all of them draw the tokens together. No row is gathered.
//
//     vocabulary_slices const slices = vocabulary_slices::even(V, ranks.size());
//     markov_head own{w1, own_rows_of_w2};
//     semi_autoregressive parts{backbone, own,
//                               {.block_size = gamma, .vocabulary = V, .slice = slices.tokens(ranks.rank())}};
//     decoder dec{sharded_target, sharded_drafter{parts, ranks, slices}, ...};
//
// A position takes one exchange, of all requests at once. A rank says of each part of its slice what its weights add up
// to, and which token is drawn if the part is. By these sums everybody draws the part. So all have the token, and the
// normaliser that it was drawn by. A token that is drawn by the inverse of the CDF takes two numbers, one for the part
// and one in it: it is the same for any number of ranks, and another one than from a whole row. The first largest logit
// and the winner of a race are those of the whole row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/ranks/drafted_parts.hpp>
#include <sureleap/ranks/message.hpp>
#include <sureleap/ranks/part_sums.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// What all ranks know of q before its token is drawn: what a confidence that reads q may ask (top1_confidence).
struct shared_draft_law {
    bool forced = false;  ///< a mask left one token alone
    double total = 0.0;   ///< of weights relative to the largest one

    [[nodiscard]] bool is_without_row() const noexcept { return forced; }
    [[nodiscard]] bool valid() const noexcept { return forced || total > 0.0; }
    [[nodiscard]] double peak() const noexcept { return 1.0 / total; }
};

}  // namespace detail

/// Drafter: semi_autoregressive or parallel with drafter_options::slice, held by value, or by reference where an lvalue
/// was given to the deduction guide. Its head has the rows of W2 that the slice has, and W1 whole. Its confidence reads
/// hidden states, or is top1_confidence. Models drafter, for an accept stage over the same slices (sharded_rows.hpp).
///
/// A shortlist_head lists the best tokens of each slice. A slice may be a list of those tokens of the rank that are
/// drafted at all.
///
/// A row without a law on one rank ends the request's drafts on all of them, with invalid_draft. A backbone that gives
/// other shapes than it promised ends those of all requests. Where a rank is lost or drafts something else the round
/// ends: ranks_lost or ranks_differ, with nothing emitted.
template <class Drafter, communicator Ranks>
class sharded_drafter {
    using parts_type = std::remove_cvref_t<Drafter>;

public:
    using value_type = typename parts_type::value_type;
    using forward_type = typename parts_type::forward_type;

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = parts_type::has_confidence;
    static constexpr bool plans_at_anchor = parts_type::plans_at_anchor && parts_type::reads_hidden;
    static constexpr bool lends_rows = parts_type::lends_rows;

    static_assert(
        !has_confidence || parts_type::reads_hidden ||
            std::is_invocable_v<typename parts_type::confidence_type const&, detail::shared_draft_law, std::size_t>,
        "sharded_drafter: this confidence reads whole rows of q, which no rank has; use a confidence_head, or "
        "another pre_token_confidence (concepts.hpp), or top1_confidence");

    /// Memory of the drafter inside, and what ranks say of a position.
    struct memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, sharded_drafter const& drafter) noexcept
            : parts(ws, shape, drafter.parts_),
              laws(ws.take<distribution<value_type>>(shape.requests)),
              sums(ws.take<double>(drafter.slices_.parts().size())),
              own(ws.take<std::byte>(most_bytes(drafter.slices_, shape.requests))),
              all(ws.take<std::byte>(drafter.slices_.ranks() * most_bytes(drafter.slices_, shape.requests))) {}

        typename parts_type::memory_type parts{};
        std::span<distribution<value_type>> laws{};  // [R] this rank's columns of q
        std::span<double> sums{};                    // [parts] scratch
        std::span<std::byte> own{};
        std::span<std::byte> all{};
    };

    /// The same slices on all ranks. `ranks` must outlive it. Throws if the drafter has other tokens than the rank.
    sharded_drafter(Drafter drafter, Ranks& ranks, vocabulary_slices slices)
        : parts_(std::forward<Drafter>(drafter)), ranks_(&ranks), slices_(std::move(slices)) {
        if (slices_.ranks() != ranks.size()) {
            fail_with("sharded_drafter: there are ", slices_.ranks(), " slices, expected one for each of the ",
                      ranks.size(), " ranks");
        }
        if (parts_.target_vocabulary() != slices_.vocabulary()) {
            fail_with("sharded_drafter: the drafter speaks ", parts_.target_vocabulary(), " tokens, expected the ",
                      slices_.vocabulary(), " of the slices");
        }
        std::size_t const first = slices_.first(ranks.rank()), size = slices_.size(ranks.rank());
        vocabulary_view const over = parts_.tokens();
        auto const is_own = [&](std::size_t place) {
            return static_cast<std::size_t>(over.to_target(static_cast<token_id>(place))) - first < size;
        };
        std::size_t const count = over.draft_size();
        bool const fits =
            over && (count == 0 || (is_own(0) && is_own(count - 1) && (!over.is_slice() || count == size)));
        if (!fits) {
            fail_with("sharded_drafter: the drafter of rank ", ranks.rank(), " has ", parts_.vocabulary(),
                      " tokens, expected drafter_options::slice = slices.tokens(rank), the ", size, " from token ",
                      first, " on, or a list of some of them");
        }
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return parts_.block_size(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return parts_.vocabulary(); }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return parts_.target_vocabulary(); }
    [[nodiscard]] std::size_t state_size() const noexcept { return parts_.state_size(); }
    [[nodiscard]] std::size_t room(request_view const& request) const { return draft_room(parts_, request); }
    [[nodiscard]] std::uint64_t unread(request_view const& request) const { return draft_unread(parts_, request); }
    /// Bytes that a rank sends in an exchange of so many requests, for the communicator's own limit.
    [[nodiscard]] static std::size_t most_bytes(vocabulary_slices const& slices, std::size_t requests) noexcept {
        return sizeof(header) + requests * slices.most_parts() * part_type::bytes;
    }

    [[nodiscard]] forward_type forward(std::span<request_view const> requests) { return parts_.forward(requests); }

    /// Confidences at the anchor, for planned_schedule: of hidden states, without an exchange.
    void plan(forward_type const& forward, draft_block<value_type> const& block, memory_type const& memory,
              planning_memory& planning) const
        requires plans_at_anchor
    {
        parts_.plan(forward, block, memory.parts, planning);
    }

    /// Position by position, an exchange for each that some request drafts: O(gamma R V r / ranks). Throws, before
    /// anything is drawn, if a request truncates its drafts.
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, memory_type const& memory,
              Rng& rng) const {
        std::size_t const requests = block.requests().size();
        for (std::size_t r = 0; r < requests; ++r) {
            transform const how = block.requests()[r].settings->draft_transform();
            if (how.truncates() && !how.greedy()) {
                fail_with("sharded_drafter: request ", r, " truncates its drafts (top_k ", how.top_k, ", top_p ",
                          how.top_p, ", min_p ", how.min_p,
                          "), expected a temperature alone in request_settings::draft: no rank has a whole row");
            }
            parts_.begin(memory.parts, r, memory.parts.states[r]);
        }
        bool const has_rows = parts_.well_shaped(forward, requests);
        for (std::size_t k = 0; any_drafts(block, k); ++k) {
            if (has_rows) {
                make_rows(forward, block, memory, k);
                block.for_each_request(parts_.draw_size(), rng, [&](auto const& mine, std::size_t r, auto& source) {
                    if (drafts(mine, r, k)) say(forward, rule, mine, memory, r, k, source);
                });
            }
            if (status const how = exchange(rule, block, memory, k, has_rows); how != status::ok) {
                for (std::size_t r = 0; r < requests; ++r) block.reject(r, how);
                return;
            }
            for (std::size_t r = 0; r < requests; ++r) {
                if (drafts(block, r, k)) take(forward, rule, block, memory, r, k, rng);
            }
        }
    }

    void commit(std::span<verdict const> verdicts) noexcept { parts_.commit(verdicts); }

private:
    using block_type = draft_block<value_type>;
    using part_type = detail::drafted_part<value_type>;
    struct header {
        std::uint64_t checksum = 0;  // of what must be the same
        std::uint64_t failed = 0;    // the rank's backbone gave other shapes
    };

    [[nodiscard]] bool drafts(block_type const& block, std::size_t r, std::size_t k) const noexcept {
        return block.drafts(r, k) && parts_.can_follow(block.requests()[r].anchor);
    }
    [[nodiscard]] bool any_drafts(block_type const& block, std::size_t k) const noexcept {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            if (drafts(block, r, k)) return true;
        }
        return false;
    }
    void make_rows(forward_type const& forward, block_type const& block, memory_type const& memory,
                   std::size_t k) const {
        block.for_each_request(parts_.draw_size(), [&](auto const& mine, std::size_t r) {
            if (drafts(mine, r, k)) parts_.want(forward, memory.parts, parts_.next(mine, memory.parts, r, k));
        });
        if constexpr (parts_type::rows_type::is_shared) parts_.make(memory.parts, block);
    }

    /// What this rank has to say of request r.
    template <class DraftRule, class Rng>
    void say(forward_type const& forward, DraftRule, block_type const& block, memory_type const& memory, std::size_t r,
             std::size_t k, Rng& rng) const {
        double const temperature = block.requests()[r].settings->draft_transform().temperature;
        auto const& q = memory.laws[r] =
            parts_.slice(forward, memory.parts, parts_.next(block, memory.parts, r, k), temperature, block.mask(r));
        if (q.is_without_row()) return;  // all ranks know the token
        auto const draw = detail::draw_of<DraftRule>(block.requests()[r], k, q);
        detail::slice_row<value_type> const row{q.logits(), q.over(), draw.scale, q.functions()};
        bool const to_top = has_confidence && !parts_type::reads_hidden;
        detail::byte_writer out{memory.own.data() + place(r)};
        std::size_t const rank = ranks_->rank();
        detail::say_parts<DraftRule>(row, draw, slices_.parts_of(rank), slices_.first_part(rank), to_top, out, rng);
    }

    /// Where what is said of request r begins.
    [[nodiscard]] std::size_t place(std::size_t r) const noexcept { return most_bytes(slices_, r); }
    template <class DraftRule>
    [[nodiscard]] status exchange(DraftRule, block_type const& block, memory_type const& memory, std::size_t k,
                                  bool has_rows) const noexcept {
        std::size_t const requests = block.requests().size();
        detail::mixed_number all;
        all.put(detail::mixed(block.requests()));
        all.put(std::uint64_t{k} << 8 | static_cast<std::uint64_t>(drawn_by_v<DraftRule>));
        for (std::size_t r = 0; r < requests; ++r) {
            request_view const& request = block.requests()[r];
            all.put(request.settings->draft_transform().temperature);
            all.put(std::uint64_t{request.draft_cap(block_size())} << 32 | request.draft_floor);
            for (token_id const x : block.tokens(r)) all.put(std::uint64_t{static_cast<std::uint32_t>(x)});
        }
        header const mine{all.value(), has_rows ? 0u : 1u};
        std::memcpy(memory.own.data(), &mine, sizeof mine);
        std::size_t const size = most_bytes(slices_, requests);
        auto const received = memory.all.first(slices_.ranks() * size);
        if (!ranks_->gather(memory.own.first(size), received)) return status::ranks_lost;
        status how = status::ok;
        for (std::size_t rank = 0; rank < slices_.ranks(); ++rank) {
            header theirs;
            std::memcpy(&theirs, received.data() + rank * size, sizeof theirs);
            if (theirs.checksum != mine.checksum) return status::ranks_differ;
            if (theirs.failed != 0) how = status::invalid_draft;
        }
        return how;
    }

    /// Draws the token of request r by what all ranks said.
    template <class DraftRule, class Rng>
    void take(forward_type const& forward, DraftRule rule, block_type& block, memory_type const& memory, std::size_t r,
              std::size_t k, Rng& rng) const {
        auto const& q = memory.laws[r];
        auto const draw = detail::draw_of<DraftRule>(block.requests()[r], k, q);
        std::size_t const size = most_bytes(slices_, block.requests().size());
        auto const part = [&](std::size_t i) {
            std::size_t const rank = slices_.parts()[i].rank;
            std::size_t const nth = i - slices_.first_part(rank);
            return part_type::take(
                detail::byte_reader{memory.all.data() + rank * size + place(r) + nth * part_type::bytes});
        };
        bool const forced = q.is_without_row();
        detail::part_sum<value_type> row{};
        if (!forced) row = detail::add_up(draw.scale, memory.sums, [&](std::size_t i) { return part(i).sum; });
        detail::shared_draft_law const law{forced, row.sum};
        double const confidence =
            parts_.confidence_behind(forward, memory.parts, parts_.next(block, memory.parts, r, k), law);
        part_type drawn{.token = forced ? q.mode() : no_token};
        if (row.sum > 0.0) drawn = detail::draw_part<DraftRule>(draw, memory.sums, part, rng);
        if (forced || draw.takes_mode) {
            auto const one = distribution<value_type>::one_hot(slices_.vocabulary(), drawn.token);
            block.take_drawn(r, rule, drawn.token, one, 1.0, confidence);
        } else {
            double const probability = detail::weight_beside(drawn.logit, row.top, draw.scale) / row.sum;
            block.take_drawn(r, rule, drawn.token, q, probability, confidence);
        }
    }

    Drafter parts_;
    Ranks* ranks_;
    vocabulary_slices slices_;
};

template <class D, communicator R>
sharded_drafter(D&&, R&, vocabulary_slices) -> sharded_drafter<D, R>;

SURELEAP_END_NAMESPACE
