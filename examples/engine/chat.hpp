// SPDX-License-Identifier: MIT
//
// A chat turn as Qwen3 was trained to read it (ChatML):
//
//   <|im_start|>system
//   ...<|im_end|>
//   <|im_start|>user
//   ...<|im_end|>
//   <|im_start|>assistant
//
// The file's own template is a Jinja program, far more than a turn needs. The result is tokens, not a string: in a
// string, a user who writes <|im_end|> ends his turn and begins one of the system's. Texts are joined to the lines
// around them before they are encoded, as they were in training: the newline after "user" and newlines at the
// beginning of a text are one token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

#include "tokenizer.hpp"

namespace engine {

/// Whether the model was made for such prompts.
[[nodiscard]] inline bool has_chat_tokens(tokenizer const& tokens) {
    return tokens.id_of("<|im_start|>").has_value() && tokens.id_of("<|im_end|>").has_value();
}

/// The prompt to which the model answers as the assistant; an empty system text leaves its turn out. A model that can
/// think aloud (Qwen3) does so only if asked: otherwise it is given an empty thought, as its own template does.
[[nodiscard]] inline std::vector<token_id> chat_prompt(tokenizer const& tokens, std::string_view user,
                                                       std::string_view system = {}, bool thinking = false) {
    std::vector<token_id> prompt;
    auto const special = [&](std::string_view name) {
        auto const id = tokens.id_of(name);
        if (!id) sureleap::fail_with("chat_prompt: the tokenizer has no '", std::string(name), "'");
        prompt.push_back(*id);
    };
    auto const plain = [&](std::string const& text) {
        auto const ids = tokens.encode(text, {.parse_special = false, .add_special = false});
        prompt.insert(prompt.end(), ids.begin(), ids.end());
    };
    auto const turn = [&](std::string const& role, std::string_view text) {
        special("<|im_start|>");
        plain(role + "\n" + std::string(text));
        special("<|im_end|>");
        plain("\n");
    };
    if (!system.empty()) turn("system", system);
    turn("user", user);
    special("<|im_start|>");
    plain("assistant\n");
    if (!thinking && tokens.id_of("<think>") && tokens.id_of("</think>")) {
        special("<think>");
        plain("\n\n");
        special("</think>");
        plain("\n\n");
    }
    return prompt;
}

}  // namespace engine
