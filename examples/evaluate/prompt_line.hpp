// SPDX-License-Identifier: MIT
//
// One line of a prompt file. Sets of prompts on the net agree on JSON lines and on little else, so the names that are
// in use are tried in turn; a line that has none of them is an error, since a domain with prompts missing would still
// give a number.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <engine/chat.hpp>
#include <engine/json_field.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

namespace evaluate {

struct prompt_line {
    std::optional<std::string> domain;
    std::string text;
    std::vector<sureleap::token_id> tokens;  ///< instead of a text
    std::vector<engine::chat_turn> turns;    ///< instead of a text: a conversation that the model is to answer
    bool bare = false;                       ///< a question, which a template may go around
};

namespace detail {

[[nodiscard]] inline engine::chat_role role_of(engine::json_field const& role) {
    if (role.text() == "system") return engine::chat_role::system;
    if (role.text() == "user") return engine::chat_role::user;
    if (role.text() == "assistant") return engine::chat_role::assistant;
    role.wrong("system, user or assistant");
}

}  // namespace detail

/// `where` names the line in errors.
[[nodiscard]] inline prompt_line parse_prompt_line(std::string_view line, std::string const& where) {
    auto const document = engine::parse_json_object(line, where);
    engine::json_field const root(document, where);
    auto const text_of = [](engine::json_field const& field) {
        if (field.text().empty()) field.wrong("some text");
        return field.text();
    };
    prompt_line out;
    if (auto const domain = root["domain"]; domain.exists()) out.domain = text_of(domain);
    if (auto const messages = root["messages"]; messages.exists()) {
        messages.each([&](engine::json_field const& m) {
            out.turns.push_back({detail::role_of(m["role"]), text_of(m["content"])});
        });
        if (out.turns.empty() || out.turns.back().role != engine::chat_role::user) {
            messages.wrong("turns of which the user has the last");
        }
    } else if (auto const prompt = root["prompt"]; prompt.exists()) {
        out.text = text_of(prompt);
    } else if (auto const question = root["question"]; question.exists()) {
        out.text = text_of(question);
        out.bare = true;
    } else if (auto const turns = root["turns"]; turns.exists()) {
        if (turns.list_size() == 0) turns.wrong("at least one text");
        out.text = text_of(turns[0]);
        out.bare = true;
    } else if (auto const ids = root["tokens"]; ids.exists()) {
        if (ids.list_size() == 0) ids.wrong("at least one id");
        for (std::size_t i = 0; i < ids.list_size(); ++i) {
            out.tokens.push_back(static_cast<sureleap::token_id>(ids[i].size(0, 0x7fffffff)));
        }
    } else {
        sureleap::fail_with(
            where,
            ": none of the fields 'messages', 'prompt', 'question', 'turns' and 'tokens', expected one of "
            "them");
    }
    return out;
}

/// The text with every {} of the template replaced by it.
[[nodiscard]] inline std::string fill_template(std::string_view pattern, std::string_view text) {
    std::string filled;
    for (std::size_t at = 0; at < pattern.size();) {
        bool const slot = pattern.substr(at, 2) == "{}";
        filled += slot ? text : pattern.substr(at, 1);
        at += slot ? 2 : 1;
    }
    return filled;
}

}  // namespace evaluate
