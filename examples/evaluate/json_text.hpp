// SPDX-License-Identifier: MIT
//
// JSON that people can read and version control can compare: lists of numbers on one line, everything else indented.
// nlohmann/json can do either, for a whole document.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

namespace evaluate {

inline void append_json(std::string& text, nlohmann::ordered_json const& value, std::size_t depth) {
    using nlohmann::ordered_json;
    // Names of folders are whatever the file system takes, JSON is UTF-8.
    auto const dumped = [](ordered_json const& x) {
        return x.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    };
    bool const flat = std::none_of(value.begin(), value.end(), [](ordered_json const& x) { return x.is_structured(); });
    if (!value.is_structured() || value.empty() || (value.is_array() && flat)) {
        text += dumped(value);
        return;
    }
    std::string const indent(depth + 1, ' ');
    text += value.is_array() ? "[" : "{";
    bool first = true;
    for (auto const& item : value.items()) {
        text += (first ? "\n" : ",\n") + indent;
        first = false;
        if (value.is_object()) text += dumped(item.key()) + ": ";
        append_json(text, item.value(), depth + 1);
    }
    text += "\n" + std::string(depth, ' ') + (value.is_array() ? "]" : "}");
}

[[nodiscard]] inline std::string json_text(nlohmann::ordered_json const& value) {
    std::string text;
    append_json(text, value, 0);
    return text + "\n";
}

}  // namespace evaluate
