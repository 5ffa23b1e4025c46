// SPDX-License-Identifier: MIT
//
// The text of a set-up error, for tests that check what it says.
#pragma once

#include <initializer_list>
#include <string>

#include <sureleap/core/error.hpp>

namespace support {

/// What sureleap::error says when `f` runs; empty if nothing is thrown. Anything else propagates.
template <class F>
[[nodiscard]] std::string error_text(F&& f) {
    try {
        f();
    } catch (sureleap::error const& e) {
        return e.what();
    }
    return {};
}

/// The part occurs in the text; all parts do.
[[nodiscard]] inline bool says(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}
[[nodiscard]] inline bool says(std::string const& text, std::initializer_list<char const*> parts) {
    for (char const* const part : parts) {
        if (!says(text, std::string(part))) return false;
    }
    return true;
}

}  // namespace support
