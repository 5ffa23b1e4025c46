// SPDX-License-Identifier: MIT
//
// A language model of any vocabulary as an autoregressive draft of any target: it draws from the tokens that both
// vocabularies have, and reads contexts in its own.
//
//     shared_token_model draft{small_model, small_tokenizer, 49152, tokenizer, 151936};
//     autoregressive drafter{draft, top1_confidence{}, draft.options(7)};
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/drafter/told_requests.hpp>
#include <sureleap/sampling/shared_tokens.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Models autoregressive_model over the target's vocabulary. `Model` is one over the draft's: it is asked for requests
/// whose contexts, and prefixes, are of its own tokens. It is told of no verdict: what changed it finds in a context.
/// Any rule is exact with it, as with every q. Must not move while a drafter has its options. Not thread-safe.
///
/// A drafted token that the model lacks (only a constraint drafts one) is told as the first of its text's tokens.
template <class Model, class Draft, class Target>
class shared_token_model {
    static_assert(
        autoregressive_model<std::remove_reference_t<Model>>,
        "shared_token_model: the first argument is no autoregressive_model; give it forward(span<request_view "
        "const>, draft_prefixes) or a call operator that returns sureleap::logits_rows<T>");

public:
    using rows_type = detail::forward_result_of_t<Model, std::span<request_view const>, draft_prefixes>;
    using stored_type = typename rows_type::value_type;

    /// The vocabularies are lengths of logits rows. `begin`: the draft's tokens in front of every text, such as <s>.
    /// Throws if no token is shared.
    shared_token_model(Model model, Draft draft, std::size_t draft_vocabulary, Target target,
                       std::size_t target_vocabulary, std::vector<token_id> begin = {})
        : model_(std::forward<Model>(model)),
          shared_(draft, draft_vocabulary, target, target_vocabulary),
          told_(std::move(draft), std::move(target), std::move(begin)),
          draft_vocabulary_(draft_vocabulary) {}
    shared_token_model(shared_token_model const&) = delete;
    shared_token_model& operator=(shared_token_model const&) = delete;

    /// What the drafter around it is made with.
    [[nodiscard]] drafter_options options(std::size_t block_size) const noexcept {
        return {.block_size = block_size, .vocabulary = shared_.ids().size(), .map = &shared_.map()};
    }
    [[nodiscard]] shared_tokens const& shared() const noexcept { return shared_; }

    [[nodiscard]] std::uint64_t unread(request_view const& request) const noexcept { return told_.unread(request); }

    [[nodiscard]] logits_rows<stored_type> forward(std::span<request_view const> requests,
                                                   draft_prefixes const& prefixes) {
        prefixes_.clear();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            for (token_id const x : prefixes.of(r)) prefixes_.push_back(drafted(x));
        }
        rows_type const rows = detail::call_forward(model_, told_.tell(requests),
                                                    draft_prefixes{prefixes_.data(), prefixes.size, prefixes.size});
        if (rows.values.cols != draft_vocabulary_) return {};
        auto const ids = shared_.ids();
        shared_rows_.resize(rows.values.rows * ids.size());
        for (std::size_t r = 0; r < rows.values.rows; ++r) {
            auto const row = rows.values.row(r);
            std::transform(ids.begin(), ids.end(), shared_rows_.begin() + static_cast<std::ptrdiff_t>(r * ids.size()),
                           [&](token_id x) { return row[static_cast<std::size_t>(x)]; });
        }
        return {.values = {shared_rows_.data(), rows.values.rows, ids.size()}};
    }

private:
    [[nodiscard]] token_id drafted(token_id x) const {
        token_id const place = shared_.map().to_draft(x);
        if (place != no_token) return shared_.ids()[static_cast<std::size_t>(place)];
        std::vector<token_id> const tokens = told_.draft().encode(told_.target().text_of(x));
        return tokens.empty() ? 0 : tokens.front();
    }

    Model model_;
    shared_tokens shared_;
    told_requests<Draft, Target> told_;
    std::size_t draft_vocabulary_;
    std::vector<token_id> prefixes_;
    std::vector<stored_type> shared_rows_;
};

template <class M, class D, class T>
shared_token_model(M&&, D, std::size_t, T, std::size_t) -> shared_token_model<M, D, T>;
template <class M, class D, class T>
shared_token_model(M&&, D, std::size_t, T, std::size_t, std::vector<token_id>) -> shared_token_model<M, D, T>;

SURELEAP_END_NAMESPACE
