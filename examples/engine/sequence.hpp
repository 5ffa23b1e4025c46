// SPDX-License-Identifier: MIT
//
// A request of the server from its prompt to its last token.
//
// The last prompt token is the first anchor: it goes through the target in the first round's batch. So a prompt is done
// with prefilling when all tokens but that one are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/types.hpp>

namespace engine {

using sureleap::request_id;
using sureleap::request_settings;
using sureleap::request_view;
using sureleap::token_id;

class sequence {
public:
    sequence(request_id id, std::vector<token_id> prompt, request_settings const& settings)
        : id_(id),
          seed_(settings.seed ? *settings.seed : id),
          prompt_size_(prompt.size()),
          tokens_(std::move(prompt)),
          stop_tokens_(settings.stop_tokens.begin(), settings.stop_tokens.end()),
          settings_(settings) {
        tokens_.reserve(prompt_size_ + settings.max_new_tokens);
    }

    /// Views into the sequence, made where it stays: call it when it has come there.
    void settle() {
        settings_.stop_tokens = stop_tokens_;
        plain_settings_ = settings_;
        plain_settings_.max_draft_tokens = 0;
    }

    [[nodiscard]] request_id id() const noexcept { return id_; }
    [[nodiscard]] std::size_t prefilled() const noexcept { return prefilled_; }
    [[nodiscard]] bool decodes() const noexcept { return prefilled_ + 1 == prompt_size_; }
    [[nodiscard]] std::size_t generated() const noexcept { return tokens_.size() - prompt_size_; }
    /// Prompt and output.
    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return tokens_; }
    /// Prompt tokens that prefilling has left.
    [[nodiscard]] std::size_t left_to_prefill() const noexcept { return prompt_size_ - 1 - prefilled_; }

    /// At most so many draft tokens a round from now on.
    void limit_drafts(std::size_t most) noexcept { draft_limit_ = most; }
    /// It was told to leave, and has to take part in one more round.
    void leave() noexcept { leaves_ = true; }
    [[nodiscard]] bool leaves() const noexcept { return leaves_; }

    void was_prefilled(std::size_t count) noexcept { prefilled_ += count; }
    void append(std::span<token_id const> emitted) { tokens_.insert(tokens_.end(), emitted.begin(), emitted.end()); }

    /// As the stages of a round see it; in a plain one it drafts nothing.
    [[nodiscard]] request_view view(std::size_t slot, bool plain) const noexcept {
        return {.id = id_,
                .slot = slot,
                .anchor = tokens_.back(),
                .position = tokens_.size() - 1,
                .context = tokens_,
                .seed = seed_,
                .remaining = settings_.max_new_tokens - generated(),
                .settings = plain ? &plain_settings_ : &settings_,
                .draft_limit = draft_limit_};
    }

private:
    request_id id_;
    std::uint64_t seed_;
    std::size_t prompt_size_;
    std::size_t prefilled_ = 0;
    bool leaves_ = false;
    std::size_t draft_limit_ = static_cast<std::size_t>(-1);
    std::vector<token_id> tokens_;
    std::vector<token_id> stop_tokens_;
    request_settings settings_;
    request_settings plain_settings_;
};

}  // namespace engine
