// SPDX-License-Identifier: MIT
//
// A second model of llama.cpp that drafts token by token: an autoregressive_model over a context of the user's.
//
//     llama_draft draft{draft_context, llama_model_get_vocab(target_model), {.max_requests = 4, .block_size = 4}};
//     autoregressive drafter{draft, top1_confidence{}, draft.options()};
//
// What it missed (tokens of rounds in which nobody drafted, corrections, a prompt) it decodes when it is asked next,
// and keeps the keys of drafts that were accepted. So it is told nothing after a round, and needs
// request_view::context. Another vocabulary than the target's is joined by the texts of tokens (vocabulary.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <llama.h>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/ext/llama/outcome.hpp>
#include <sureleap/ext/llama/sequences.hpp>
#include <sureleap/ext/llama/vocabulary.hpp>

SURELEAP_BEGIN_NAMESPACE

struct llama_draft_options {
    std::size_t max_requests = 1;     ///< of a round; slots are below it
    std::size_t block_size = 4;       ///< gamma
    llama_seq_id first_sequence = 0;  ///< slot s is sequence first_sequence + s, and nobody else's
};

/// Models autoregressive_model. Must not outlive the context, nor move while a drafter has its options(). Not
/// thread-safe.
///
/// A request that the draft's context has no room for, or whose tokens nobody has, drafts nothing, and others go on. A
/// pass that fails gives no rows: all drafts end there. The round goes on with those before (status::invalid_draft as
/// verdict::draft_outcome), and outcome() says why.
class llama_draft {
public:
    /// `target`: the vocabulary of the model that verifies. Throws if the context cannot serve such rounds, or if the
    /// two vocabularies have nothing in common.
    llama_draft(llama_context* context, llama_vocab const* target, llama_draft_options const& options)
        : sequences_("llama_draft", context, options.max_requests, options.first_sequence, options.max_requests,
                     nullptr),
          match_(llama_model_get_vocab(llama_get_model(context)), target),
          block_size_(options.block_size),
          told_(options.max_requests) {}
    llama_draft(llama_draft const&) = delete;
    llama_draft& operator=(llama_draft const&) = delete;

    /// What the drafter around it is made with.
    [[nodiscard]] drafter_options options() const noexcept {
        return {.block_size = block_size_, .vocabulary = row_size(), .map = match_.map()};
    }
    [[nodiscard]] llama_vocabulary_match const& vocabulary() const noexcept { return match_; }
    [[nodiscard]] llama_outcome outcome() const noexcept { return outcome_; }
    [[nodiscard]] std::uint64_t passes() const noexcept { return sequences_.passes(); }

    /// The anchor, and all drafted tokens but the last, have to be within the context. Where the vocabularies differ
    /// nobody knows before how many tokens of the draft's they are; then forward finds out.
    [[nodiscard]] std::size_t room(request_view const& request) const noexcept {
        if (!match_.same()) return static_cast<std::size_t>(-1);
        auto const most = static_cast<std::uint64_t>(sequences_.context_length());
        return static_cast<std::size_t>(most - std::min(most, request.position));
    }

    /// In the target's tokens.
    [[nodiscard]] std::uint64_t unread(request_view const& request) const noexcept {
        std::uint64_t held = sequences_.held_of(request);
        if (!match_.same()) {
            auto const& ends = told_[request.slot].ends;
            held = static_cast<std::uint64_t>(std::upper_bound(ends.begin(), ends.end(), held) - ends.begin());
        }
        return request.position - std::min(held, request.position);
    }

    /// A pass over so many rows of slot 0, of which nothing stays: the price of drafting a token for as many requests.
    void dry_run(std::size_t rows) {
        std::size_t const held = sequences_.held(0).size();
        detail::llama_sequences::need const need{.slot = 0, .rows = rows, .uncertain = rows};
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
        if (match_.same() && asked_.size() == requests.size()) return rows;
        copies_.resize(std::max(copies_.size(), requests.size() * row_size()));
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (refused_[r] == llama_outcome::ok) continue;
            outcome_ = refused_[r];
            copies_[r * row_size()] = std::numeric_limits<float>::quiet_NaN();
        }
        for (std::size_t i = 0; i < asked_.size(); ++i) {
            auto const row = rows.values.row(i);
            float* const copy = copies_.data() + asked_[i] * row_size();
            if (match_.same()) {
                std::copy(row.begin(), row.end(), copy);
            } else {
                auto const drawn = match_.drawn();
                for (std::size_t d = 0; d < drawn.size(); ++d) copy[d] = row[static_cast<std::size_t>(drawn[d])];
            }
        }
        return {{copies_.data(), requests.size(), row_size()}, {}, {}};
    }

private:
    /// A request's context in the draft's tokens, if they are others.
    struct told_text {
        std::vector<token_id> of;       // the target's tokens
        std::vector<token_id> tokens;   // the draft's
        std::vector<std::size_t> ends;  // of each of the target's in the draft's
    };

    [[nodiscard]] std::size_t row_size() const noexcept {
        return match_.same() ? match_.target_size() : match_.drawn().size();
    }
    [[nodiscard]] bool is_token(token_id x) const noexcept {
        return x >= 0 && static_cast<std::size_t>(x) < match_.target_size();
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
        request_view const told = tell(request);
        std::size_t const cap = request.draft_cap(block_size_);
        if (told.position >= sequences_.context_length()) return llama_outcome::context_full;
        // Of those before it in the round. Else a long context would be decoded again in every round, for nothing.
        if (promised_ > 0 && promised_ + told.position + cap > sequences_.context_length()) {
            return llama_outcome::no_slot;
        }
        if (auto const outcome = sequences_.settle(told); outcome != llama_outcome::ok) return outcome;
        promised_ += told.position + cap;
        needs_.push_back({told.slot, sequences_.missing(told), 1, cap});
        return llama_outcome::ok;
    }
    [[nodiscard]] llama_outcome extend_chain(request_view const& request, std::size_t drafted) {
        std::size_t const anchor = match_.same() ? request.position : told_[request.slot].tokens.size() - 1;
        if (anchor + drafted >= sequences_.context_length()) return llama_outcome::context_full;
        needs_.push_back({.slot = request.slot});  // the pass before left nothing out
        return llama_outcome::ok;
    }
    [[nodiscard]] llama_outcome pass(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        if (auto const outcome = sequences_.begin(needs_); outcome != llama_outcome::ok) return outcome;
        for (std::size_t const r : asked_) {
            auto const prefix = prefixes.of(r);
            std::size_t const slot = requests[r].slot;
            sequences_.add(slot, prefix.empty() ? anchor_of(requests[r]) : this->drafted(prefix.back()), true);
        }
        return sequences_.decode();
    }
    [[nodiscard]] token_id anchor_of(request_view const& request) const noexcept {
        return match_.same() ? request.anchor : told_[request.slot].tokens.back();
    }
    [[nodiscard]] token_id drafted(token_id x) const noexcept { return match_.same() ? x : match_.told(x).front(); }
    /// The request, its context in the draft's tokens.
    [[nodiscard]] request_view tell(request_view const& request) {
        if (match_.same()) return request;
        told_text& text = told_[request.slot];
        auto const context = request.context;
        auto const same = static_cast<std::size_t>(
            std::mismatch(text.of.begin(), text.of.end(), context.begin(), context.end()).first - text.of.begin());
        text.of.resize(same);
        text.ends.resize(same);
        text.tokens.resize(same == 0 ? 0 : text.ends.back());
        for (token_id const x : context.subspan(same)) {
            auto const tokens = match_.told(x);
            text.of.push_back(x);
            text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
            text.ends.push_back(text.tokens.size());
        }
        request_view told = request;
        told.context = text.tokens;
        told.anchor = text.tokens.back();
        told.position = text.tokens.size() - 1;
        return told;
    }

    detail::llama_sequences sequences_;
    llama_vocabulary_match match_;
    std::size_t block_size_;
    llama_outcome outcome_ = llama_outcome::ok;
    std::vector<told_text> told_;
    std::vector<llama_outcome> refused_;  // by request of the round: why it drafts no further, or ok
    std::vector<std::size_t> asked_;      // requests of the pass
    std::size_t promised_ = 0;            // cells of the cache to those that were asked so far
    std::vector<detail::llama_sequences::need> needs_;
    std::vector<float> copies_;
};

SURELEAP_END_NAMESPACE
