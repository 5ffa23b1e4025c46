// SPDX-License-Identifier: MIT
//
// Autoregressive drafting: a smaller language model runs gamma times a round, each pass seeing its own drafts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A language model as a drafter. Models drafter; is not parallel, so it cannot feed a planner at the anchor.
///
/// The model is asked for all requests at each step; rows of requests that draft no further are ignored.
template <class Model, class Confidence = no_confidence>
class autoregressive {
    using confidence_type = std::remove_cvref_t<Confidence>;
    static_assert(autoregressive_model<std::remove_reference_t<Model>>,
                  "autoregressive: the first argument is no autoregressive_model; give it forward(span<request_view "
                  "const>, draft_prefixes) or a call operator that returns sureleap::logits_rows<T>");

public:
    using rows_type = detail::forward_result_of_t<Model, std::span<request_view const>, draft_prefixes>;
    using stored_type = typename rows_type::value_type;
    using value_type = compute_t<stored_type>;
    struct forward_type {};  ///< nothing exists before the first token is drawn

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = false;
    static constexpr bool has_confidence = !std::is_same_v<confidence_type, no_confidence>;
    static constexpr bool plans_at_anchor = false;

    static_assert(!has_confidence || confidence_estimate<confidence_type, value_type>,
                  "autoregressive: the confidence must be callable as c(q, k) before x_k is drawn, like "
                  "sureleap::top1_confidence");

    autoregressive(Model model, Confidence confidence, drafter_options const& options)
        : model_(std::forward<Model>(model)), confidence_(std::forward<Confidence>(confidence)), options_(options) {
        detail::check_options("autoregressive", options_);
        if (options_.slice) fail_with("autoregressive: there is a slice, expected a model of all tokens");
        detail::check_confidence("autoregressive", confidence_, options_);
    }
    autoregressive(Model model, drafter_options const& options)
        requires std::is_same_v<confidence_type, no_confidence>
        : autoregressive(std::forward<Model>(model), Confidence{}, options) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.block_size; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return options_.vocabulary; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return options_.target_vocabulary(); }

    [[nodiscard]] std::size_t room(request_view const& request) const { return draft_room(model_, request); }
    [[nodiscard]] std::uint64_t unread(request_view const& request) const { return draft_unread(model_, request); }

    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }

    /// gamma model passes, fewer if no request drafts that far.
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule rule, draft_block<value_type>& block, draft_rows<value_type> const& rows,
              Rng& rng) {
        auto const requests = block.requests();
        for (std::size_t k = 0; k < block_size(); ++k) {
            bool any = false;
            for (std::size_t r = 0; r < requests.size() && !any; ++r) any = block.drafts(r, k);
            if (!any) return;
            rows_type const logits = detail::call_forward(model_, requests, block.prefixes(k));
            std::size_t const given = logits.values.cols == options_.vocabulary ? logits.values.rows : 0;
            block.for_each_request(options_.vocabulary, rng, [&](auto& mine, std::size_t r, auto& source) {
                if (!mine.drafts(r, k)) return;
                if (r >= given) {  // the model has nothing to say of it
                    mine.reject(r, status::invalid_draft);
                    return;
                }
                auto const stored = logits.values.row(r);
                auto const row = rows.next(mine, r);
                std::transform(stored.begin(), stored.end(), row.begin(), [](stored_type const& x) { return load(x); });
                auto const q = rows.law(mine, r, row, options_.map);
                double c = 1.0;
                if constexpr (has_confidence) {
                    if (q.valid() && !q.is_without_row()) c = static_cast<double>(confidence_(q, k));
                }
                mine.draw(r, rule, q, c, source);
            });
        }
    }

    void commit(std::span<verdict const> verdicts) noexcept { detail::commit_to(model_, verdicts); }

private:
    Model model_;
    [[no_unique_address]] Confidence confidence_;
    drafter_options options_;
};

template <class M, class C>
autoregressive(M&&, C&&, drafter_options const&) -> autoregressive<M, C>;
template <class M>
autoregressive(M&&, drafter_options const&) -> autoregressive<M, no_confidence>;

SURELEAP_END_NAMESPACE
