// SPDX-License-Identifier: MIT
//
// Tables for a terminal, or as Markdown.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <generate/numbers.hpp>

#include "ratios.hpp"

namespace evaluate {

using generate::counted;
using generate::fixed;
using generate::grouped;
using generate::in_bytes;
using generate::in_time;
using generate::rounded;

/// A number with so many decimals, or "-" if there is none.
[[nodiscard]] inline std::string shown(double x, int decimals) {
    return std::isnan(x) ? "-" : fixed(x, decimals);
}
/// "2.35 ±0.04": the second is half of a 95 % interval.
[[nodiscard]] inline std::string shown(statistic const& s, int decimals) {
    return shown(s.value(), decimals) + (std::isnan(s.margin()) ? "" : " ±" + fixed(s.margin(), decimals));
}
[[nodiscard]] inline std::string percent(double part, int decimals = 1) {
    return std::isnan(part) ? "-" : fixed(100 * part, decimals) + " %";
}

/// The first column holds names, the others numbers.
struct table {
    std::string title;
    std::vector<std::string> header;
    std::vector<std::vector<std::string>> rows{};
    std::vector<std::string> notes{};

    void add(std::vector<std::string> row) { rows.push_back(std::move(row)); }
};

/// Characters, not bytes: ± is two of the latter.
[[nodiscard]] inline std::size_t width_of(std::string const& text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

[[nodiscard]] inline std::string in_plain_text(table const& t) {
    std::vector<std::size_t> widths(t.header.size());
    auto const measure = [&](std::vector<std::string> const& row) {
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
    };
    measure(t.header);
    for (auto const& row : t.rows) measure(row);
    std::string text = "\n" + t.title + "\n\n";
    auto const line = [&](std::vector<std::string> const& row) {
        std::string cells = "    ";
        for (std::size_t i = 0; i < row.size(); ++i) {
            std::string const blanks(widths[i] - width_of(row[i]), ' ');
            cells += i == 0 ? row[i] + blanks : "   " + blanks + row[i];
        }
        text += cells.erase(cells.find_last_not_of(' ') + 1) + "\n";
    };
    line(t.header);
    for (auto const& row : t.rows) line(row);
    if (!t.notes.empty()) text += "\n";
    for (auto const& note : t.notes) text += "    " + note + "\n";
    return text;
}

[[nodiscard]] inline std::string in_markdown(table const& t) {
    std::string text = "\n" + t.title + "\n\n";
    auto const line = [&](std::vector<std::string> const& row) {
        for (auto const& cell : row) text += "| " + cell + " ";
        text += "|\n";
    };
    line(t.header);
    for (std::size_t i = 0; i < t.header.size(); ++i) text += i == 0 ? "|---" : "|--:";
    text += "|\n";
    for (auto const& row : t.rows) line(row);
    if (!t.notes.empty()) text += "\n";
    for (auto const& note : t.notes) text += note + "\n";
    return text;
}

inline void print(table const& t, bool markdown) {
    std::fputs((markdown ? in_markdown(t) : in_plain_text(t)).c_str(), stdout);
    std::fflush(stdout);
}

}  // namespace evaluate
