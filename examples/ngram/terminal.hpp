// SPDX-License-Identifier: MIT
//
// What the n-gram example needs to be read in a terminal of 100 columns: any bytes, safely and in lines.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "../terminal.hpp"

namespace ngram {

using terminal::columns;
using terminal::grouped;
using terminal::print_heading;

/// Bytes as they can be shown. Line ends, printable ASCII and characters that look like UTF-8 stay; everything else
/// becomes "?", so that any file is safe to show and a byte model may break a character in the middle.
[[nodiscard]] inline std::string printable(std::string_view bytes) {
    std::string shown;
    auto const at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u; };
    for (std::size_t i = 0; i < bytes.size();) {
        unsigned const lead = at(i);
        std::size_t const size = lead < 0x80   ? 1
                                 : lead < 0xc2 ? 0
                                 : lead < 0xe0 ? 2
                                 : lead < 0xf0 ? 3
                                 : lead < 0xf5 ? 4
                                               : 0;
        bool whole = size > 1 || (lead >= ' ' && lead <= '~') || lead == '\n';
        for (std::size_t k = 1; k < size; ++k) whole = whole && at(i + k) >= 0x80 && at(i + k) < 0xc0;
        if (lead == 0xc2 && at(i + 1) < 0xa0) whole = false;  // control characters beyond ASCII
        if (whole)
            shown.append(bytes.substr(i, size));
        else
            shown.push_back('?');
        i += whole ? size : 1;
    }
    return shown;
}

/// The same in quotes on a single line.
[[nodiscard]] inline std::string quoted(std::string_view bytes) {
    std::string shown = "\"";
    for (char const c : printable(bytes)) {
        if (c == '\n')
            shown.append("\\n");
        else
            shown.push_back(c);
    }
    shown.push_back('"');
    return shown;
}

/// Prints `text` broken at spaces, every line after `margin`. Its own line ends are kept, its empty lines are not.
/// Columns are counted in bytes.
inline void print_wrapped(std::string_view text, std::string_view margin) {
    std::size_t const width = columns - margin.size();
    std::string const shown = printable(text);
    std::string_view rest = shown;
    while (!rest.empty()) {
        std::size_t const end = rest.find('\n');
        std::string_view line = rest.substr(0, end);
        rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
        while (!line.empty()) {
            std::size_t cut = line.size();
            if (cut > width) {
                cut = line.rfind(' ', width);
                if (cut == line.npos || cut == 0) cut = width;
            }
            std::printf("%.*s%.*s\n", static_cast<int>(margin.size()), margin.data(), static_cast<int>(cut),
                        line.data());
            line.remove_prefix(cut);
            while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
        }
    }
}

}  // namespace ngram
