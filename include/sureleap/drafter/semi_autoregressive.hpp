// SPDX-License-Identifier: MIT
//
// Semi-autoregressive drafting (paper section 3.1). One backbone pass gives hidden states h and base logits U for the
// whole block. A light sequential head then adds a transition bias token by token. So every q_k = softmax(U_k +
// B_k(x_{<k})) is exact (eq. 4), at the cost of one matrix-vector product.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/base_rows.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/listed_rows.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Backbone + sequential head + confidence. Models drafter. Parts are held by value, or by reference where an lvalue
/// was given to the deduction guide: a function that returns a drafter must move its local parts in.
///
/// A request whose anchor is outside 0 .. V-1 drafts nothing if head or confidence embeds it.
template <class Backbone, class Head, class Confidence = no_confidence>
class semi_autoregressive {
    using head_type = std::remove_cvref_t<Head>;
    static constexpr bool lists = requires(head_type const& head) { head.capacity(); };  // a shortlist_head

    static_assert(
        backbone<std::remove_reference_t<Backbone>>,
        "semi_autoregressive: the first argument is no backbone; give it forward(span<request_view const>) or "
        "a call operator that returns sureleap::block_forward<T>");
    static_assert(sequential_head<head_type>,
                  "semi_autoregressive: the second argument is no sequential_head; see concepts.hpp, or use "
                  "sureleap::parallel for a backbone without a head");

public:
    using value_type = typename head_type::value_type;
    using confidence_type = std::remove_cvref_t<Confidence>;
    using forward_type = detail::forward_result_t<Backbone>;
    using stored_type = typename forward_type::value_type;
    static constexpr bool lends_rows =
        std::is_same_v<head_type, no_head<value_type>> && std::is_same_v<stored_type, value_type>;
    /// The row source of the head (base_rows.hpp).
    using rows_type = std::conditional_t<
        lends_rows, lent_rows<value_type>,
        std::conditional_t<lists, shortlist_rows<head_type, stored_type>,
                           std::conditional_t<factored_head<head_type>, factored_rows<head_type, stored_type>,
                                              dense_rows<head_type, stored_type>>>>;

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = !std::is_same_v<confidence_type, no_confidence>;
    /// The confidence can be asked before any token is drawn: planned_schedule works.
    static constexpr bool plans_at_anchor = anchor_confidence<confidence_type, value_type>;
    /// The confidence is known before q is, from a hidden state.
    static constexpr bool reads_hidden = pre_token_confidence<confidence_type, value_type>;

    static_assert(
        !has_confidence || reads_hidden || confidence_estimate<confidence_type, value_type>,
        "semi_autoregressive: the confidence must be callable as c(hidden, previous, k) or c(q, k) before x_k "
        "is drawn; a confidence that reads x_k would make every schedule anticipating");

    /// Rows, states of the head (one a node of a tree, else one a request), and hidden states that are stored
    /// otherwise.
    struct memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, semi_autoregressive const& drafter) noexcept
            : rows(ws, shape, drafter.head_, drafter.block_size(), drafter.tokens()),
              states(ws.take<value_type>(shape.requests * (shape.trees ? shape.block_size : 1),
                                         drafter.head_.state_size())),
              hidden(ws.take<value_type>(converts_hidden ? shape.workers() : 0, drafter.options_.hidden_size)) {}

        rows_type rows{};
        carved_rows<value_type> states{};
        carved_rows<value_type> hidden{};  // by worker
    };

    semi_autoregressive(Backbone model, Head head, Confidence confidence, drafter_options const& options)
        : backbone_(std::forward<Backbone>(model)),
          head_(std::forward<Head>(head)),
          confidence_(std::forward<Confidence>(confidence)),
          options_(options) {
        detail::check_options("semi_autoregressive", options_);
        bool const is_any = head_.vocabulary() == 0 && !factored_head<head_type>;
        if (!is_any && head_.vocabulary() != options_.row_size()) {
            fail_with("semi_autoregressive: the head has ", head_.vocabulary(),
                      " output tokens, expected the draft vocabulary of ", options_.row_size());
        }
        if (lists && tokens() && !tokens().is_slice()) {
            fail_with(
                "semi_autoregressive: a shortlist_head lists target tokens, expected a drafter without a "
                "vocabulary map");
        }
        if (head_.previous_vocabulary() != 0 && head_.previous_vocabulary() != target_vocabulary()) {
            fail_with("semi_autoregressive: the head embeds ", head_.previous_vocabulary(),
                      " previous tokens, expected the target vocabulary of ", target_vocabulary());
        }
        if (head_.hidden_size() != 0 && head_.hidden_size() != options_.hidden_size) {
            fail_with("semi_autoregressive: the head reads hidden states of size ", head_.hidden_size(),
                      ", expected options.hidden_size = ", options_.hidden_size);
        }
        detail::check_confidence("semi_autoregressive", confidence_, options_);
    }
    semi_autoregressive(Backbone model, Head head, drafter_options const& options)
        requires(!has_confidence)
        : semi_autoregressive(std::forward<Backbone>(model), std::forward<Head>(head), Confidence{}, options) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.block_size; }
    /// Length of a draft's row: the vocabulary, or the longest list.
    [[nodiscard]] std::size_t vocabulary() const noexcept {
        if constexpr (lists) return head_.capacity();
        return options_.row_size();
    }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return options_.target_vocabulary(); }
    /// What base logits run over; nothing, if that is the target's vocabulary.
    [[nodiscard]] vocabulary_view tokens() const noexcept { return options_.tokens(); }
    [[nodiscard]] std::size_t state_size() const noexcept {
        return head_.state_size() + (converts_hidden ? options_.hidden_size : 0);
    }

    [[nodiscard]] std::size_t room(request_view const& request) const { return draft_room(backbone_, request); }
    [[nodiscard]] std::uint64_t unread(request_view const& request) const { return draft_unread(backbone_, request); }

    /// The backbone pass: all a planner may see. Where the backbone does not say of which pass its rows are, they are
    /// taken to be valid until the next one.
    [[nodiscard]] forward_type forward(std::span<request_view const> requests) {
        pass_stamp const pass = passes_.begin(fingerprint_of(requests));
        forward_type lent = detail::call_forward(backbone_, requests);
        if constexpr (requires { lent.base_logits.pass = pass; }) {
            if (!lent.base_logits.pass.is_named()) lent.base_logits.pass = pass;
        }
        return lent;
    }

    /// Confidences at the anchor, for planned_schedule.
    void plan(forward_type const& forward, draft_block<value_type> const& block, memory_type const& memory,
              planning_memory& planning) const
        requires plans_at_anchor
    {
        block.for_each_request(block_size() * plan_size(), [&](auto const& mine, std::size_t r) {
            planning.begin(r);
            if (!can_draft(forward, mine, r)) return;
            for (std::size_t k = 0; k < mine.requests()[r].draft_cap(block_size()); ++k) {
                if (!planning.append(r, confidence_at_anchor(forward, mine, memory, next(mine, memory, r, k)))) break;
            }
        });
    }

    /// The sequential loop. With a factored head it goes position by position, and one pass over W2 serves all
    /// requests: O(gamma R V r), reading gamma V r. Else block by block, while a request's rows are in the caches: O(R
    /// gamma (V r + V)), with a shortlist of M tokens O(R gamma (V + M r)). Rows of W2, and what is done for a request,
    /// are divided among the threads that the block was lent.
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, memory_type const& memory,
              Rng& rng) const {
        std::size_t const requests = block.requests().size();
        for (std::size_t r = 0; r < requests; ++r) {
            if (!well_shaped(forward, requests)) block.reject(r, status::invalid_draft);
            begin(memory, r, memory.states[r]);
        }
        auto const drafts = [&](auto const& mine, std::size_t r, std::size_t k) {
            return k < block_size() && mine.drafts(r, k) && can_follow(mine.requests()[r].anchor);
        };
        auto const draw_one = [&](auto& mine, std::size_t r, std::size_t k, auto& source) {
            auto const at = next(mine, memory, r, k);
            auto const q = law(forward, memory, at, mine.requests()[r].settings->draft_transform(), mine.mask(r));
            mine.draw(r, rule, q, confidence_behind(forward, memory, at, q), source);
        };
        if constexpr (rows_type::is_shared) {
            auto const want_at = [&](auto const& mine, std::size_t r, std::size_t k) {
                if (drafts(mine, r, k)) want(forward, memory, next(mine, memory, r, k));
            };
            for (std::size_t r = 0; r < requests; ++r) want_at(block, r, 0);
            for (std::size_t k = 0; k < block_size(); ++k) {
                make(memory, block);
                block.for_each_request(draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                    if (drafts(mine, r, k)) draw_one(mine, r, k, source);
                    want_at(mine, r, k + 1);
                });
            }
        } else {
            block.for_each_request(block_size() * draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                for (std::size_t k = 0; drafts(mine, r, k); ++k) {
                    want(forward, memory, next(mine, memory, r, k));
                    draw_one(mine, r, k, source);
                }
            });
        }
    }

    void commit(std::span<verdict const> verdicts) noexcept { detail::commit_to(backbone_, verdicts); }

    // ---- a position, for who draws in another order (tree_drafter, sharded_drafter) --------------------------------

    using position = row_position<value_type>;

    /// Request r drafts: the forward pass has the promised shapes, and something may follow its anchor.
    [[nodiscard]] bool can_draft(forward_type const& forward, draft_block<value_type> const& block,
                                 std::size_t r) const noexcept {
        return well_shaped(forward, block.requests().size()) && can_follow(block.requests()[r].anchor);
    }
    // Rows for every position, of the sizes promised at set-up. A backbone that breaks this costs its requests a
    // round, not the process.
    [[nodiscard]] bool well_shaped(forward_type const& forward, std::size_t requests) const noexcept {
        auto const& u = forward.base_logits.values;
        auto const& h = forward.hidden;
        std::size_t const rows = requests * block_size();
        return u.rows >= rows && u.cols == options_.row_size() &&
               (options_.hidden_size == 0 || (h.rows >= rows && h.cols == options_.hidden_size));
    }
    /// A block of request r begins, with `state` of the head.
    void begin(memory_type const& memory, std::size_t r, std::span<value_type> state) const {
        memory.rows.begin(r);
        head_.reset(state);
    }
    /// The row of a position is wanted: of every request one at most before the next make().
    void want(forward_type const& forward, memory_type const& memory, position const& at) const {
        memory.rows.want(head_, base(forward, at), hidden(forward, memory, at), at);
    }
    /// Makes the rows that are wanted.
    void make(memory_type const& memory, draft_block<value_type> const& block) const {
        memory.rows.make(head_, block.requests().size(), block.shape().executor);
    }
    /// q of a row that was made, where `mask` stands.
    [[nodiscard]] distribution<value_type> law(forward_type const& forward, memory_type const& memory,
                                               position const& at, transform const& how, row_mask const& mask) const {
        auto const& rows = memory.rows;
        auto const row = rows.made(base(forward, at), at);
        return rows.law(at.worker, at.place, row, rows.map(at, tokens()), how, mask);
    }
    /// What this rank has of it, where ranks have slices.
    [[nodiscard]] distribution<value_type> slice(forward_type const& forward, memory_type const& memory,
                                                 position const& at, double temperature, row_mask const& mask) const {
        auto const& rows = memory.rows;
        return rows.slice(at.place, rows.made(base(forward, at), at), rows.map(at, tokens()), temperature, mask);
    }
    /// c of a position, from h_k or, where the confidence is an estimate, from q_k. A token that a mask left alone is
    /// certain: p is masked alike.
    template <class Law = distribution<value_type>>
    [[nodiscard]] double confidence_behind(forward_type const& forward, memory_type const& memory, position const& at,
                                           Law const& q) const {
        if (q.is_without_row()) return 1.0;
        if constexpr (reads_hidden) {
            return static_cast<double>(confidence_(hidden(forward, memory, at), at.previous, at.k));
        } else if constexpr (has_confidence) {
            if (q.valid()) return static_cast<double>(confidence_(q, at.k));
        }
        return 1.0;
    }
    /// c of a position as it is known at the anchor; NaN where the base logits have no law.
    [[nodiscard]] double confidence_at_anchor(forward_type const& forward, draft_block<value_type> const& block,
                                              memory_type const& memory, position const& at) const
        requires plans_at_anchor
    {
        request_view const& request = block.requests()[at.r];
        if constexpr (reads_hidden) {
            return static_cast<double>(confidence_.at_anchor(hidden(forward, memory, at), request.anchor, at.k));
        } else {
            auto const& rows = memory.rows;
            auto const row = rows.anchor(head_, base(forward, at), at);
            auto const q =
                rows.law(at.worker, at.place, row, rows.map(at, tokens()), request.settings->draft_transform(), {});
            if (!q.valid()) return std::numeric_limits<double>::quiet_NaN();
            return static_cast<double>(confidence_.at_anchor(q, at.k));
        }
    }
    // Numbers that drawing a position passes over, and a plan. To choose a token of a list, and its product, takes as
    // long as some dozens.
    [[nodiscard]] std::size_t draw_size() const noexcept {
        return options_.row_size() + (lists ? 64 * vocabulary() : 0);
    }
    [[nodiscard]] std::size_t plan_size() const noexcept { return reads_hidden ? options_.hidden_size : draw_size(); }

    // A head or a confidence that embeds the token before has a row for each of V. An anchor comes from the engine and
    // may be none of them, such as a placeholder of an image or an added token: nothing is drafted behind it.
    [[nodiscard]] bool can_follow(token_id anchor) const noexcept {
        bool embeds = head_.previous_vocabulary() != 0;
        if constexpr (requires { confidence_.previous_vocabulary(); }) {
            embeds = embeds || confidence_.previous_vocabulary() != 0;
        }
        return !embeds || (anchor >= 0 && static_cast<std::size_t>(anchor) < target_vocabulary());
    }
    // Position k behind the chain of request r.
    [[nodiscard]] static position next(draft_block<value_type> const& block, memory_type const& memory, std::size_t r,
                                       std::size_t k) noexcept {
        return {block.worker(), r, k, memory.rows.place(r, block.size(r)), block.last(r), memory.states[r]};
    }

private:
    static constexpr bool converts_hidden = !std::is_same_v<stored_type, value_type>;

    [[nodiscard]] std::span<stored_type const> base(forward_type const& forward, position const& at) const noexcept {
        return forward.base_logits.values.row(at.r * block_size() + at.k);
    }
    // h_k in the head's type.
    [[nodiscard]] std::span<value_type const> hidden(forward_type const& forward, memory_type const& memory,
                                                     position const& at) const noexcept {
        if (options_.hidden_size == 0) return {};
        auto const h = forward.hidden.row(at.r * block_size() + at.k);
        if constexpr (converts_hidden) {
            detail::widen(h, memory.hidden[at.worker]);
            return memory.hidden[at.worker];
        } else {
            return h;
        }
    }

    Backbone backbone_;
    pass_counter passes_;
    Head head_;
    [[no_unique_address]] Confidence confidence_;
    drafter_options options_;
};

template <class B, class H, class C>
semi_autoregressive(B&&, H&&, C&&, drafter_options const&) -> semi_autoregressive<B, H, C>;
template <class B, class H>
semi_autoregressive(B&&, H&&, drafter_options const&) -> semi_autoregressive<B, H, no_confidence>;

SURELEAP_END_NAMESPACE
