// SPDX-License-Identifier: MIT
//
// Semi-autoregressive drafting (paper section 3.1). One backbone pass gives hidden states h and base logits U for the whole
// block. A light sequential head then adds a transition bias token by token. So every q_k = softmax(U_k + B_k(x_{<k})) is
// exact (eq. 4), at the cost of one matrix-vector product.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/drafter/block_parts.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/schedule/planning.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Backbone + sequential head + confidence. Models drafter. Parts are held by value, or by reference where an lvalue
/// was given to the deduction guide: a function that returns a drafter must move its local parts in.
template <class Backbone, class Head, class Confidence = no_confidence>
class semi_autoregressive : public block_parts<Backbone, Head, Confidence> {
    using parts = block_parts<Backbone, Head, Confidence>;

public:
    using parts::batches;
    using parts::block_size;
    using typename parts::forward_type;
    using typename parts::value_type;

    semi_autoregressive(Backbone model, Head head, Confidence confidence, drafter_options const& options)
        : parts(std::forward<Backbone>(model), std::forward<Head>(head), std::forward<Confidence>(confidence),
                options) {}
    semi_autoregressive(Backbone model, Head head, drafter_options const& options)
        requires(!parts::has_confidence)
        : semi_autoregressive(std::forward<Backbone>(model), std::forward<Head>(head), Confidence{}, options) {}

    /// Confidences at the anchor, for planned_schedule. `block` lends scratch only.
    void plan(forward_type const& forward, draft_block<value_type> const& block, planning_memory& memory) const
        requires parts::plans_at_anchor
    {
        block.for_each_request(block_size() * this->plan_size(), [&](auto const& mine, std::size_t r) {
            memory.begin(r);
            if (!this->can_draft(forward, mine, r)) return;
            for (std::size_t k = 0; k < mine.requests()[r].draft_cap(block_size()); ++k) {
                if (!memory.append(r, this->confidence_at_anchor(forward, r, k, mine))) break;
            }
        });
    }

    /// The sequential loop. With a factored head it goes position by position, and one pass over W2 serves all requests:
    /// O(gamma R V r), reading gamma V r. Else block by block, while a request's rows are in the caches: O(R gamma (V r + V)),
    /// with a shortlist of M tokens O(R gamma (V + M r)). Rows of W2, and what is done for a request, are divided among the
    /// threads that the block was lent.
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, Rng& rng) const {
        auto const requests = block.requests();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (!this->well_shaped(forward, requests.size())) block.reject(r, status::invalid_draft);
            this->reset(block.head_state(r));
        }
        auto const record = [&](auto& mine, std::size_t r, std::size_t k, auto const& q, auto& source) {
            double const c = this->confidence_behind(forward, r, k, before(mine, r), mine.head_state(r), q);
            mine.draw(r, rule, q, c, source);
        };
        if constexpr (batches) {
            auto const want = [&](auto const& mine, std::size_t r, std::size_t k) {
                mine.code_rows()[r] = nullptr;
                if (!drafts(mine, r, k)) return;
                this->want_law_behind(forward, r, k, before(mine, r), mine.head_state(r), mine.next_place(r), mine);
            };
            for (std::size_t r = 0; r < requests.size(); ++r) want(block, r, 0);
            for (std::size_t k = 0; k < block_size(); ++k) {
                this->multiply(block);
                block.for_each_request(this->draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                    if (drafts(mine, r, k)) {
                        record(mine, r, k, this->multiplied_law(mine.next_place(r), how(mine, r), mine.mask(r), mine),
                               source);
                    }
                    want(mine, r, k + 1);
                });
            }
        } else {
            block.for_each_request(block_size() * this->draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                for (std::size_t k = 0; k < block_size() && drafts(mine, r, k); ++k) {
                    std::span<token_id const> best{};
                    if constexpr (parts::lists_tokens) best = this->best_at(forward, r, k, mine);
                    record(mine, r, k,
                           this->law_behind(forward, r, k, before(mine, r), mine.head_state(r), mine.next_place(r),
                                            how(mine, r), mine.mask(r), mine, best),
                           source);
                }
            });
        }
    }

private:
    // Request r drafts position k.
    [[nodiscard]] bool drafts(draft_block<value_type> const& block, std::size_t r, std::size_t k) const noexcept {
        request_view const& request = block.requests()[r];
        return block.draft_outcome(r) == status::ok && block.size(r) == k && k < request.draft_cap(block_size()) &&
               !block.has_ended(r) && this->can_follow(request.anchor);
    }
    [[nodiscard]] static token_id before(draft_block<value_type> const& block, std::size_t r) noexcept {
        return block.size(r) == 0 ? block.requests()[r].anchor : block.tokens(r).back();
    }
    [[nodiscard]] static transform how(draft_block<value_type> const& block, std::size_t r) noexcept {
        return block.requests()[r].settings->draft_transform();
    }
};

template <class B, class H, class C>
semi_autoregressive(B&&, H&&, C&&, drafter_options const&) -> semi_autoregressive<B, H, C>;
template <class B, class H>
semi_autoregressive(B&&, H&&, drafter_options const&) -> semi_autoregressive<B, H, no_confidence>;

SURELEAP_END_NAMESPACE
