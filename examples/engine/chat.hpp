// SPDX-License-Identifier: MIT
//
// A conversation as ChatML models (Qwen3, SmolLM2) were trained to read it:
//
//   <|im_start|>system
//   ...<|im_end|>
//   <|im_start|>user
//   ...<|im_end|>
//   <|im_start|>assistant
//
//   chat_template const format = chat_template_of(file);                       // refuses what is not ChatML
//   auto prompt = chat_prompt(tokens, "Why is the sky blue?", format.default_system);
//   prompt = chat_prompt(
//       tokens, {{chat_role::user, "Hi"}, {chat_role::assistant, "Hello."}, {chat_role::user, "Why?"}}, format);
//
// The file's own template is a Jinja program, far more than turns need. The result is tokens, not a string: in a
// string, a user who writes <|im_end|> ends his turn and begins one of the system's. Texts are joined to the lines
// around them before they are encoded, as they were in training: the newline after "user" and newlines at the
// beginning of a text are one token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

#include "gguf/file.hpp"
#include "tokenizer.hpp"

namespace engine {

// ---- templates ---------------------------------------------------------------------------------------------------

/// What a ChatML template says beside the turns.
struct chat_template {
    std::string default_system;  ///< the system's text where a conversation has none; empty: no such turn
};

namespace detail {

/// The literal that a template writes between "<|im_start|>system" with a line end and "<|im_end|>", if the first such
/// place from `from` on is one. What is put together from variables is none. `from` moves behind the place.
[[nodiscard]] inline std::optional<std::string> next_system_literal(std::string_view jinja, std::size_t& from) {
    constexpr std::string_view opening = "<|im_start|>system";
    constexpr std::string_view closing = "<|im_end|>";
    std::size_t const begin = jinja.find(opening, from);
    if (begin == jinja.npos) {
        from = jinja.npos;
        return std::nullopt;
    }
    from = begin + opening.size();
    // Inside a string of Jinja, escapes count and its quote ends it. Outside, braces end what is taken as it stands.
    char const before = begin == 0 ? '\0' : jinja[begin - 1];
    bool const quoted = before == '\'' || before == '"';
    std::string text;
    for (std::size_t i = from; i < jinja.size(); ++i) {
        if (jinja.substr(i).starts_with(closing)) {
            bool const line_of_its_own = text.starts_with('\n');
            return line_of_its_own && text.size() > 1 ? std::optional(text.substr(1)) : std::nullopt;
        }
        if (quoted ? jinja[i] == before : jinja[i] == '{') break;
        if (!quoted || jinja[i] != '\\' || i + 1 == jinja.size()) {
            text += jinja[i];
            continue;
        }
        char const escaped = jinja[++i];
        if (escaped == 'n' || escaped == 't') {
            text += escaped == 'n' ? '\n' : '\t';
        } else if (escaped == '\\' || escaped == '\'' || escaped == '"') {
            text += escaped;
        } else {
            break;
        }
    }
    return std::nullopt;
}

}  // namespace detail

/// Recognises ChatML by the marks that such a template contains. `where` names the template in errors.
[[nodiscard]] inline chat_template parse_chat_template(std::string_view jinja, std::string const& where) {
    for (std::string_view const mark : {"<|im_start|>", "<|im_end|>", "<|im_start|>assistant"}) {
        if (jinja.find(mark) != jinja.npos) continue;
        sureleap::fail_with(where, ": the chat template is not ChatML: it does not have '", std::string(mark), "'");
    }
    chat_template found;
    for (std::size_t at = 0; at != jinja.npos;) {
        std::size_t const before = at;
        auto text = detail::next_system_literal(jinja, at);
        if (!text || *text == found.default_system) continue;
        if (!found.default_system.empty()) {
            sureleap::fail_with(where, ": the chat template has two texts for the system, the second after byte ",
                                before, ", expected one at most");
        }
        found.default_system = std::move(*text);
    }
    return found;
}

/// Of a file that has one.
[[nodiscard]] inline chat_template chat_template_of(gguf::file const& file) {
    gguf::field const field = file["tokenizer.chat_template"];
    return parse_chat_template(field.text(), field.where());
}

/// Whether the model was made for such prompts.
[[nodiscard]] inline bool has_chat_tokens(tokenizer const& tokens) {
    return tokens.id_of("<|im_start|>").has_value() && tokens.id_of("<|im_end|>").has_value();
}

// ---- prompts -----------------------------------------------------------------------------------------------------

enum class chat_role : std::uint8_t { system, user, assistant };

struct chat_turn {
    chat_role role;
    std::string text;
};

/// The prompt to which the model answers as the assistant, after these turns. A conversation that does not begin with
/// the system gets the template's default for it. Thoughts are no part of earlier answers: templates leave them out. A
/// model that can think aloud (Qwen3) does so only if asked. Otherwise it is given an empty thought, as its own
/// template does.
[[nodiscard]] inline std::vector<token_id> chat_prompt(tokenizer const& tokens, std::vector<chat_turn> const& turns,
                                                       chat_template const& format = {}, bool thinking = false) {
    if (turns.empty()) sureleap::fail_with("chat_prompt: the conversation has no turn, expected at least one");
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
    auto const name_of = [](chat_role role) {
        return role == chat_role::system ? "system" : role == chat_role::user ? "user" : "assistant";
    };
    bool const has_system = turns[0].role == chat_role::system;
    if (!has_system && !format.default_system.empty()) turn("system", format.default_system);
    for (chat_turn const& t : turns) turn(name_of(t.role), t.text);
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

/// Of one turn; an empty system text leaves its turn out.
[[nodiscard]] inline std::vector<token_id> chat_prompt(tokenizer const& tokens, std::string_view user,
                                                       std::string_view system = {}, bool thinking = false) {
    chat_turn const turn{chat_role::user, std::string(user)};
    return chat_prompt(tokens, std::vector{turn}, {std::string(system)}, thinking);
}

}  // namespace engine
