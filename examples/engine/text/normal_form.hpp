// SPDX-License-Identifier: MIT
//
// Unicode normalisation by utf8proc to one of the four standard forms (UAX #15). Then "e" with a combining accent and
// the one character "é" become the same tokens.
//
// utf8proc_map would do it in one call, but it sorts combining marks by exchanging neighbours: quadratic in the length
// of a run of marks, and a prompt can consist of nothing else. The parts it is made of are public, so the sorting is
// done here, between its decomposition and its composition.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <utf8proc.h>

#include <sureleap/core/error.hpp>

namespace engine::text {

enum class normal_form : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// The marks between two starters (combining class 0) stand in the order of their classes; equal ones keep theirs.
inline void sort_marks(std::vector<utf8proc_int32_t>& characters) {
    auto const class_of = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    auto const is_starter = [&](utf8proc_int32_t c) { return class_of(c) == 0; };
    std::vector<std::tuple<int, std::size_t, utf8proc_int32_t>> marks;  // class, place, character
    for (auto run = characters.begin(); run != characters.end();) {
        run = std::find_if_not(run, characters.end(), is_starter);
        auto const end = std::find_if(run, characters.end(), is_starter);
        marks.clear();
        for (auto mark = run; mark != end; ++mark) marks.emplace_back(class_of(*mark), marks.size(), *mark);
        std::sort(marks.begin(), marks.end());
        for (auto const& mark : marks) *run++ = std::get<2>(mark);
    }
}

/// Of valid UTF-8.
[[nodiscard]] inline std::string normalized(std::string_view text, normal_form form) {
    auto const ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (std::all_of(text.begin(), text.end(), ascii)) return std::string(text);

    bool const composed = form == normal_form::nfc || form == normal_form::nfkc;
    bool const compatible = form == normal_form::nfkc || form == normal_form::nfkd;
    auto const options = static_cast<utf8proc_option_t>(
        UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0));
    std::vector<utf8proc_int32_t> characters;
    characters.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        utf8proc_int32_t character = 0;
        std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18 (U+FDFA)
        auto const bytes = utf8proc_iterate(reinterpret_cast<utf8proc_uint8_t const*>(text.data()) + i,
                                            static_cast<utf8proc_ssize_t>(text.size() - i), &character);
        auto const count = utf8proc_decompose_char(character, parts.data(), parts.size(), options, nullptr);
        if (bytes <= 0 || count < 0 || static_cast<std::size_t>(count) > parts.size()) {
            sureleap::fail_with("normalisation: byte ", i, " of a text is no character that utf8proc knows");
        }
        characters.insert(characters.end(), parts.begin(), parts.begin() + count);
        i += static_cast<std::size_t>(bytes);
    }

    sort_marks(characters);
    auto const count =
        utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), options);
    std::string out;
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
        std::array<utf8proc_uint8_t, 4> bytes{};
        auto const size = utf8proc_encode_char(characters[static_cast<std::size_t>(i)], bytes.data());
        out.append(reinterpret_cast<char const*>(bytes.data()), static_cast<std::size_t>(size));
    }
    return out;
}

}  // namespace engine::text
