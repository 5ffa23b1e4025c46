// SPDX-License-Identifier: MIT
//
// The parts of a semi-autoregressive drafter, and what they say of one position: q behind a token, and how sure the drafter is
// of it. Whoever draws decides in which order positions are asked: one after the other for a chain (semi_autoregressive.hpp),
// behind several tokens each for a tree (tree_drafter.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Backbone + sequential head + confidence. A request whose anchor is outside 0 .. V-1 drafts nothing if head or confidence
/// embeds it.
template <class Backbone, class Head, class Confidence>
class block_parts {
    using head_type = std::remove_cvref_t<Head>;
    using confidence_type = std::remove_cvref_t<Confidence>;

    static_assert(
        backbone<std::remove_reference_t<Backbone>>,
        "semi_autoregressive: the first argument is no backbone; give it forward(span<request_view const>) or "
        "a call operator that returns sureleap::block_forward<T>");
    static_assert(sequential_head<head_type>,
                  "semi_autoregressive: the second argument is no sequential_head; see concepts.hpp, or use "
                  "sureleap::parallel for a backbone without a head");

public:
    using value_type = typename head_type::value_type;
    using forward_type = detail::forward_result_t<Backbone>;
    using stored_type = typename forward_type::value_type;

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = !std::is_same_v<confidence_type, no_confidence>;
    /// The confidence can be asked before any token is drawn: planned_schedule works.
    static constexpr bool plans_at_anchor = anchor_confidence<confidence_type, value_type>;

    /// The confidence is known before q is, from a hidden state.
    static constexpr bool reads_hidden = pre_token_confidence<confidence_type, value_type>;
    /// The head draws from lists of tokens (head/shortlist.hpp).
    static constexpr bool lists_tokens = detail::is_shortlist_v<head_type>;
    /// q_k is the softmax of a row of the backbone's. It is not copied: acceptance reads it behind the target's pass.
    static constexpr bool lends_rows =
        std::is_same_v<head_type, no_head<value_type>> && std::is_same_v<stored_type, value_type>;
    /// One product with W2 serves all requests of a position.
    static constexpr bool batches = factored_head<head_type> && !lists_tokens;

    static_assert(
        !has_confidence || pre_token_confidence<confidence_type, value_type> ||
            confidence_estimate<confidence_type, value_type>,
        "semi_autoregressive: the confidence must be callable as c(hidden, previous, k) or c(q, k) before x_k "
        "is drawn; a confidence that reads x_k would make every schedule anticipating");

    block_parts(Backbone model, Head head, Confidence confidence, drafter_options const& options)
        : backbone_(std::forward<Backbone>(model)),
          head_(std::forward<Head>(head)),
          confidence_(std::forward<Confidence>(confidence)),
          options_(options) {
        detail::check_options("semi_autoregressive", options_);
        if (head_.vocabulary() != 0 && head_.vocabulary() != options_.vocabulary) {
            fail_with("semi_autoregressive: the head has ", head_.vocabulary(),
                      " output tokens, expected the draft vocabulary of ", options_.vocabulary);
        }
        if (lists_tokens && options_.map != nullptr) {
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

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.block_size; }
    /// Length of a draft's row: the vocabulary, or the longest list.
    [[nodiscard]] std::size_t vocabulary() const noexcept {
        if constexpr (lists_tokens) {
            return head_.capacity();
        } else {
            return options_.vocabulary;
        }
    }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return options_.target_vocabulary(); }
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

    /// What is particular about the memory of its drafts: lists of tokens, or no rows.
    void shape_memory(draft_shape& shape) const noexcept {
        shape.lends_rows = lends_rows;
        if constexpr (lists_tokens) {
            using scratch = typename head_type::scratch_type;
            shape.lists_tokens = true;
            shape.candidates = scratch::candidate_count(head_.best());
            shape.values = scratch::value_count(head_.best(), options_.vocabulary);
        }
    }

    void commit(std::span<verdict const> verdicts) noexcept { detail::commit_to(backbone_, verdicts); }

    // ---- a position ---------------------------------------------------------------------------------------------------

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
        return u.rows >= rows && u.cols == options_.vocabulary &&
               (options_.hidden_size == 0 || (h.rows >= rows && h.cols == options_.hidden_size));
    }
    // A head or a confidence that embeds the token before has a row for each of V. An anchor comes from the engine and may be
    // none of them, such as a placeholder of an image or an added token: nothing is drafted behind it.
    [[nodiscard]] bool can_follow(token_id anchor) const noexcept {
        bool embeds = head_.previous_vocabulary() != 0;
        if constexpr (requires { confidence_.previous_vocabulary(); }) {
            embeds = embeds || confidence_.previous_vocabulary() != 0;
        }
        return !embeds || (anchor >= 0 && static_cast<std::size_t>(anchor) < target_vocabulary());
    }

    /// Begins a block: `state` [state_size()] is of the head, and scratch.
    void reset(std::span<value_type> state) const { head_.reset(of_head(state)); }
    /// What base logits choose of position k of request r, where the head draws from lists: the same behind every token. In
    /// scratch of the block.
    [[nodiscard]] std::span<token_id const> best_at(forward_type const& forward, std::size_t r, std::size_t k,
                                                    draft_block<value_type> const& block) const noexcept
        requires lists_tokens
    {
        auto const u = forward.base_logits.values.row(r * block_size() + k);
        return head_.choose_best(u, {block.candidates(), block.values()});
    }
    /// Most tokens of that.
    [[nodiscard]] std::size_t best_size() const noexcept {
        if constexpr (lists_tokens) return head_.best();
        return 0;
    }
    /// q of position k of request r behind `previous`, where `mask` stands. `best` is best_at(r, k), or empty where there are
    /// no lists. `state` is the head's behind the tokens before, and moves on. The row is kept at `place` of the block.
    [[nodiscard]] distribution<value_type> law_behind(forward_type const& forward, std::size_t r, std::size_t k,
                                                      token_id previous, std::span<value_type> state, std::size_t place,
                                                      transform const& how, row_mask const& mask,
                                                      draft_block<value_type> const& block,
                                                      [[maybe_unused]] std::span<token_id const> best) const {
        std::size_t const i = r * block_size() + k;
        if constexpr (lends_rows) {
            return block.law_at(place, forward.base_logits.values.row(i), options_.map, how, mask);
        } else if constexpr (lists_tokens) {
            auto const u = forward.base_logits.values.row(i);
            auto const tokens = block.list(place).first(head_.unite(best, previous, block.list(place)));
            auto const row = block.row(place).first(tokens.size());
            head_.evaluate(u, tokens, of_head(state), hidden(forward, i, state), previous, row);
            return law_over(tokens, row, place, how, mask, block);
        } else {
            auto const row = copy_base(forward, i, place, block);
            head_.add_bias(of_head(state), hidden(forward, i, state), previous, row);
            return block.law_at(place, row, options_.map, how, mask);
        }
    }
    /// The same of several requests with one product: this says what request r wants,
    void want_law_behind(forward_type const& forward, std::size_t r, std::size_t k, token_id previous,
                         std::span<value_type> state, std::size_t place, draft_block<value_type> const& block) const
        requires batches
    {
        std::size_t const i = r * block_size() + k;
        block.code_rows()[r] = block.row(place).data();
        block.base_rows()[r] = base(forward, i, place, block).data();
        block.codes()[r] = head_.code(of_head(state), hidden(forward, i, state), previous).data();
    }
    /// this makes U_k + B_k of all requests whose code_rows() are not null,
    void multiply(draft_block<value_type> const& block) const
        requires batches
    {
        auto const codes = block.codes();
        auto const from = block.base_rows();
        auto const to = block.code_rows();
        std::size_t n = 0;
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            if (to[r] == nullptr) continue;
            codes[n] = codes[r];
            from[n] = from[r];
            to[n++] = to[r];
        }
        if (n > 0) head_.output().add(codes.data(), from.data(), to.data(), n, block.threads());
    }
    /// and this is the law of the row that was made at `place`.
    [[nodiscard]] distribution<value_type> multiplied_law(std::size_t place, transform const& how, row_mask const& mask,
                                                          draft_block<value_type> const& block) const noexcept {
        return block.law_at(place, block.row(place), options_.map, how, mask);
    }
    /// c of position k of request r behind `previous`, from h_k or, where the confidence is an estimate, from q_k. A token
    /// that a mask left alone is certain: p is masked alike.
    [[nodiscard]] double confidence_behind(forward_type const& forward, std::size_t r, std::size_t k, token_id previous,
                                           std::span<value_type> state, distribution<value_type> const& q) const {
        if (q.is_without_row()) return 1.0;
        if constexpr (reads_hidden) {
            return static_cast<double>(confidence_(hidden(forward, r * block_size() + k, state), previous, k));
        } else if constexpr (has_confidence) {
            if (q.valid()) return static_cast<double>(confidence_(q, k));
        }
        return 1.0;
    }
    /// c of position k of request r as it is known at the anchor.
    [[nodiscard]] double confidence_at_anchor(forward_type const& forward, std::size_t r, std::size_t k,
                                              draft_block<value_type> const& block) const
        requires plans_at_anchor
    {
        std::size_t const i = r * block_size() + k;
        std::size_t const place = block.next_place(r);
        request_view const& request = block.requests()[r];
        if constexpr (reads_hidden) {
            auto const h = hidden(forward, i, block.head_state(r));
            return static_cast<double>(confidence_.at_anchor(h, request.anchor, k));
        } else if constexpr (lists_tokens) {
            auto const u = forward.base_logits.values.row(i);
            auto const tokens = choose(u, no_token, place, block);
            auto const row = block.row(place).first(tokens.size());
            head_.copy(u, tokens, row);
            auto const q = law_over(tokens, row, place, request.settings->draft_transform(), {}, block);
            return q.valid() ? static_cast<double>(confidence_.at_anchor(q, k)) : 0.0;
        } else {
            transform const how = request.settings->draft_transform();
            auto const q = block.law_at(place, base(forward, i, place, block), options_.map, how);
            return static_cast<double>(confidence_.at_anchor(q, k));
        }
    }
    // Numbers that drawing a position passes over, and a plan. To choose a token of a list, and its product, takes as long as
    // some dozens.
    [[nodiscard]] std::size_t draw_size() const noexcept {
        return options_.vocabulary + (lists_tokens ? 64 * vocabulary() : 0);
    }
    [[nodiscard]] std::size_t plan_size() const noexcept { return reads_hidden ? options_.hidden_size : draw_size(); }

private:
    static constexpr bool converts_hidden = !std::is_same_v<stored_type, value_type>;

    [[nodiscard]] std::span<value_type> of_head(std::span<value_type> state) const noexcept {
        return state.first(head_.state_size());
    }
    // The tokens that a position is drawn from, in the list at `place`.
    template <class T>
    [[nodiscard]] std::span<token_id const> choose(std::span<T const> u, token_id previous, std::size_t place,
                                                   draft_block<value_type> const& block) const noexcept {
        auto const list = block.list(place);
        return list.first(head_.choose(u, previous, {block.candidates(), block.values()}, list));
    }
    // Without a token there is no law.
    [[nodiscard]] distribution<value_type> law_over(std::span<token_id const> tokens, std::span<value_type const> row,
                                                    std::size_t place, transform const& how, row_mask const& mask,
                                                    draft_block<value_type> const& block) const noexcept {
        if (tokens.empty()) return {};
        return block.law_at(place, row, {tokens, options_.vocabulary}, how, mask);
    }
    // h_k in the head's type; converted into the tail of the head state when the backbone stores another one.
    [[nodiscard]] std::span<value_type const> hidden(forward_type const& forward, std::size_t i,
                                                     std::span<value_type> state) const noexcept {
        if (options_.hidden_size == 0) return {};
        auto const h = forward.hidden.row(i);
        if constexpr (converts_hidden) {
            auto const converted = state.last(options_.hidden_size);
            std::transform(h.begin(), h.end(), converted.begin(),
                           [](stored_type const& x) { return static_cast<value_type>(load(x)); });
            return converted;
        } else {
            return h;
        }
    }
    // U_k where it is, or where q_k will be recorded if the backbone stores another type.
    [[nodiscard]] std::span<value_type const> base(forward_type const& forward, std::size_t i, std::size_t place,
                                                   draft_block<value_type> const& block) const noexcept {
        if constexpr (std::is_same_v<stored_type, value_type>) {
            return forward.base_logits.values.row(i);
        } else {
            return copy_base(forward, i, place, block);
        }
    }
    [[nodiscard]] std::span<value_type> copy_base(forward_type const& forward, std::size_t i, std::size_t place,
                                                  draft_block<value_type> const& block) const noexcept {
        auto const row = block.row(place);
        auto const u = forward.base_logits.values.row(i);
        std::transform(u.begin(), u.end(), row.begin(),
                       [](stored_type const& x) { return static_cast<value_type>(load(x)); });
        return row;
    }

    Backbone backbone_;
    pass_counter passes_;
    Head head_;
    [[no_unique_address]] Confidence confidence_;
    drafter_options options_;
};

SURELEAP_END_NAMESPACE
