// SPDX-License-Identifier: MIT
//
// What was said in a conversation, as prompts that fit the context.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <engine/chat.hpp>
#include <engine/tokenizer.hpp>
#include <sureleap/core/error.hpp>

namespace generate {

/// A prompt holds all turns that have room. Where they have none, the oldest questions are forgotten with their
/// answers: the system's text and the latest turns count most for the next answer.
class conversation {
public:
    /// `room` is the largest prompt in tokens. The tokenizer must outlive the conversation.
    conversation(engine::tokenizer const& tokens, engine::chat_template format, std::size_t room, bool thinking)
        : tokens_(tokens), format_(std::move(format)), room_(room), thinking_(thinking) {}

    /// The prompt for the answer to a question. Throws if the question alone has no room; it is then as if it had not
    /// been asked.
    [[nodiscard]] std::vector<sureleap::token_id> ask(std::string question) {
        std::vector<engine::chat_turn> turns = turns_;
        turns.push_back({engine::chat_role::user, std::move(question)});
        forgotten_ = 0;
        for (;;) {
            auto prompt = engine::chat_prompt(tokens_, turns, format_, thinking_);
            if (prompt.size() <= room_) {
                turns_ = std::move(turns);
                return prompt;
            }
            if (turns.size() == 1) {
                sureleap::fail_with("the question makes a prompt of ", prompt.size(), " tokens, expected at most ",
                                    room_, ": ask less at once, or give a larger --context");
            }
            turns.erase(turns.begin(), turns.begin() + 2);
            ++forgotten_;
        }
    }
    /// What was answered. Thoughts before it are left out, as templates leave them out of earlier turns.
    void answer(std::string_view text) {
        constexpr std::string_view end_of_thoughts = "</think>";
        if (auto const at = text.rfind(end_of_thoughts); at != text.npos) {
            text.remove_prefix(at + end_of_thoughts.size());
            text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
        }
        turns_.push_back({engine::chat_role::assistant, std::string(text)});
    }

    /// Questions that the last prompt had no more room for.
    [[nodiscard]] std::size_t forgotten() const noexcept { return forgotten_; }
    /// Questions and answers that the next prompt begins with, if they have room.
    [[nodiscard]] std::vector<engine::chat_turn> const& turns() const noexcept { return turns_; }

private:
    engine::tokenizer const& tokens_;
    engine::chat_template format_;
    std::size_t room_;
    bool thinking_;
    std::vector<engine::chat_turn> turns_;
    std::size_t forgotten_ = 0;
};

}  // namespace generate
