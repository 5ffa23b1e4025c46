// SPDX-License-Identifier: MIT
//
// Numbers as people read them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include <terminal.hpp>

namespace generate {

using terminal::grouped;

/// "1 token", "2 tokens".
[[nodiscard]] inline std::string counted(std::uint64_t n, std::string const& thing) {
    return grouped(n) + " " + thing + (n == 1 ? "" : "s");
}

[[nodiscard]] inline std::string fixed(double x, int decimals) {
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), "%.*f", decimals, x);
    return text.data();
}

/// Three significant digits: "0.123", "1.23", "12.3", "123", "1230".
[[nodiscard]] inline std::string rounded(double x) {
    return fixed(x, x < 0.9995 ? 3 : x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
}

/// 8044936192 as "8.04 GB".
[[nodiscard]] inline std::string in_bytes(std::size_t n) {
    auto const x = static_cast<double>(n);
    return x >= 999.5e6   ? rounded(x / 1e9) + " GB"
           : x >= 999.5e3 ? rounded(x / 1e6) + " MB"
           : x >= 999.5   ? rounded(x / 1e3) + " kB"
                          : grouped(n) + " B";
}

/// 0.0123 as "12.3 ms".
[[nodiscard]] inline std::string in_time(double seconds) {
    return seconds >= 0.9995      ? rounded(seconds) + " s"
           : seconds >= 0.9995e-3 ? rounded(1e3 * seconds) + " ms"
                                  : rounded(1e6 * seconds) + " us";
}

}  // namespace generate
