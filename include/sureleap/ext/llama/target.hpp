// SPDX-License-Identifier: MIT
//
// A model of llama.cpp as a target: a target_model over a llama_context of the user's, without a change to llama.cpp.
//
//     llama_target target{context, drafter, {.max_requests = 4}};
//     decoder dec{target, drafter, greedy_schedule{capacity}, token_rejection{},
//                 {.max_requests = 4, .max_tokens = target.max_tokens()}};
//
// A verify batch is one llama_batch and one pass: its rows are read where llama.cpp left them. Prompts are decoded in
// the round in which they are missing, and so is whatever a context lost: an engine that wants them in chunks calls
// prefill. What is rejected is removed (llama_memory_seq_rm).
//
// A batch with draft trees is one pass as well, in a context with a sequence for every path of a tree (paths.hpp):
//
//     params.kv_unified = true;
//     params.n_seq_max = 4 * 16;  // requests, and paths of a tree
//     llama_context* const context = llama_init_from_model(model, params);
//     tree_drafter drafter{semi_autoregressive{..}, {.nodes = 16}};
//     llama_target target{context, drafter, {.max_requests = 4}};
//
// Before a token is decoded the constructor refuses what would abort in llama.cpp, or cost a pass a request. Failures
// of a pass are outcomes: score() returns no rows, so that the round's requests get status invalid_target and stay as
// they are. outcome() says why. A decoder suspends them, and they go on with the same random keys when they are
// resumed.
//
// The law is that of the context's logits. In some formats llama.cpp's logits depend a little on how many rows are
// computed beside them. That is so in its own batches as well, and no rule can cure it (docs/llama_cpp.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/llama/features.hpp>
#include <sureleap/ext/llama/outcome.hpp>
#include <sureleap/ext/llama/sequences.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verify_batch.hpp>

SURELEAP_BEGIN_NAMESPACE

struct llama_target_options {
    std::size_t max_requests = 1;        ///< of a round; slots are below it
    llama_seq_id first_sequence = 0;     ///< slot s is sequence first_sequence + s, and nobody else's
    llama_features* features = nullptr;  ///< for a drafter that reads hidden states; must outlive the target
    /// Most paths of a draft tree, and so sequences of a slot: its own and, behind those of all slots, tree_paths - 1
    /// branches. A round fails if a tree of it has more (too_many_paths). 0: as many as the drafter's trees may have,
    /// one for each token.
    std::size_t tree_paths = 0;
    /// For an engine that counts positions itself: a request without its context is believed that the tokens before its
    /// position are those that its slot holds, whoever had them decoded. Otherwise such a request is believed only what
    /// it committed.
    bool trusts_positions = false;
};

/// Models target_model. Must not outlive the context. Not thread-safe, like the context; two contexts may be used by
/// two threads.
///
/// Recurrent and hybrid models: a round's drafts are taken back by llama_n_rs_seq where that suffices. Otherwise the
/// state is saved before they are decoded and restored after a rejection, and accepted tokens are decoded once more in
/// a pass of their own, which dry_run has in its price. Passes over several such requests cost more where their lengths
/// differ, since llama.cpp cuts them: passes() does not see that, a clock does (refined_cost).
class llama_target {
public:
    using value_type = float;
    static constexpr bool scores_trees = true;

    /// Throws if the context cannot serve rounds of this drafter: see the message.
    template <class Drafter>
    llama_target(llama_context* context, Drafter const& drafter, llama_target_options const& options = {})
        : llama_target(context, options, options.max_requests * (drafter.block_size() + 1),
                       traits_of(drafter).drafts_trees ? drafter.block_size() : 1) {
        if (drafter.target_vocabulary() != vocabulary()) {
            fail_with("llama_target: the drafter's target vocabulary has ", drafter.target_vocabulary(),
                      " tokens, expected the model's ", vocabulary(), "; it was made for another target");
        }
    }
    /// For an engine that has no drafter yet. Precondition of score: a batch has at most n_batch and n_ubatch rows.
    llama_target(llama_context* context, llama_target_options const& options) : llama_target(context, options, 1, 1) {}

    [[nodiscard]] std::size_t vocabulary() const noexcept { return sequences_.vocabulary(); }
    /// Tokens that the context holds, of all requests together: decoder_options::max_tokens.
    [[nodiscard]] std::size_t max_tokens() const noexcept { return llama_n_ctx_seq(sequences_.context()); }
    /// What became of the last score or prefill.
    [[nodiscard]] llama_outcome outcome() const noexcept { return outcome_; }
    /// Calls of llama_decode so far: one a round, besides prompts and tokens that are decoded again.
    [[nodiscard]] std::uint64_t passes() const noexcept { return sequences_.passes(); }
    /// Tokens that the context holds of a slot.
    [[nodiscard]] std::span<token_id const> held(std::size_t slot) const noexcept { return sequences_.held(slot); }

    /// Decodes at most `most` of a request's tokens before its anchor that the context does not hold. A prompt that
    /// begins like the slot's text before is decoded only where it goes on. Returns how many are missing now.
    std::size_t prefill(request_view const& request, std::size_t most = static_cast<std::size_t>(-1)) {
        outcome_ = sequences_.settle(request, trusts_positions_);
        if (outcome_ != llama_outcome::ok) return static_cast<std::size_t>(request.position);
        auto const missing = sequences_.missing(request);
        outcome_ = sequences_.prefill(request.slot, missing.first(std::min(most, missing.size())));
        return sequences_.missing(request).size();
    }

    /// Decodes tokens at the positions first, first + 1, .. of a slot. It keeps the tokens that it holds before them,
    /// which must be that many, or outcome() is no_context. Later requests of the slot are compared with all of them,
    /// or trust positions.
    void prefill(std::size_t slot, std::size_t first, std::span<token_id const> tokens) {
        sequences_.commit(slot, first);
        outcome_ = held(slot).size() < first ? llama_outcome::no_context : sequences_.prefill(slot, tokens);
    }

    /// The request's last drafts were taken back by going to a saved state: what was accepted is decoded once more.
    [[nodiscard]] bool replays(request_view const& request) const noexcept {
        std::size_t const held = sequences_.held_of(request);
        return sequences_.keeps_states() && 0 < held && held < request.position;
    }

    /// One row a token of the batch; none, if outcome() is not ok. The context keeps them until its next pass, whoever
    /// asks for it: rounds that overlap need a context each.
    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        outcome_ = decode(batch);
        if (outcome_ != llama_outcome::ok) return {};
        return sequences_.scored_rows(batch);
    }
    /// Removes what was rejected.
    void commit(std::span<verdict const> verdicts) noexcept {
        for (verdict const& v : verdicts) sequences_.commit(v);
    }
    /// Frees the cache of a slot whose request has left. Not needed: another request takes it over, and what takes no
    /// part in a round gives way where there is no room.
    void forget(std::size_t slot) { sequences_.forget(slot); }

    /// A round of so many rows of slot 0, drafted as if half of the drafts were accepted: what profile() is given. In a
    /// cache of keys and values that is the pass, of which nothing stays. A recurrent or hybrid memory without a window
    /// for the drafts saves its state, comes back to it, and decodes what was accepted once more. There the tokens stay
    /// until a request comes.
    void dry_run(std::size_t rows) {
        std::size_t held = sequences_.held(0).size();
        std::size_t const accepted = 1 + (rows - 1) / 2;
        bool const keeps_states = sequences_.keeps_states();
        if (keeps_states &&
            (held == 0 || held + rows > max_tokens())) {  // there is no state to save before a first token
            sequences_.forget(0);
            rehearse(1, 0);
            held = 1;
        }
        rehearse(rows, rows - 1);
        sequences_.commit(0, keeps_states ? held + accepted : held);
        if (keeps_states && sequences_.held(0).size() < held + accepted) {
            std::vector<token_id> const again(held + accepted - sequences_.held(0).size());
            outcome_ = sequences_.prefill(0, again);
            rehearsed(rows);
        }
    }

private:
    llama_target(llama_context* context, llama_target_options const& options, std::size_t most_rows,
                 std::size_t most_paths)
        : sequences_("llama_target", context, options.max_requests, options.first_sequence, most_rows, options.features,
                     options.tree_paths > 0 ? options.tree_paths : most_paths),
          trusts_positions_(options.trusts_positions) {}

    [[nodiscard]] llama_outcome decode(verify_batch const& batch) {
        auto const requests = batch.requests();
        needs_.clear();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto const settled = sequences_.settle(requests[r], trusts_positions_);
            if (settled != llama_outcome::ok) return settled;
            std::size_t const length = batch.length(r);
            needs_.push_back(
                {requests[r].slot, sequences_.missing(requests[r]), 1 + length, length, detail::tree_of(batch, r)});
        }
        if (auto const outcome = sequences_.begin(needs_); outcome != llama_outcome::ok) return outcome;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            sequences_.add(requests[batch.markers()[i]].slot, batch.tokens()[i], true);
        }
        return sequences_.decode();
    }

    /// A pass over any tokens of slot 0, the last `uncertain` of which may be removed again.
    void rehearse(std::size_t rows, std::size_t uncertain) {
        detail::llama_sequences::need const need{.slot = 0, .rows = rows, .uncertain = uncertain};
        outcome_ = sequences_.begin({&need, 1});
        for (std::size_t i = 0; i < rows; ++i) sequences_.add(0, static_cast<token_id>(i % vocabulary()), true);
        if (outcome_ == llama_outcome::ok) outcome_ = sequences_.decode();
        rehearsed(rows);
    }
    void rehearsed(std::size_t rows) {
        if (outcome_ != llama_outcome::ok) {
            fail_with("llama_target: a dry run of ", rows, " rows failed: ", to_string(outcome_),
                      "; expected room for them in the context");
        }
        llama_synchronize(sequences_.context());
    }

    detail::llama_sequences sequences_;
    bool trusts_positions_;
    llama_outcome outcome_ = llama_outcome::ok;
    std::vector<detail::llama_sequences::need> needs_;
};

SURELEAP_END_NAMESPACE
