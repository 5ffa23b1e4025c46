// SPDX-License-Identifier: MIT
//
// Drafts as text: a language model of any vocabulary writes on, and what it wrote is drafted in the target's tokens
// (string-level exact match of Timor et al. 2025). Words are drafted that no token of both vocabularies says. It is
// greedy, so a draft is a function of the context, and q is one-hot: best with rules that match, exact with all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/drafter/told_requests.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What retokenised_drafts is told at set-up.
struct retokenised_options {
    std::size_t block_size = 7;  ///< gamma: most tokens of a block, and passes of the model; 1 .. most_keyed_drafts
    std::size_t draft_vocabulary = 0;   ///< length of a row of the model
    std::size_t target_vocabulary = 0;  ///< V
    std::vector<token_id> begin{};      ///< the draft's tokens in front of every text, such as <s>
};

/// Models drafter. `Model` is an autoregressive_model over the draft's vocabulary, as shared_token_model describes it.
/// A request's text ends before a token that has no text, and where its survival would be below the request's floor.
/// What a request's constraint forbids ends its drafts. Needs request_view::context. Not thread-safe. Takes memory in
/// rounds, as tokenizers do.
///
/// The confidence of a token is the product of the model's top-1 probabilities, of those of its tokens that this text
/// reaches and none before it reached.
template <class Model, class Draft, class Target>
class retokenised_drafts {
    static_assert(
        autoregressive_model<std::remove_reference_t<Model>>,
        "retokenised_drafts: the first argument is no autoregressive_model; give it forward(span<request_view "
        "const>, draft_prefixes) or a call operator that returns sureleap::logits_rows<T>");

public:
    using rows_type = detail::forward_result_of_t<Model, std::span<request_view const>, draft_prefixes>;
    using stored_type = typename rows_type::value_type;
    using value_type = compute_t<stored_type>;
    struct forward_type {};

    static constexpr bool is_deterministic = true;
    static constexpr bool is_parallel = false;
    static constexpr bool has_confidence = true;

    retokenised_drafts(Model model, Draft draft, Target target, retokenised_options options)
        : model_(std::forward<Model>(model)),
          told_(std::move(draft), std::move(target), std::move(options.begin)),
          options_(std::move(options)) {
        detail::check_block_size("retokenised_options", "block_size (gamma)", options_.block_size);
        if (options_.draft_vocabulary == 0 || options_.target_vocabulary == 0) {
            fail_with("retokenised_options: draft_vocabulary is ", options_.draft_vocabulary, ", target_vocabulary ",
                      options_.target_vocabulary, ", expected the lengths of the two models' rows");
        }
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.block_size; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return 0; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return options_.target_vocabulary; }
    [[nodiscard]] std::uint64_t unread(request_view const& request) const noexcept { return told_.unread(request); }

    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }

    /// gamma model passes, fewer if no request drafts that far.
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule, draft_block<value_type>& block, Rng& rng) {
        auto const requests = block.requests();
        auto const told = told_.tell(requests);
        tokens_.assign(requests.size() * block_size(), 0);
        texts_.assign(requests.size(), {});
        for (std::size_t k = 0; k < block_size(); ++k) {
            auto const goes_on = [&](std::size_t r) {
                return texts_[r].begins.size() == k && k < requests[r].draft_cap(block_size());
            };
            bool any = false;
            for (std::size_t r = 0; r < requests.size() && !any; ++r) any = goes_on(r);
            if (!any) break;
            rows_type const rows = detail::call_forward(model_, told, draft_prefixes{tokens_.data(), block_size(), k});
            std::size_t const given = rows.values.cols == options_.draft_vocabulary ? rows.values.rows : 0;
            for (std::size_t r = 0; r < requests.size(); ++r) {
                if (!goes_on(r)) continue;
                tokens_[r * block_size() + k] = write(r, r < given ? rows.values.row(r) : no_row, block);
            }
        }
        for (std::size_t r = 0; r < requests.size(); ++r) propose(r, block, rng);
    }

private:
    static constexpr std::span<stored_type const> no_row{};

    /// What the model has written for a request.
    struct written {
        std::string text{};
        std::vector<std::size_t> begins{};  // of its tokens
        std::vector<double> top1{};         // of these
        fixed_probability survival = 0;     // of the last
        bool has_law = true;                // the last row that it was asked for
    };

    /// Writes the likeliest token and returns it; 0 where the text ends.
    [[nodiscard]] token_id write(std::size_t r, std::span<stored_type const> stored,
                                 draft_block<value_type> const& block) {
        written& so_far = texts_[r];
        request_view const& request = block.requests()[r];
        row_.resize(stored.size());
        std::transform(stored.begin(), stored.end(), row_.begin(), [](stored_type const& x) { return load(x); });
        distribution<value_type> const q{{row_, {}}, transform{}, {}};
        so_far.has_law = !row_.empty() && q.valid();
        if (!so_far.has_law) return 0;
        std::size_t const k = so_far.begins.size();
        std::string_view const piece = told_.draft().text_of(q.mode());
        fixed_probability c = 0;
        if (piece.empty() || !quantise(block.calibration()(request, k, q.peak()), c)) return 0;
        so_far.survival = extend_survival(k == 0 ? request.weight : so_far.survival, c);
        if (so_far.survival < request.draft_floor) return 0;
        so_far.begins.push_back(so_far.text.size());
        so_far.top1.push_back(q.peak());
        so_far.text += piece;
        return q.mode();
    }
    template <class Rng>
    void propose(std::size_t r, draft_block<value_type>& block, Rng& rng) const {
        written const& from = texts_[r];
        std::size_t end = 0, next = 0;
        for (token_id const x : behind(block.requests()[r].anchor, from.text)) {
            bool const is_token = x >= 0 && static_cast<std::size_t>(x) < target_vocabulary();
            if (!is_token || !block.drafts(r, block.size(r)) || !block.mask(r).allows(x)) break;
            end += told_.target().text_of(x).size();
            double confidence = 1.0;
            while (next < from.begins.size() && from.begins[next] < end) confidence *= from.top1[next++];
            auto const q = distribution<value_type>::one_hot(target_vocabulary(), x);
            if (block.draw(r, argmax_draft{}, q, confidence, rng) == no_token) break;
        }
        if (!from.has_law) block.reject(r, status::invalid_draft);
    }
    /// The target's tokens of a text behind its anchor; of the text alone, if the two would be merged.
    [[nodiscard]] std::vector<token_id> behind(token_id anchor, std::string_view text) const {
        if (text.empty()) return {};
        std::string joined(told_.target().text_of(anchor));
        joined += text;
        std::vector<token_id> tokens = told_.target().encode(joined);
        if (tokens.empty() || tokens.front() != anchor) return told_.target().encode(text);
        tokens.erase(tokens.begin());
        return tokens;
    }

    Model model_;
    told_requests<Draft, Target> told_;
    retokenised_options options_;
    std::vector<token_id> tokens_;  // [R, gamma] that the model wrote
    std::vector<written> texts_;
    std::vector<value_type> row_;
};

template <class M, class D, class T>
retokenised_drafts(M&&, D, T, retokenised_options) -> retokenised_drafts<M, D, T>;

SURELEAP_END_NAMESPACE
