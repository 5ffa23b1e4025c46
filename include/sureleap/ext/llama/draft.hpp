// SPDX-License-Identifier: MIT
//
// A second model of llama.cpp that drafts token by token: an autoregressive_model over a context of the user's.
//
//     llama_draft draft{draft_context, llama_model_get_vocab(target_model), {.max_requests = 4, .block_size = 4}};
//     autoregressive drafter{draft, top1_confidence{}, draft.options()};
//
// What it missed (tokens of rounds in which nobody drafted, corrections, a prompt) it decodes when it is asked next, and
// keeps the keys of drafts that were accepted. So it is told nothing after a round, and needs request_view::context. Another
// vocabulary than the target's is joined by the texts of tokens (vocabulary.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
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

/// Models autoregressive_model. Must not outlive the context, nor move while a drafter has its options(). Not thread-safe.
///
/// A pass that fails gives no rows: drafts end there, and the round goes on with those before (status::invalid_draft as
/// verdict::draft_outcome). outcome() says why.
class llama_draft {
public:
    /// `target`: the vocabulary of the model that verifies. Throws if the context cannot serve such rounds, or if the two
    /// vocabularies have nothing in common.
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

    /// One row a request; rows of those that draft no further are left as they were.
    [[nodiscard]] logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        outcome_ = decode(requests, prefixes);
        if (outcome_ != llama_outcome::ok) return {};
        auto const rows = sequences_.last_rows(asked_.size());
        if (match_.same() && asked_.size() == requests.size()) return rows;
        copies_.resize(std::max(copies_.size(), requests.size() * row_size()));
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
    /// A pass for all requests that draft further.
    [[nodiscard]] llama_outcome decode(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        asked_.clear();
        needs_.clear();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto const prefix = prefixes.of(r);
            bool const drafts = requests[r].draft_cap(block_size_) > prefix.size() &&
                                std::all_of(prefix.begin(), prefix.end(), [&](token_id x) { return is_token(x); });
            if (!drafts) continue;
            asked_.push_back(r);
            if (!prefix.empty()) {
                needs_.push_back({.slot = requests[r].slot});  // the pass before left nothing out
                continue;
            }
            if (requests[r].context.size() != requests[r].position + 1) return llama_outcome::no_context;
            request_view const told = tell(requests[r]);
            if (auto const outcome = sequences_.settle(told); outcome != llama_outcome::ok) return outcome;
            needs_.push_back({told.slot, sequences_.missing(told), 1, requests[r].draft_cap(block_size_)});
        }
        if (auto const outcome = sequences_.begin(needs_); outcome != llama_outcome::ok) return outcome;
        for (std::size_t const r : asked_) {
            auto const prefix = prefixes.of(r);
            std::size_t const slot = requests[r].slot;
            sequences_.add(slot, prefix.empty() ? anchor_of(requests[r]) : drafted(prefix.back()), true);
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
    std::vector<std::size_t> asked_;  // requests of the pass
    std::vector<detail::llama_sequences::need> needs_;
    std::vector<float> copies_;
};

SURELEAP_END_NAMESPACE
