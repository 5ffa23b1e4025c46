// SPDX-License-Identifier: MIT
//
// What the memory of a llama_context holds, sequence by sequence, and passes over it. The adapters of a target and of a
// draft are made of this.
//
// Slot s of the rounds is the sequence first_sequence + s. For each the tokens are kept that the memory holds, from
// position 0 on. So whatever happens to a request (a rejection, a pass that fails, another request in its place), what
// it needs is compared with what is there. A tail that is wrong is removed, and what is missing is decoded.
//
// Removing a tail is free in a cache of keys and values. A recurrent or hybrid memory has a window (llama_n_rs_seq), or
// else needs a state to come back to. It is saved before tokens are decoded that may be rejected. Where neither helps,
// the whole sequence is removed, and decoded again from the request's context.
//
// A slot whose drafts are a tree has sequences besides (paths.hpp). Of a tree nothing but its anchor is held until
// commit says which path was kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/llama/context.hpp>
#include <sureleap/ext/llama/features.hpp>
#include <sureleap/ext/llama/outcome.hpp>
#include <sureleap/ext/llama/paths.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// The sequences of one user of a context, and the batch of its next pass. Not thread-safe, like the context.
class llama_sequences {
public:
    /// Trees have up to `paths` paths, one is chains alone. A slot's branches are behind the sequences of all slots.
    /// Throws what checked_context and check_paths throw.
    llama_sequences(char const* owner, llama_context* context, std::size_t slots, llama_seq_id first_sequence,
                    std::size_t most_rows, llama_features* features, std::size_t paths = 1)
        : context_(checked_context(owner, context, slots, first_sequence, most_rows)),
          memory_(llama_get_memory(context)),
          model_(llama_get_model(context)),
          features_(features),
          counter_(passes_over(context)),
          most_tokens_(llama_n_batch(context)),
          sequences_(slots) {
        keeps_states_ = llama_model_is_recurrent(model_) || llama_model_is_hybrid(model_);
        window_ = keeps_states_ ? llama_n_rs_seq(context) : std::numeric_limits<std::size_t>::max();
        check_paths(owner, context, slots, first_sequence, paths);
        for (std::size_t s = 0; s < slots; ++s) {
            sequences_[s].id = first_sequence + static_cast<llama_seq_id>(s);
            if (paths > 1) {
                std::size_t const before = slots + s * (paths - 1);
                sequences_[s].paths = {memory_, first_sequence + static_cast<llama_seq_id>(before), paths - 1};
            }
            remove_all(s);
        }
        tokens_.reserve(most_tokens_);
        slots_.reserve(most_tokens_);
        positions_.reserve(most_tokens_);
        ids_.reserve(most_tokens_);
        outputs_.reserve(most_tokens_);
        id_counts_.reserve(most_tokens_);
        if (features_ == nullptr) return;
        if (keeps_states_ && slots > 1) {
            fail_with(owner, ": features of ", slots,
                      " sequences of a recurrent or hybrid model, expected one, because llama.cpp reorders the rows of "
                      "several; make a context for each request");
        }
        features_->bind(owner, context, slots);
        add(0, 0, true);
        llama_outcome const outcome = decode();
        features_->check(owner, outcome);
        remove_all(0);
    }

    llama_sequences(llama_sequences const&) = delete;
    llama_sequences& operator=(llama_sequences const&) = delete;
    llama_sequences(llama_sequences&&) noexcept = default;
    llama_sequences& operator=(llama_sequences&&) noexcept = default;

    [[nodiscard]] llama_context* context() const noexcept { return context_; }
    /// Positions that a sequence may have.
    [[nodiscard]] std::size_t context_length() const noexcept { return llama_n_ctx_seq(context_); }
    [[nodiscard]] std::size_t slots() const noexcept { return sequences_.size(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept {
        return static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_)));
    }
    /// Tokens that the memory holds of a slot, from position 0 on.
    [[nodiscard]] std::span<token_id const> held(std::size_t slot) const noexcept { return sequences_[slot].held; }
    /// How many they are, before a request is compared with them (settle): 0 where they are another's.
    [[nodiscard]] std::size_t held_of(request_view const& request) const noexcept {
        sequence const& s = sequences_[request.slot];
        return s.request == request.id ? s.held.size() : 0;
    }
    /// Recurrent and hybrid models: taking tokens back is not free.
    [[nodiscard]] bool keeps_states() const noexcept { return keeps_states_; }
    /// Calls of llama_decode so far.
    [[nodiscard]] std::uint64_t passes() const noexcept { return passes_; }

    // ---- what is held -------------------------------------------------------------------------------------------

    /// Removes what is held of a slot and is not the request's, or its anchor, or behind it. What remains is a prefix
    /// of its tokens before the anchor; missing() are the rest. With `trusts_position`, a request that comes without
    /// its context is believed that what is held before its position is its own.
    [[nodiscard]] llama_outcome settle(request_view const& request, bool trusts_position = false) {
        sequence& s = sequences_[request.slot];
        auto const position = static_cast<std::size_t>(request.position);
        s.scored_in = 0;
        if (s.paths.is_decoded()) accept(request.slot, {});  // there was no verdict
        // Somebody else may have cleared, shifted or moved what was there.
        if (llama_memory_seq_pos_max(memory_, s.id) + 1 != static_cast<llama_pos>(s.held.size())) forget(request.slot);
        bool const is_new = s.request != request.id;
        if (is_new) s.agreed = 0;
        s.request = request.id;
        if (request.context.size() == position + 1) {
            // All of it, every time: another decoder's requests may have the same ids.
            auto const before = request.context.first(std::min(position, s.held.size()));
            auto const same = static_cast<std::size_t>(
                std::mismatch(before.begin(), before.end(), s.held.begin()).first - before.begin());
            if (is_new || same < s.held.size()) go_back(request.slot, same);
        } else {
            if (s.agreed < position && !trusts_position) return llama_outcome::no_context;
            if (s.held.size() > position) go_back(request.slot, position);
            if (s.held.size() < position) return llama_outcome::no_context;
        }
        s.agreed = s.held.size();
        return llama_outcome::ok;
    }
    /// Tokens before the anchor that the memory does not hold. Precondition: settled.
    [[nodiscard]] std::span<token_id const> missing(request_view const& request) const noexcept {
        std::size_t const size = sequences_[request.slot].held.size();
        auto const position = static_cast<std::size_t>(request.position);
        return size == position ? std::span<token_id const>{} : request.context.subspan(size, position - size);
    }
    /// The first `size` tokens that are held are the request's, and the rest is removed. Fewer may be held afterwards.
    /// Of a tree, the nodes of `path` are held first (verdict::path).
    void commit(std::size_t slot, std::size_t size, std::span<std::int32_t const> path = {}) {
        sequence& s = sequences_[slot];
        s.scored_in = 0;
        if (s.paths.is_decoded()) accept(slot, path);
        if (s.held.size() > size) go_back(slot, size);
        s.agreed = s.held.size();
    }
    /// The same by a verdict. What it says of another pass than the one in which the slot was scored last is no news.
    void commit(verdict const& v) {
        sequence const& s = sequences_[v.slot];
        if (s.scored_in == 0 || (v.pass != 0 && v.pass != s.scored_in)) return;
        commit(v.slot, s.anchor + v.emitted.size(), v.path);
    }
    /// Frees the memory of a slot.
    void forget(std::size_t slot) {
        remove_all(slot);
        sequences_[slot].agreed = 0;
    }

    // ---- a pass -------------------------------------------------------------------------------------------------

    /// What a slot needs in a pass: tokens that are missing, then `rows` rows, of which the last `uncertain` may have
    /// to be removed again. Rows of a tree have `parents` in their batch, the anchor none (verify_batch::parents).
    struct need {
        std::size_t slot = 0;
        std::span<token_id const> missing{};
        std::size_t rows = 1;
        std::size_t uncertain = 0;
        std::span<std::uint32_t const> parents{};
    };
    /// Begins a pass. Missing tokens of all slots come before all rows: so the rows are the last outputs, whatever is
    /// an output besides. They get passes of their own where one is too small for all, or where a state is to be saved
    /// behind them.
    [[nodiscard]] llama_outcome begin(std::span<need const> needs) {
        clear();
        std::size_t tokens = 0;
        bool apart = false;
        ++round_;
        for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
            if (sequences_[slot].paths.is_decoded()) accept(slot, {});
        }
        for (need const& n : needs) {
            sequence& s = sequences_[n.slot];
            // Node 1 is a child of the anchor, whose row is the first.
            if (!n.parents.empty() && !s.paths.plan(s.id, n.parents, n.parents[1]))
                return llama_outcome::too_many_paths;
        }
        for (need const& n : needs) {
            sequences_[n.slot].round = round_;
            tokens += n.missing.size() + n.rows;
            apart = apart || (!n.missing.empty() && n.uncertain > window_);
        }
        apart = apart || tokens > most_tokens_;
        for (need const& n : needs) {
            if (apart) {
                if (auto const outcome = prefill(n.slot, n.missing); outcome != llama_outcome::ok) return outcome;
            }
            if (n.uncertain > window_) save(sequences_[n.slot]);
        }
        for (need const& n : needs) {
            auto const missing = apart ? std::span<token_id const>{} : n.missing;
            sequence& s = sequences_[n.slot];
            if (!n.parents.empty()) {
                // commit takes over a path, and may not fail.
                std::size_t const most = s.held.size() + missing.size() + n.rows;
                if (s.held.capacity() < most) s.held.reserve(2 * most);
                s.paths.plant(s.id, s.held.size(), missing.size());
            }
            for (token_id const x : missing) add(n.slot, x, false);
        }
        return llama_outcome::ok;
    }
    /// Adds a token behind what is held and was added of its slot; of a tree its next node, the anchor first.
    void add(std::size_t slot, token_id token, bool output) {
        SURELEAP_EXPECTS(tokens_.size() < most_tokens_);
        sequence& s = sequences_[slot];
        llama_paths::place place{s.held.size() + s.added, {&s.id, 1}};
        if (s.paths.is_planted()) place = s.paths.add(s.added, token, tokens_.size());
        ++s.added;
        tokens_.push_back(token);
        slots_.push_back(slot);
        positions_.push_back(static_cast<llama_pos>(place.position));
        ids_.push_back(place.ids.data());
        id_counts_.push_back(static_cast<std::int32_t>(place.ids.size()));
        // Rows of the last layer are those of outputs alone.
        outputs_.push_back(output || (features_ != nullptr && features_->reads_last_layer()) ? 1 : 0);
    }
    /// Decodes what was added, in one call. Afterwards nothing is added.
    [[nodiscard]] llama_outcome decode() {
        if (tokens_.empty()) return llama_outcome::ok;
        llama_outcome outcome = too_long() ? llama_outcome::context_full : outcome_of_code(call());
        if (outcome == llama_outcome::no_slot && make_room()) outcome = outcome_of_code(call());
        if (outcome == llama_outcome::ok) {
            if (features_ != nullptr) features_->end(context_);
            for (std::size_t i = 0; i < tokens_.size(); ++i) {
                sequence& s = sequences_[slots_[i]];
                s.decoded = s.added;
                if (s.paths.is_planted() && s.held.size() == s.paths.trunk()) continue;  // held once it is accepted
                if (features_ != nullptr) features_->keep(slots_[i], s.held.size(), i);
                s.held.push_back(tokens_[i]);
            }
        } else if (outcome == llama_outcome::aborted || outcome == llama_outcome::failed) {
            for (std::size_t const slot : slots_) {
                if (sequences_[slot].added > 0) undo(slot);
                sequences_[slot].added = 0;
            }
        }
        for (std::size_t const slot : slots_) sequences_[slot].paths.end_pass(outcome == llama_outcome::ok);
        clear();
        return outcome;
    }
    /// Decodes tokens of a slot without output, in passes of at most most_tokens(). What was decoded before a failure
    /// stays.
    [[nodiscard]] llama_outcome prefill(std::size_t slot, std::span<token_id const> tokens) {
        while (!tokens.empty()) {
            std::size_t const count = std::min(tokens.size(), most_tokens_);
            for (token_id const x : tokens.first(count)) add(slot, x, false);
            if (llama_outcome const outcome = decode(); outcome != llama_outcome::ok) return outcome;
            tokens = tokens.subspan(count);
        }
        return llama_outcome::ok;
    }
    /// The last rows of the last pass, which were the last `count` tokens of its batch. In place, valid until the next
    /// pass.
    [[nodiscard]] logits_rows<float> last_rows(std::size_t count) const {
        // llama.cpp counts from the end of the outputs here.
        float const* const first = llama_get_logits_ith(context_, -static_cast<std::int32_t>(count));
        return {.values = {first, count, vocabulary()}, .pass = pass_};
    }
    /// The same of a verify batch, whose verdicts will come.
    [[nodiscard]] logits_rows<float> scored_rows(verify_batch const& batch) {
        for (request_view const& request : batch.requests()) {
            sequence& s = sequences_[request.slot];
            s.scored_in = pass_.number();
            s.anchor = static_cast<std::size_t>(request.position);
        }
        auto rows = last_rows(batch.rows());
        rows.pass = pass_.made_for(fingerprint_of(batch.requests()));
        return rows;
    }

private:
    struct sequence {
        llama_seq_id id = 0;
        request_id request = 0;
        std::vector<token_id> held;
        std::size_t agreed = 0;  // of these, known to be the request's
        std::size_t added = 0;
        std::size_t decoded = 0;          // of the last pass that it took part in
        std::uint64_t round = 0;          // the last one that it took part in
        std::uint64_t scored_in = 0;      // the pass whose verdict is to come; 0: none
        std::size_t anchor = 0;           // its position then
        std::vector<std::uint8_t> saved;  // the state behind saved_at tokens; 0: none
        std::size_t saved_at = 0;
        llama_paths paths;
    };

    /// Of a tree that was decoded: the nodes of `path` are held, and all others are removed.
    void accept(std::size_t slot, std::span<std::int32_t const> path) {
        sequence& s = sequences_[slot];
        s.paths.accept(s.id, path);
        for (std::int32_t const n : path) {
            if (features_ != nullptr) features_->keep(slot, s.held.size(), s.paths.row(n));
            s.held.push_back(s.paths.token(n));
        }
    }

    /// The first `size` tokens of a slot stay, others were not the request's.
    void go_back(std::size_t slot, std::size_t size) {
        if (sequences_[slot].held.size() > size) keep(slot, size);
        if (features_ != nullptr) features_->go_back(slot, size);
    }
    /// Lets the memory hold the first `size` tokens of a slot, or fewer.
    void keep(std::size_t slot, std::size_t size) {
        sequence& s = sequences_[slot];
        if (size > 0 && remove_tail(s, size)) {
            s.held.resize(size);
        } else if (0 < s.saved_at && s.saved_at <= size && restore(s)) {
            s.held.resize(s.saved_at);
        } else {
            remove_all(slot);
        }
        if (s.saved_at > s.held.size()) s.saved_at = 0;
        s.paths.keep(s.held.size());
        if (features_ != nullptr) features_->truncate(slot, s.held.size());
    }
    /// A pass that failed may have decoded a part of its batch. The window of a recurrent memory cannot be trusted
    /// then: its states may not have been written.
    void undo(std::size_t slot) {
        sequence const& s = sequences_[slot];
        if (!keeps_states_) {
            keep(slot, s.held.size());
        } else if (s.saved_at == 0 || s.saved_at != s.held.size() || !restore(s)) {
            remove_all(slot);
        }
    }
    [[nodiscard]] bool remove_tail(sequence const& s, std::size_t size) const {
        auto const first = static_cast<llama_pos>(size);
        // A window has the states behind the tokens of the last pass, and none from before it, whatever seq_rm says.
        if (keeps_states_ && s.held.size() > size && s.held.size() - size >= s.decoded) return false;
        if (!llama_memory_seq_rm(memory_, s.id, first, -1)) return false;
        // A cache of a sliding window may have lost what the window reaches back to.
        llama_pos const window = llama_model_n_swa(model_);
        return window == 0 || llama_memory_seq_pos_min(memory_, s.id) <= std::max(first - window, llama_pos{0});
    }
    void save(sequence& s) const {
        if (s.held.empty() || s.saved_at == s.held.size()) return;
        s.saved.resize(llama_state_seq_get_size_ext(context_, s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY));
        std::size_t const written = llama_state_seq_get_data_ext(context_, s.saved.data(), s.saved.size(), s.id,
                                                                 LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
        s.saved_at = written == s.saved.size() ? s.held.size() : 0;
    }
    [[nodiscard]] bool restore(sequence const& s) const {
        return llama_state_seq_set_data_ext(context_, s.saved.data(), s.saved.size(), s.id,
                                            LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) != 0 &&
               llama_memory_seq_rm(memory_, s.id, static_cast<llama_pos>(s.saved_at), -1);
    }
    void remove_all(std::size_t slot) {
        sequence& s = sequences_[slot];
        llama_memory_seq_rm(memory_, s.id, -1, -1);
        s.held.clear();
        s.saved_at = 0;
        s.paths.keep(0);
        if (features_ != nullptr) features_->truncate(slot, 0);
    }
    [[nodiscard]] bool too_long() const {
        auto const most = static_cast<llama_pos>(llama_n_ctx_seq(context_));
        return std::any_of(positions_.begin(), positions_.end(), [&](llama_pos p) { return p >= most; });
    }
    [[nodiscard]] int call() {
        if (features_ != nullptr) features_->begin(tokens_.size());
        ++passes_;
        pass_ = counter_->begin();
        return llama_decode(context_, {.n_tokens = static_cast<std::int32_t>(tokens_.size()),
                                       .token = tokens_.data(),
                                       .embd = nullptr,
                                       .pos = positions_.data(),
                                       .n_seq_id = id_counts_.data(),
                                       .seq_id = ids_.data(),
                                       .logits = outputs_.data()});
    }
    /// Requests that take no part in this round give up their room: their tokens can be decoded again. False: nobody
    /// did. A prompt that is decoded between rounds pushes nobody out.
    [[nodiscard]] bool make_room() {
        bool any = false;
        for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
            bool const stays = sequences_[slot].round == round_ || sequences_[slot].held.empty();
            if (stays || sequences_[slots_.front()].round != round_) continue;
            remove_all(slot);
            any = true;
        }
        return any;
    }
    void clear() noexcept {
        for (std::size_t const slot : slots_) sequences_[slot].added = 0;
        tokens_.clear();
        slots_.clear();
        positions_.clear();
        ids_.clear();
        id_counts_.clear();
        outputs_.clear();
    }

    llama_context* context_;
    llama_memory_t memory_;
    llama_model const* model_;
    llama_features* features_;
    std::shared_ptr<pass_counter> counter_;
    std::size_t most_tokens_;
    bool keeps_states_ = false;  // recurrent or hybrid
    std::size_t window_ = 0;     // tokens that can be removed from the end of a sequence
    std::uint64_t passes_ = 0;
    pass_stamp pass_{};  // the last one
    std::uint64_t round_ = 0;
    std::vector<sequence> sequences_;
    // The batch.
    std::vector<llama_token> tokens_;
    std::vector<std::size_t> slots_;
    std::vector<llama_pos> positions_;
    std::vector<llama_seq_id*> ids_;
    std::vector<std::int32_t> id_counts_;
    std::vector<std::int8_t> outputs_;
};

}  // namespace detail

SURELEAP_END_NAMESPACE
