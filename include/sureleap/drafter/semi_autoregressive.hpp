// SPDX-License-Identifier: MIT
//
// Semi-autoregressive drafting (paper section 3.1). One backbone pass gives hidden states h and base logits U for the whole
// block. A light sequential head then adds a transition bias token by token. So every q_k = softmax(U_k + B_k(x_{<k})) is
// exact (eq. 4), at the cost of one matrix-vector product.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Backbone + sequential head + confidence. Models drafter. Parts are held by value, or by reference where an lvalue
/// was given to the deduction guide: a function that returns a drafter must move its local parts in. A request whose anchor
/// is outside 0 .. V-1 drafts nothing if head or confidence embeds it.
template <class Backbone, class Head, class Confidence = no_confidence>
class semi_autoregressive {
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

    semi_autoregressive(Backbone model, Head head, Confidence confidence, drafter_options const& options)
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
    semi_autoregressive(Backbone model, Head head, drafter_options const& options)
        requires std::is_same_v<confidence_type, no_confidence>
        : semi_autoregressive(std::forward<Backbone>(model), std::forward<Head>(head), Confidence{}, options) {}

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

    /// The backbone pass: all a planner may see.
    [[nodiscard]] forward_type forward(std::span<request_view const> requests) {
        return detail::call_forward(backbone_, requests);
    }

    /// Confidences at the anchor, for planned_schedule. `block` lends scratch only.
    void plan(forward_type const& forward, draft_block<value_type> const& block, planning_memory& memory) const noexcept
        requires plans_at_anchor
    {
        block.for_each_request(block_size() * plan_size(), [&](auto const& mine, std::size_t r) {
            memory.begin(r);
            if (!well_shaped(forward, mine.requests().size())) return;
            request_view const& request = mine.requests()[r];
            if (!can_follow(request.anchor)) return;
            for (std::size_t k = 0; k < request.draft_cap(block_size()); ++k) {
                std::size_t const i = r * block_size() + k;
                double c = 0.0;
                if constexpr (pre_token_confidence<confidence_type, value_type>) {
                    c = static_cast<double>(confidence_.at_anchor(hidden(forward, i, r, mine), request.anchor, k));
                } else if constexpr (lists_tokens) {
                    auto const u = forward.base_logits.values.row(i);
                    auto const tokens = choose(u, no_token, r, mine);
                    auto const row = mine.next_row(r).first(tokens.size());
                    head_.copy(u, tokens, row);
                    if (auto const q = law_over(tokens, row, r, mine); q.valid()) {
                        c = static_cast<double>(confidence_.at_anchor(q, k));
                    }
                } else {
                    auto const q = mine.law_of(r, base(forward, i, r, mine), options_.map);
                    c = static_cast<double>(confidence_.at_anchor(q, k));
                }
                if (!memory.append(r, c)) break;
            }
        });
    }

    /// The sequential loop. With a factored head it goes position by position, and one pass over W2 serves all requests:
    /// O(gamma R V r), reading gamma V r. Else block by block, while a request's rows are in the caches: O(R gamma (V r + V)),
    /// with a shortlist of M tokens O(R gamma (V + M r)). Rows of W2, and what is done for a request, are divided among the
    /// threads that the block was lent.
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, Rng& rng) const noexcept {
        auto const requests = block.requests();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (!well_shaped(forward, requests.size())) block.reject(r, status::invalid_draft);
            head_.reset(state(block, r));
        }
        auto const draw_one = [&](auto& mine, std::size_t r, std::size_t k, auto& source) {
            if (drafts(mine, r, k)) record(forward, r, k, rule, law(forward, r, k, mine), mine, source);
        };
        if constexpr (batches) {
            for (std::size_t r = 0; r < requests.size(); ++r) make_code(forward, r, 0, block);
            for (std::size_t k = 0; k < block_size(); ++k) {
                multiply(block);
                block.for_each_request(draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                    draw_one(mine, r, k, source);
                    make_code(forward, r, k + 1, mine);
                });
            }
        } else {
            block.for_each_request(block_size() * draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                for (std::size_t k = 0; k < block_size(); ++k) draw_one(mine, r, k, source);
            });
        }
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

    void commit(std::span<verdict const> verdicts) {
        if constexpr (requires { backbone_.commit(verdicts); }) backbone_.commit(verdicts);
    }

private:
    static constexpr bool converts_hidden = !std::is_same_v<stored_type, value_type>;

    // Rows for every position, of the sizes promised at set-up. A backbone that breaks this costs its requests a
    // round, not the process.
    [[nodiscard]] bool well_shaped(forward_type const& forward, std::size_t requests) const noexcept {
        auto const& u = forward.base_logits.values;
        auto const& h = forward.hidden;
        std::size_t const rows = requests * block_size();
        return u.rows >= rows && u.cols == options_.vocabulary &&
               (options_.hidden_size == 0 || (h.rows >= rows && h.cols == options_.hidden_size));
    }
    // Numbers that drawing a position passes over, and a plan. To choose a token of a list, and its product, takes as long as
    // some dozens.
    [[nodiscard]] std::size_t draw_size() const noexcept {
        return options_.vocabulary + (lists_tokens ? 64 * vocabulary() : 0);
    }
    [[nodiscard]] std::size_t plan_size() const noexcept {
        return pre_token_confidence<confidence_type, value_type> ? options_.hidden_size : draw_size();
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
    // Request r drafts position k.
    [[nodiscard]] bool drafts(draft_block<value_type> const& block, std::size_t r, std::size_t k) const noexcept {
        request_view const& request = block.requests()[r];
        return block.outcome(r) == status::ok && block.size(r) == k && k < request.draft_cap(block_size()) &&
               can_follow(request.anchor);
    }
    [[nodiscard]] static token_id before(draft_block<value_type> const& block, std::size_t r) noexcept {
        return block.size(r) == 0 ? block.requests()[r].anchor : block.tokens(r).back();
    }
    [[nodiscard]] std::span<value_type> state(draft_block<value_type> const& block, std::size_t r) const noexcept {
        return block.head_state(r).first(head_.state_size());
    }
    // z_k of request r and the rows of its product, if it drafts position k.
    void make_code(forward_type const& forward, std::size_t r, std::size_t k,
                   draft_block<value_type> const& block) const noexcept
        requires batches
    {
        block.code_rows()[r] = nullptr;
        if (!drafts(block, r, k)) return;
        std::size_t const i = r * block_size() + k;
        block.code_rows()[r] = block.next_row(r).data();
        block.base_rows()[r] = base(forward, i, r, block).data();
        block.codes()[r] = head_.code(state(block, r), hidden(forward, i, r, block), before(block, r)).data();
    }
    // U_k + B_k of all requests that have a code, where q_k will be recorded.
    void multiply(draft_block<value_type> const& block) const noexcept
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
    // q_k of request r: of a row that has been multiplied with those of other requests,
    [[nodiscard]] distribution<value_type> law(forward_type const&, std::size_t r, std::size_t /*k*/,
                                               draft_block<value_type> const& block) const noexcept
        requires batches
    {
        return block.law_of(r, block.next_row(r), options_.map);
    }
    // of a list of tokens,
    [[nodiscard]] distribution<value_type> law(forward_type const& forward, std::size_t r, std::size_t k,
                                               draft_block<value_type> const& block) const noexcept
        requires lists_tokens
    {
        std::size_t const i = r * block_size() + k;
        auto const u = forward.base_logits.values.row(i);
        auto const tokens = choose(u, before(block, r), r, block);
        auto const row = block.next_row(r).first(tokens.size());
        head_.evaluate(u, tokens, state(block, r), hidden(forward, i, r, block), before(block, r), row);
        return law_over(tokens, row, r, block);
    }
    // of a row that is lent,
    [[nodiscard]] distribution<value_type> law(forward_type const& forward, std::size_t r, std::size_t k,
                                               draft_block<value_type> const& block) const noexcept
        requires lends_rows
    {
        return block.law_of(r, forward.base_logits.values.row(r * block_size() + k), options_.map);
    }
    // or of a row that the head adds its bias to.
    [[nodiscard]] distribution<value_type> law(forward_type const& forward, std::size_t r, std::size_t k,
                                               draft_block<value_type> const& block) const noexcept {
        std::size_t const i = r * block_size() + k;
        auto const row = copy_base(forward, i, r, block);
        head_.add_bias(state(block, r), hidden(forward, i, r, block), before(block, r), row);
        return block.law_of(r, row, options_.map);
    }
    template <class DraftRule, class Rng>
    void record(forward_type const& forward, std::size_t r, std::size_t k, DraftRule rule,
                distribution<value_type> const& q, draft_block<value_type>& block, Rng& rng) const noexcept {
        double c = 1.0;
        if constexpr (pre_token_confidence<confidence_type, value_type>) {
            c = static_cast<double>(confidence_(hidden(forward, r * block_size() + k, r, block), before(block, r), k));
        } else if constexpr (has_confidence) {
            if (q.valid()) c = static_cast<double>(confidence_(q, k));
        }
        block.draw(r, rule, q, c, rng);
    }
    // The tokens that position k of request r is drawn from, in the block's next list.
    template <class T>
    [[nodiscard]] std::span<token_id const> choose(std::span<T const> u, token_id previous, std::size_t r,
                                                   draft_block<value_type> const& block) const noexcept {
        auto const list = block.next_list(r);
        return list.first(head_.choose(u, previous, {block.candidates(), block.values()}, list));
    }
    // Without a token there is no law.
    [[nodiscard]] distribution<value_type> law_over(std::span<token_id const> tokens, std::span<value_type const> row,
                                                    std::size_t r,
                                                    draft_block<value_type> const& block) const noexcept {
        if (tokens.empty()) return {};
        return block.law_of(r, row, {tokens, options_.vocabulary});
    }

    // h_k in the head's type; converted into the tail of the head state when the backbone stores another one.
    [[nodiscard]] std::span<value_type const> hidden(forward_type const& forward, std::size_t i, std::size_t r,
                                                     draft_block<value_type> const& block) const noexcept {
        if (options_.hidden_size == 0) return {};
        auto const h = forward.hidden.row(i);
        if constexpr (converts_hidden) {
            auto const converted = block.head_state(r).last(options_.hidden_size);
            std::transform(h.begin(), h.end(), converted.begin(),
                           [](stored_type const& x) { return static_cast<value_type>(load(x)); });
            return converted;
        } else {
            return h;
        }
    }
    // U_k where it is, or where q_k will be recorded if the backbone stores another type.
    [[nodiscard]] std::span<value_type const> base(forward_type const& forward, std::size_t i, std::size_t r,
                                                   draft_block<value_type> const& block) const noexcept {
        if constexpr (std::is_same_v<stored_type, value_type>) {
            return forward.base_logits.values.row(i);
        } else {
            return copy_base(forward, i, r, block);
        }
    }
    [[nodiscard]] std::span<value_type> copy_base(forward_type const& forward, std::size_t i, std::size_t r,
                                                  draft_block<value_type> const& block) const noexcept {
        auto const row = block.next_row(r);
        auto const u = forward.base_logits.values.row(i);
        std::transform(u.begin(), u.end(), row.begin(),
                       [](stored_type const& x) { return static_cast<value_type>(load(x)); });
        return row;
    }

    Backbone backbone_;
    Head head_;
    [[no_unique_address]] Confidence confidence_;
    drafter_options options_;
};

template <class B, class H, class C>
semi_autoregressive(B&&, H&&, C&&, drafter_options const&) -> semi_autoregressive<B, H, C>;
template <class B, class H>
semi_autoregressive(B&&, H&&, drafter_options const&) -> semi_autoregressive<B, H, no_confidence>;

SURELEAP_END_NAMESPACE
