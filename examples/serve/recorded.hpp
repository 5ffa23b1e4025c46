// SPDX-License-Identifier: MIT
//
// Rounds of the reference engine, as evaluate writes them with --record: a JSON object a line,
//
//     {"text": 3, "position": 41, "confidences": [0.91, 0.8], "accepted": 1}
//
// position is that of the anchor; the block was verified in full.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <engine/json_field.hpp>
#include <engine/text_file.hpp>

#include "texts.hpp"

namespace serve {

/// Throws with source, line and field for what is none.
[[nodiscard]] inline std::vector<recorded_round> parse_recorded(std::string_view text, std::string const& source) {
    std::vector<recorded_round> all;
    for (std::size_t number = 1; !text.empty(); ++number) {
        std::size_t const end = std::min(text.find('\n'), text.size());
        std::string_view const line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
        std::string const where = source + ", line " + std::to_string(number);
        auto const document = engine::parse_json_object(line, where);
        engine::json_field const root(document, where);
        recorded_round round;
        constexpr std::size_t many = std::size_t{1} << 40;
        round.text = root["text"].size(0, many);
        round.position = root["position"].size(0, many);
        round.accepted = root["accepted"].size(0, 64);
        root["confidences"].each([&](engine::json_field const& c) { round.confidences.push_back(c.number()); });
        if (!round.confidences.empty()) all.push_back(std::move(round));  // a plain step drafts nothing
    }
    return all;
}

[[nodiscard]] inline std::vector<recorded_round> read_recorded(std::filesystem::path const& file) {
    return parse_recorded(engine::read_text(file), file.string());
}

}  // namespace serve
