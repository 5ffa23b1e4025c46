// SPDX-License-Identifier: MIT
//
// What the examples print alike, for a terminal of 100 columns. They share nothing else: this header stands for itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace terminal {

inline constexpr std::size_t columns = 100;

/// A heading with a rule to the right margin.
inline void print_heading(std::string_view heading) {
    std::string const rule(columns > heading.size() + 1 ? columns - heading.size() - 1 : 0, '-');
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

}  // namespace terminal
