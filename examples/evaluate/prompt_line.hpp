// SPDX-License-Identifier: MIT
//
// One line of a prompt file. Sets of prompts on the net agree on JSON lines and on little else, so the names that are
// in use are tried in turn; a line that has none of them is an error, since a domain with prompts missing would still
// give a number.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <sureleap/error.hpp>
#include <sureleap/types.hpp>

namespace evaluate {

struct prompt_line {
    std::optional<std::string> domain;
    std::string text;
    std::vector<sureleap::token_id> tokens;  ///< instead of a text
    bool bare = false;                       ///< a question, which a template may go around
};

/// `where` names the line in errors.
[[nodiscard]] inline prompt_line parse_prompt_line(std::string_view line, std::string const& where) {
    using nlohmann::json;
    using sureleap::detail::fail_with;
    json const root = json::parse(line, nullptr, false);
    if (!root.is_object()) fail_with(where, ": not a JSON object, expected one in every line");
    auto const text_of = [&](json const& value, char const* name) {
        if (!value.is_string() || value.get_ref<std::string const&>().empty()) {
            fail_with(where, ": field '", name, "' is ", value.is_string() ? "empty" : value.type_name(),
                      ", expected a text");
        }
        return value.get<std::string>();
    };
    prompt_line out;
    if (auto const it = root.find("domain"); it != root.end()) out.domain = text_of(*it, "domain");
    if (auto const it = root.find("prompt"); it != root.end()) {
        out.text = text_of(*it, "prompt");
    } else if (auto const q = root.find("question"); q != root.end()) {
        out.text = text_of(*q, "question");
        out.bare = true;
    } else if (auto const t = root.find("turns"); t != root.end()) {
        if (!t->is_array() || t->empty())
            fail_with(where, ": field 'turns' is no list of texts, expected at least one");
        out.text = text_of(t->front(), "turns[0]");
        out.bare = true;
    } else if (auto const ids = root.find("tokens"); ids != root.end()) {
        if (!ids->is_array() || ids->empty()) fail_with(where, ": field 'tokens' is no list of ids, expected some");
        for (std::size_t i = 0; i < ids->size(); ++i) {
            json const& id = (*ids)[i];
            if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0x7fffffffu) {
                fail_with(where, ": field 'tokens[", i, "]' is ", id.dump(), ", expected a token id");
            }
            out.tokens.push_back(id.get<sureleap::token_id>());
        }
    } else {
        fail_with(where, ": none of the fields 'prompt', 'question', 'turns' and 'tokens', expected one of them");
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
