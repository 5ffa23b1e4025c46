// SPDX-License-Identifier: MIT
//
// A second model of llama.cpp that drafts token by token: an autoregressive_model over a context of the user's.
//
//     llama_draft draft{draft_context, llama_model_get_vocab(target_model), {.max_requests = 4, .block_size = 4}};
//     autoregressive drafter{draft, top1_confidence{}, draft.options()};
//
// What it missed (tokens of rounds in which nobody drafted, corrections, a prompt) it decodes when it is asked next,
// and keeps the keys of drafts that were accepted. So it is told nothing after a round, and needs
// request_view::context. Of another vocabulary than the target's it drafts the tokens that both have. It reads texts in
// its own (shared_token_model.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/drafter/shared_token_model.hpp>
#include <sureleap/ext/llama/outcome.hpp>
#include <sureleap/ext/llama/sequences.hpp>
#include <sureleap/ext/llama/vocabulary.hpp>
#include <sureleap/sampling/shared_tokens.hpp>

SURELEAP_BEGIN_NAMESPACE

struct llama_draft_options {
    std::size_t max_requests = 1;     ///< of a round; slots are below it
    std::size_t block_size = 4;       ///< gamma
    llama_seq_id first_sequence = 0;  ///< slot s is sequence first_sequence + s, and nobody else's
};

namespace detail {

/// llama_draft over its own vocabulary.
class llama_draft_rows {
public:
    llama_draft_rows(llama_context* context, llama_draft_options const& options)
        : sequences_("llama_draft", context, options.max_requests, options.first_sequence, options.max_requests,
                     nullptr),
          block_size_(options.block_size) {}

    [[nodiscard]] std::size_t context_length() const noexcept { return sequences_.context_length(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return sequences_.vocabulary(); }
    [[nodiscard]] llama_outcome outcome() const noexcept { return outcome_; }
    [[nodiscard]] std::uint64_t passes() const noexcept { return sequences_.passes(); }
    /// Tokens of the request that the memory holds.
    [[nodiscard]] std::uint64_t held(request_view const& request) const noexcept { return sequences_.held_of(request); }

    /// A pass over so many rows of slot 0, of which nothing stays: the price of drafting a token for as many requests.
    void dry_run(std::size_t rows) {
        std::size_t const held = sequences_.held(0).size();
        llama_sequences::need const need{.slot = 0, .rows = rows, .uncertain = rows};
        outcome_ = sequences_.begin({&need, 1});
        for (std::size_t i = 0; i < rows; ++i)
            sequences_.add(0, static_cast<token_id>(i % sequences_.vocabulary()), true);
        if (outcome_ == llama_outcome::ok) outcome_ = sequences_.decode();
        sequences_.commit(0, held);
        if (outcome_ != llama_outcome::ok) {
            fail_with("llama_draft: a dry run of ", rows, " rows failed: ", to_string(outcome_),
                      "; expected room for them in the context");
        }
        llama_synchronize(sequences_.context());
    }

    /// One row a request; rows of those that draft no further are left as they were.
    [[nodiscard]] logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        refused_.resize(std::max(refused_.size(), requests.size()), llama_outcome::ok);
        if (prefixes.size == 0) std::fill(refused_.begin(), refused_.end(), llama_outcome::ok);
        outcome_ = decode(requests, prefixes);
        if (outcome_ != llama_outcome::ok) return {};
        logits_rows<float> rows{};
        if (!asked_.empty()) rows = sequences_.last_rows(asked_.size());
        if (asked_.size() == requests.size()) return rows;
        copies_.resize(std::max(copies_.size(), requests.size() * vocabulary()));
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (refused_[r] == llama_outcome::ok) continue;
            outcome_ = refused_[r];
            std::fill_n(copy_of(r), vocabulary(), std::numeric_limits<float>::quiet_NaN());
        }
        for (std::size_t i = 0; i < asked_.size(); ++i) {
            auto const row = rows.values.row(i);
            std::copy(row.begin(), row.end(), copy_of(asked_[i]));
        }
        return {{copies_.data(), requests.size(), vocabulary()}, {}, {}};
    }

private:
    [[nodiscard]] float* copy_of(std::size_t r) noexcept { return copies_.data() + r * vocabulary(); }
    [[nodiscard]] bool is_token(token_id x) const noexcept {
        return x >= 0 && static_cast<std::size_t>(x) < vocabulary();
    }
    /// A pass for all requests that draft further. The cache is theirs together: where it has no room, the request that
    /// holds most of it gives up its own, and the others go on.
    [[nodiscard]] llama_outcome decode(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        for (;;) {
            choose(requests, prefixes);
            if (asked_.empty()) return llama_outcome::ok;
            auto const outcome = pass(requests, prefixes);
            if (outcome != llama_outcome::no_slot) return outcome;
            std::size_t const longest = *std::max_element(asked_.begin(), asked_.end(), [&](auto a, auto b) {
                return requests[a].position < requests[b].position;
            });
            refused_[longest] = llama_outcome::no_slot;
            sequences_.forget(requests[longest].slot);
        }
    }
    /// Who takes part, and what for.
    void choose(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        asked_.clear();
        needs_.clear();
        promised_ = 0;
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto const prefix = prefixes.of(r);
            bool const drafts = requests[r].draft_cap(block_size_) > prefix.size() &&
                                std::all_of(prefix.begin(), prefix.end(), [&](token_id x) { return is_token(x); });
            if (!drafts || refused_[r] != llama_outcome::ok) continue;
            refused_[r] = prefix.empty() ? begin_chain(requests[r]) : extend_chain(requests[r], prefix.size());
            if (refused_[r] == llama_outcome::ok) asked_.push_back(r);
        }
    }
    [[nodiscard]] llama_outcome begin_chain(request_view const& request) {
        if (request.context.size() != request.position + 1) return llama_outcome::no_context;
        std::size_t const cap = request.draft_cap(block_size_);
        if (request.position >= sequences_.context_length()) return llama_outcome::context_full;
        // Of those before it in the round. Else a long context would be decoded again in every round, for nothing.
        if (promised_ > 0 && promised_ + request.position + cap > sequences_.context_length()) {
            return llama_outcome::no_slot;
        }
        if (auto const outcome = sequences_.settle(request); outcome != llama_outcome::ok) return outcome;
        promised_ += request.position + cap;
        needs_.push_back({request.slot, sequences_.missing(request), 1, cap});
        return llama_outcome::ok;
    }
    [[nodiscard]] llama_outcome extend_chain(request_view const& request, std::size_t drafted) {
        if (request.position + drafted >= sequences_.context_length()) return llama_outcome::context_full;
        needs_.push_back({.slot = request.slot});  // the pass before left nothing out
        return llama_outcome::ok;
    }
    [[nodiscard]] llama_outcome pass(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        if (auto const outcome = sequences_.begin(needs_); outcome != llama_outcome::ok) return outcome;
        for (std::size_t const r : asked_) {
            auto const prefix = prefixes.of(r);
            std::size_t const slot = requests[r].slot;
            sequences_.add(slot, prefix.empty() ? requests[r].anchor : prefix.back(), true);
        }
        return sequences_.decode();
    }

    llama_sequences sequences_;
    std::size_t block_size_;
    llama_outcome outcome_ = llama_outcome::ok;
    std::vector<llama_outcome> refused_;  // by request of the round: why it drafts no further, or ok
    std::vector<std::size_t> asked_;      // requests of the pass
    std::size_t promised_ = 0;            // cells of the cache to those that were asked so far
    std::vector<llama_sequences::need> needs_;
    std::vector<float> copies_;
};

}  // namespace detail

/// Models autoregressive_model. Must not outlive the context, nor move while a drafter has its options(). Not
/// thread-safe.
///
/// A request that the draft's context has no room for, or whose tokens nobody has, drafts nothing, and others go on. A
/// pass that fails gives no rows: all drafts end there. The round goes on with those before (status::invalid_draft as
/// verdict::draft_outcome), and outcome() says why.
class llama_draft {
public:
    /// `target`: the vocabulary of the model that verifies. Throws if the context cannot serve such rounds, or if the
    /// two vocabularies have no token in common.
    llama_draft(llama_context* context, llama_vocab const* target, llama_draft_options const& options)
        : rows_(context, options), block_size_(options.block_size) {
        llama_vocab const* const own = llama_model_get_vocab(llama_get_model(context));
        llama_tokenizer told(target);
        llama_tokenizer draft(own, told);
        if (draft == told) return;
        bool const begins = llama_vocab_get_add_bos(own) && !llama_vocab_get_add_bos(target);
        std::vector<token_id> begin(begins ? 1 : 0, llama_vocab_bos(own));
        auto const draft_size = draft.size(), target_size = told.size();
        shared_.emplace(rows_, std::move(draft), draft_size, std::move(told), target_size, std::move(begin));
    }
    llama_draft(llama_draft const&) = delete;
    llama_draft& operator=(llama_draft const&) = delete;

    /// What the drafter around it is made with.
    [[nodiscard]] drafter_options options() const noexcept {
        if (shared_) return shared_->options(block_size_);
        return {.block_size = block_size_, .vocabulary = rows_.vocabulary()};
    }
    /// The tokens that both vocabularies have; null if they are one.
    [[nodiscard]] shared_tokens const* shared() const noexcept { return shared_ ? &shared_->shared() : nullptr; }
    [[nodiscard]] llama_outcome outcome() const noexcept { return outcome_; }
    [[nodiscard]] std::uint64_t passes() const noexcept { return rows_.passes(); }

    /// The anchor, and all drafted tokens but the last, have to be within the context. Where the vocabularies differ
    /// nobody knows before how many tokens of the draft's they are; then forward finds out.
    [[nodiscard]] std::size_t room(request_view const& request) const noexcept {
        if (shared_) return static_cast<std::size_t>(-1);
        auto const most = static_cast<std::uint64_t>(rows_.context_length());
        return static_cast<std::size_t>(most - std::min(most, request.position));
    }
    /// In the target's tokens.
    [[nodiscard]] std::uint64_t unread(request_view const& request) const noexcept {
        std::uint64_t const held = rows_.held(request);
        if (shared_ && held > 0) return shared_->unread(request);
        return request.position - std::min(held, request.position);
    }
    /// A pass over so many rows of slot 0, of which nothing stays: the price of drafting a token for as many requests.
    void dry_run(std::size_t rows) { rows_.dry_run(rows); }

    /// One row a request; rows of those that draft no further are left as they were.
    [[nodiscard]] logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        outcome_ = llama_outcome::ok;
        bool const all_told = std::all_of(requests.begin(), requests.end(), [](request_view const& request) {
            return request.context.size() == request.position + 1;
        });
        if (shared_ && !all_told) {
            outcome_ = llama_outcome::no_context;
            return {};
        }
        auto const rows = shared_ ? shared_->forward(requests, prefixes) : rows_.forward(requests, prefixes);
        outcome_ = rows_.outcome();
        return rows;
    }

private:
    detail::llama_draft_rows rows_;
    std::size_t block_size_;
    llama_outcome outcome_ = llama_outcome::ok;
    std::optional<shared_token_model<detail::llama_draft_rows&, llama_tokenizer, llama_tokenizer>> shared_;
};

SURELEAP_END_NAMESPACE
