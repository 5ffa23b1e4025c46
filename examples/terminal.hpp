// SPDX-License-Identifier: MIT
//
// What the examples print alike, for a terminal of 100 columns. They share nothing else: this header stands for itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <unistd.h>

namespace terminal {

inline constexpr std::size_t columns = 100;

/// Columns of an ASCII text. What sets colours takes none.
[[nodiscard]] inline std::size_t width_of(std::string_view text) {
    std::size_t width = 0;
    bool escaped = false;
    for (char const c : text) {
        escaped = escaped || c == '\x1b';
        if (!escaped) ++width;
        escaped = escaped && c != 'm';
    }
    return width;
}

/// A heading with a rule to the right margin.
inline void print_heading(std::string_view heading) {
    std::size_t const width = width_of(heading);
    std::string const rule(columns > width + 1 ? columns - width - 1 : 0, '-');
    std::printf("\n%.*s %s\n", static_cast<int>(heading.size()), heading.data(), rule.c_str());
}

/// 1234567 as "1,234,567".
[[nodiscard]] inline std::string grouped(std::uint64_t n) {
    std::string const digits = std::to_string(n);
    std::string shown;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % 3 == 0) shown.push_back(',');
        shown.push_back(digits[i]);
    }
    return shown;
}

/// As many of nine significant digits as it takes: 0.7 as "0.7", 1e-9 as "1e-09".
[[nodiscard]] inline std::string plain(double x) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.9g", x);
    return text.data();
}

// ---- colours -----------------------------------------------------------------------------------------------------

/// Whether to write colours: to a terminal that knows them, unless the user refuses. `no_color` and `term` are
/// environment variables, null if not set. NO_COLOR refuses whatever it is set to, but for an empty text
/// (https://no-color.org).
[[nodiscard]] inline bool wants_colours(bool is_terminal, char const* no_color, char const* term) {
    bool const refused = no_color != nullptr && *no_color != '\0';
    return is_terminal && !refused && term != nullptr && std::string_view(term) != "dumb";
}
[[nodiscard]] inline bool wants_colours(int descriptor) {
    return wants_colours(::isatty(descriptor) == 1, std::getenv("NO_COLOR"), std::getenv("TERM"));
}

/// Those that most terminals show readably on light and on dark.
enum class colour : std::uint8_t { none = 0, faint = 2, green = 32, magenta = 35 };

/// The text in a colour, which ends with it: a program that is interrupted leaves the terminal as it was.
[[nodiscard]] inline std::string in_colour(colour which, std::string const& text) {
    if (which == colour::none || text.empty()) return text;
    return "\x1b[" + std::to_string(static_cast<int>(which)) + "m" + text + "\x1b[0m";
}

}  // namespace terminal
