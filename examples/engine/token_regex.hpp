// SPDX-License-Identifier: MIT
//
// Texts that match a regular expression, token by token: a matcher for sureleap::constraint.
//
//     token_regex const dates{"\\d{4}-\\d\\d-\\d\\d", tokenizer, vocabulary, stop_tokens};
//     sureleap::constraint const one{dates.begin()};
//     server.submit(prompt, {.stop_tokens = stop_tokens, .constraint = one});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/token_mask.hpp>
#include <sureleap/core/types.hpp>

#include "text/byte_automaton.hpp"
#include "tokenizer.hpp"

namespace engine {

/// What all texts of an expression share: the automaton, and the mask of each state that some text came to. A mask
/// takes a walk over the bytes of every token, once. Threads can share one. The tokenizer must outlive it.
class token_regex {
    using state = text::byte_automaton::state;
    struct shared {
        std::mutex busy;
        text::byte_automaton automaton;
        std::vector<std::string_view> pieces;
        std::vector<token_id> stop_tokens;
        std::unordered_map<state, std::vector<std::uint32_t>> masks;

        explicit shared(std::string_view pattern) : automaton(pattern) {}
    };

public:
    /// A text may end, with a stop token, where it matches. Special tokens and ids without bytes are never allowed.
    /// Error: what is no expression; no stop tokens, as texts could not end.
    token_regex(std::string_view pattern, tokenizer const& tokens, std::size_t vocabulary,
                std::span<token_id const> stop_tokens)
        : shared_(std::make_shared<shared>(pattern)) {
        if (stop_tokens.empty()) sureleap::fail_with("token_regex: there are no stop tokens, expected one to end with");
        shared_->stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
        for (std::size_t v = 0; v < vocabulary; ++v) {
            auto const x = static_cast<token_id>(v);
            shared_->pieces.push_back(tokens.is_special(x) ? std::string_view{} : tokens.bytes_of(x));
        }
    }

    /// Models sureleap::token_matcher. A text's place in the expression.
    class matcher {
    public:
        [[nodiscard]] sureleap::token_mask mask() const {
            std::lock_guard const lock{all_->busy};
            auto& words = all_->masks[path_.back()];
            if (words.empty()) words = mask_of(path_.back());
            return sureleap::token_mask{std::span<std::uint32_t const>(words)};
        }
        [[nodiscard]] bool accept(token_id x) {
            auto const v = static_cast<std::size_t>(x);
            if (x < 0 || v >= all_->pieces.size() || all_->pieces[v].empty()) return false;
            std::lock_guard const lock{all_->busy};
            state const to = all_->automaton.next(path_.back(), all_->pieces[v]);
            if (to == text::byte_automaton::dead) return false;
            path_.push_back(to);
            return true;
        }
        void rollback(std::size_t n) { path_.resize(path_.size() - n); }
        /// The text so far matches.
        [[nodiscard]] bool may_end() const {
            std::lock_guard const lock{all_->busy};
            return all_->automaton.accepts(path_.back());
        }

    private:
        friend class token_regex;
        explicit matcher(std::shared_ptr<shared> all) : all_(std::move(all)) {}

        [[nodiscard]] std::vector<std::uint32_t> mask_of(state from) const {
            std::vector<std::uint32_t> words(sureleap::mask_words(all_->pieces.size()));
            auto const allow = [&](std::size_t v) { words[v / 32] |= 1u << v % 32; };
            for (std::size_t v = 0; v < all_->pieces.size(); ++v) {
                std::string_view const bytes = all_->pieces[v];
                if (!bytes.empty() && all_->automaton.next(from, bytes) != text::byte_automaton::dead) allow(v);
            }
            if (all_->automaton.accepts(from)) {
                for (token_id const x : all_->stop_tokens) allow(static_cast<std::size_t>(x));
            }
            return words;
        }

        std::shared_ptr<shared> all_;
        std::vector<state> path_{text::byte_automaton::start};
    };

    [[nodiscard]] matcher begin() const { return matcher{shared_}; }

private:
    std::shared_ptr<shared> shared_;
};

}  // namespace engine
